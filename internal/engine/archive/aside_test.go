package archive

import (
	"path"
	"testing"
	"time"
)

// What is put aside is counted at the start, with each end that is kept, and anew for who asks later: people take files away meanwhile.
func TestAsideIsCounted(t *testing.T) {
	w := newWorld(t, 1, 1)
	s := w.sites[0]
	if got := s.a.Aside(); got != (Aside{}) {
		t.Fatalf("of a new directory: %+v", got)
	}
	end := cutEnd(3, 100)
	s.a.Keep(end, func(bool) {})
	w.run()
	want := Aside{Ends: Pile{1, int64(len(appendEnd(nil, &end)))}}
	if got := s.a.Aside(); got != want {
		t.Fatalf("after an end was kept: %+v, want %+v", got, want)
	}
	for _, name := range []string{"catalog-1-00-7", "catalog-2-00-9.new", "notes"} {
		f, err := s.disk.Create(path.Join("data", asideFolder, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("12345"), 0); err != nil {
			t.Fatal(err)
		}
	}
	s.boot()
	want.Catalogs = Pile{1, 5}
	if got := s.a.Aside(); got != want {
		t.Fatalf("after a start: %+v, want %+v", got, want)
	}
	files, err := ends(s.disk, "data")
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := s.disk.Remove(path.Join("data", quarantineFolder, files[0].name)); err != nil {
		t.Fatal(err)
	}
	w.sim.RunFor(lookAgain - time.Millisecond)
	if s.a.Aside(); s.a.Aside() != want {
		t.Fatal("it was counted again at once")
	}
	w.sim.RunFor(time.Millisecond)
	s.a.Aside() // has it counted
	w.run()
	if got := s.a.Aside(); got != (Aside{Catalogs: Pile{1, 5}}) {
		t.Fatalf("after the file was taken away: %+v", got)
	}
}
