package replica

import (
	"log/slog"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/port/trace"
)

// What becomes of a change of owner is told from here (design 6 "Evidence"): when the new owner serves, when it first confirms anything,
// and what copies cut to follow it.

// telling is what is still to be told of the reign of an owner.
type telling uint8

const (
	nothing telling = iota
	itServes
	itConfirms
)

const (
	// keptAtOnce bounds the bytes of a cut end that are read and kept. An owner has no more than maxStaged unconfirmed, and one message.
	keptAtOnce = 64 << 20
	keptChunk  = 1 << 20
)

// reigns begins to watch what becomes of an epoch. A first owner's begins without a change.
func (r *replica) reigns() {
	r.toTell, r.reignFrom = nothing, r.copy.Tail().Offset
	if r.m.env.Became != nil && !r.id.Transient() && r.copy.Epoch() > 1 {
		r.toTell = itServes
	}
}

// noteConfirmed takes note that the confirmed position has moved.
func (r *replica) noteConfirmed() {
	now := r.m.env.Clock.Wall().UnixMicro()
	r.confirmedAt = now
	if r.toTell == itServes && r.copy.Serving() {
		r.toTell = itConfirms
		r.m.env.Became(r.id, r.copy.Epoch(), evidence.Became{Serving: now})
	}
}

// noteMessages takes note of the first message of its own epoch that an owner has confirmed. What else is in a log, settles and what
// becomes of gateways, is nobody's wait.
func (r *replica) noteMessages() {
	if r.toTell == itConfirms && r.applied.Offset > r.reignFrom {
		r.toTell = nothing
		r.m.env.Became(r.id, r.copy.Epoch(), evidence.Became{FirstConfirm: r.confirmedAt})
	}
}

// ruled reports whether this node's copy was ever an owner, as far as history starts go back.
func (r *replica) ruled() bool {
	return r.want != nil && slices.ContainsFunc(r.want.Starts, func(s catalog.HistoryStart) bool { return s.Node == r.m.env.Local.Node })
}

// dropEnd cuts the log. What an owner may have told its clients of, unconfirmed as it is, is kept aside before.
func (r *replica) dropEnd(to batch.Tail) {
	cut := r.cutting
	r.cutting = nil
	if cut == nil {
		r.log.Cut(to, r.postStep)
		return
	}
	if r.m.env.Keep == nil || r.id.Transient() || !r.ruled() {
		r.cutAs(to, cut, false)
		return
	}
	r.keepEnd(to, cut, to.Position, 0)
}

// keepEnd reads the end that goes, has it kept, and then cuts.
func (r *replica) keepEnd(to batch.Tail, cut *CutEnd, from uint64, size int) {
	r.readLog(from, keptChunk, func(bs []batch.Batch, err error) {
		for _, b := range bs {
			cut.Batches = append(cut.Batches, b)
			size += b.Size()
			from = b.End()
		}
		switch {
		case err != nil || len(bs) == 0 || size > keptAtOnce:
			r.cutAs(to, cut, false)
		case from < cut.To:
			r.keepEnd(to, cut, from, size)
		default:
			r.m.env.Keep(*cut, func(kept bool) { r.box.Post(call{func() { r.cutAs(to, cut, kept) }}) })
		}
	})
}

// cutAs cuts the log, and tells of it once that is durable.
func (r *replica) cutAs(to batch.Tail, cut *CutEnd, kept bool) {
	if r.copy.Damaged() != "" {
		return
	}
	trace.Warn(r.m.env.Trace, "copy.cut", r.attr(), slog.Uint64("epoch", cut.Epoch), slog.Uint64("from", cut.From), slog.Uint64("to", cut.To),
		slog.Bool("kept", kept))
	local, done := r.m.env.Local, r.postStep
	if tell := r.m.env.Became; tell != nil && cut.Epoch > 1 {
		done = func(err error) {
			if err == nil {
				tell(r.id, cut.Epoch, evidence.Became{Cuts: []evidence.Cut{
					{Node: local.Node, Store: local.Store, From: cut.From, To: cut.To, Quarantined: kept},
				}})
			}
			r.postStep(err)
		}
	}
	r.log.Cut(to, done)
}

// cutsTo notes what will be cut.
func (r *replica) cutsTo(at catalog.HistoryStart) {
	r.cutting = &CutEnd{Partition: r.id, Epoch: at.Epoch, From: at.Position, To: r.copy.Tail().Position}
}
