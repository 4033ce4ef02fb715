package replica

import (
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/partition"
)

const (
	// maxFlights bounds the batches that are appended and not durable. While storage syncs one group, each of the first flushes gives
	// the next group its batch, so that what came early waits for no later sync; beyond the bound, what comes gathers in one batch.
	maxFlights = 16
	// manyFlights is how many batches of all partitions of a loop are on their way where storage is taken to be what everybody waits for: a
	// partition that has a batch on its way then gathers what comes, for one larger batch costs less than several.
	manyFlights = 128
	// maxStaged is the byte credit of a partition: what may be admitted and not yet confirmed. What comes beyond it waits here, and
	// gateways run out of the credit that they give their clients.
	maxStaged = 8 << 20
)

// build is the builder that what comes next goes to.
func (r *replica) build() *batch.Builder {
	if r.builder == nil {
		if n := len(r.lane.builders); n > 0 {
			r.builder = r.lane.builders[n-1]
			r.lane.builders = r.lane.builders[:n-1]
		} else {
			r.builder = &batch.Builder{}
		}
	}
	return r.builder
}

// discardBuilt forgets what was admitted and not appended.
func (r *replica) discardBuilt() {
	if r.builder != nil {
		r.builder.Reset()
	}
	r.built = 0
}

// add puts a run into the batch, or appends the batch first if it is full.
func (r *replica) add(run batch.Run, payload []byte) {
	b := r.build()
	if !b.Fits(len(payload)) {
		r.append(false)
		if b = r.build(); !r.copy.Open() {
			return
		}
	}
	b.Add(run, payload)
}

// append makes one batch of what gathered and gives it to storage.
func (r *replica) append(urgent bool) {
	tail := r.copy.Tail()
	b := r.builder.Finish(r.id, r.copy.Epoch(), tail, r.now())
	link := b.Link()
	if err := r.copy.Propose(b, link); err != nil {
		r.fail("append", err) // closed owners do not come here: the log and the protocol disagree
		return
	}
	r.staged += int64(b.Size()) - r.built
	r.built = 0
	r.flights = append(r.flights, flight{b, r.copy.Tail()})
	r.log.Append(b, link, urgent, r.appendedFunc())
	r.feedBatch(b)
}

// appendedFunc counts an append and is what storage calls when it is durable, or failed.
func (r *replica) appendedFunc() func(error) {
	r.lane.flights++
	if r.onAppended == nil {
		box := r.box
		r.onAppended = func(err error) {
			if err != nil {
				box.Post(appendFailed{err})
				return
			}
			box.Post(appended{})
		}
	}
	return r.onAppended
}

// closeBatches appends what gathered since the last flush, unless enough is on its way already. stirred says that there may be more than
// admitted records.
func (r *replica) closeBatches(stirred bool) {
	if !r.copy.Open() || r.fenced() != nil || r.crowded() && (r.builder == nil || r.builder.Size() < batch.TargetSize/2) {
		return
	}
	if stirred {
		r.addEvents()
	}
	if r.builder != nil && !r.builder.Empty() && r.copy.Open() {
		r.append(false)
	}
	if stirred {
		r.answerFrom(r.copy.Tail().Position)
	}
}

// crowded reports whether enough is on its way. Then a batch of this partition is among it, and its end will have Flush called.
func (r *replica) crowded() bool {
	n := r.copy.InFlight()
	return n >= maxFlights || n > 0 && r.lane.flights >= manyFlights
}

// addEvents adds what is to be logged besides records.
func (r *replica) addEvents() {
	if r.tidy {
		r.forget()
	}
	for r.copy.Open() {
		payload, count := r.side.events()
		if count == 0 {
			return
		}
		r.add(batch.Run{Kind: batch.KindEvent, Count: count}, payload)
	}
}

// answerFrom has what waited for its events to be appended wait for a position to be confirmed.
func (r *replica) answerFrom(at uint64) {
	for _, in := range r.inlets {
		if in.settled > 0 {
			in.settles.Taken(in.settled, at)
			in.settled, in.told = 0, true
		}
	}
	if r.asked != nil {
		r.asked.appended(at)
	}
}

// forget logs which producers go.
func (r *replica) forget() {
	r.tidy = false
	gone := r.producers.Forgettable(r.now(), func(id uint64) bool { return r.m.buried(id) || r.superseded(id) })
	for some := range slices.Chunk(gone, 1024) {
		body := partition.AppendPairs(nil, some)
		r.add(batch.Run{Kind: batch.KindEvent, Count: 1}, batch.AppendEvent(nil, partition.EventForget, body))
		r.forgetEnd = r.end()
	}
}

// superseded reports whether a gateway that is attached has given this producer id of its up and taken a later one: it will never use
// it again.
func (r *replica) superseded(id uint64) bool {
	for _, in := range r.inlets {
		if p := in.source.Producer; p>>24 == id>>24 && p > id {
			return true
		}
	}
	return false
}

