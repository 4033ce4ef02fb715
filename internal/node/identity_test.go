package node

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
	if id, err := readIdentity(fs, dir); id != nil || err != nil {
		t.Fatalf("of an empty directory: %v, %v", id, err)
	}
	local := ident.Instance{Node: "a", Store: ident.StoreID{1}, Boot: 1}
	id := &identity{Node: "a", Store: local.Store, Cluster: ident.StoreID{2}, Joined: true, Authority: &authority{Certificate: "c", Key: "k"}}
	id.setPeers([]mesh.Peer{{Node: "a", Store: local.Store, Address: "h:1"}, {Node: "b", Store: ident.StoreID{3}, Address: "h:2"}})
	for range 2 { // also over one that is there
		if err := id.write(fs, dir); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readIdentity(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.is(local, dir); err != nil || !got.Joined || got.Cluster != id.Cluster || got.catalogAuthority().Key != "k" {
		t.Errorf("read back: %+v, %v", got, err)
	}
	if p := got.peers(); len(p) != 1 || p[0] != (mesh.Peer{Node: "b", Store: ident.StoreID{3}, Address: "h:2"}) {
		t.Errorf("peers: %+v", p)
	}
	for _, o := range []struct {
		local ident.Instance
		says  string
	}{{ident.Instance{Node: "b", Store: local.Store}, "--name a"}, {ident.Instance{Node: "a", Store: ident.StoreID{9}}, "copied from elsewhere"}} {
		if err := got.is(o.local, dir); !errors.Is(err, errIdentity) || !strings.Contains(err.Error(), o.says) {
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
		if err := replaceFile(fs, path.Join(dir, identityFolder, identityFile), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := readIdentity(fs, dir); !errors.Is(err, errIdentity) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What was written survives a crash in whichever state it leaves the files, and a write that fails leaves what was there.
func TestIdentitySurvivesCrashes(t *testing.T) {
	for how := range uint64(16) {
		fs := vfs.NewMemory(how)
		old := &identity{Node: "a", Store: ident.StoreID{1}}
		if err := old.write(fs, "d"); err != nil {
			t.Fatal(err)
		}
		fs.FailAfter(how%2 == 0, 0)
		next := *old
		next.Joined = true
		failed := next.write(fs, "d")
		if failed == nil {
			t.Fatal("nothing failed")
		}
		fs.Heal()
		fs.Crash(how)
		if got, err := readIdentity(fs, "d"); err != nil || got == nil || got.Joined {
			t.Fatalf("crash %d after a failure: %+v, %v", how, got, err)
		}
		if err := next.write(fs, "d"); err != nil {
			t.Fatal(err)
		}
		fs.Crash(how)
		if got, err := readIdentity(fs, "d"); err != nil || got == nil || !got.Joined {
			t.Fatalf("crash %d: %+v, %v", how, got, err)
		}
	}
}
