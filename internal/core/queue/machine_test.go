package queue_test

import (
	"encoding/binary"
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	. "github.com/tanist/tanist/internal/core/queue"
)

// logged is a batch of the log, as bytes for the machine and as decisions for the model.
type logged struct {
	b         batch.Batch
	records   []batch.RecordHeader
	decisions []decision
}

// rig drives a machine and the model through the same life, with a follower that only ever sees the confirmed log.
type rig struct {
	s         Settings
	m         *Machine
	follower  *Machine
	q         *model
	now       int64
	epoch     uint64
	tail      batch.Tail
	confirmed []logged
	pending   []logged // staged, not confirmed
	open      []batch.RecordHeader
	disk      map[uint32][]byte // snapshot pages gathered from partial snapshots
	diskAt    int               // batches of confirmed that are in them
	under     []DeadLetter
}

func newRig(s Settings) *rig {
	r := &rig{s: s, m: New(s), follower: New(s), q: &model{s: s}, now: 1_000_000, epoch: 1, disk: map[uint32][]byte{}}
	r.m.Promote(r.now)
	r.m.Claimed()
	r.q.promote(r.now)
	return r
}

func pointer[T any](v T) *T { return &v }

func genSettings(t *rapid.T) Settings {
	var s Settings
	maybe := func(name string) bool { return rapid.IntRange(0, 2).Draw(t, name) == 0 }
	if maybe("ttl?") {
		s.TTL = pointer(rapid.Int64Range(0, 300).Draw(t, "ttl"))
	}
	if maybe("length?") {
		s.MaxLength = pointer(rapid.Int64Range(0, 12).Draw(t, "length"))
	}
	if maybe("bytes?") {
		s.MaxBytes = pointer(rapid.Int64Range(0, 2000).Draw(t, "bytes"))
	}
	if maybe("limit?") {
		s.DeliveryLimit = pointer(rapid.Int64Range(0, 3).Draw(t, "limit"))
	}
	if rapid.Bool().Draw(t, "dead?") {
		s.DeadLetterExchange = pointer("dlx")
	}
	if rapid.Bool().Draw(t, "reject?") {
		s.Overflow = RejectPublish
	}
	s.SingleActive = maybe("single?")
	if maybe("expires?") {
		s.Expires = 500
	}
	return s
}

func genHeader(t *rapid.T) batch.RecordHeader {
	h := batch.RecordHeader{Size: rapid.SampledFrom([]uint32{100, 100, 100, 0, 7, 300, 70_000}).Draw(t, "size")}
	switch rapid.IntRange(0, 7).Draw(t, "kind") {
	case 0:
		h.Flags, h.TTL = batch.FlagTTL, rapid.Uint32Range(0, 200).Draw(t, "ttl")
	case 1:
		h.Delay = rapid.Uint32Range(1, 200).Draw(t, "delay")
	case 2:
		h.Flags, h.TTL, h.Delay = batch.FlagTTL, rapid.Uint32Range(0, 50).Draw(t, "ttl"), rapid.Uint32Range(1, 100).Draw(t, "delay")
	}
	return h
}

func (r *rig) publish(t *rapid.T, h batch.RecordHeader) {
	if r.m.Limited() != r.q.limited() {
		t.Fatalf("limited: machine %v", r.m.Limited())
	}
	if got, want := r.m.Admit(h), r.q.admit(h); got != want {
		t.Fatalf("admit %+v: machine %v, model %v", h, got, want)
	} else if got {
		r.open = append(r.open, h)
	}
}

// flush makes a batch of what was admitted and decided.
func (r *rig) flush(t *rapid.T) {
	var payload []byte
	var count uint32
	for {
		p, n := r.m.TakeEvents()
		if n == 0 {
			break
		}
		payload, count = append(payload, p...), count+n
	}
	want := r.q.take()
	got := readEvents(t, payload, count)
	if !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		t.Fatalf("events:\n machine %+v\n model   %+v", got, want)
	}
	if len(r.open) == 0 && count == 0 {
		return
	}
	var b batch.Builder
	for _, h := range r.open {
		b.Add(batch.Run{Kind: batch.KindRecord, Count: 1}, batch.AppendRecord(nil, h, make([]byte, h.Size)))
	}
	if count > 0 {
		b.Add(batch.Run{Kind: batch.KindEvent, Count: count}, payload)
	}
	l := logged{b: b.Finish(ident.Partition{Incarnation: 1}, r.epoch, r.tail, r.now), records: r.open, decisions: want}
	r.tail = r.tail.After(l.b, batch.Link{})
	r.pending = append(r.pending, l)
	r.open = nil
}

