package replica

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
)

const (
	// readChunk is about how much is read from the log at a time, in bytes.
	readChunk = 1 << 20
	// claimsWindow is how long a new owner waits at most to hear what gateways hold, in milliseconds (design 2 §2).
	claimsWindow = 500
)

// read asks the log for batches and goes on with then on this replica's loop: at once where the log has them in memory. Where the
// replica lost its state in between, the answer is dropped.
func (r *replica) read(ask func(done func([]batch.Batch, error)), then func([]batch.Batch, error)) {
	const (
		asking = iota
		answered
		away
	)
	var state atomic.Int32
	var got []batch.Batch
	var failed error
	generation := r.generation
	ask(func(bs []batch.Batch, err error) {
		got, failed = bs, err
		if state.CompareAndSwap(asking, answered) {
			return
		}
		r.box.Post(call{func() {
			if r.generation == generation {
				then(got, failed)
			}
		}})
	})
	if !state.CompareAndSwap(asking, away) {
		then(got, failed)
	}
}

// load begins to read the state, now that everything that was inherited is confirmed. Only so many replicas read at a time.
func (r *replica) load() {
	r.phase = queued
	if r.lane.loading >= maxLoading {
		r.lane.toLoad = append(r.lane.toLoad, r)
		return
	}
	r.startLoad()
}

// loaded ends the wait for the turn to load, or gives the turn to the next replica.
func (r *replica) loaded() {
	l := r.lane
	if r.phase == queued {
		l.toLoad = slices.DeleteFunc(l.toLoad, func(o *replica) bool { return o == r })
		return
	}
	l.loading--
	l.passTurn()
}

// passTurn lets the replica load that has waited longest. One that does not wait any more, or waits anew behind others, passes it on.
func (l *lane) passTurn() {
	if len(l.toLoad) == 0 || l.loading >= maxLoading {
		return
	}
	next := l.toLoad[0]
	l.toLoad = l.toLoad[1:]
	next.box.Post(call{func() {
		if next.phase == queued && !slices.Contains(l.toLoad, next) {
			next.startLoad()
			return
		}
		l.passTurn()
	}})
}

func (r *replica) startLoad() {
	r.phase = loading
	r.lane.loading++
	r.side = newSide(r.res)
	if r.log.Image().Snapshot.Position == 0 {
		r.replay()
		return
	}
	generation := r.generation
	r.log.ReadSnapshot(func(s partition.Snapshot, ok bool, err error) {
		r.box.Post(call{func() {
			if r.generation == generation {
				r.restore(s, ok, err)
			}
		}})
	})
}

func (r *replica) restore(s partition.Snapshot, ok bool, err error) {
	switch {
	case err == nil && !ok:
		err = errors.New("the snapshot is not there")
	case err == nil && s.Version > machineVersion(r.res.Kind):
		err = errNewer
	case err == nil && s.At.Position > r.copy.Confirmed():
		err = fmt.Errorf("the snapshot is of position %d, beyond the confirmed %d", s.At.Position, r.copy.Confirmed())
	}
	if err == nil {
		r.producers, err = partition.RestoreProducers(s.Pages)
	}
	if err == nil {
		var own []batch.Page
		for _, p := range s.Pages {
			if p.Number < partition.ProducersPage {
				own = append(own, p)
			} else {
				r.save.pages++
			}
		}
		err = r.side.restore(own)
	}
	if err != nil {
		r.fail("snapshot", err)
		return
	}
	r.applied, r.save.at = s.At, s.At.Position
	r.replay()
}

// replay applies the log from where the state stands up to the confirmed position, a chunk at a time.
func (r *replica) replay() {
	if r.applied.Position == r.copy.Confirmed() {
		r.current()
		return
	}
	from := r.applied.Position
	r.read(func(done func([]batch.Batch, error)) { r.log.Read(from, readChunk, done) }, func(bs []batch.Batch, err error) {
		if err == nil {
			err = r.replayed(bs)
		}
		if err == nil && r.applied.Position == from {
			err = fmt.Errorf("the log has nothing at position %d", from)
		}
		if err != nil {
			r.fail("recovery", err)
			return
		}
		generation := r.generation
		r.box.Post(call{func() { // others on this loop have their turn
			if r.generation == generation {
				r.replay()
			}
		}})
	})
}

