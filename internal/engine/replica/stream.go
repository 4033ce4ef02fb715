package replica

import (
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
)

const (
	// fetchBytes is about how much is read for a reader at a time.
	fetchBytes = 512 << 10
	// oldestAtOnce is how many batches retention looks at in one go.
	oldestAtOnce = 64
	// ageStep is how often, in milliseconds, a stream looks at most for batches that have become too old.
	ageStep = 100
)

// streamSide is a stream's machine and what goes out of it.
type streamSide struct {
	m        *stream.Machine
	settings stream.Settings
	ageAt    int64 // wall time in ms when the oldest batch is too old; 0: not known, or never
	dropping bool
	starting []*starting
}

// starting is a reader whose start is being looked up.
type starting struct {
	in       *inlet
	consumer uint64
}

func (s *streamSide) apply(b batch.Batch) error                     { return s.m.ApplyBatch(b) }
func (s *streamSide) promote(int64)                                 {}
func (s *streamSide) events() ([]byte, uint32)                      { return s.m.TakeEvents() }
func (s *streamSide) limited() bool                                 { return false }
func (s *streamSide) admit(batch.RecordHeader) bool                 { return true }
func (s *streamSide) snapshot() (pages []batch.Page, gone []uint32) { return s.m.Snapshot(false) }
func (s *streamSide) restore(pages []batch.Page) error              { return s.m.Restore(pages) }
func (s *streamSide) live() (int64, bool)                           { return 0, false }
func (s *streamSide) trim()                                         { s.m.Trim() }
func (s *streamSide) claimed(*replica)                              {}
func (s *streamSide) awaited() bool                                 { return false }

func (s *streamSide) awaits(uint64, uint64) bool { return true }
func (s *streamSide) awaiting() bool             { return false }

func (s *streamSide) attach(_ *replica, in *inlet, _ *protocol.Attach) []queue.Denied {
	s.m.ReleaseGateway(in.number)
	return nil
}

func (s *streamSide) release(_ *replica, gateway uint64) { s.m.ReleaseGateway(gateway) }
func (s *streamSide) pause(uint64)                       {} // what is lost on the way to a reader is read again
func (s *streamSide) wake(*replica) int64                { return s.ageAt }

func (s *streamSide) credit(in *inlet, m protocol.Credit) {
	s.m.Credit(stream.Holder{Gateway: in.number, Consumer: m.Consumer}, m.Bytes)
}

func (s *streamSide) advanced(r *replica) {
	s.dropHead(r)
	r.touch()
}

// work sends every reader what it has credit for.
func (s *streamSide) work(r *replica) {
	if r.phase != serving {
		r.claimed()
		if r.phase == serving {
			s.dropHead(r)
		}
		return
	}
	s.keep(r, r.now())
	s.serve(r)
}

// serve sends every reader what it has credit for, as far as this copy has applied the log.
func (s *streamSide) serve(r *replica) {
	if r.pacing || r.waysCrowded() {
		r.pace()
		return
	}
	due := s.m.Due(r.applied.Offset, r.lane.fetches[:0])
	r.lane.fetches = due
	for len(due) > 0 {
		n := 1
		for n < len(due) && due[n].Offset == due[0].Offset {
			n++
		}
		s.fetch(r, slices.Clone(due[:n]))
		if !r.reads() {
			return
		}
		due = due[n:]
	}
}

// waysCrowded reports whether the way to some reader's gateway is.
func (r *replica) waysCrowded() bool {
	crowded := func(in *inlet) bool { return protocol.Crowded(in.reply) }
	return slices.ContainsFunc(r.inlets, crowded) || r.local != nil && slices.ContainsFunc(r.local.inlets, crowded)
}

// keep lets go of what has become too old.
func (s *streamSide) keep(r *replica, now int64) {
	if s.ageAt != 0 && s.ageAt <= now {
		s.ageAt = 0
		s.dropHead(r)
	}
}

func (s *streamSide) keepAt() int64 { return s.ageAt }

// reads reports whether readers are served here: by an owner, or by a copy that follows.
func (r *replica) reads() bool { return r.phase == serving || r.local != nil }

// fetch reads once for all readers that stand at one offset.
func (s *streamSide) fetch(r *replica, group []stream.Fetch) {
	var most int64
	for _, f := range group {
		most = max(most, f.Credit)
	}
	offset := group[0].Offset
	size := int(min(max(most, 1), fetchBytes))
	r.read(func(done func([]batch.Batch, error)) { r.log.ReadOffset(offset, size, done) }, func(bs []batch.Batch, err error) {
		if err != nil {
			r.fail("read", err)
			return
		}
		bs = slices.DeleteFunc(bs, func(b batch.Batch) bool {
			return b.Records == 0 || b.End() > r.applied.Position || b.EndOffset() <= offset
		})
		for _, f := range group {
			if r.reads() {
				s.send(r, f, bs)
			}
		}
		r.touch()
	})
}

// send gives a reader as many of the batches as its credit covers, at least one. The batches are shared by all readers.
func (s *streamSide) send(r *replica, f stream.Fetch, bs []batch.Batch) {
	n, bytes := 0, int64(0)
	for n < len(bs) && (n == 0 || bytes < f.Credit) {
		bytes += int64(bs[n].Size())
		n++
	}
	next := f.Offset
	if n > 0 {
		next = bs[n-1].EndOffset()
	} else if f.Offset < r.applied.Offset {
		next = max(f.Offset, s.bounds(r).Head) // what it wanted has been dropped
	}
	if next == f.Offset && n == 0 && next < r.applied.Offset {
		r.fail("read", errMissing)
		return
	}
	in := r.holder(f.Holder.Gateway)
	if !s.m.Sent(f.Holder, f.Offset, next, bytes) || in == nil || n == 0 {
		return
	}
	in.reply.Send(protocol.StreamData{
		Partition: r.id, Stream: in.stream, Consumer: f.Holder.Consumer, First: f.Offset, Batches: bs[:n:n],
	})
}

