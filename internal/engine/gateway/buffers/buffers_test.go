package buffers

import "testing"

func TestBuffersAreUsedAgain(t *testing.T) {
	var b Pool
	p := append(b.Get(100), "text"...)
	q := b.Grow(p, 50)
	if &q[0] != &p[0] || string(q) != "text" {
		t.Fatal("one with room was given up")
	}
	large := b.Grow(q, 3000)
	if string(large) != "text" || cap(large) < 3004 || cap(large) == cap(p) {
		t.Fatalf("%q with room for %d", large, cap(large))
	}
	if again := b.Get(1); len(again) != 0 || &again[:1][0] != &p[0] {
		t.Error("what it grew out of is not used again")
	}
	b.Put(large)
	if again := b.Get(cap(large)); len(again) != 0 || &again[:1][0] != &large[0] {
		t.Error("what was put back is not used again")
	}
	if got := b.Get(classes[len(classes)-1] + 1); cap(got) != classes[len(classes)-1]+1 {
		t.Errorf("one larger than all classes has room for %d", cap(got))
	}
}

func TestBuffersAreBounded(t *testing.T) {
	var b Pool
	for i, size := range classes {
		for range 2 * keep[i] {
			b.Put(make([]byte, 0, size))
		}
		b.Put(make([]byte, 0, size+1)) // of no class
	}
	for i := range classes {
		if len(b.free[i]) != keep[i] {
			t.Errorf("of %d bytes %d are kept, want %d", classes[i], len(b.free[i]), keep[i])
		}
	}
}
