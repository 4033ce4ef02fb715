package replica

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// disk is what survives a crash.
type disk struct {
	id     ident.StoreID
	boot   uint64
	copies map[ident.Partition]*diskCopy
	// failAfter appends, every further write fails; -1: never.
	failAfter int
	// stuck: nothing becomes durable.
	stuck bool
	// slow reads: nothing is served from memory.
	slow    bool
	appends int
	reads   int // by offset
	anew    int // how often damaged copies were given up
}

type diskCopy struct {
	image   partition.Image
	batches []stored
	pages   map[uint32][]byte
	snap    partition.Snapshot
	damaged string
	in      *fakeImport // the image that it is being made of
}

type stored struct {
	b    batch.Batch
	tail batch.Tail
}

func newDisk() *disk {
	return &disk{id: ident.StoreID{7}, copies: map[ident.Partition]*diskCopy{}, failAfter: -1}
}

// fakeStore is a store of one run over a disk.
type fakeStore struct {
	d    *disk
	box  exec.Mailbox
	logs map[ident.Partition]*fakeLog
	wait []func()
}

func (s *fakeStore) Receive(msg any) {
	s.wait = append(s.wait, msg.(func()))
	s.run()
}
func (s *fakeStore) Flush() {}

func (s *fakeStore) run() {
	for !s.d.stuck && len(s.wait) > 0 {
		f := s.wait[0]
		s.wait = s.wait[1:]
		f()
	}
}

func openStore(d *disk, x exec.Executor) *fakeStore {
	s := &fakeStore{d: d, logs: map[ident.Partition]*fakeLog{}}
	s.box = x.Dedicated("store").Spawn("store", s)
	for p, c := range d.copies {
		s.logs[p] = &fakeLog{s: s, c: c, batches: slices.Clone(c.batches)}
	}
	return s
}

func (s *fakeStore) Create(p ident.Partition) (Log, error) {
	if s.d.copies[p] != nil {
		return nil, errors.New("there is one, or its deletion is not done")
	}
	c := &diskCopy{image: partition.Image{Partition: p}, pages: map[uint32][]byte{}}
	s.d.copies[p] = c
	l := &fakeLog{s: s, c: c}
	s.logs[p] = l
	return l, nil
}

func (s *fakeStore) Copies() []Log {
	var ps []ident.Partition
	for p := range s.logs {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, ident.Partition.Compare)
	var out []Log
	for _, p := range ps {
		out = append(out, s.logs[p])
	}
	return out
}

type fakeLog struct {
	s       *fakeStore
	c       *diskCopy
	batches []stored // with what is not durable
	retains [][]batch.Span
	from    uint64
	deleted bool
	exports int // images that are open
}

var errDisk = errors.New("input/output error")

func (l *fakeLog) write(f func(), done func(error)) {
	l.s.box.Post(func() {
		if l.s.d.failAfter >= 0 && l.s.d.appends >= l.s.d.failAfter {
			done(errDisk)
			return
		}
		f()
		done(nil)
	})
}

func (l *fakeLog) Image() partition.Image {
	i := l.c.image
	i.Damaged = l.c.damaged
	if n := len(l.c.batches); n > 0 {
		i.Tail = l.c.batches[n-1].tail
		i.Head, i.HeadOffset = l.c.batches[0].b.Position, l.c.batches[0].b.Offset
	}
	i.Snapshot = l.c.snap.At
	if l.c.in != nil {
		i.Importing, i.Tail, i.Head, i.HeadOffset, i.Snapshot = true, batch.Tail{}, 0, 0, batch.Tail{}
	}
	return i
}

func (l *fakeLog) Append(b batch.Batch, link batch.Link, _ bool, done func(error)) {
	var tail batch.Tail
	if n := len(l.batches); n > 0 {
		tail = l.batches[n-1].tail
	}
	if !b.Follows(tail) {
		panic("append does not follow")
	}
	if _, err := batch.Parse(b.Bytes()); err != nil {
		panic(err)
	}
	s := stored{b, tail.After(b, link)}
	l.batches = append(l.batches, s)
	l.write(func() { l.s.d.appends++; l.c.batches = append(l.c.batches, s) }, done)
}

