package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/stream"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/port/vfs"
)

// These tests are about losing a follower (design 2 §6), with four nodes, as publishers and the catalog see it.

// load is a queue or stream of three copies on four nodes, of which n1 is its owner, and one who publishes to it there.
type load struct {
	*cluster
	u        *user
	name     string
	follower int // the node of a copy that is to be lost
	spare    int // the node without one
	sent     int
	gap      time.Duration // the longest that a publish took
}

func newLoad(t *testing.T, seed uint64, kind catalog.Kind) *load {
	c := newCluster(t, seed, 4)
	c.await("three voters", func() bool { return c.voters(0) == 3 })
	c.propose(0, catalog.PutSetting(catalog.FollowerLossHold, "5s", 0))
	c.propose(0, catalog.PutSetting(catalog.Rebalance, "off", 0))
	c.sim.RunFor(2 * time.Second)
	q := durable("")
	q.Kind = kind
	l := &load{cluster: c, name: c.make(0, q)}
	l.u = c.nodes[0].login(0)
	l.follower = l.index(l.followers()[0])
	l.spare = slices.IndexFunc(c.nodes, func(w *world) bool {
		return w.name != "n1" && !slices.Contains(l.followers(), w.name)
	})
	l.publishFor(time.Second)
	return l
}

func (l *load) followers() (out []string) {
	for _, m := range l.assignment(0, l.name).Followers {
		out = append(out, m.Node)
	}
	return out
}

// publishFor publishes one message after another, for so long at least. Each must be confirmed.
func (l *load) publishFor(d time.Duration) {
	l.t.Helper()
	for end := l.sim.Now() + d; l.sim.Now() < end; {
		before := l.sim.Now()
		l.u.publish(l.name, fmt.Sprint("m", l.sent))
		l.sent++
		l.gap = max(l.gap, l.sim.Now()-before)
		l.sim.RunFor(10 * time.Millisecond)
	}
}

// whole checks that nothing is under way, that no epoch has changed, and that all copies that count are the same.
func (l *load) whole(what string, followers ...string) {
	l.t.Helper()
	a := l.assignment(0, l.name)
	slices.Sort(followers)
	if got := l.followers(); a.Epoch != 1 || a.Pending != nil || len(a.Learners)+len(a.Leaving) > 0 || !slices.Equal(slices.Sorted(slices.Values(got)), followers) {
		l.t.Fatalf("%s: %+v; want followers %v in epoch 1", what, a, followers)
	}
	for range 100 {
		of := map[string]uint64{}
		for _, node := range append([]string{"n1"}, followers...) {
			l.nodes[l.index(node)].n.manager.Status([]ident.Partition{a.Partition}, func(s []replica.Status) {
				if len(s) == 1 {
					of[node] = s[0].Durable
				}
			})
		}
		l.sim.RunFor(50 * time.Millisecond)
		if !slices.ContainsFunc(followers, func(f string) bool { return of[f] != of["n1"] || of[f] < uint64(l.sent) }) {
			return
		}
	}
	l.t.Fatalf("%s: the copies are not the same: %+v", what, l.copies(l.name))
}

func kinds(t *testing.T, f func(t *testing.T, kind catalog.Kind)) {
	for _, kind := range []catalog.Kind{catalog.Queue, catalog.Stream} {
		t.Run(string(kind), func(t *testing.T) { f(t, kind) })
	}
}

// TestALostFollowerIsReplacedUnderLoad: while the hold runs nothing moves; then the fourth node takes its place. No publish fails, none waits
// for any of it, no epoch changes; and when the owner is lost after that, nothing that was confirmed is.
func TestALostFollowerIsReplacedUnderLoad(t *testing.T) {
	kinds(t, func(t *testing.T, kind catalog.Kind) {
		l := newLoad(t, 11, kind)
		usual, version := l.gap, l.assignment(0, l.name).Version
		lost, spare := l.nodes[l.follower].name, l.nodes[l.spare].name
		other := slices.DeleteFunc(l.followers(), func(n string) bool { return n == lost })[0]
		l.kill(l.follower)
		l.publishFor(4500 * time.Millisecond)
		if a := l.assignment(0, l.name); a.Version != version {
			t.Fatalf("while its place is kept: %+v", a)
		}
		var held []control.Held
		l.nodes[0].n.View(func(v *catalog.View) { held = control.Holds(v, l.nodes[0].n.env.Clock.Wall().UnixMilli()) })
		held = slices.DeleteFunc(held, func(h control.Held) bool { return h.Partition != l.assignment(0, l.name).Partition })
		if len(held) != 1 || held[0].Member.Node != lost || held[0].Fate != control.Kept || held[0].Until-held[0].Since != 5000 {
			t.Fatalf("held: %+v", held)
		}
		l.publishFor(3 * time.Second)
		l.whole("replaced", other, spare)
		if l.gap > 2*usual { // with one follower less it is never the faster of two that is waited for
			t.Errorf("a publish took %v, before the loss %v at most", l.gap, usual)
		}
		l.restart(l.follower)
		l.publishFor(2 * time.Second)
		l.whole("it is back, and its place is another's", other, spare)

		l.kill(0)
		l.await("another owner", func() bool { a := l.assignment(l.spare, l.name); return a.Epoch == 2 && a.Pending == nil })
		if kind == catalog.Queue {
			got := l.nodes[l.follower].login(0).consume(l.name, l.sent)
			if len(got) != l.sent || got[0] != "m0" || got[l.sent-1] != fmt.Sprint("m", l.sent-1) {
				t.Fatalf("%d of %d messages, from %s", len(got), l.sent, got[0])
			}
		}
	})
}

