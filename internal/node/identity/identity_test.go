package identity

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/port/vfs"
)

func TestIdentityIsKept(t *testing.T) {
	fs := vfs.OS()
	dir := t.TempDir()
	if id, err := Read(fs, dir); id != nil || err != nil {
		t.Fatalf("of an empty directory: %v, %v", id, err)
	}
	local := ident.Instance{Node: "a", Store: ident.StoreID{1}, Boot: 1}
	id := &File{Node: "a", Store: local.Store, Cluster: ident.StoreID{2}, Joined: true, Authority: &Authority{Certificate: "c", Key: "k"}}
	id.SetPeers([]mesh.Peer{{Node: "a", Store: local.Store, Address: "h:1"}, {Node: "b", Store: ident.StoreID{3}, Address: "h:2"}})
	for range 2 { // also over one that is there
		if err := id.Write(fs, dir); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Is(local, dir); err != nil || !got.Joined || got.Cluster != id.Cluster || got.CatalogAuthority().Key != "k" {
		t.Errorf("read back: %+v, %v", got, err)
	}
	if p := got.MeshPeers(); len(p) != 1 || p[0] != (mesh.Peer{Node: "b", Store: ident.StoreID{3}, Address: "h:2"}) {
		t.Errorf("peers: %+v", p)
	}
	for _, o := range []struct {
		local ident.Instance
		says  string
	}{{ident.Instance{Node: "b", Store: local.Store}, "--name a"}, {ident.Instance{Node: "a", Store: ident.StoreID{9}}, "copied from elsewhere"}} {
		if err := got.Is(o.local, dir); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), o.says) {
			t.Errorf("for %v: %v", o.local, err)
		}
	}
}

// What is not whole is told, with what to do, and never taken for a fresh directory.
func TestDamagedIdentityIsTold(t *testing.T) {
	for says, text := range map[string]string{
		"is damaged":       `{"format": 1, "cluster"`,
		"damaged":          ``,
		"a later one":      `{"format": 2}`,
		"from a backup":    `{}`,
		"move it away and": "\x00\x00\x00",
	} {
		fs := vfs.OS()
		dir := t.TempDir()
		if err := fs.MkdirAll(path.Join(dir, folder)); err != nil {
			t.Fatal(err)
		}
		if err := vfs.Replace(fs, Path(dir), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(fs, dir); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What was written survives a crash in whichever state it leaves the files, and a write that fails leaves what was there.
func TestIdentitySurvivesCrashes(t *testing.T) {
	for how := range uint64(16) {
		fs := vfs.NewMemory(how)
		old := &File{Node: "a", Store: ident.StoreID{1}}
		if err := old.Write(fs, "d"); err != nil {
			t.Fatal(err)
		}
		fs.FailAfter(how%2 == 0, 0)
		next := *old
		next.Joined = true
		failed := next.Write(fs, "d")
		if failed == nil {
			t.Fatal("nothing failed")
		}
		fs.Heal()
		fs.Crash(how)
		if got, err := Read(fs, "d"); err != nil || got == nil || got.Joined {
			t.Fatalf("crash %d after a failure: %+v, %v", how, got, err)
		}
		if err := next.Write(fs, "d"); err != nil {
			t.Fatal(err)
		}
		fs.Crash(how)
		if got, err := Read(fs, "d"); err != nil || got == nil || !got.Joined {
			t.Fatalf("crash %d: %+v, %v", how, got, err)
		}
	}
}