// bounds is what can be read.
func (s *streamSide) bounds(r *replica) stream.Bounds {
	b := stream.Bounds{Head: r.applied.Offset, Confirmed: r.applied.Offset}
	if oldest := r.log.Oldest(1); len(oldest) > 0 {
		b.Head = min(b.Head, oldest[0].Offset)
	}
	return b
}

// subscribe adds a reader where its start says, which may have to be looked up.
func (s *streamSide) subscribe(r *replica, in *inlet, m protocol.Subscribe) {
	s.leave(in, m.Consumer)
	bounds := s.bounds(r)
	if m.Cursor != "" {
		if at, ok := s.m.Cursor(m.Cursor); ok {
			s.begin(r, in, m, bounds.Clamp(at))
			return
		}
	}
	at, lookup := stream.Resolve(m.Start, bounds)
	if lookup == stream.NoLookup {
		s.begin(r, in, m, at)
		return
	}
	st := &starting{in, m.Consumer}
	s.starting = append(s.starting, st)
	found := func(offset uint64, err error) {
		if err != nil {
			r.fail("lookup", err)
			return
		}
		i := slices.Index(s.starting, st)
		if i < 0 {
			return // it has gone, or come again
		}
		s.starting = slices.Delete(s.starting, i, i+1)
		if !in.dead {
			s.begin(r, in, m, s.bounds(r).Clamp(offset))
		}
	}
	switch lookup {
	case stream.LookupTime:
		r.log.SeekTime(m.Start.Time, r.found(found))
	case stream.LookupLast:
		r.log.LastBatch(r.applied.Position, r.found(found))
	}
}

// found brings the answer of a lookup to this replica's loop.
func (r *replica) found(then func(uint64, error)) func(uint64, error) {
	generation := r.generation
	return func(offset uint64, err error) {
		r.box.Post(call{func() {
			if r.generation == generation {
				then(offset, err)
			}
		}})
	}
}

func (s *streamSide) begin(r *replica, in *inlet, m protocol.Subscribe, next uint64) {
	s.m.Subscribe(stream.Holder{Gateway: in.number, Consumer: m.Consumer}, next, m.Credit)
	in.reply.Send(protocol.Subscribed{Partition: r.id, Stream: in.stream, Consumer: m.Consumer, Next: next})
}

// leave forgets a reader whose start is being looked up.
func (s *streamSide) leave(in *inlet, consumer uint64) {
	s.starting = slices.DeleteFunc(s.starting, func(st *starting) bool { return st.in == in && st.consumer == consumer })
}

func (s *streamSide) unsubscribe(r *replica, in *inlet, m protocol.Unsubscribe) {
	s.leave(in, m.Consumer)
	s.m.Unsubscribe(stream.Holder{Gateway: in.number, Consumer: m.Consumer})
	in.reply.Send(protocol.Unsubscribed{Partition: r.id, Stream: in.stream, Consumer: m.Consumer})
}

func (s *streamSide) count(r *replica, st *Status) {
	b := s.bounds(r)
	st.Ready = b.Confirmed - b.Head
	st.Consumers = uint64(s.m.Readers())
}

// dropHead lets go of what is past the stream's limits. What the newest snapshot still needs stays until there is a newer one.
func (s *streamSide) dropHead(r *replica) {
	set := s.settings
	if s.dropping || r.phase != serving && r.phase != warm || set.MaxAge <= 0 && set.MaxBytes <= 0 && set.MaxRecords <= 0 {
		return
	}
	now := r.now()
	if set.MaxAge > 0 && s.ageAt == 0 {
		s.setAge(r, now)
	}
	bytes, records := r.log.Size()
	if !(set.MaxBytes > 0 && bytes > set.MaxBytes) && !(set.MaxRecords > 0 && records > uint64(set.MaxRecords)) &&
		(set.MaxAge <= 0 || !s.old(r, now)) {
		return
	}
	below := stream.Retain(set, now, r.applied.Position, bytes, int64(records), r.log.Oldest(oldestAtOnce))
	if below > r.save.at {
		r.save.wanted = !r.save.busy
		below = r.save.at
	}
	below = r.owed(below)
	if oldest := r.log.Oldest(1); below == 0 || len(oldest) == 0 || below <= oldest[0].Position {
		return
	}
	s.dropping = true
	generation := r.generation
	r.log.DropHead(below, func(err error) {
		r.box.Post(call{func() {
			if err != nil {
				r.fail("retention", err)
			} else if r.generation == generation {
				s.dropping, s.ageAt = false, 0
				s.dropHead(r)
			}
		}})
	})
}

func (s *streamSide) old(r *replica, now int64) bool {
	oldest := r.log.Oldest(1)
	return len(oldest) > 0 && oldest[0].Time+s.settings.MaxAge <= now
}

// setAge notes when the oldest batch will be too old.
func (s *streamSide) setAge(r *replica, now int64) {
	if oldest := r.log.Oldest(1); len(oldest) > 0 {
		s.ageAt = max(oldest[0].Time+s.settings.MaxAge, now+ageStep)
	}
}

// retain is called when a snapshot is durable: the log keeps all of a stream from its head on, but retention may have waited for it.
func (s *streamSide) retain(r *replica) { s.dropHead(r) }
