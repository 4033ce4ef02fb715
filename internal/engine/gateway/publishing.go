package gateway

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/trace"
)

// group is one message's records in several partitions: it is confirmed when all are. done is set instead of session by those who
// publish on the gateway's own behalf.
type group struct {
	session *session
	tag     broker.Tag
	left    int
	outcome broker.Outcome
	reason  string
	done    func(o broker.Outcome, reason string)
}

// add appends a message to what will be sent to the partition and returns the encoded record, valid until the next add.
func (a *attachment) add(m *broker.Message, size int, e entry) []byte {
	s := a.sh
	total := batch.RecordHeaderSize + size
	b := a.out.room(s, total)
	at := len(b.buf)
	h := m.Record
	h.Size = uint32(size)
	b.buf = batch.AppendRecordHeader(b.buf, h)
	b.buf = broker.AppendEnvelopeHead(b.buf, m.Exchange, m.RoutingKey, m.Properties)
	for _, p := range m.Body {
		b.buf = append(b.buf, p...)
	}
	a.count(b, m, total, e)
	return b.buf[at:]
}

// addRecord is add for a record that is encoded already.
func (a *attachment) addRecord(m *broker.Message, rec []byte, e entry) {
	b := a.out.room(a.sh, len(rec))
	b.buf = append(b.buf, rec...)
	a.count(b, m, len(rec), e)
}

func (a *attachment) count(b *block, m *broker.Message, size int, e entry) {
	var producer uint64
	if m.Producer != "" {
		producer = a.sh.named(m.Producer)
	}
	b.record(producer, m.Sequence)
	a.out.push(e)
	a.out.bytes += int64(size)
	a.sh.bytes += int64(size)
	a.touch()
}

// named is the id of a producer that a client named. The last one is remembered: a digest for each message is dear.
func (s *Shard) named(name string) uint64 {
	if s.lastName != name {
		s.lastName, s.lastNamed = name, protocol.NamedProducer(name)
	}
	return s.lastNamed
}

// envelopeSize is the size of a message's record body.
func envelopeSize(m *broker.Message) int {
	n := 1 + len(m.Exchange) + 1 + len(m.RoutingKey) + 4 + len(m.Properties)
	for _, p := range m.Body {
		n += len(p)
	}
	return n
}

// sendPublishes sends the blocks that were not sent on this stream.
func (a *attachment) sendPublishes() {
	o := &a.out
	for ; o.next < len(o.blocks); o.next++ {
		b := o.blocks[o.next]
		if b.sends == 0 && a.sh.blocked != "" {
			return
		}
		if protocol.Crowded(a.to) {
			a.sh.pace(a)
			return
		}
		b.sends++
		a.to.Send(protocol.Publish{
			To: a.address(), First: b.first + o.shift, Count: b.count, Runs: o.wire(a.sh, b), Records: b.buf,
		})
		a.sh.watch()
	}
}

// paceEvery is how soon a shard asks again whether the way to another node has room.
const paceEvery = 2 * time.Millisecond

// paced is posted when it does.
type paced struct{}

// pace has the attachment send on a moment later: so much waits to be sent to its owner's node already that more would only take memory
// there. What is not sent counts against the shard's and the partition's bounds as ever.
func (s *Shard) pace(a *attachment) {
	if len(s.paced) == 0 {
		s.box.After(paceEvery, paced{})
	}
	if !slices.Contains(s.paced, a) {
		s.paced = append(s.paced, a)
	}
}

func (s *Shard) goOnSending() {
	as := s.paced
	s.paced = nil
	for _, a := range as {
		if !a.gone {
			a.touch()
		}
	}
}

// resolve gives the records below index end one outcome, those excepted that have one.
func (a *attachment) resolve(end uint64, o broker.Outcome, reason string) {
	for i := a.out.head; i < min(end, a.out.tail); i++ {
		if e := a.out.at(i); !e.done {
			a.sh.settleEntry(e, o, reason)
		}
	}
}

// settleEntry tells who waits for a record how it ended.
func (s *Shard) settleEntry(e *entry, o broker.Outcome, reason string) {
	e.done = true
	if e.session != nil {
		e.session.resolved(e.tag, o, reason)
		e.session = nil
	} else if g := e.group; g != nil {
		e.group = nil
		s.settleGroup(g, o, reason)
	}
}

func (s *Shard) settleGroup(g *group, o broker.Outcome, reason string) {
	if o > g.outcome {
		g.outcome, g.reason = o, reason
	}
	if g.left--; g.left > 0 {
		return
	}
	if g.done != nil {
		g.done(g.outcome, g.reason)
		return
	}
	if g.session != nil {
		g.session.resolved(g.tag, g.outcome, g.reason)
	} else {
		s.stats.count(g.outcome)
	}
}

func (a *attachment) published(m protocol.Published) {
	end := m.UpTo - a.out.shift
	if int64(end-a.out.head) <= 0 || a.state != open {
		return
	}
	a.resolve(end, broker.Confirmed, "")
	a.out.pop(a.sh, true)
	a.relieve()
}

func (a *attachment) refused(m protocol.PublishRefused) {
	if a.state != open {
		return
	}
	outcome := broker.Refused
	if m.Unknown {
		outcome = broker.Unknown
		trace.Warn(a.sh.env.Trace, "gateway.publish.unknown", slog.String("partition", a.p.String()),
			slog.Uint64("count", uint64(m.Count)), slog.String("reason", m.Reason))
	}
	from := m.First - a.out.shift
	for n := range uint64(m.Count) {
		if i := from + n; i >= a.out.head && i < a.out.tail && !a.out.at(i).done {
			if !m.Unknown {
				a.sh.stats.refused(m.Cause)
			}
			a.sh.settleEntry(a.out.at(i), outcome, m.Reason)
		}
	}
	a.out.pop(a.sh, true)
	a.relieve()
}