func (l *fakeLog) SetPromise(epoch uint64, done func(error)) {
	l.write(func() { l.c.image.Promise = epoch }, done)
}

func (l *fakeLog) SetRole(r partition.Role, epoch uint64, done func(error)) {
	l.write(func() { l.c.image.Role, l.c.image.RoleEpoch = r, epoch }, done)
}

func (l *fakeLog) Cut(to batch.Tail, done func(error)) {
	cut := func(bs []stored) []stored {
		return slices.DeleteFunc(bs, func(s stored) bool { return s.tail.Position > to.Position })
	}
	l.batches = cut(l.batches)
	l.write(func() { l.c.batches = cut(l.c.batches) }, done)
}

func (l *fakeLog) Retain(from uint64, live []partition.Span, done func(error)) {
	l.from = from
	l.retains = append(l.retains, live)
	l.write(func() {}, done)
}

func (l *fakeLog) WriteSnapshot(s partition.Snapshot, done func(error)) {
	l.write(func() {
		for _, p := range s.Pages {
			l.c.pages[p.Number] = p.Data
		}
		for _, n := range s.Gone {
			delete(l.c.pages, n)
		}
		l.c.snap = s
	}, done)
}

func (l *fakeLog) ReadSnapshot(done func(partition.Snapshot, bool, error)) {
	l.s.box.Post(func() {
		s := l.c.snap
		s.Pages, s.Gone = nil, nil
		for n, d := range l.c.pages {
			s.Pages = append(s.Pages, partition.Page{Number: n, Data: d})
		}
		slices.SortFunc(s.Pages, func(a, b partition.Page) int { return int(int64(a.Number) - int64(b.Number)) })
		done(s, s.At.Position > 0, nil)
	})
}

func (l *fakeLog) reply(f func()) {
	if l.s.d.slow {
		l.s.box.Post(f)
		return
	}
	f()
}

func (l *fakeLog) some(from func(batch.Batch) bool, max int) []batch.Batch {
	var out []batch.Batch
	size := 0
	for _, s := range l.batches {
		if from(s.b) && (len(out) == 0 || size < max) {
			out = append(out, s.b)
			size += s.b.Size()
		}
	}
	return out
}

func (l *fakeLog) Read(position uint64, max int, done func([]batch.Batch, error)) {
	l.reply(func() { done(l.some(func(b batch.Batch) bool { return b.End() > position }, max), nil) })
}

func (l *fakeLog) ReadOffset(offset uint64, max int, done func([]batch.Batch, error)) {
	l.s.d.reads++
	l.reply(func() { done(l.some(func(b batch.Batch) bool { return b.EndOffset() > offset }, max), nil) })
}

func (l *fakeLog) SeekTime(ms int64, done func(uint64, error)) {
	l.reply(func() {
		for _, s := range l.batches {
			if s.b.Records > 0 && s.b.Time >= ms {
				done(s.b.Offset, nil)
				return
			}
		}
		done(l.batches[len(l.batches)-1].tail.Offset, nil)
	})
}

func (l *fakeLog) LastBatch(below uint64, done func(uint64, error)) {
	l.reply(func() {
		var at uint64
		for _, s := range l.batches {
			if s.b.Records > 0 && s.b.Position < below {
				at = s.b.Offset
			}
		}
		done(at, nil)
	})
}

func (l *fakeLog) Size() (bytes int64, records uint64) {
	for _, s := range l.batches {
		bytes += int64(s.b.Size())
		records += uint64(s.b.Records)
	}
	return bytes, records
}

func (l *fakeLog) DropHead(below uint64, done func(error)) {
	drop := func(bs []stored) []stored {
		return slices.DeleteFunc(slices.Clone(bs), func(s stored) bool { return s.tail.Position <= below })
	}
	l.batches = drop(l.batches)
	l.write(func() { l.c.batches = drop(l.c.batches) }, done)
}

