// Package control holds the controller's decisions, each a pure function of what is known: whom to choose as a new owner, and when
// to wait instead. It performs nothing: seals, catalog writes and timers belong to engine/controller.
//
// Source: design 2 §5.
package control

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// Answer is a copy's reply to a seal: what it durably holds, with its promise made before it answered.
type Answer struct {
	Transition string // of the seal that it answers
	Instance   ident.Instance
	Tail       batch.Tail
	Confirmed  uint64 // the highest confirmed position that the copy knows of
	// LastConfirm is when that last moved, in microseconds since 1970 on the copy's node; 0: not known. It decides nothing.
	LastConfirm int64
	Damaged     string // not empty: why it must not count
	Refused     string // not empty: why it did not seal
}

// Input is everything that a choice depends on.
type Input struct {
	Assignment *catalog.Assignment // with its pending transition
	W          int                 // copies that a confirm needed under the assignment
	Floor      uint64              // highest confirmed position that the owner's last heartbeat reported, 0 if none
	Answers    []Answer
	// Said is the copy that an Ask named, and Links are what it said its link is at the positions. They are no evidence where another copy
	// is the furthest by now.
	Said  ident.Instance
	Links map[uint64]batch.Link
	// Dropped are positions that it was asked for and knows nothing of any more, because what was there was confirmed and has gone from
	// its log. An answer that ends there cannot be compared: its copy does not go on from its own log, but is made anew.
	Dropped []uint64
	// Suspected are the stores whose nodes are suspected, though their copies have answered, or that closed themselves not long ago: they own only
	// where nobody else holds as much.
	Suspected []ident.StoreID
}

// Verdict says what to do.
type Verdict uint8

// The verdicts.
const (
	Wait    Verdict = iota // not enough is known; Reason says what is missing
	Ask                    // the copy Owner must first say its link at Positions
	Blocked                // evidence contradicts itself; never resolved by guess
	Chosen                 // Owner owns from Start on
)

// Excluded is an answer that does not count, and why.
type Excluded struct {
	Answer Answer
	Reason string
}

// Decision is the outcome of Choose.
type Decision struct {
	Verdict   Verdict
	Reason    string
	Owner     ident.Instance
	Start     catalog.HistoryStart // of the new epoch, for Chosen
	Positions []uint64             // for Ask, ascending
	Excluded  []Excluded
	Floor     uint64 // the confirmed position that was insisted on
}

// candidate is an answer that counts, clipped to the history that later owners kept.
type candidate struct {
	Answer
	at catalog.HistoryStart // where its log counts up to; Epoch is of its last batch
}

// Choose applies the rules of design 2 §5 step 3, in their order.
func Choose(in Input) Decision { return choose(in, false) }

// choose is Choose; with less, too few answers and a floor that none of them reaches do not keep it: an operator accepts that (design 2 §8).
func choose(in Input, less bool) Decision {
	a := in.Assignment
	if a.Pending == nil {
		return Decision{Reason: "no transition is recorded"}
	}
	d := Decision{Floor: in.Floor}
	counted := admit(a, in.Answers, &d)
	if len(counted) == 0 {
		d.Reason = fmt.Sprintf("0 of %d answers needed", readQuorum(a, in.W))
		return d
	}
	slices.SortStableFunc(counted, func(x, y candidate) int { return prefer(in, x, y) })
	best := counted[0]
	if enough := len(counted) >= readQuorum(a, in.W) || ownerAnswered(a, counted); !enough && !less {
		d.Reason = fmt.Sprintf("%d of %d answers needed", len(counted), readQuorum(a, in.W))
		return d
	}
	if best.at.Position < d.Floor && !less {
		d.Reason = fmt.Sprintf("the furthest copy ends at %d, below the confirmed position %d", best.at.Position, d.Floor)
		return d
	}
	if !checkLinks(in, best, counted[1:], &d) {
		return d
	}
	d.Verdict, d.Owner = Chosen, best.Instance
	d.Start = best.at
	d.Start.Epoch, d.Start.Node = a.Pending.Epoch, best.Instance.Node
	return d
}

// admit drops what must not count and clips the rest.
func admit(a *catalog.Assignment, answers []Answer, d *Decision) []candidate {
	var counted []candidate
	for _, x := range answers {
		if reason := refusal(a, x); reason != "" {
			d.Excluded = append(d.Excluded, Excluded{x, reason})
			continue
		}
		d.Floor = max(d.Floor, confirmedOf(a, x))
		counted = append(counted, candidate{x, Clip(a.Starts, x.Tail, a.Pending.Epoch)})
	}
	return counted
}

// Heard is how far an answer that counts knows the log to be confirmed; 0 of one that does not count. It stays true when the copy is lost.
func Heard(a *catalog.Assignment, x Answer) uint64 {
	if a.Pending == nil || refusal(a, x) != "" {
		return 0
	}
	return confirmedOf(a, x)
}