// expected goes back to the number that the owner wants. Several publishes behind one that was lost each cause such an answer; only
// the first is acted on, and if going back did not help within a second, a new stream is opened.
func (a *attachment) expected(m protocol.PublishExpected) {
	if a.state != open {
		return
	}
	if a.resent == m.Expect {
		if a.sh.now-a.resentAt > time.Second {
			a.again()
		}
		return
	}
	a.resent, a.resentAt = m.Expect, a.sh.now
	o := &a.out
	want := m.Expect - o.shift
	for o.next = 0; o.next < len(o.blocks) && o.blocks[o.next].end() <= want; {
		o.next++
	}
	if o.next == len(o.blocks) || o.blocks[o.next].first != want {
		a.again() // a number in the middle of what was sent at once: only a new stream can say more
		return
	}
	a.touch()
}

// expire gives up what has waited longer than the confirm timeout: what was sent may be stored and is unknown, and the producer id is
// never used again; what was never sent is refused (see refuse).
func (a *attachment) expire(limit time.Duration) {
	o := &a.out
	if len(o.blocks) == 0 || a.sh.now-o.blocks[0].born < limit {
		return
	}
	if a.sh.blocked != "" && (o.blocks[0].sends == 0 || a.state == open) {
		return // held on purpose, here or at the owner
	}
	sent := o.sent()
	reason := fmt.Sprintf("not confirmed within %s", limit)
	if n := sent - o.head; n > 0 {
		trace.Warn(a.sh.env.Trace, "gateway.publish.unknown", slog.String("partition", a.p.String()), slog.Uint64("count", n),
			slog.String("reason", reason))
		a.resolve(sent, broker.Unknown, reason)
		o.pop(a.sh, false)
		o.producer, o.fresh, o.next = a.sh.nextProducer(), true, 0
		a.relieve()
		a.again()
		return
	}
	end := o.head
	for _, b := range o.blocks {
		if a.sh.now-b.born >= limit {
			end = b.end()
		}
	}
	reason = fmt.Sprintf("the partition's owner was not reached within %s", limit)
	trace.Warn(a.sh.env.Trace, "gateway.publish.refused", slog.String("partition", a.p.String()),
		slog.Uint64("count", end-o.head), slog.String("reason", reason))
	a.sh.stats.RefusedUnreached += end - o.head
	a.refuse(end, reason)
	o.pop(a.sh, false)
	a.relieve()
}

// refuse says of what was never sent, up to an index, that it is not stored. That is not known of what has a client's own number: it may
// have been stored when it was given before.
func (a *attachment) refuse(end uint64, reason string) {
	end = min(end, a.out.tail)
	for _, b := range a.out.blocks {
		i := b.first
		for _, r := range b.runs {
			outcome := broker.Refused
			if r.Producer != 0 {
				outcome = broker.Unknown
			}
			for range r.Count {
				if i >= a.out.head && i < end && !a.out.at(i).done {
					a.sh.settleEntry(a.out.at(i), outcome, reason)
				}
				i++
			}
		}
	}
}

// stop holds a session that publishes more than the owner confirms.
func (a *attachment) stop(x *session) {
	for _, y := range a.stopped {
		if x == y {
			return
		}
	}
	a.stopped = append(a.stopped, x)
	x.stop()
}

// relieve lets sessions go on once enough was resolved. The mark is half of the limit, so that they do not stop and go all the time.
func (a *attachment) relieve() {
	s := a.sh
	if len(a.requests) > 0 {
		a.touch() // one may have waited for this
	}
	if len(a.stopped) > 0 && a.out.bytes <= s.limits.PartitionBytes/2 {
		for _, x := range a.stopped {
			x.goOn()
		}
		a.stopped = nil
	}
	s.relieve()
}

func (s *Shard) relieve() {
	if len(s.stopped) > 0 && s.bytes <= s.publishBytes/2 {
		for _, x := range s.stopped {
			x.goOn()
		}
		s.stopped = nil
	}
}

func (s *Shard) newBlock() *block {
	s.look() // clients call between messages
	if n := len(s.blocks); n > 0 {
		b := s.blocks[n-1]
		s.blocks = s.blocks[:n-1]
		return b
	}
	b := &block{}
	b.runs = b.store[:0]
	return b
}

// keepBlocks bounds the blocks that a shard keeps.
const keepBlocks = 2048

// freeBlock gives a block's memory back. Its bytes are used again only if nobody else reads them.
func (s *Shard) freeBlock(b *block, reuse bool) {
	if reuse {
		s.buffers.Put(b.buf)
	}
	if len(s.blocks) < keepBlocks {
		*b = block{runs: b.runs[:0]}
		if cap(b.runs) > 16 || cap(b.runs) < 1 {
			b.runs = b.store[:0]
		}
		s.blocks = append(s.blocks, b)
	}
}

// producer is the id for a partition that is attached now.
func (s *Shard) producer() uint64 {
	return protocol.ProducerID(s.env.Number, uint8(s.env.Shard), s.generation)
}

// nextProducer is an id that was never used.
func (s *Shard) nextProducer() uint64 {
	s.generation++
	return s.producer()
}
