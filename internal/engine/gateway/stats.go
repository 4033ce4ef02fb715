package gateway

import (
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
)

// Counters count what happened in a shard since it began. They only rise.
type Counters struct {
	Published uint64 // messages taken from clients
	// Confirmed, Refused and Unknown are the outcomes; what no resource took counts as confirmed.
	Confirmed uint64
	Refused   uint64
	Unknown   uint64
	// Of targets, of which a message may have several, those that were refused: by cause, in protocol.Cause's order, and because the
	// partition's owner was not reached in time.
	RefusedOther, RefusedFull, RefusedCopies, RefusedLease, RefusedUnreached uint64

	Returned  uint64 // mandatory messages that no resource took
	Delivered uint64
	Again     uint64 // of Delivered, those that may have been delivered before
	Settled   uint64 // by clients
	Denied    uint64 // of Delivered, those that others were given before this node's claims came to a new owner
	Released  uint64 // given back because a consumer, its channel or its session ended
	DeadDone  uint64 // dead letters published or dropped
	DeadKept  uint64 // dead letters whose target was missing or refused
}

func (c *Counters) count(o broker.Outcome) {
	switch o {
	case broker.Confirmed:
		c.Confirmed++
	case broker.Refused:
		c.Refused++
	case broker.Unknown:
		c.Unknown++
	}
}

// refused counts a target that its owner refused.
func (c *Counters) refused(cause protocol.Cause) {
	switch cause {
	case protocol.CauseFull:
		c.RefusedFull++
	case protocol.CauseCopies:
		c.RefusedCopies++
	case protocol.CauseLease:
		c.RefusedLease++
	default:
		c.RefusedOther++
	}
}

func (c *Counters) settled(o broker.Settlement) {
	if o == broker.Release {
		c.Released++
	} else {
		c.Settled++
	}
}

// Add adds up the counters of several shards.
func (c *Counters) Add(o Counters) {
	c.Published += o.Published
	c.Confirmed += o.Confirmed
	c.Refused += o.Refused
	c.Unknown += o.Unknown
	c.RefusedOther += o.RefusedOther
	c.RefusedFull += o.RefusedFull
	c.RefusedCopies += o.RefusedCopies
	c.RefusedLease += o.RefusedLease
	c.RefusedUnreached += o.RefusedUnreached
	c.Returned += o.Returned
	c.Delivered += o.Delivered
	c.Again += o.Again
	c.Settled += o.Settled
	c.Denied += o.Denied
	c.Released += o.Released
	c.DeadDone += o.DeadDone
	c.DeadKept += o.DeadKept
}

// Status is what a shard tells of itself.
type Status struct {
	Counters
	Unresolved      uint64        // publishes without an outcome yet
	UnresolvedBytes int64         // their records
	OldestAge       time.Duration // of the oldest of them; 0 if there is none
	Oldest          ident.Partition
	Partitions      int // worked with
	Unsettled       uint64
	Sessions        []SessionStatus // in the order they were opened
	Blocked         string          // why publishes are held; empty if they are not
}

// SessionStatus is what a shard tells of one session.
type SessionStatus struct {
	ID        uint64
	Peer      broker.Peer
	User      string // empty before login
	VHost     string
	Consumers int
	Unsettled uint64
	Published uint64
	Delivered uint64
	Stopped   bool // held by flow control
}

// Status asks for the shard's status. done is called once, on the shard's loop. Any goroutine may call it.
func (s *Shard) Status(done func(Status)) { s.post(func() { done(s.status()) }) }

func (s *Shard) status() Status {
	st := Status{Counters: s.stats, UnresolvedBytes: s.bytes, Partitions: len(s.byPartition), Blocked: s.blocked}
	for _, a := range s.attachments {
		st.Unresolved += a.out.tail - a.out.head
		if bs := a.out.blocks; len(bs) > 0 && s.now-bs[0].born > st.OldestAge {
			st.OldestAge, st.Oldest = s.now-bs[0].born, a.p
		}
	}
	for _, x := range s.sessions {
		one := SessionStatus{
			ID: x.id, Peer: x.peer, User: x.user, VHost: x.vhost, Consumers: len(x.order), Published: x.published,
			Delivered: x.delivered, Stopped: x.stops > 0,
		}
		for _, c := range x.order {
			one.Unsettled += uint64(c.held.Len())
		}
		for _, h := range x.gets {
			one.Unsettled += uint64(h.held.Len())
		}
		st.Unsettled += one.Unsettled
		st.Sessions = append(st.Sessions, one)
	}
	return st
}
