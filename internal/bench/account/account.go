// Package account keeps the books of what publishers gave to a broker's queues and streams, what became of each message, and what was
// found there afterwards. It is pure: times come in as values, and no client, clock or lock may come in. Source: design 7, "bench failover".
package account

import (
	"encoding/binary"
	"time"
)

// header is how many bytes of a body say which message it is:
//
//	u32 resource | u32 session | u64 number, big-endian; the rest is filled by its place and the number
const header = 16

// LeastBody is the smallest body that a message can have, in bytes.
const LeastBody = header

// ID names a message.
type ID struct {
	Resource uint32
	Session  uint32 // of its publisher: the channel that it was given on; order is promised within one
	Number   uint64 // from 1, per resource, over all sessions
}

// Body writes the message's bytes into b, which has at least LeastBody.
func (id ID) Body(b []byte) {
	binary.BigEndian.PutUint32(b, id.Resource)
	binary.BigEndian.PutUint32(b[4:], id.Session)
	binary.BigEndian.PutUint64(b[8:], id.Number)
	for i := header; i < len(b); i++ {
		b[i] = id.filler(i)
	}
}

func (id ID) filler(i int) byte { return byte(uint64(i) + id.Number*131 + uint64(id.Resource)) }

// Read says which message a body is; ok is false where its bytes are not those that Body writes.
func Read(b []byte) (id ID, ok bool) {
	if len(b) < header {
		return ID{}, false
	}
	id = ID{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])}
	for i := header; i < len(b); i++ {
		if b[i] != id.filler(i) {
			return id, false
		}
	}
	return id, true
}

// Outcome is what a publisher was told of a message.
type Outcome uint8

// The outcomes. AMQP has one word for a message that was refused and for one that the broker has given up as unknown.
const (
	Waiting   Outcome = iota // for an outcome
	Confirmed                // basic.ack
	Nacked                   // basic.nack
	Unknown                  // its channel ended before the broker said anything
)

// Totals are what the books of a resource come to. All but the first three ought to be 0 where no client lost its connection.
type Totals struct {
	Published int64 `json:"published"`
	Confirmed int64 `json:"confirmed"`
	Found     int64 `json:"found"` // messages, each counted once
	Nacked    int64 `json:"nacked"`
	Unknown   int64 `json:"unknown"`
	Unsettled int64 `json:"without_outcome"` // none came in the time that it may take
	Twice     int64 `json:"outcome_twice"`
	Lost      int64 `json:"lost"`      // confirmed, and not found
	Duplicate int64 `json:"duplicate"` // found again, each time
	Reordered int64 `json:"reordered"` // found behind a later message of the same session
	Moved     int64 `json:"moved_offsets"`
	Damaged   int64 `json:"damaged"` // found with other bytes than were published, or never published
}

// Add adds the totals of another resource.
func (t *Totals) Add(o Totals) {
	t.Published += o.Published
	t.Confirmed += o.Confirmed
	t.Found += o.Found
	t.Nacked += o.Nacked
	t.Unknown += o.Unknown
	t.Unsettled += o.Unsettled
	t.Twice += o.Twice
	t.Lost += o.Lost
	t.Duplicate += o.Duplicate
	t.Reordered += o.Reordered
	t.Moved += o.Moved
	t.Damaged += o.Damaged
}

// Ledger is the book of one queue or stream. Times are those since any one moment. It is not safe for concurrent use. Memory grows with
// the number of messages.
type Ledger struct {
	resource uint32
	messages []message // by number − 1
	confirms []time.Duration
	seen     map[uint64]ID // by offset
	next     uint64        // offset that a reader under way has next, if it has begun
	begun    bool
	last     map[uint32]uint64 // highest number found, by session
	twice    int64
	again    int64
	disorder int64
	damaged  int64
	moved    int64
}

type message struct {
	session uint32
	outcome Outcome
	found   bool
	sent    time.Duration
	ended   time.Duration
}

