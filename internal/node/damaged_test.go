package node

import (
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
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

// copyOn is what a node says of its copy of the load's queue.
func (l *load) copyOn(i int) (got replica.Status) {
	part := l.assignment(i, l.name).Partition
	l.nodes[i].n.manager.Status([]ident.Partition{part}, func(list []replica.Status) {
		if len(list) == 1 {
			got = list[0]
		}
	})
	l.sim.RunFor(time.Millisecond)
	return got
}

// follows waits until a node's copy follows and holds what the load has sent.
func (l *load) follows(i int) {
	l.t.Helper()
	l.await("a copy that is made anew", func() bool {
		s := l.copyOn(i)
		return s.State == replica.Serving && s.Role == "follower" && s.Durable >= uint64(l.sent)
	})
}

// A follower's copy that is found damaged as its node starts is made anew from the owner's in its place, and counts again: nothing moves, and when the
// owner is lost after that, nothing that was confirmed is.
func TestADamagedCopyIsMadeAnewInItsPlace(t *testing.T) {
	l := newLoad(t, 23, catalog.Queue)
	l.u.publish(l.name, "needle in the log")
	l.sent++
	l.publishFor(time.Second)
	w, before := l.nodes[l.follower], l.assignment(0, l.name)
	l.kill(l.follower)
	w.breaks("needle in the log")
	l.restart(l.follower)
	l.await("the image", func() bool { return l.copyOn(l.follower).Role == "follower" })
	l.publishFor(time.Second)
	l.follows(l.follower)
	if a := l.assignment(0, l.name); a.Version != before.Version {
		t.Errorf("it was %+v, and is %+v", before, a)
	}
	l.restartsSound(l.follower)
	l.kill(0)
	l.await("another owner", func() bool { a := l.assignment(l.spare, l.name); return a.Epoch > 1 && a.Pending == nil })
	if got := l.nodes[l.spare].login(1).consume(l.name, l.sent); len(got) != l.sent {
		t.Errorf("%d of %d messages are left", len(got), l.sent)
	}
}

// restartsSound starts a node once more: what was lost before its copy was made anew is still in its files.
func (l *load) restartsSound(i int) {
	l.t.Helper()
	l.kill(i)
	l.restart(i)
	l.await("a start", func() bool { return l.nodes[i].n.Ready() == nil })
	l.follows(i)
}

// An owner that comes upon damage of its own copy, while it runs, gives that queue up: another owns it, and consumers get all there is; then the copy is
// made anew, as a follower's.
func TestARunningOwnerGivesUpWhatIsDamaged(t *testing.T) {
	l := newLoad(t, 24, catalog.Queue)
	for i, w := range l.nodes { // nothing is read from memory
		cfg := w.cfg
		w.cfg = func(c *Config) { cfg(c); c.Storage.CacheBytes = 1 }
		l.kill(i)
		l.restart(i)
		l.await("a start", func() bool { return l.nodes[i].n.Ready() == nil })
	}
	l.u = l.nodes[l.spare].login(0)
	l.u.publish(l.name, "needle in the log")
	for range 30 {
		l.u.publish(l.name, strings.Repeat("x", 100<<10))
	}
	small := l.sent + 1
	l.sent += 31
	l.await("an owner", func() bool { return l.assignment(l.spare, l.name).Pending == nil })
	before := l.assignment(l.spare, l.name)
	owner := l.index(before.Owner.Node)
	l.nodes[owner].breaks("needle in the log")
	different := map[string]bool{}
	for _, body := range l.u.consume(l.name, small+5) { // all small ones; of the large ones the client takes only so many at a time
		different[body] = true
	}
	if len(different) != small+1 || !different["needle in the log"] {
		t.Errorf("%d different messages were delivered, want %d", len(different), small+1)
	}
	after := l.assignment(l.spare, l.name)
	if after.Epoch != before.Epoch+1 || after.Owner.Node == before.Owner.Node || after.Pending != nil {
		t.Fatalf("it was %+v, and is %+v", before, after)
	}
	l.follows(owner)
	l.restartsSound(owner)
	if a := l.assignment(l.spare, l.name); a.Epoch != after.Epoch || len(a.Learners) > 0 {
		t.Errorf("it was %+v, and is %+v", after, a)
	}
}
