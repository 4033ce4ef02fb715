package replica

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/trace"
)

// assign takes what the catalog says of this copy.
func (r *replica) assign(m assignment) {
	if r.want != nil && m.a.Version < r.want.Version {
		return
	}
	before, was := r.want, r.former != nil
	r.res, r.want = m.res, m.a
	if r.leave() {
		return
	}
	if d := r.log.Image().Damaged; d != "" && r.copy.Damaged() == "" {
		r.fail("storage", errors.New(d))
	}
	if d := r.copy.Damaged(); d != "" {
		r.reason = d
		r.sayDamaged()
		r.saysWhyNot()
	}
	r.noteDamage()
	local := r.m.env.Local
	mine := m.a.Owner.Node == local.Node && m.a.Owner.Store == local.Store
	switch {
	case !mine:
		r.arrived() // another node's to serve
	case r.copy.Damaged() == "" && r.phase < serving:
		r.expected()
	}
	if m.role != partition.Owner && r.phase < claiming {
		r.dismiss("another owner was chosen")
	}
	if m.role != partition.Owner && r.asked != nil {
		r.asked.forgetUnclaimed(m.a.Epoch)
	}
	if m.role == partition.None || m.a.Epoch == 0 {
		return // a transition will say
	}
	sets, err := setsOf(m.res, m.a)
	if err != nil {
		r.fail("policy", err)
		return
	}
	if m.role == partition.Owner && r.copy.Role() == partition.Owner && r.copy.Epoch() == m.a.Epoch {
		r.lowers(before.Policy, sets[0])
		r.w = int32(sets[0].W)
		r.setFeeds(m.a)
		sets = r.joint(sets)
	} // else the other copies are known once the epoch has begun here
	r.w = int32(sets[0].W)
	a := partition.Assignment{Epoch: m.a.Epoch, Role: m.role, Starts: m.a.Starts, Sets: sets}
	r.step(func(fx *partition.Effects) { r.copy.Assign(a, fx) })
	if was && r.follows() {
		r.sayStanding() // in the role that it had: nothing else says so
	}
}

// expected counts the replica among those that are to serve soon.
func (r *replica) expected() {
	if !r.waiting {
		r.waiting = true
		r.m.recovering.Add(1)
	}
}

// arrived takes the replica off the count of those that are expected to serve soon: it does, or never will.
func (r *replica) arrived() {
	if r.waiting {
		r.waiting = false
		r.m.recovering.Add(-1)
	}
}

// seal promises a later epoch. The answer follows once the promise is durable.
func (r *replica) seal(m sealCopy) {
	var err error
	w := r.asks()
	w.seals = append(w.seals, m)
	followed := r.follows()
	r.step(func(fx *partition.Effects) { err = r.copy.Seal(m.Epoch, fx) })
	if err == nil {
		if followed {
			r.saySealed()
		}
		return
	}
	w.seals = w.seals[:len(w.seals)-1]
	a := r.sealAnswer(m.SealRequest)
	if errors.Is(err, partition.ErrDamaged) {
		a.Damaged = cmp.Or(r.copy.Damaged(), reseeding) // or it is being made of an image
	} else {
		a.Refused = err.Error()
	}
	m.done(a)
}

func (r *replica) sealAnswer(req SealRequest) SealAnswer {
	a := SealAnswer{Partition: r.id}
	a.Transition, a.Instance = req.Transition, r.m.env.Local
	a.Tail, a.Confirmed, a.LastConfirm = r.copy.Durable(), r.copy.Confirmed(), r.confirmedAt
	return a
}

// answerSeals answers all that wait: the promise is durable and nothing is in flight, or the copy failed.
func (r *replica) answerSeals() {
	if r.asked == nil {
		return
	}
	seals := r.asked.seals
	r.asked.seals = nil
	for _, s := range seals {
		a := r.sealAnswer(s.SealRequest)
		a.Damaged = r.copy.Damaged()
		s.done(a)
	}
}

// findTail looks for the batch that ends where another owner's history began.
func (r *replica) findTail(cut catalog.HistoryStart) {
	r.cutsTo(cut)
	found := func(t batch.Tail) { r.step(func(fx *partition.Effects) { r.copy.TailFound(t, fx) }) }
	t := batch.Tail{Position: cut.Position, Offset: cut.Offset, Events: cut.Position - cut.Offset, Link: cut.Link}
	if cut.Position == 0 {
		found(batch.Tail{})
		return
	}
	if cut.Loss.Accepted && r.log.Image().Snapshot.Position > cut.Position {
		r.emptied(cut, found)
		return
	}
	r.read(func(done func([]batch.Batch, error)) { r.log.Read(cut.Position-1, 1, done) }, func(bs []batch.Batch, err error) {
		switch {
		case err == nil && (len(bs) == 0 || bs[0].Position >= cut.Position):
			r.findSnapshot(cut, found)
			return
		case err == nil && (bs[0].End() != cut.Position || bs[0].Link() != cut.Link):
			r.emptied(cut, found)
			return
		}
		if err != nil {
			r.fail("cut", err)
			return
		}
		t.Epoch, t.Time = bs[0].Epoch, bs[0].Time
		found(t)
	})
}