func (r *replica) replayed(bs []batch.Batch) error {
	for _, b := range bs {
		if b.End() > r.copy.Confirmed() {
			return nil
		}
		if b.Position != r.applied.Position || b.PrevLink != r.applied.Link {
			return fmt.Errorf("the batch at %d does not continue the log at %d", b.Position, r.applied.Position)
		}
		if err := r.apply(b, r.applied.After(b, b.Link())); err != nil {
			return err
		}
	}
	return nil
}

// current is called when the state has come to the confirmed position.
func (r *replica) current() {
	if r.copy.Serving() {
		r.ready()
		return
	}
	r.loaded()
	r.phase = warm
	r.touch()
}

// again reads on from where the state stands.
func (r *replica) again() {
	r.phase = loading
	r.lane.loading++
	r.replay()
}

// ready begins the owner's side. A queue that holds messages first hears which of them gateways hold.
func (r *replica) ready() {
	r.loaded()
	r.endReading("this copy owns the stream now")
	now := r.now()
	r.side.promote(now)
	r.tidy = true
	r.phase = claiming
	if r.m.env.Gateways != nil && r.res.Kind == catalog.Queue {
		if claimers := r.m.env.Gateways(r.id); len(claimers) > 0 {
			w := r.asks()
			w.claimers, w.claimEnd = claimers, r.mono()+claimsWindow
		}
	}
	for _, in := range r.inlets {
		r.open(in)
	}
	r.claimed()
}

// claimed begins to deliver once every gateway that may hold something has said so and subscribed the consumers that it had, or had its
// time. One of a node that counts as lost because nothing is heard of it is not waited for: it had three times as long (design 2 §2 asks
// live gateways). When it is heard again and claims what was delivered to another since, that is delivered twice, as after any other wait.
func (r *replica) claimed() {
	if r.phase != claiming {
		return
	}
	w := r.asked
	if w != nil && r.mono() < w.claimEnd {
		for _, g := range w.claimers {
			if !r.m.gone(g) && !r.m.quiet(g.Node) && !r.attachedBy(g) && !r.unclaimedBy(g) {
				return
			}
		}
		if r.side.awaiting() {
			return
		}
	}
	r.phase = serving
	if w != nil {
		w.claimEnd, w.claimers = 0, nil
		w.forgetUnclaimed(r.copy.Epoch())
	}
	r.side.claimed(r)
	r.admitHeld()
	if w != nil {
		waited := w.deferred
		w.deferred = nil
		for _, msg := range waited { // in their order, and ahead of what has come since
			r.Receive(msg)
		}
	}
	r.reason = ""
	r.arrived()
	if f := r.m.env.Serving; f != nil {
		f(r.id)
	}
	if len(r.inlets) == 0 {
		r.trim()
	}
}

func (r *replica) attachedBy(g protocol.Gateway) bool {
	for _, in := range r.inlets {
		if in.gateway == g && in.attach == nil {
			return true
		}
	}
	return false
}

// unclaimed takes note of a gateway that holds nothing of this partition. What it says of an epoch that is served already is no news;
// of a later one it counts when this copy has applied that.
func (r *replica) unclaimed(m unclaimed) {
	if now := r.copy.Epoch(); m.epoch < now || m.epoch == now && r.phase == serving {
		return
	}
	w := r.asks()
	i := slices.IndexFunc(w.unclaimed, func(u unclaimed) bool { return u.gateway == m.gateway })
	switch {
	case i < 0:
		w.unclaimed = append(w.unclaimed, m)
	case w.unclaimed[i].epoch < m.epoch:
		w.unclaimed[i] = m
	}
	r.claimed()
}

func (r *replica) unclaimedBy(g protocol.Gateway) bool {
	return slices.Contains(r.asked.unclaimed, unclaimed{g, r.copy.Epoch()})
}

// forgetUnclaimed forgets what was said of epochs up to one.
func (w *asked) forgetUnclaimed(epoch uint64) {
	w.unclaimed = slices.DeleteFunc(w.unclaimed, func(u unclaimed) bool { return u.epoch <= epoch })
	if len(w.unclaimed) == 0 {
		w.unclaimed = nil
	}
}
