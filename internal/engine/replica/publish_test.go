package replica

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
)

// queueWorld is a world with a queue that a gateway is attached to.
func queueWorld(t *testing.T, q *queue.Settings) (*world, *fakeGateway) {
	t.Helper()
	w := newWorld(t, 1)
	w.declare(catalog.Queue, q, nil)
	g := w.gateway(0)
	g.attach(1)
	if a := take[protocol.Attached](g); len(a) != 1 {
		t.Fatalf("attached %+v", a)
	}
	return w, g
}

// all is every body in the log, in order.
func (w *world) all() (out []string) {
	for _, s := range w.disk.copies[part].batches {
		s.b.Each(func(e batch.Entry) bool {
			if e.Kind == batch.KindRecord {
				out = append(out, string(e.Body))
			}
			return true
		})
	}
	return out
}

func TestResendsAreDuplicatesAndGapsAreRefused(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a", "b")
	g.send(g.publishAt(4, "d")) // 3 is missing
	w.settle()
	if e := take[protocol.PublishExpected](g); len(e) != 1 || e[0].Expect != 3 {
		t.Fatalf("expected %+v", e)
	}
	g.send(g.publishAt(1, "a", "b"), g.publishAt(2, "b", "c")) // again, and one that reaches beyond
	w.settle()
	if up := g.upTo(); up != 4 {
		t.Fatalf("published up to %d", up)
	}
	wantEqual(t, "log", w.all(), []string{"a", "b", "c"})
}

func TestANewStreamEndsTheOlder(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a")
	w.settle()
	old := *g
	g.attach(2)
	take[protocol.Attached](g)
	old.send(old.publishAt(2, "late"))
	w.settle()
	wantEqual(t, "log", w.all(), []string{"a"})
	g.send(g.publishAt(2, "b"))
	w.settle()
	if up := g.upTo(); up != 3 {
		t.Fatalf("published up to %d", up)
	}
	// An Attach that comes late is of an older stream still.
	old.stream = 1
	old.send(protocol.Attach{To: old.to(), Reply: &old, Producer: old.prod, First: 1})
	g.publish("ignored")
	w.settle()
	g.send(g.publishAt(3, "c"))
	w.settle()
	wantEqual(t, "log", w.all(), []string{"a", "b", "c"})
}

func TestFirstRaisesWhatIsExpected(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.attach(7)
	if a := take[protocol.Attached](g); len(a) != 1 || a[0].Expect != 7 {
		t.Fatalf("attached %+v", a)
	}
	g.send(g.publishAt(7, "g"))
	w.settle()
	if up := g.upTo(); up != 8 {
		t.Fatalf("published up to %d", up)
	}
	// Number 3 can only come back by mistake: it was resolved. It is not stored, and not called confirmed.
	g.send(g.publishAt(3, "c"))
	w.settle()
	if r := take[protocol.PublishRefused](g); len(r) != 1 || r[0].First != 3 || r[0].Unknown {
		t.Fatalf("refused %+v", r)
	}
	wantEqual(t, "log", w.all(), []string{"g"})
}

// A seal while publishes are on their way to the disk: the owner confirms nothing more; what became durable is in the seal's answer,
// and the next owner answers the resends as duplicates.
func TestSealWithAppendsInFlight(t *testing.T) {
	for seed := range uint64(30) {
		w := newWorld(t, seed)
		w.declare(catalog.Queue, nil, nil)
		g := w.gateway(0)
		g.attach(1)
		take[protocol.Attached](g)
		w.disk.stuck = true
		g.publish("a", "b")
		w.settle()
		var got []SealAnswer
		w.m.Seal([]SealRequest{{Partition: part, Epoch: 2, Transition: "t"}}, func(as []SealAnswer) { got = as })
		w.settle()
		if len(got) != 0 {
			t.Fatal("the seal was answered before its promise was durable")
		}
		if n := take[protocol.NotServing](g); len(n) != 1 {
			t.Fatalf("not serving %+v", n)
		}
		g.attach(1)
		if n := take[protocol.NotServing](g); len(n) != 1 {
			t.Fatalf("a sealed copy let a gateway attach: %+v", g.got)
		}
		w.disk.stuck = false
		w.store.box.Post(func() {})
		w.settle()
		if len(got) != 1 || got[0].Tail.Offset != 2 || got[0].Damaged != "" {
			t.Fatalf("seal answer %+v", got)
		}
		if up := g.upTo(); up != 0 {
			t.Fatalf("a sealed owner confirmed up to %d", up)
		}
		if s := w.status(); s.State != Moving {
			t.Fatalf("status %+v", s)
		}
		w.commit(got[0])
		g.attach(1)
		if a := take[protocol.Attached](g); len(a) != 1 || a[0].Expect != 3 || a[0].Epoch != 2 {
			t.Fatalf("attached %+v", a)
		}
		g.send(g.publishAt(1, "a", "b"), g.publishAt(3, "c"))
		w.settle()
		if up := g.upTo(); up != 4 {
			t.Fatalf("published up to %d", up)
		}
		wantEqual(t, "log", w.all(), []string{"a", "b", "c"})
	}
}