func (l *fakeLog) Oldest(max int) []partition.BatchInfo {
	var out []partition.BatchInfo
	for _, s := range l.batches[:min(max, len(l.batches))] {
		out = append(out, partition.BatchInfo{
			Position: s.b.Position, Offset: s.b.Offset, Count: s.b.Count, Records: s.b.Records, Time: s.b.Time, Size: s.b.Size(),
		})
	}
	return out
}

func (l *fakeLog) Delete(done func(error)) {
	if l.deleted {
		panic("the copy is deleted twice")
	}
	l.deleted = true
	l.write(func() { delete(l.s.d.copies, l.c.image.Partition) }, done)
}

// world is one node in virtual time.
type world struct {
	lossy   bool // transitions are accepted losses
	t       *testing.T
	sim     *exec.Sim
	node    *exec.SimNode
	clock   *clock.Sim
	disk    *disk
	store   *fakeStore
	local   ident.Instance
	m       *Manager
	res     *catalog.Resource
	number  uint32
	deletes []string
	refuse  error
	courier *fakeGateway
	claim   []protocol.Gateway
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, sim: exec.NewSim(seed), disk: newDisk(), number: 1}
	w.start()
	return w
}

// start begins a run of the node over its disk.
func (w *world) start() {
	w.disk.boot++
	w.node = w.sim.Node("n1", 2)
	w.local = ident.Instance{Node: "n1", Store: w.disk.id, Boot: w.disk.boot}
	w.store = openStore(w.disk, w.node)
	w.clock = clock.NewSim(w.sim.Now, time.UnixMilli(1_700_000_000_000))
	w.m = New(Env{
		Exec: w.node, Clock: w.clock, Trace: trace.Discard, Local: w.local,
		Store: w.store, Resources: w, Memory: func(p ident.Partition) Log { l, _ := w.store.Create(p); return l },
		Courier: func(ident.Partition) protocol.Sender {
			if w.courier == nil {
				return nil
			}
			return w.courier
		},
		Gateways: func(ident.Partition) []protocol.Gateway { return w.claim },
	})
	w.m.Apply([]catalog.Change{{After: &catalog.Node{Name: "n1", Store: w.disk.id, Boot: w.disk.boot, Number: w.number}}})
}

// crash ends the run; what was not durable is lost.
func (w *world) crash() {
	w.node.Stop()
	w.number++
	w.disk.stuck, w.disk.failAfter = false, -1
}

func (w *world) DeleteResource(_, _ uint64, reason string, done func(error)) {
	w.deletes = append(w.deletes, reason)
	if w.refuse != nil {
		done(w.refuse)
	}
}

var part = ident.Partition{Incarnation: 5}

// declare makes a resource that this run owns at the next epoch.
func (w *world) declare(kind catalog.Kind, q *queue.Settings, s *stream.Settings) {
	w.res = &catalog.Resource{
		Incarnation: part.Incarnation, VHost: "/", Name: "r", Kind: kind, Durable: true, Queue: q, Stream: s,
		Partitions: []*catalog.Assignment{{
			Partition: part, Epoch: 1, Version: 1, Owner: w.local,
			Starts: []catalog.HistoryStart{{Epoch: 1, Node: "n1"}},
		}},
	}
	w.m.Apply([]catalog.Change{{After: w.res}})
	w.settle()
}

// transition makes this run the owner at the next epoch, as the controller does: seal, choose the own answer, commit.
func (w *world) transition() SealAnswer {
	w.t.Helper()
	w.m.Apply([]catalog.Change{{After: w.res}})
	old := w.res.Partitions[0]
	var got []SealAnswer
	w.m.Seal([]SealRequest{{Partition: part, Epoch: old.Epoch + 1, Transition: "t"}}, func(as []SealAnswer) { got = as })
	w.settle()
	if len(got) != 1 || got[0].Damaged != "" || got[0].Refused != "" {
		w.t.Fatalf("seal answers %+v", got)
	}
	w.commit(got[0])
	return got[0]
}