// New makes the empty book of a resource.
func New(resource uint32) *Ledger {
	return &Ledger{resource: resource, seen: map[uint64]ID{}, last: map[uint32]uint64{}}
}

// Publish notes a message before it is given to the broker, and names it.
func (l *Ledger) Publish(session uint32, at time.Duration) ID {
	l.messages = append(l.messages, message{session: session, sent: at})
	return ID{l.resource, session, uint64(len(l.messages))}
}

// Resolve notes what was said of a message.
func (l *Ledger) Resolve(number uint64, o Outcome, at time.Duration) {
	if number == 0 || number > uint64(len(l.messages)) {
		l.twice++ // an answer to nothing
		return
	}
	m := &l.messages[number-1]
	if m.outcome != Waiting {
		l.twice++
		return
	}
	m.outcome, m.ended = o, at
	if o == Confirmed {
		l.confirms = append(l.confirms, at)
	}
}

// Published is how many messages were.
func (l *Ledger) Published() int { return len(l.messages) }

// Has reports whether a message was found.
func (l *Ledger) Has(number uint64) bool { return l.messages[number-1].found }

// GiveUp notes that a session has ended: what has no outcome of what it published is unknown. It returns how many that are.
func (l *Ledger) GiveUp(session uint32, at time.Duration) (n int) {
	for i := range l.messages {
		m := &l.messages[i]
		if m.session == session && m.outcome == Waiting {
			m.outcome, m.ended = Unknown, at
			n++
		}
	}
	return n
}

// Saw notes a record that a stream's reader was given while the load went on. A reader is given each offset once, in order.
func (l *Ledger) Saw(offset uint64, body []byte) {
	id, ok := l.known(body)
	if !ok {
		l.damaged++
		return
	}
	switch {
	case l.begun && offset < l.next:
		l.again++
	case l.begun && offset > l.next:
		l.disorder++
	}
	if was, is := l.seen[offset]; is && was != id {
		l.moved++
	}
	l.begun, l.next, l.seen[offset] = true, max(l.next, offset+1), id
}

// Found notes a message that was read back when all was over, in the order in which they were read.
func (l *Ledger) Found(body []byte) {
	if id, ok := l.known(body); ok {
		l.found(id)
	} else {
		l.damaged++
	}
}

// FoundAt is Found for a stream's record.
func (l *Ledger) FoundAt(offset uint64, body []byte) {
	id, ok := l.known(body)
	was, seen := l.seen[offset]
	delete(l.seen, offset)
	switch {
	case !ok:
		l.damaged++
		return
	case seen && was != id:
		l.moved++
	}
	l.found(id)
}

func (l *Ledger) known(body []byte) (ID, bool) {
	id, ok := Read(body)
	ok = ok && id.Resource == l.resource && id.Number > 0 && id.Number <= uint64(len(l.messages)) && l.messages[id.Number-1].session == id.Session
	return id, ok
}

func (l *Ledger) found(id ID) {
	m := &l.messages[id.Number-1]
	if m.found {
		l.again++
		return
	}
	m.found = true
	if id.Number < l.last[id.Session] {
		l.disorder++
	}
	l.last[id.Session] = max(l.last[id.Session], id.Number)
}

// Totals closes the book: everything was read back. Offsets that a reader saw and that were not read back have moved too.
func (l *Ledger) Totals() Totals {
	t := Totals{
		Published: int64(len(l.messages)), Twice: l.twice, Duplicate: l.again, Reordered: l.disorder, Damaged: l.damaged,
		Moved: l.moved + int64(len(l.seen)),
	}
	for i := range l.messages {
		m := &l.messages[i]
		switch m.outcome {
		case Confirmed:
			t.Confirmed++
			if !m.found {
				t.Lost++
			}
		case Nacked:
			t.Nacked++
		case Unknown:
			t.Unknown++
		case Waiting:
			t.Unsettled++
		}
		if m.found {
			t.Found++
		}
	}
	return t
}