func TestSealIsRefusedForAnAppliedEpoch(t *testing.T) {
	w, g := queueWorld(t, nil)
	var got []SealAnswer
	w.m.Seal([]SealRequest{{Partition: part, Epoch: 1, Transition: "late"}}, func(as []SealAnswer) { got = as })
	w.settle()
	if len(got) != 1 || got[0].Refused == "" {
		t.Fatalf("seal answer %+v", got)
	}
	g.publish("a")
	w.settle()
	if up := g.upTo(); up != 2 {
		t.Fatalf("the owner stopped: published up to %d", up)
	}
}

func TestAppendFailureClosesTheOwner(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a")
	w.settle()
	if up := g.upTo(); up != 2 {
		t.Fatalf("published up to %d", up)
	}
	w.disk.failAfter = w.disk.appends
	g.publish("b")
	w.settle()
	if u := take[protocol.PublishUnknown](g); len(u) != 1 || u[0].First != 2 {
		t.Fatalf("unknown %+v", u)
	}
	if up := g.upTo(); up != 0 {
		t.Fatalf("published up to %d", up)
	}
	w.disk.failAfter = -1
	g.publish("c") // of a stream that has ended
	g.attach(2)
	if n := take[protocol.NotServing](g); len(n) != 1 || !strings.Contains(n[0].Reason, "input/output") {
		t.Fatalf("not serving %+v", n)
	}
	if s := w.status(); s.State != Blocked || s.Reason == "" {
		t.Fatalf("status %+v", s)
	}
	var got []SealAnswer
	w.m.Seal([]SealRequest{{Partition: part, Epoch: 2, Transition: "t"}}, func(as []SealAnswer) { got = as })
	w.settle()
	if len(got) != 1 || got[0].Damaged == "" {
		t.Fatalf("seal answer %+v", got)
	}
	wantEqual(t, "log", w.all(), []string{"a"})
}

func TestDamagedCopyNeverServes(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a")
	w.settle()
	w.crash()
	w.disk.copies[part].damaged = "checksum"
	w.start()
	w.m.Apply([]catalog.Change{{After: w.res}})
	var got []SealAnswer
	w.m.Seal([]SealRequest{{Partition: part, Epoch: 2, Transition: "t"}}, func(as []SealAnswer) { got = as })
	w.settle()
	if len(got) != 1 || got[0].Damaged != "checksum" {
		t.Fatalf("seal answer %+v", got)
	}
	w.commit(got[0])
	if s := w.status(); s.State != Blocked || w.m.Recovering() != 0 {
		t.Fatalf("status %+v, recovering %d", s, w.m.Recovering())
	}
}

func TestARestartedOwnerDoesNotKeepItsEpoch(t *testing.T) {
	w, _ := queueWorld(t, nil)
	w.crash()
	w.start()
	// The catalog still names the old run, then, wrongly, this run at the old epoch.
	w.m.Apply([]catalog.Change{{After: w.res}})
	w.settle()
	if s := w.status(); s.State != Waiting || w.m.Recovering() != 1 {
		t.Fatalf("status %+v, recovering %d", s, w.m.Recovering())
	}
	res := *w.res
	a := *res.Partitions[0]
	a.Owner, a.Version = w.local, a.Version+1
	res.Partitions = []*catalog.Assignment{&a}
	w.m.Apply([]catalog.Change{{After: &res}})
	w.settle()
	if s := w.status(); s.State == Serving || s.Position != 1 {
		t.Fatalf("status %+v", s)
	}
}

