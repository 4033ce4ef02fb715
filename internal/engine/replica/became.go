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
	if r.m.env.Keep == nil || r.id.Transient() || !r.ruled() && !cut.lossy {
		r.cutAs(to, cut, false)
		return
	}
	part := cut.CutEnd
	r.keepEnd(to, cut, &part, 0)
}

// keepEnd reads the end that goes, has it kept, and then cuts. part is what has been read of it and is not kept yet. An end that is too large
// is kept in parts where it may have been confirmed, and else not at all.
func (r *replica) keepEnd(to batch.Tail, cut *cutting, part *CutEnd, size int) {
	from := part.From
	if n := len(part.Batches); n > 0 {
		from = part.Batches[n-1].End()
	}
	r.readLog(from, keptChunk, func(bs []batch.Batch, err error) {
		for _, b := range bs {
			part.Batches = append(part.Batches, b)
			size += b.Size()
			from = b.End()
		}
		whole := from >= cut.To
		switch {
		case err != nil || len(bs) == 0 || size > keptAtOnce && !cut.lossy:
			r.cutAs(to, cut, false)
		case !whole && size <= keptAtOnce:
			r.keepEnd(to, cut, part, size)
		default:
			part.To = from
			r.m.env.Keep(*part, func(kept bool) {
				r.box.Post(call{func() {
					if whole || !kept {
						r.cutAs(to, cut, kept)
						return
					}
					r.keepEnd(to, cut, &CutEnd{Partition: part.Partition, Epoch: part.Epoch, From: from}, 0)
				}})
			})
		}
	})
}

// cutAs cuts the log, and tells of it once that is durable.
func (r *replica) cutAs(to batch.Tail, cut *cutting, kept bool) {
	if r.copy.Damaged() != "" {
		return
	}
	trace.Warn(r.m.env.Trace, "copy.cut", r.attr(), slog.Uint64("epoch", cut.Epoch), slog.Uint64("from", cut.From), slog.Uint64("to", cut.To),
		slog.Bool("kept", kept))
	r.log.Cut(to, func(err error) {
		if err == nil {
			r.tellCut(&cut.CutEnd, kept)
		}
		r.postStep(err)
	})
}

// tellCut tells what has gone from this copy to follow an epoch, from any goroutine. A first owner's epoch begins without a change.
func (r *replica) tellCut(end *CutEnd, kept bool) {
	local := r.m.env.Local
	if tell := r.m.env.Became; tell != nil && end.Epoch > 1 {
		tell(r.id, end.Epoch, evidence.Became{Cuts: []evidence.Cut{
			{Node: local.Node, Store: local.Store, From: end.From, To: end.To, Quarantined: kept},
		}})
	}
}

// cutting is what is about to be cut.
type cutting struct {
	CutEnd
	lossy bool // an accepted loss gives it up: it may have been confirmed
}

// cutsTo notes what will be cut.
func (r *replica) cutsTo(at catalog.HistoryStart) {
	end := CutEnd{Partition: r.id, Epoch: at.Epoch, From: at.Position, To: r.copy.Tail().Position}
	r.cutting = &cutting{end, at.Loss.Accepted}
}