func (w *world) commit(a SealAnswer) {
	old := w.res.Partitions[0]
	next := *old
	next.Epoch++
	next.Version++
	next.Owner = w.local
	next.Starts = append(slices.Clone(next.Starts), catalog.HistoryStart{
		Epoch: next.Epoch, Position: a.Tail.Position, Offset: a.Tail.Offset, Link: a.Tail.Link, Node: "n1",
		Loss: catalog.Loss{Accepted: w.lossy, To: a.Tail.Position},
	})
	res := *w.res
	res.Partitions = []*catalog.Assignment{&next}
	w.res = &res
	w.m.Apply([]catalog.Change{{After: w.res}})
	w.settle()
}

func (w *world) settle() {
	if !w.sim.Settle(2_000_000) {
		w.t.Fatal("never settles")
	}
}

func (w *world) status() Status {
	var got []Status
	w.m.Status([]ident.Partition{part}, func(s []Status) { got = s })
	w.settle()
	if len(got) != 1 {
		w.t.Fatalf("status %+v", got)
	}
	return got[0]
}

// fakeGateway records what an owner sends.
type fakeGateway struct {
	w      *world
	id     protocol.Gateway
	stream uint64
	got    []any
	next   uint64
	seq    uint64
	prod   uint64
}

func (w *world) gateway(shard uint32) *fakeGateway {
	return &fakeGateway{
		w: w, id: protocol.Gateway{Node: "n1", Boot: w.disk.boot, Shard: shard}, next: 1,
		prod: protocol.ProducerID(w.number, uint8(shard), 0),
	}
}

func (g *fakeGateway) Send(msg any) { g.got = append(g.got, msg) }

func (g *fakeGateway) to() protocol.To {
	return protocol.To{Partition: part, Gateway: g.id, Stream: g.stream}
}

func (g *fakeGateway) send(msgs ...any) {
	g.w.t.Helper()
	s := g.w.m.Sender(part)
	if s == nil {
		g.w.t.Fatal("no replica")
	}
	for _, m := range msgs {
		s.Send(m)
	}
}

func (g *fakeGateway) attach(first uint64, claims ...protocol.Claim) {
	g.w.t.Helper()
	g.stream++
	g.send(protocol.Attach{To: g.to(), Reply: g, Producer: g.prod, First: first, Claims: claims})
	g.w.settle()
}

func records(bodies ...string) []byte {
	var p []byte
	for _, b := range bodies {
		p = batch.AppendRecord(p, batch.RecordHeader{}, []byte(b))
	}
	return p
}

func (g *fakeGateway) publishAt(first uint64, bodies ...string) protocol.Publish {
	n := uint32(len(bodies))
	return protocol.Publish{
		To: g.to(), First: first, Count: n, Records: records(bodies...),
		Runs: []batch.Run{{Kind: batch.KindRecord, Count: n, Producer: g.prod, First: first}},
	}
}

func (g *fakeGateway) publish(bodies ...string) {
	g.w.t.Helper()
	g.send(g.publishAt(g.next, bodies...))
	g.next += uint64(len(bodies))
}

// take gives the recorded messages of one type and forgets them.
func take[T any](g *fakeGateway) []T {
	var out []T
	var rest []any
	for _, m := range g.got {
		if x, ok := m.(T); ok {
			out = append(out, x)
		} else {
			rest = append(rest, m)
		}
	}
	g.got = rest
	return out
}

func (g *fakeGateway) bodies() (out []string) {
	for _, d := range take[protocol.Deliver](g) {
		for _, i := range d.Items {
			out = append(out, string(i.Body))
		}
	}
	return out
}

func (g *fakeGateway) upTo() uint64 {
	var at uint64
	for _, p := range take[protocol.Published](g) {
		at = max(at, p.UpTo)
	}
	return at
}

func wantEqual[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