// TestAReplacementGoesOnAfterAFailover has the owner's run end, and with it the controller's, at several moments from before the fourth node is
// named to after it has taken the place.
func TestAReplacementGoesOnAfterAFailover(t *testing.T) {
	for moment := range 8 {
		l := newLoad(t, 15, catalog.Queue)
		lost, spare := l.nodes[l.follower].name, l.nodes[l.spare].name
		other := slices.DeleteFunc(l.followers(), func(n string) bool { return n == lost })[0]
		l.kill(l.follower)
		l.publishFor(4800 * time.Millisecond)
		l.await("the end of the hold", func() bool { return moment == 0 || len(l.assignment(0, l.name).Learners) > 0 })
		l.sim.RunFor(time.Duration(moment*moment) * time.Millisecond)
		l.kill(0)
		l.restart(0)
		l.await("an owner", func() bool { a := l.assignment(0, l.name); return a.Epoch == 2 && a.Pending == nil })
		l.await("the place to be taken", func() bool {
			a := l.assignment(0, l.name)
			return len(a.Learners)+len(a.Leaving) == 0 && a.Names(l.nodes[l.spare].n.Local().Store)
		})
		a := l.assignment(0, l.name)
		all := append([]string{a.Owner.Node}, l.followers()...)
		if slices.Sort(all); !slices.Equal(all, slices.Sorted(slices.Values([]string{"n1", other, spare}))) || a.Epoch != 2 {
			t.Fatalf("moment %d: %+v", moment, a)
		}
		if got := l.nodes[l.spare].login(0).consume(l.name, l.sent); len(got) != l.sent || got[0] != "m0" || got[l.sent-1] != fmt.Sprint("m", l.sent-1) {
			t.Fatalf("moment %d: %d of %d messages, from %s", moment, len(got), l.sent, got[0])
		}
	}
}

// TestAFollowerThatComesBackInTimeKeepsItsPlace: nothing was moved.
func TestAFollowerThatComesBackInTimeKeepsItsPlace(t *testing.T) {
	kinds(t, func(t *testing.T, kind catalog.Kind) {
		l := newLoad(t, 12, kind)
		before := l.followers()
		version := l.assignment(0, l.name).Version
		l.kill(l.follower)
		l.publishFor(4 * time.Second)
		l.restart(l.follower)
		l.publishFor(8 * time.Second)
		l.whole("it came back in time", before...)
		if a := l.assignment(0, l.name); a.Version != version {
			t.Errorf("something was moved: %+v", a)
		}
		l.nodes[0].n.View(func(v *catalog.View) {
			if n := v.Node(l.nodes[l.follower].name); n.Absent != 0 {
				t.Errorf("it is back, and away since %d", n.Absent)
			}
		})
	})
}

// TestANodeThatLostItsDiskTakesItsPlaceAgain: its new store counts for nothing until it has caught up in the place of the old one.
func TestANodeThatLostItsDiskTakesItsPlaceAgain(t *testing.T) {
	l := newLoad(t, 13, catalog.Queue)
	before := l.followers()
	w := l.nodes[l.follower]
	old := w.n.Local()
	l.kill(l.follower)
	l.publishFor(time.Second)
	w.disk = vfs.NewMemory(99)
	delete(l.known, w.name)
	n, err := w.make()
	if err != nil {
		t.Fatal(err)
	}
	w.n = n
	now := n.Local()
	l.propose(0, catalog.ReplaceNode(old.Store, catalog.Node{Name: now.Node, Store: now.Store, Boot: now.Boot, Mesh: now.Node + ":1"}))
	l.begin(w)
	l.publishFor(3 * time.Second)
	l.whole("on its new store", before...)
	if a := l.assignment(0, l.name); !a.Member(now.Store) || a.Member(old.Store) {
		t.Errorf("its new store does not count, or its old one does: %+v", a)
	}
}