// advance follows the confirmed position.
func (r *replica) advance(position uint64) {
	if r.phase == outside {
		if r.copy.Serving() {
			r.load()
		}
		r.land(position)
		return
	}
	switch {
	case r.phase == warm && r.copy.Role() != partition.Owner:
		r.advanceWarm(position)
		return
	case r.phase == warm && r.copy.Serving():
		r.land(position)
		r.again() // what was inherited
		return
	case r.phase < claiming:
		r.land(position)
		return
	}
	n := 0
	for ; n < len(r.flights) && r.flights[n].tail.Position <= position; n++ {
		f := &r.flights[n]
		if err := r.apply(f.b, f.tail); err != nil {
			r.fail("apply", err)
			return
		}
		if f.b.Records > 0 && r.side.awaited() {
			o := r.outgoing()
			o.recent = append(o.recent, f.b)
		}
	}
	r.tidy = r.tidy || r.producers.TooMany() && r.applied.Position >= r.forgetEnd
	r.land(position)
	if r.staged < maxStaged {
		r.admitHeld()
	}
	for _, in := range r.inlets {
		in.told = true
	}
	r.side.advanced(r)
}

// dropFlights forgets batches beyond a cut.
func (r *replica) dropFlights(end uint64) {
	n := len(r.flights)
	for n > 0 && r.flights[n-1].tail.Position > end {
		n--
		r.staged -= int64(r.flights[n].b.Size())
	}
	clear(r.flights[n:])
	r.flights = r.flights[:n]
}

// land lets go of batches that are confirmed.
func (r *replica) land(position uint64) {
	n := 0
	for ; n < len(r.flights) && r.flights[n].tail.Position <= position; n++ {
		r.staged -= int64(r.flights[n].b.Size())
	}
	if n == len(r.flights) {
		clear(r.flights)
		r.flights = r.flights[:0]
		return
	}
	r.flights = slices.Delete(r.flights, 0, n)
}

// apply brings a confirmed batch into the state.
func (r *replica) apply(b batch.Batch, tail batch.Tail) error {
	end := b.Position
	events := false
	for i := range b.Runs() {
		run := b.Run(i)
		end += uint64(run.Count)
		switch run.Kind {
		case batch.KindRecord:
			r.producers.Confirm(run, end, b.Time)
		case batch.KindEvent:
			events = true
		case batch.KindMark:
			if err := r.checkMarks(b); err != nil {
				return err
			}
		}
	}
	if err := r.side.apply(b); err != nil {
		return err
	}
	if events {
		if err := r.applyOwn(b); err != nil {
			return err
		}
	}
	r.applied = tail
	r.save.bytes += int64(b.Size())
	r.save.entries += uint64(b.Count)
	return nil
}

// applyOwn applies the events that the partition's protocol reads itself. Runs of them are few and short: the machine's own events
// come in runs of their own.
func (r *replica) applyOwn(b batch.Batch) error {
	var err error
	b.Each(func(e batch.Entry) bool {
		if e.Kind == batch.KindEvent && e.Type >= partition.FirstEvent {
			err = r.producers.Apply(e.Type, e.Body)
		}
		return err == nil
	})
	return err
}

// checkMarks refuses a log that a later version of the state machine wrote.
func (r *replica) checkMarks(b batch.Batch) error {
	var err error
	b.Each(func(e batch.Entry) bool {
		if e.Kind != batch.KindMark || e.Type != partition.MarkEpoch {
			return true
		}
		var version uint32
		if _, version, err = partition.ReadEpochMark(e.Body); err == nil && version > machineVersion(r.res.Kind) {
			err = errNewer
		}
		return err == nil
	})
	return err
}

// tell answers gateways about what was confirmed.
func (r *replica) tell() {
	at := r.copy.Confirmed()
	for _, in := range r.inlets {
		if !in.told || in.attach != nil {
			continue
		}
		in.told = false
		if upTo, news := in.source.Confirmed(at); news {
			in.reply.Send(publishedMsg(r, in, upTo))
		}
		if upTo, news := in.settles.Confirmed(at); news {
			in.reply.Send(settledMsg(r, in, upTo-1))
		}
	}
	if r.asked != nil {
		r.asked.purged(at)
		r.getAgain()
	}
}

// appended notes where the events of what was asked before are in the log.
func (w *asked) appended(at uint64) {
	for i := range w.purges {
		if w.purges[i].at == 0 {
			w.purges[i].at = at
		}
	}
	for i := range w.gets {
		if w.gets[i].at == 0 {
			w.gets[i].at = at
		}
	}
}

// purged answers the purges whose events are confirmed.
func (w *asked) purged(at uint64) {
	n := 0
	for ; n < len(w.purges) && w.purges[n].at != 0 && w.purges[n].at <= at; n++ {
		p := &w.purges[n]
		if !p.in.dead {
			p.in.reply.Send(p.answer)
		}
	}
	if w.purges = w.purges[n:]; len(w.purges) == 0 {
		w.purges = nil
	}
}