// emptied drops all of a log that cannot be cut to where an accepted loss began: what it holds, or no longer holds, is of a state that was
// given up (design 2 §8). Such a copy learns, from nothing. Any other must have the boundary.
func (r *replica) emptied(cut catalog.HistoryStart, found func(batch.Tail)) {
	if !cut.Loss.Accepted || r.copy.Becoming() != partition.Learner {
		r.fail("cut", errNoBoundary)
		return
	}
	trace.Warn(r.m.env.Trace, "copy.emptied", r.attr(), slog.Uint64("epoch", cut.Epoch), slog.Uint64("from", cut.Position),
		slog.Uint64("to", r.copy.Tail().Position))
	found(batch.Tail{})
}

var errNoBoundary = errors.New("the log has no batch that ends where the history of a later owner began")

// findSnapshot looks for where another owner's history began in the newest snapshot: what lay right below it was not needed any more, and has
// gone from the log. Nothing is dropped beyond what a snapshot holds, nor does one go beyond what was confirmed, so it ends there.
func (r *replica) findSnapshot(cut catalog.HistoryStart, found func(batch.Tail)) {
	generation := r.generation
	r.log.ReadSnapshot(func(s partition.Snapshot, ok bool, err error) {
		r.box.Post(call{func() {
			switch {
			case r.generation != generation:
				return
			case err != nil:
				r.fail("cut", err)
			case !ok || s.At.Position != cut.Position || s.At.Link != cut.Link:
				r.emptied(cut, found)
			default:
				found(s.At)
			}
		}})
	})
}

// writeMark begins the epoch.
func (r *replica) writeMark() {
	r.m.env.Trace.Emit(trace.Event{Level: slog.LevelDebug, Name: "replica.owner", Attrs: []slog.Attr{
		r.attr(), slog.Uint64("epoch", r.copy.Epoch()), slog.Uint64("position", r.copy.Tail().Position),
	}})
	r.reason = ""
	r.reigns()
	r.alone = inTouch
	r.setFeeds(r.want)
	r.tellsFormer()
	var scratch [64]byte
	body := partition.AppendEpochMark(scratch[:0], r.copy.Epoch(), machineVersion(r.res.Kind))
	b := r.build()
	b.Add(batch.Run{Kind: batch.KindMark, Count: 1}, batch.AppendEvent(nil, partition.MarkEpoch, body))
	r.append(true)
}

// closeOwner ends admission for good: sealed, deposed or failed. What was appended and not confirmed has an unknown outcome here; the
// gateways ask the next owner.
func (r *replica) closeOwner(reason string) {
	failed := r.copy.Damaged() != ""
	for _, in := range r.inlets {
		first, waits := in.source.Waiting()
		if failed && waits && in.attach == nil {
			in.reply.Send(protocol.PublishUnknown{Partition: r.id, Stream: in.stream, First: first, Reason: reason})
		} else {
			in.reply.Send(protocol.NotServing{Partition: r.id, Stream: in.stream, Reason: reason})
		}
		in.dead = true
	}
	r.forgetInlets()
	r.flights, r.staged = nil, 0
	if w := r.asked; w != nil {
		w.held, w.deferred, w.purges, w.gets = nil, nil, nil, nil
	}
	r.dropWindow()
	r.out = nil
	r.endFeeds()
	r.discardBuilt()
	r.unload()
	if e := r.ending; e != nil {
		e.closing, e.closedBy = "", nil
	}
	if failed {
		r.arrived()
	}
}

// dismiss sends away gateways that wait for this copy to own.
func (r *replica) dismiss(reason string) {
	for _, in := range r.inlets {
		in.reply.Send(protocol.NotServing{Partition: r.id, Stream: in.stream, Reason: reason})
		in.dead = true
	}
	r.forgetInlets()
}

// unload forgets the state that confirmed entries had made: another owner may go on, and this copy reads it anew if it owns again.
func (r *replica) unload() {
	r.endReading("this copy does not follow any more")
	if r.phase == queued || r.phase == loading {
		r.loaded()
	}
	r.generation++
	r.phase, r.side, r.producers, r.applied = outside, nil, partition.Producers{}, batch.Tail{}
	if w := r.asked; w != nil {
		w.claimEnd, w.claimers = 0, nil
	}
	r.forgetEnd = 0
	r.save = saving{}
	r.stopTimer()
}