func TestNamedProducers(t *testing.T) {
	one := int64(1)
	w, g := queueWorld(t, &queue.Settings{MaxLength: &one, Overflow: queue.RejectPublish})
	name := protocol.NamedProducer("client")
	send := func(first, seq uint64, body string) {
		p := g.publishAt(first, body)
		p.Runs[0].Producer, p.Runs[0].First = name, seq
		g.send(p)
		w.settle()
	}
	send(1, 10, "a")
	if up := g.upTo(); up != 2 {
		t.Fatalf("published up to %d", up)
	}
	send(2, 10, "a again") // a duplicate
	if up := g.upTo(); up != 3 {
		t.Fatalf("duplicate: published up to %d", up)
	}
	send(3, 15, "full") // refused: the number is not taken
	if r := take[protocol.PublishRefused](g); len(r) != 1 || r[0].First != 3 {
		t.Fatalf("refused %+v", r)
	}
	g.send(protocol.Get{To: g.to(), Request: 1, NoAck: true})
	w.settle()
	if d := take[protocol.GetDone](g); len(d) != 1 || string(d[0].Item.Body) != "a" {
		t.Fatalf("got %+v", d)
	}
	send(4, 20, "b")
	if up := g.upTo(); up != 5 {
		t.Fatalf("published up to %d", up)
	}
	send(5, 15, "late") // refused before, and a later number is stored: never a duplicate
	if r := take[protocol.PublishRefused](g); len(r) != 1 || r[0].First != 5 {
		t.Fatalf("refused %+v", r)
	}
	w.crash()
	w.start()
	w.transition()
	g = w.gateway(1)
	g.attach(1)
	send(1, 15, "late") // the log remembers
	if r := take[protocol.PublishRefused](g); len(r) != 1 || r[0].First != 1 {
		t.Fatalf("after a restart: refused %+v", r)
	}
	send(2, 20, "b")
	if up := g.upTo(); up != 3 {
		t.Fatalf("after a restart: published up to %d", up)
	}
	wantEqual(t, "log", w.all(), []string{"a", "b"})
}

func TestRejectPublish(t *testing.T) {
	two := int64(2)
	w, g := queueWorld(t, &queue.Settings{MaxLength: &two, Overflow: queue.RejectPublish})
	w.disk.stuck = true // the staged length counts
	g.publish("a")
	g.publish("b", "c", "d")
	w.settle()
	var refused []uint64
	for _, r := range take[protocol.PublishRefused](g) {
		for n := range r.Count {
			refused = append(refused, r.First+uint64(n))
		}
	}
	wantEqual(t, "refused", refused, []uint64{3, 4})
	w.disk.stuck = false
	w.store.box.Post(func() {})
	w.settle()
	if up := g.upTo(); up != 5 {
		t.Fatalf("published up to %d", up)
	}
	// A refused number that the gateway did not hear of is refused again on a new stream once later ones are stored.
	g.send(protocol.Purge{To: g.to(), Request: 3})
	w.settle()
	if c := take[protocol.Counted](g); len(c) != 1 || c[0].Ready != 2 {
		t.Fatalf("purged %+v", c)
	}
	g.publish("e")
	w.settle()
	take[protocol.Published](g)
	g.attach(3)
	take[protocol.Attached](g)
	if up := g.upTo(); up != 0 {
		t.Fatalf("published up to %d before the refused were sent again: the gateway takes them for confirmed", up)
	}
	g.send(g.publishAt(3, "c"), g.publishAt(4, "d"), g.publishAt(5, "e"))
	w.settle()
	refused = nil
	for _, r := range take[protocol.PublishRefused](g) {
		refused = append(refused, r.First)
	}
	wantEqual(t, "refused again", refused, []uint64{3, 4})
	if up := g.upTo(); up != 6 {
		t.Fatalf("published up to %d", up)
	}
	wantEqual(t, "log", w.all(), []string{"a", "b", "e"})
}