// TestCopiesFollowWhatIsWished adds and drops copies, drains a node, and lets copies be balanced, under load.
func TestCopiesFollowWhatIsWished(t *testing.T) {
	l := newLoad(t, 14, catalog.Queue)
	copies := func(n int) {
		t.Helper()
		l.propose(0, catalog.SetWishes("/", l.name, 0, "", uint32(n)))
		l.publishFor(2 * time.Second)
		if got := l.followers(); len(got) != n-1 {
			t.Fatalf("%d copies are wished for: %+v", n, l.assignment(0, l.name))
		}
		l.whole(fmt.Sprint(n, " copies"), l.followers()...)
	}
	copies(4)
	copies(2)
	follower := l.nodes[l.index(l.followers()[0])].n.Local()
	l.propose(0, catalog.DrainNode(follower.Node, follower.Store, true))
	l.publishFor(2 * time.Second)
	if got := l.followers(); len(got) != 1 || got[0] == follower.Node {
		t.Fatalf("%s is draining, and followed by %v", follower.Node, got)
	}
	l.propose(0, catalog.DrainNode(follower.Node, follower.Store, false))
	copies(3)
}

// TestReadersOfACopyThatLeavesGoOn: consumers read a stream from the copy beside them; it is drained away, and they miss nothing.
func TestReadersOfACopyThatLeavesGoOn(t *testing.T) {
	l := newLoad(t, 16, catalog.Stream)
	w := l.nodes[l.follower]
	v := w.login(1)
	v.ask("consume", func(done func(*broker.Error)) {
		v.s.Consume(broker.ConsumeSpec{Queue: l.name, Consumer: 1, NoAck: true, Start: stream.Start{Kind: stream.StartFirst}}, done)
	})
	l.await("the first records", func() bool { return len(v.got) == l.sent })
	if n := l.readers(l.follower, l.name); n != 1 {
		t.Fatalf("%d read from the copy beside them", n)
	}
	l.propose(0, catalog.DrainNode(w.name, w.n.Local().Store, true))
	l.publishFor(2 * time.Second)
	if slices.Contains(l.followers(), w.name) {
		t.Fatalf("it follows still: %v", l.followers())
	}
	l.await("every record", func() bool { return len(v.got) == l.sent })
	if n := v.dense(0); n != uint64(l.sent) {
		t.Fatalf("read %d of %d", n, l.sent)
	}
}

// TestAFormerCopyGoes: a copy leaves, and stays on its node's disk for ten seconds, since the hold is shorter, and no longer, restarts included. The same node learns again in the
// same epoch, and what it then holds counts.
func TestAFormerCopyGoes(t *testing.T) {
	kinds(t, func(t *testing.T, kind catalog.Kind) {
		l := newLoad(t, 17, kind)
		part := l.assignment(0, l.name).Partition
		onDisk := func(i int) bool {
			return slices.ContainsFunc(l.nodes[i].n.store.Copies(), func(c *storage.Copy) bool { return c.Partition() == part })
		}
		drain := func(i int, on bool) {
			w := l.nodes[i]
			l.propose(0, catalog.DrainNode(w.name, w.n.Local().Store, on))
		}
		left := l.nodes[l.follower].name
		other := slices.DeleteFunc(l.followers(), func(n string) bool { return n == left })[0]
		drain(l.follower, true)
		l.publishFor(2 * time.Second)
		l.whole("it left", other, l.nodes[l.spare].name)
		var kept int64
		l.nodes[l.follower].n.manager.Status([]ident.Partition{part}, func(s []replica.Status) { kept = s[0].Kept })
		l.publishFor(6 * time.Second)
		if left := time.UnixMilli(kept).Sub(l.nodes[0].n.env.Clock.Wall()); !onDisk(l.follower) || left < 0 || left > 4*time.Second {
			t.Fatalf("on disk: %v; kept for another %v", onDisk(l.follower), left)
		}
		l.publishFor(5 * time.Second)
		if onDisk(l.follower) || l.nodes[l.follower].n.manager.FormersDropped() != 1 {
			t.Fatal("after the hold it is there")
		}
		l.kill(l.follower)
		l.restart(l.follower)
		l.publishFor(time.Second)
		if onDisk(l.follower) {
			t.Fatal("it came back with its node's next run")
		}
		drain(l.follower, false)
		drain(l.spare, true)
		l.publishFor(4 * time.Second)
		l.whole("it is back", other, left)
		l.kill(l.index(other))
		l.publishFor(time.Second) // each is confirmed: with it
		l.publishFor(20 * time.Second)
		if onDisk(l.spare) {
			t.Fatal("the other's copy is there")
		}
	})
}
