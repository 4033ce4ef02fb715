package replica

import (
	"bytes"
	"encoding/gob"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/stream"
)

// Images of the fake log: a batch a chunk.

type fakeImage struct {
	Snap    partition.Snapshot // with all pages
	Tail    batch.Tail
	Batches [][]byte
	Head    uint64
}

type fakeChunk struct {
	Of     fakeImage // without batches
	Number int
	Last   bool
	Batch  []byte
}

// fakeImport is how far an image came.
type fakeImport struct {
	of      fakeImage
	next    int
	batches []stored
}

type fakeExport struct {
	l *fakeLog
	i fakeImage
}

var errStale = errors.New("the image cannot be had any more")

func enc(v any) []byte {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func dec(b []byte, v any) {
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(v); err != nil {
		panic(err)
	}
}

func (l *fakeLog) Export(want []byte, done func(Export, error)) {
	l.ReadSnapshot(func(s partition.Snapshot, _ bool, _ error) {
		x := &fakeExport{l: l, i: fakeImage{Snap: s, Tail: l.c.batches[len(l.c.batches)-1].tail, Head: l.c.batches[0].b.Position}}
		for _, b := range l.c.batches {
			x.i.Batches = append(x.i.Batches, b.b.Bytes())
		}
		if want != nil {
			var at fakeChunk
			dec(want, &at)
			if at.Of.Snap.At != s.At || at.Of.Head != x.i.Head || at.Of.Tail != x.i.Tail {
				done(nil, errStale)
				return
			}
		}
		l.exports++
		done(x, nil)
	})
}

func (x *fakeExport) Position() uint64 { return x.i.Tail.Position }
func (x *fakeExport) Close()           { x.l.exports-- }

func (x *fakeExport) Is(place []byte) bool {
	var at fakeChunk
	dec(place, &at)
	return at.Of.Snap.At == x.i.Snap.At && at.Of.Tail == x.i.Tail
}

func (x *fakeExport) Chunk(at []byte, _ int, done func([]byte, error)) {
	c := fakeChunk{Of: x.i}
	if at != nil {
		dec(at, &c)
		if c.Of.Tail != x.i.Tail || c.Number >= len(x.i.Batches) {
			done(nil, errStale)
			return
		}
	}
	c.Batch, c.Last = x.i.Batches[c.Number], c.Number == len(x.i.Batches)-1
	c.Of.Batches = nil
	x.l.s.box.Post(func() { done(enc(c), nil) })
}

func (l *fakeLog) Importing() []byte {
	if in := l.c.in; in != nil && in.next > 0 {
		return enc(fakeChunk{Of: in.of, Number: in.next})
	}
	return nil
}

func (l *fakeLog) Salvage(_ int, done func([]batch.Batch)) {
	l.s.box.Post(func() { done(l.some(func(batch.Batch) bool { return true }, 1<<30)) })
}

func (l *fakeLog) Anew(done func(error)) {
	l.batches = nil
	l.write(func() {
		l.c.batches, l.c.snap, l.c.pages, l.c.in, l.c.damaged = nil, partition.Snapshot{}, map[uint32][]byte{}, &fakeImport{}, ""
		l.s.d.anew++
	}, done)
}

func (l *fakeLog) Import(chunk []byte, over uint64, done func(error)) {
	var c fakeChunk
	dec(chunk, &c)
	if at := l.Image().Tail.Position; at != 0 && (c.Number > 0 || over != at) {
		done(errors.New("the copy is not empty"))
		return
	}
	next := 0
	if l.c.in != nil {
		next = l.c.in.next
	}
	if c.Number != 0 && c.Number != next {
		done(errors.New("the chunk does not follow"))
		return
	}
	l.batches = nil
	l.write(func() {
		if l.c.in == nil && c.Number > 0 {
			panic("no image was begun")
		}
		if c.Number == 0 {
			l.c.batches, l.c.snap, l.c.pages, l.c.in = nil, partition.Snapshot{}, map[uint32][]byte{}, &fakeImport{of: c.Of}
		}
		b, err := batch.Parse(c.Batch)
		if err != nil {
			panic(err)
		}
		in := l.c.in
		tail := batch.Tail{Position: b.Position, Offset: b.Offset, Events: b.Position - b.Offset, Link: b.PrevLink}
		if n := len(in.batches); n > 0 {
			tail = in.batches[n-1].tail
		}
		in.batches = append(in.batches, stored{b, tail.After(b, b.Link())})
		if in.next++; !c.Last {
			return
		}
		l.c.batches, l.c.snap, l.c.in = in.batches, in.of.Snap, nil
		for _, p := range in.of.Snap.Pages {
			l.c.pages[p.Number] = p.Data
		}
		l.batches = slices.Clone(l.c.batches)
	}, done)
}

// tune sets a setting everywhere.
func (g *trio) tune(name, value string) {
	for _, m := range g.nodes {
		if m.up {
			m.m.Apply([]catalog.Change{{After: &catalog.Setting{Name: name, Value: value}}})
		}
	}
}

// behind is a stream of which few records are kept, and a follower that was away for longer than that.
func behind(t *testing.T, seed uint64) (*trio, *fakeGateway) {
	g := newTrio(t, seed, 3)
	g.stream = stream.Settings{MaxRecords: 20}
	g.declare(catalog.Stream, 1, 2)
	g.tune(catalog.RetainForAbsent, "0")
	c := g.client(0)
	fill := func(n int) {
		for range n {
			c.publish("x")
			g.run(3)
		}
	}
	fill(10)
	g.nodes[2].kill()
	fill(60)
	if at, end := g.nodes[0].disk.copies[part].image, g.nodes[0].store.logs[part].Image().Head; end <= 12 {
		t.Fatalf("the owner still keeps the log from %d: %+v", end, at)
	}
	return g, c
}

// A follower that comes back to find that what it misses is not kept any more takes an image in its place: its place stays, it counts for
// nothing meanwhile, and then it follows.
func TestAFollowerTooFarBehindIsReseededInItsPlace(t *testing.T) {
	g, c := behind(t, 41)
	before := *g.assignment()
	g.nodes[2].restart()
	g.run(20)
	if s := g.nodes[2].status(); s.State != Recovering || s.Reason == "" || s.Role != "follower" {
		t.Fatalf("while it takes the image: %+v", s)
	}
	var answers []SealAnswer
	g.nodes[2].m.Seal([]SealRequest{{Partition: part, Epoch: 1, Transition: "t"}}, func(as []SealAnswer) { answers = as })
	g.run(1)
	if len(answers) != 1 || answers[0].Damaged == "" {
		t.Fatalf("sealed while its image is not complete: %+v", answers)
	}
	g.run(400)
	g.same(0, 1, 2)
	if s := g.nodes[2].status(); s.State != Serving || s.Role != "follower" {
		t.Fatalf("afterwards: %+v", s)
	}
	if a := g.assignment(); a.Version != before.Version || len(g.asked) != 0 {
		t.Fatalf("the assignment has changed: %+v, asked %+v", a, g.asked)
	}
	c.publish("y")
	g.run(10)
	g.nodes[1].kill()
	c.publish("z")
	g.run(10)
	if at := c.upTo(); at != 73 {
		t.Fatalf("confirmed below %d with the reseeded copy, want 73", at)
	}
}

// It is interrupted at every point: by its own crash, by that of the owner, or by a session that is lost. It never takes a part for a whole, and
// is whole in the end.
func TestAReseedIsInterruptedAndGoesOn(t *testing.T) {
	for at := range 40 {
		for name, interrupt := range map[string]func(g *trio){
			"the copy crashes": func(g *trio) { g.nodes[2].kill(); g.run(5); g.nodes[2].restart() },
			"the session is lost": func(g *trio) {
				g.nodes[0].m.PeerDown("n3")
				g.nodes[2].m.PeerDown("n1")
				g.run(5)
				g.nodes[2].connect()
			},
			"the owner is another": func(g *trio) { g.nodes[0].kill(); g.transition(1, 1); g.nodes[0].restart() },
		} {
			g, d := behind(t, 42)
			g.nodes[2].restart()
			g.run(3 + at)
			interrupt(g)
			g.run(2500)
			owner := slices.IndexFunc(g.nodes, func(m *member) bool { return m.name == g.assignment().Owner.Node })
			if owner != 0 {
				d = g.client(owner)
			}
			d.publish("last")
			g.run(50)
			if s := g.nodes[2].status(); s.Role != "follower" || s.State != Serving {
				t.Fatalf("%s after %d ms: %+v", name, at, s)
			}
			g.same(0, 1, 2)
			if owner != 0 {
				continue
			}
			g.nodes[1].kill() // it counts again
			d.publish("counted")
			g.run(50)
			if at := d.upTo(); at != d.next {
				t.Fatalf("%s after %d ms: confirmed below %d with the reseeded copy, want %d", name, at, at, d.next)
			}
		}
	}
}

// An image is interrupted while the owner goes on and makes new snapshots: it is gone on with where it stopped, since the owner has held it
// open, and it is let go of once the copy has it, or does not come back.
func TestAnInterruptedImageIsGoneOnWith(t *testing.T) {
	for _, returns := range []bool{true, false} {
		g, c := behind(t, 46)
		g.tune(catalog.RetainForAbsent, "1MiB")
		g.tune(catalog.FollowerLossHold, "0")
		g.begun = 0
		g.nodes[2].restart()
		g.run(15)
		g.nodes[2].kill()
		if in := g.nodes[2].disk.copies[part].in; in == nil || in.next < 2 {
			t.Fatalf("the image was not interrupted: %+v", in)
		}
		snap := g.nodes[0].disk.copies[part].snap.At
		for range 40 {
			c.publish("x")
			g.run(3)
		}
		log := g.nodes[0].store.logs[part]
		if now := g.nodes[0].disk.copies[part].snap.At; now == snap || log.exports != 1 {
			t.Fatalf("the owner's snapshot is at %d, was at %d; %d images are open", now.Position, snap.Position, log.exports)
		}
		if returns {
			g.nodes[2].restart()
			g.run(500)
			g.same(0, 1, 2)
		} else {
			g.sim.RunFor(imageKept + time.Second)
		}
		if g.begun != 1 || log.exports != 0 {
			t.Fatalf("it was begun %d times, and %d are open", g.begun, log.exports)
		}
	}
}

// What is kept for a follower that is away is bounded by bytes, and by the time that its place is kept for.
func TestTheLogIsKeptForAnAbsentFollower(t *testing.T) {
	for name, c := range map[string]struct {
		retain, hold string
		wait         time.Duration
		kept         bool
	}{
		"within both":      {"1MiB", "5m", time.Minute, true},
		"too many bytes":   {"1KiB", "5m", 0, false},
		"its hold is over": {"1MiB", "30s", time.Minute, false},
		"no hold":          {"1MiB", "0", time.Second, false},
		"it is only let go of when its node is known to be away": {"1MiB", "5m", 0, true},
	} {
		g := newTrio(t, 43, 3)
		g.stream = stream.Settings{MaxRecords: 20}
		g.declare(catalog.Stream, 1, 2)
		g.tune(catalog.RetainForAbsent, c.retain)
		g.tune(catalog.FollowerLossHold, c.hold)
		cl := g.client(0)
		fill := func(n int) {
			for range n {
				cl.publish("x")
				g.run(3)
			}
		}
		fill(10)
		g.nodes[2].kill()
		if c.wait > 0 {
			for _, m := range g.nodes[:2] {
				n := catalog.Node{Name: "n3", Store: g.nodes[2].disk.id, Boot: g.nodes[2].disk.boot, Number: 1, Absent: m.clock.Wall().UnixMilli()}
				m.m.Apply([]catalog.Change{{After: &n}})
			}
			g.sim.RunFor(c.wait)
		}
		fill(80)
		for _, m := range g.nodes[:2] {
			if head := m.store.logs[part].Image().Head; (head <= 12) != c.kept {
				t.Errorf("%s: %s keeps the log from %d", name, m.name, head)
			}
		}
	}
}

// A follower that was away and is back within what is kept for it is sent what it missed, and hardly anything twice.
func TestAReturningFollowerIsSentWhatItMissed(t *testing.T) {
	for seed := range uint64(20) {
		g := newTrio(t, 440+seed, 3)
		g.declare(catalog.Stream, 1, 2)
		c := g.client(0)
		body := string(make([]byte, 40<<10))
		fill := func(n int) {
			for range n {
				c.publish(body)
				g.run(2)
			}
		}
		fill(20)
		g.nodes[2].kill()
		before, _ := g.nodes[0].store.logs[part].Size()
		fill(150)
		after, _ := g.nodes[0].store.logs[part].Size()
		missed := after - before
		g.nodes[2].restart()
		g.sent = map[string]int64{}
		fill(20) // while it catches up
		g.run(500)
		g.same(0, 1, 2)
		end, _ := g.nodes[0].store.logs[part].Size()
		live := end - after
		if got := g.sent["n3"] - live; got > missed+missed/10 || got < missed {
			t.Fatalf("seed %d: missed %d bytes, was sent %d, and %d that came meanwhile", seed, missed, got, live)
		}
	}
}

// What a learner is sent waits for its turns, and a follower that confirms need does not wait.
func TestLearnersAreSentLittleAtATime(t *testing.T) {
	for name, c := range map[string]struct {
		learner, needed bool
		slow            bool
	}{
		"a learner":                         {true, false, true},
		"a follower that was away":          {false, false, true},
		"a follower that confirms wait for": {false, true, false},
	} {
		g := newTrio(t, 45, 3)
		if c.learner {
			g.declare(catalog.Stream, 1)
		} else {
			g.declare(catalog.Stream, 1, 2)
		}
		g.tune(catalog.LearnerRate, "1MiB")
		cl := g.client(0)
		body := string(make([]byte, 128<<10))
		g.nodes[2].kill()
		for range 240 { // 30 MiB
			cl.publish(body)
			g.run(2)
		}
		if c.needed {
			g.nodes[1].kill()
		}
		g.nodes[2].restart()
		g.sent = map[string]int64{}
		if c.learner {
			a := *g.assignment()
			a.Version++
			a.Learners = []catalog.Member{g.nodes[2].place()}
			g.assign(a)
		}
		g.run(2000)
		got := g.sent["n3"]
		if most := int64(nearEnough + 4<<20); c.slow && got > most {
			t.Errorf("%s: was sent %d bytes within 2 s", name, got)
		}
		if c.learner && got > 3<<20 {
			t.Errorf("%s: was sent %d bytes within 2 s", name, got)
		}
		if !c.slow && got < 30<<20 {
			t.Errorf("%s: was sent only %d bytes within 2 s", name, got)
		}
		g.sim.RunFor(time.Minute)
		cl.publish("last")
		g.run(50)
		g.nodes[2].status()
		if s := g.nodes[2].status(); s.Durable != g.nodes[0].status().Durable {
			t.Errorf("%s: stands at %d", name, s.Durable)
		}
	}
}

func size(msg any) int64 {
	var n int64
	switch m := msg.(type) {
	case protocol.Extend:
		for _, b := range m.Batches {
			n += int64(b.Size())
		}
	case protocol.ImageChunk:
		n = int64(len(m.Chunk))
	}
	return n
}

// An image is complete at any moment around the one at which its copy leaves. Named again it knows what it holds, and learns on from there: one that
// took itself for empty would be sent an image again, and again refuse it.
func TestAnImageThatIsCompleteAsItsCopyLeaves(t *testing.T) {
	left := 0
	for at := range 120 {
		g, c := behind(t, 47)
		n3 := g.nodes[2]
		n3.restart()
		g.run(3 + at)
		importing := n3.disk.copies[part].in != nil
		n3.disk.stuck = true // what it was sent becomes durable after it has left
		g.run(1)
		a := *g.assignment()
		stayed := a.Followers
		a.Version++
		a.Followers = stayed[:1]
		g.assign(a)
		g.run(1)
		n3.disk.stuck = false
		n3.store.run()
		g.run(20)
		if importing && n3.disk.copies[part].in == nil {
			left++
		}
		a.Version++
		a.Learners = stayed[1:]
		g.assign(a)
		c.publish("more")
		g.run(2500)
		if s := n3.status(); s.State != Serving || s.Role != "learner" && s.Role != "follower" {
			t.Fatalf("left after %d ms, and named again: %+v", at, s)
		}
		g.same(0, 1, 2)
	}
	if left == 0 {
		t.Error("no image was completed as its copy had left")
	}
}

// A copy that catches up takes nothing while its disk has no room: what is left there is kept for what cannot wait. It says so, its owner sends
// nothing, and it goes on where it stopped once there is room. A copy that counts goes on all the while.
func TestACopyThatCatchesUpTakesNothingOnAFullDisk(t *testing.T) {
	full := "the free space is below the low-water mark"
	held := func(g *trio, c *fakeGateway) (position uint64, next int) {
		g.nodes[2].m.Hold(full)
		g.run(30) // what was on its way has come
		log := g.nodes[2].store.logs[part]
		image := func() (uint64, int) {
			if in := log.c.in; in != nil {
				return 0, in.next
			}
			return log.Image().Tail.Position, 0
		}
		position, next = image()
		if s := g.nodes[2].status(); !strings.Contains(s.Reason, full) {
			t.Fatalf("it says %+v", s)
		}
		g.sent = map[string]int64{}
		for range 20 {
			c.publish("y")
			g.run(10)
		}
		if p, n := image(); p != position || n != next || g.sent["n3"] > 4<<10 {
			t.Fatalf("it took more: %d and %d, then %d and %d; it was sent %d bytes", position, next, p, n, g.sent["n3"])
		}
		if at := c.upTo(); at != c.next {
			t.Fatalf("confirmed below %d of %d", at, c.next)
		}
		g.nodes[2].m.Hold("")
		return position, next
	}
	t.Run("a learner", func(t *testing.T) {
		g := newTrio(t, 45, 3)
		g.declare(catalog.Stream, 1)
		g.tune(catalog.LearnerRate, "1MiB")
		c := g.client(0)
		body := string(make([]byte, 128<<10))
		for range 40 {
			c.publish(body)
			g.run(2)
		}
		a := *g.assignment()
		a.Version++
		a.Learners = []catalog.Member{g.nodes[2].place()}
		g.assign(a)
		g.run(2500)
		if at, _ := held(g, c); at == 0 || at >= 40 {
			t.Fatalf("it was stopped at %d", at)
		}
		g.sim.RunFor(10 * time.Second)
		g.same(0, 1, 2)
		if a := g.assignment(); len(a.Followers) != 2 {
			t.Fatalf("it was not admitted: %+v", a)
		}
	})
	t.Run("a follower that takes an image", func(t *testing.T) {
		g, c := behind(t, 46)
		g.tune(catalog.RetainForAbsent, "1MiB")
		g.nodes[2].restart()
		g.run(12)
		g.begun = 0
		if _, next := held(g, c); next < 1 {
			t.Fatalf("it was stopped at chunk %d", next)
		}
		g.run(500)
		g.same(0, 1, 2)
		if g.begun != 0 {
			t.Fatalf("the image was begun anew %d times", g.begun)
		}
	})
}