// readEvents decodes events without the machine's help.
func readEvents(t *rapid.T, p []byte, count uint32) (ds []decision) {
	for range count {
		size, typ := binary.LittleEndian.Uint32(p), p[4]
		body := p[8 : 8+size]
		p = p[8+size:]
		next := func() uint64 {
			v, n := binary.Uvarint(body)
			if n <= 0 {
				t.Fatalf("event %d: bad varint", typ)
			}
			body = body[n:]
			return v
		}
		d := decision{fate: map[uint8]fate{EventGone: goes, EventReturn: returns, EventDead: dies, EventDue: falls}[typ]}
		if typ == EventGone || typ == EventDead {
			d.reason, body = Reason(body[0]), body[1:]
		}
		if typ == EventDead {
			d.number = next()
		}
		at := uint64(0)
		for len(body) > 0 {
			at += next()
			n := next() + 1
			if typ == EventReturn {
				d.count = uint32(next())
			}
			for range n {
				d.offset = at
				ds = append(ds, d)
				at++
				if typ == EventDead {
					d.number++
				}
			}
		}
	}
	if len(p) != 0 {
		t.Fatalf("%d bytes after the events", len(p))
	}
	return ds
}

// confirm applies the next pending batch everywhere.
func (r *rig) confirm(t *rapid.T) {
	if len(r.pending) == 0 {
		return
	}
	l := r.pending[0]
	r.pending = r.pending[1:]
	r.confirmed = append(r.confirmed, l)
	for _, m := range []*Machine{r.m, r.follower} {
		if err := m.ApplyBatch(l.b); err != nil {
			t.Fatal(err)
		}
	}
	r.modelApply(l)
}

func (r *rig) modelApply(l logged) {
	for _, h := range l.records {
		r.q.applyRecord(h, l.b.Time)
	}
	for _, d := range l.decisions {
		r.q.applyDecision(d)
	}
}

// save writes a partial snapshot.
func (r *rig) save() {
	pages, gone := r.m.Snapshot(false)
	for _, n := range gone {
		delete(r.disk, n)
	}
	for _, p := range pages {
		r.disk[p.Number] = p.Data
	}
	r.diskAt = len(r.confirmed)
}

func (r *rig) restored(t *rapid.T) *Machine {
	m := New(r.s)
	var pages []batch.Page
	for n, data := range r.disk {
		pages = append(pages, batch.Page{Number: n, Data: data})
	}
	slices.SortFunc(pages, func(a, b batch.Page) int { return int(b.Number) - int(a.Number) })
	if len(pages) > 0 {
		if err := m.Restore(pages); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// crash loses some of what was staged and makes a new owner: from the log, from the last snapshot and what follows it, or from the
// machine as it stands. What the old owner had confirmed lately, the new one may know only as the end of its log.
func (r *rig) crash(t *rapid.T) {
	kept := rapid.IntRange(0, len(r.pending)).Draw(t, "kept")
	r.pending, r.open, r.under = r.pending[:kept], nil, nil
	how := rapid.SampledFrom([]string{"log", "snapshot", "same"}).Draw(t, "from")
	if how != "same" {
		r.rewind(rapid.IntRange(0, 8).Draw(t, "rewind"))
	}
	r.tail = batch.Tail{}
	for _, l := range slices.Concat(r.confirmed, r.pending) {
		r.tail = r.tail.After(l.b, batch.Link{})
	}
	from := 0
	switch how {
	case "log":
		r.m = New(r.s)
		clear(r.disk)
	case "snapshot":
		if r.m = r.restored(t); len(r.disk) > 0 {
			from = r.diskAt
		}
	case "same":
		r.m.Demote()
		from = len(r.confirmed)
	}
	for _, l := range r.confirmed[from:] {
		if err := r.m.ApplyBatch(l.b); err != nil {
			t.Fatal(err)
		}
	}
	for len(r.pending) > 0 { // an owner begins once all that it inherits is confirmed
		r.confirm(t)
	}
	r.epoch++
	r.m.Promote(r.now)
	r.m.Claimed()
	r.q.promote(r.now)
}

// rewind makes the last n confirmed batches, but for those that a snapshot has, unconfirmed.
func (r *rig) rewind(n int) {
	if len(r.disk) == 0 {
		r.diskAt = 0
	}
	at := max(len(r.confirmed)-n, r.diskAt)
	r.pending = slices.Concat(r.confirmed[at:], r.pending)
	confirmed := r.confirmed[:at:at]
	r.follower, r.confirmed, r.q = New(r.s), nil, &model{s: r.s}
	for _, l := range confirmed {
		if err := r.follower.ApplyBatch(l.b); err != nil {
			panic(err)
		}
		r.modelApply(l)
	}
	r.confirmed = confirmed
}

var holders = []Holder{{1, 1}, {1, 2}, {2, 1}, {2, 7}, {3, 1}}

func genHolder(t *rapid.T) Holder { return rapid.SampledFrom(holders).Draw(t, "holder") }

func (r *rig) offset(t *rapid.T, name string) uint64 {
	return uint64(rapid.IntRange(0, len(r.q.msgs)+2).Draw(t, name))
}
