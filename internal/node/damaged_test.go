package node

import (
	"bytes"
	"errors"
	"io"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/replica"
)

// breaks flips a bit of what a node that does not run has stored, in every place where that holds a text.
func (w *world) breaks(text string) {
	w.t.Helper()
	names, err := w.disk.List("data")
	if err != nil {
		w.t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		f, err := w.disk.Open(path.Join("data", name))
		if err != nil {
			continue // a folder
		}
		size, err := f.Size()
		if err != nil {
			w.t.Fatal(err)
		}
		p := make([]byte, size)
		if _, err := f.ReadAt(p, 0); err != nil && !errors.Is(err, io.EOF) {
			w.t.Fatal(err)
		}
		for at := bytes.Index(p, []byte(text)); at >= 0; at = bytes.Index(p, []byte(text)) {
			p[at] ^= 1
			found++
			if _, err := f.WriteAt(p[at:at+1], int64(at)); err != nil {
				w.t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	if found == 0 {
		w.t.Fatalf("%q is not stored", text)
	}
}

// A copy that is damaged counts for nothing, and nothing that is confirmed is lost by it. An operator drains its node: another takes its place, and
// what is damaged stays where it is.
func TestADamagedCopyGivesWayToAnotherNodes(t *testing.T) {
	l := newLoad(t, 23, catalog.Queue)
	l.u.publish(l.name, "needle in the log")
	l.sent++
	l.publishFor(time.Second)
	part := l.assignment(0, l.name).Partition
	w := l.nodes[l.follower]
	l.kill(l.follower)
	w.breaks("needle in the log")
	l.restart(l.follower)
	damaged := func() (reason string) {
		w.n.manager.Status([]ident.Partition{part}, func(list []replica.Status) {
			if len(list) == 1 && list[0].State == replica.Blocked {
				reason = list[0].Reason
			}
		})
		l.sim.RunFor(time.Millisecond)
		return reason
	}
	l.await("word of the damage", func() bool { return damaged() != "" })
	l.publishFor(time.Second)
	l.propose(0, catalog.DrainNode(w.name, w.n.Local().Store, true))
	l.await("another in its place", func() bool {
		return slices.Contains(l.followers(), l.nodes[l.spare].name) && !slices.Contains(l.followers(), w.name)
	})
	l.publishFor(12 * time.Second) // longer than a former copy is kept that is sound
	if damaged() == "" {
		t.Error("the damaged copy is gone")
	}
	l.kill(0)
	l.await("another owner", func() bool { a := l.assignment(l.spare, l.name); return a.Epoch > 1 && a.Pending == nil })
	if got := l.nodes[l.spare].login(1).consume(l.name, l.sent); len(got) != l.sent {
		t.Errorf("%d of %d messages are left", len(got), l.sent)
	}
}