// confirmedOf is the highest position that an answer knows to be confirmed and that nobody has given up: what it knows beyond the start of an
// accepted loss is in no history that counts, and insisting on it would wait for ever (design 2 §8).
func confirmedOf(a *catalog.Assignment, x Answer) uint64 {
	at := x.Confirmed
	for _, s := range a.Starts {
		if s.Loss.Accepted && s.Epoch > x.Tail.Epoch && s.Epoch < a.Pending.Epoch {
			at = min(at, s.Position)
		}
	}
	return at
}

func refusal(a *catalog.Assignment, x Answer) string {
	switch {
	case x.Transition != a.Pending.ID:
		return "answers another transition"
	case !admitted(a, x.Instance.Node, x.Instance.Store):
		return "its store is not admitted"
	case x.Refused != "":
		return "refused to seal: " + x.Refused
	case x.Damaged != "":
		return "damaged: " + x.Damaged
	case len(a.Starts) > 0 && a.Starts[0].Epoch > 1 && x.Tail.Epoch < a.Starts[0].Epoch:
		return "older than the oldest history start that is kept"
	}
	return ""
}

// admitted reports whether a copy is the owner's or a follower's, by node and store.
func admitted(a *catalog.Assignment, node string, store ident.StoreID) bool {
	if a.Owner.Node == node && a.Owner.Store == store {
		return true
	}
	return slices.ContainsFunc(a.Followers, func(m catalog.Member) bool { return m.Node == node && m.Store == store })
}

func readQuorum(a *catalog.Assignment, w int) int { return a.Eligible() - w + 1 }

// Clip is how far a log that ends at tail follows the history of all owners up to (not including) epoch: to its own end, or to
// the lowest start among owners later than the one that wrote its last batch. What lies beyond was an older owner's unconfirmed end.
func Clip(starts []catalog.HistoryStart, tail batch.Tail, epoch uint64) catalog.HistoryStart {
	at := catalog.HistoryStart{Epoch: tail.Epoch, Position: tail.Position, Offset: tail.Offset, Link: tail.Link}
	for _, s := range starts {
		if s.Epoch > tail.Epoch && s.Epoch < epoch && s.Position < at.Position {
			at.Position, at.Offset, at.Link = s.Position, s.Offset, s.Link
		}
	}
	return at
}

// ownerAnswered reports whether the last owner's own log is among the answers, at or past the start of its epoch: it is in every
// confirm set, so it alone is enough.
func ownerAnswered(a *catalog.Assignment, counted []candidate) bool {
	return slices.ContainsFunc(counted, func(c candidate) bool {
		if c.Instance.Store != a.Owner.Store {
			return false
		}
		i := slices.IndexFunc(a.Starts, func(s catalog.HistoryStart) bool { return s.Epoch == a.Epoch })
		return i < 0 || c.at.Position >= a.Starts[i].Position
	})
}

// prefer orders candidates: furthest first, then who is not suspected, then the present owner, then by a hash that spreads idle partitions over
// nodes.
func prefer(in Input, x, y candidate) int {
	a := in.Assignment
	if c := cmp.Compare(y.at.Position, x.at.Position); c != 0 {
		return c
	}
	if xs, ys := slices.Contains(in.Suspected, x.Instance.Store), slices.Contains(in.Suspected, y.Instance.Store); xs != ys {
		if ys {
			return -1
		}
		return 1
	}
	if xo, yo := x.Instance == a.Owner, y.Instance == a.Owner; xo != yo {
		if xo {
			return -1
		}
		return 1
	}
	hx, hy := spread(a.Partition, x.Instance.Node), spread(a.Partition, y.Instance.Node)
	return bytes.Compare(hy[:], hx[:])
}

func spread(p ident.Partition, node string) [sha256.Size]byte {
	b := binary.LittleEndian.AppendUint64(nil, p.Incarnation)
	b = binary.LittleEndian.AppendUint32(b, p.Index)
	return sha256.Sum256(append(b, node...))
}

// checkLinks compares the furthest copy's history with every shorter one, or says what must be asked first.
func checkLinks(in Input, best candidate, others []candidate, d *Decision) bool {
	var ask []uint64
	if in.Said != best.Instance {
		in.Links, in.Dropped = nil, nil
	}
	for _, o := range others {
		want, known := in.Links[o.at.Position]
		if o.at.Position == best.at.Position {
			want, known = best.at.Link, true
		}
		switch {
		case !known && slices.Contains(in.Dropped, o.at.Position):
		case !known:
			ask = append(ask, o.at.Position)
		case want != o.at.Link:
			d.Verdict = Blocked
			d.Reason = fmt.Sprintf("copies on %s and %s differ below position %d", best.Instance.Node, o.Instance.Node, o.at.Position)
			return false
		}
	}
	if len(ask) > 0 {
		slices.Sort(ask)
		d.Verdict, d.Owner, d.Positions = Ask, best.Instance, slices.Compact(ask)
		return false
	}
	return true
}