// deleted ends the replica: the catalog has dropped the resource.
func (r *replica) deleted() {
	if r.former != nil && r.former.ended {
		return
	}
	for _, in := range r.inlets {
		in.reply.Send(protocol.NotServing{Partition: r.id, Stream: in.stream, Gone: true, Reason: "deleted"})
		in.dead = true
	}
	r.forgetInlets()
	r.finish("deleted", func() { r.m.end(r.log) })
}

// finish ends the replica. drop has its copy dropped, or put aside.
func (r *replica) finish(reason string, drop func()) {
	r.closeOwner(reason)
	r.arrived()
	if r.former != nil {
		r.former.stop()
	}
	r.reason = reason
	if w := r.asked; w != nil {
		for _, s := range w.seals {
			a := r.sealAnswer(s.SealRequest)
			a.Refused = reason
			s.done(a)
		}
		w.seals = nil
	}
	r.ended = true
	r.noteDamage()
	drop()
	r.step(func(fx *partition.Effects) { r.copy.Fail(reason, fx) })
	r.m.promised(r.id, 0)
	r.endStop()
}

// bury detaches the gateways of runs that are over, and lets their producers be forgotten.
func (r *replica) bury() {
	r.tidy = true
	for _, in := range append([]*inlet(nil), r.inlets...) {
		if r.over(in) {
			r.drop(in)
		}
	}
	if r.local != nil {
		for _, in := range slices.Clone(r.local.inlets) {
			if r.m.gone(in.gateway) {
				r.unread(protocol.Unread{To: protocol.To{Partition: r.id, Gateway: in.gateway, Stream: in.stream}})
			}
		}
	}
	if r.phase == claiming {
		r.claimed()
	}
}

// status is what the admin port shows.
func (r *replica) status() Status {
	c := &r.copy
	s := Status{
		Partition: r.id, Role: c.Role().String(), Epoch: c.Epoch(), Reason: r.reason,
		Position: c.Tail().Position, Offset: c.Tail().Offset, Durable: c.Durable().Position, Confirmed: c.Confirmed(), Messages: r.applied.Offset,
		Staged: r.staged,
	}
	if c.Role() == partition.Learner {
		s.Moved = r.moved
	}
	if f := r.former; f != nil {
		s.Kept = f.until
	}
	for _, f := range r.feeds {
		if f.Standing() && !f.doubted {
			s.Feeds = append(s.Feeds, FeedStatus{Node: f.Node, Durable: f.Durable()})
		}
	}
	switch {
	case c.Damaged() != "":
		s.State = Blocked
	case c.Importing() && c.Role() == partition.Follower:
		s.State, s.Reason, s.Moved = Recovering, cmp.Or(r.noRoom(), reseeding), r.moved
	case c.Role() == partition.Sealed:
		s.State = Moving
	case r.phase == serving || c.Role() == partition.Follower || c.Role() == partition.Learner:
		s.State, s.Reason = Serving, r.closing()
		if err := r.fenced(); err != nil {
			s.Reason = err.Error() // it delivers, and takes nothing
		}
		if c.Role() == partition.Owner && s.Reason == "" {
			s.Reason, _ = r.shut()
		}
		s.Reason = cmp.Or(r.noRoom(), s.Reason)
	case c.Role() == partition.Owner || c.Applying():
		s.State = Recovering
	default:
		s.State = Waiting
		if s.Reason == "" {
			s.Reason = "no transition has made a copy its owner yet"
		}
	}
	s.Bytes, _ = r.log.Size()
	if r.local != nil {
		s.Readers = uint64(len(r.local.inlets))
	}
	if r.side != nil && r.phase >= claiming {
		r.side.count(r, &s)
	}
	return s
}

// linksAt finds the link of the log at each position, but for those that it does not know any more: what was there has been dropped.
func (r *replica) linksAt(positions []uint64, found map[uint64]batch.Link, done func(map[uint64]batch.Link)) {
	for len(positions) > 0 {
		at := positions[0]
		positions = positions[1:]
		switch tail := r.copy.Durable(); {
		case at == 0:
			found[0] = batch.Link{}
		case at == tail.Position:
			found[at] = tail.Link
		case at < tail.Position:
			r.readLog(at-1, 1, func(bs []batch.Batch, err error) {
				if err == nil && len(bs) > 0 && bs[0].Position <= at {
					found[at] = linkAt(bs[0], at)
				}
				r.linksAt(positions, found, done)
			})
			return
		}
	}
	done(found)
}