// What is staged is bounded: the rest waits in order, and nothing is lost.
func TestStagedBytesAreBounded(t *testing.T) {
	w, g := queueWorld(t, nil)
	w.disk.stuck = true
	big := strings.Repeat("x", 1<<20)
	for i := range 40 {
		g.publish(fmt.Sprintf("%02d", i) + big)
	}
	w.settle()
	if s := w.status(); s.Staged > maxStaged+2<<20 || s.Staged < maxStaged/2 {
		t.Fatalf("staged %d bytes", s.Staged)
	}
	w.disk.stuck = false
	w.store.box.Post(func() {})
	w.settle()
	if up := g.upTo(); up != 41 {
		t.Fatalf("published up to %d", up)
	}
	for i, b := range w.all() {
		if b[:2] != fmt.Sprintf("%02d", i) {
			t.Fatalf("record %d is %s", i, b[:2])
		}
	}
	if s := w.status(); s.Staged != 0 || s.Offset != 40 {
		t.Fatalf("status %+v", s)
	}
}

// While a disk is slow, what comes gathers: the number of batches follows the syncs, not the publishes.
func TestBatchesGatherWhileAppendsAreInFlight(t *testing.T) {
	w, g := queueWorld(t, nil)
	before := w.disk.appends
	w.disk.stuck = true
	for i := range 200 {
		g.publish(fmt.Sprint(i))
		w.settle()
	}
	w.disk.stuck = false
	w.store.box.Post(func() {})
	w.settle()
	if n := w.disk.appends - before; n > maxFlights+2 {
		t.Fatalf("%d batches", n)
	}
	if up := g.upTo(); up != 201 || len(w.all()) != 200 {
		t.Fatalf("published up to %d, %d records", up, len(w.all()))
	}
}

func TestHoldKeepsPublishesAndLetsSettlesGoOn(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a")
	g.send(protocol.Subscribe{To: g.to(), Consumer: 1, Credit: 1 << 20})
	w.settle()
	wantEqual(t, "deliveries", g.bodies(), []string{"a"})
	g.upTo()
	w.m.Hold("disk low")
	g.publish("b")
	g.publish("c")
	g.send(protocol.Settle{To: g.to(), Seq: 1, Items: []protocol.SettleItem{{Consumer: 1}}})
	w.settle()
	if up := g.upTo(); up != 0 {
		t.Fatalf("published up to %d", up)
	}
	if s := take[protocol.Settled](g); len(s) != 1 {
		t.Fatalf("settled %+v", s)
	}
	w.m.Hold("")
	w.settle()
	if up := g.upTo(); up != 4 {
		t.Fatalf("published up to %d", up)
	}
	wantEqual(t, "deliveries", g.bodies(), []string{"b", "c"})
}

func TestProducersOfBuriedRunsAreForgotten(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a")
	w.settle()
	w.crash()
	w.start()
	w.transition()
	h := w.gateway(0)
	h.attach(1)
	h.publish("b")
	w.settle()
	r := w.m.find(part)
	if last, _ := r.producers.Last(g.prod); last != 0 {
		t.Fatalf("the old run's producer is still known, at %d", last)
	}
	if last, _ := r.producers.Last(h.prod); last != 1 {
		t.Fatalf("the new producer is at %d", last)
	}
	// A zombie of the old run is turned away.
	g.attach(1)
	if n := take[protocol.NotServing](g); len(n) != 1 {
		t.Fatalf("not serving %+v", n)
	}
}

// A client that names its producers anew for every message makes the table no longer than it may be, snapshots or not.
func TestNamedProducersAreBounded(t *testing.T) {
	w, g := queueWorld(t, nil)
	for i := range uint64(4000) {
		p := g.publishAt(g.next, "x")
		p.Runs[0].Producer, p.Runs[0].First = protocol.NamedProducer(fmt.Sprint(i)), 1
		g.send(p)
		if g.next++; i%10 == 0 {
			w.settle()
		}
		if known, _ := w.m.find(part).producers.Len(); known > partition.MaxNamed*5/4 {
			t.Fatalf("%d producers after %d messages", known, i)
		}
	}
	w.settle()
	if up := g.upTo(); up != 4001 {
		t.Fatalf("published up to %d", up)
	}
	events := 0
	for _, s := range w.disk.copies[part].batches {
		s.b.Each(func(e batch.Entry) bool {
			if e.Kind == batch.KindEvent && e.Type == partition.EventForget {
				events++
			}
			return true
		})
	}
	if events == 0 || events > 40 {
		t.Fatalf("%d events", events)
	}
}
