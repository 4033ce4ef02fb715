package replica

import (
	"errors"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
)

// side is the state machine that a partition's log drives, as this package uses it: a queue's or a stream's.
type side interface {
	// apply takes a confirmed batch.
	apply(b batch.Batch) error
	// promote begins the owner's side.
	promote(now int64)
	// advanced is called once after confirmed batches were applied.
	advanced(r *replica)
	// awaited reports whether what is confirmed now is likely to be sent in the same round.
	awaited() bool
	// work decides what time, consumers and what was confirmed bring, and sends what can be sent.
	work(r *replica)
	// events are the decisions to be logged.
	events() (payload []byte, count uint32)

	limited() bool
	admit(h batch.RecordHeader) bool

	attach(r *replica, in *inlet, m *protocol.Attach) []queue.Denied
	// awaits reports whether a gateway's consumer is one that it has from an owner before, and has still to subscribe here.
	awaits(gateway, consumer uint64) bool
	// awaiting reports whether there is any such.
	awaiting() bool
	// claimed is called once every gateway that may hold something of an earlier owner's has attached, or had its time to.
	claimed(r *replica)
	release(r *replica, gateway uint64)
	// pause has nothing more sent to a gateway, until it attaches anew or is released.
	pause(gateway uint64)
	subscribe(r *replica, in *inlet, m protocol.Subscribe)
	unsubscribe(r *replica, in *inlet, m protocol.Unsubscribe)
	credit(in *inlet, m protocol.Credit)

	wake(r *replica) int64
	count(r *replica, s *Status)
	snapshot() (pages []batch.Page, gone []uint32)
	restore(pages []batch.Page) error
	// live is the bytes of bodies that must be kept; not ok where retention decides that.
	live() (bytes int64, ok bool)
	// keep drops what retention lets go of on a copy that does not own; keepAt is the wall time in ms when it has to be called next, 0:
	// not before something is confirmed.
	keep(r *replica, now int64)
	keepAt() int64
	// retain says to the log what is still needed; it is called when a snapshot of applied state is durable.
	retain(r *replica)
	trim()
}

// errNewer is given for a log that was written by a later version of the state machine than this program has.
var errNewer = errors.New("the log was written by a later version of this program")

func machineVersion(k catalog.Kind) uint32 {
	if k == catalog.Stream {
		return stream.Version
	}
	return queue.Version
}

func newSide(res *catalog.Resource) side {
	if res.Kind == catalog.Stream {
		var s stream.Settings
		if res.Stream != nil {
			s = *res.Stream
		}
		return &streamSide{m: stream.New(s), settings: s}
	}
	var s queue.Settings
	if res.Queue != nil {
		s = *res.Queue
	}
	q := &queueSide{deadLetters: s.DeadLetterExchange != nil}
	q.m.Begin(s)
	return q
}
