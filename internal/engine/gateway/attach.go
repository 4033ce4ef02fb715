package gateway

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/trace"
)

// attachment is a shard's work with one partition, across all the streams to its owners. What publishing reads and writes lies together:
// with many partitions in use, reaching for memory is what a message costs.
type attachment struct {
	sh       *Shard
	out      outbox
	state    attachState
	idle     bool       // nothing was in hand at the last sweep
	dirty    bool       // on the shard's list for the next Flush
	gone     bool       // the partition was deleted
	undo     bool       // an owner may still be closed for a deletion that was refused, or that nobody waits for
	closing  int        // deletions for which an owner has closed and whose outcome is not known
	stopped  []*session // held by Flow until out is short again
	requests []*request // not answered, in order
	p        ident.Partition
	stream   uint64
	epoch    uint64          // of the owner that opened the stream
	kept     []uint64        // consumers that Attach has said will be subscribed
	to       protocol.Sender // the owner, as the directory named it for this stream

	settles   settles
	consumers []*consumer // subscribed, in that order
	holders   []*holder   // that hold something unsettled, or may

	res      *catalog.Resource
	node     string // where the owner is; "" while waiting
	backoff  time.Duration
	attempt  uint64        // counts connects, so that a timer of an earlier one is known
	since    time.Duration // when the state was entered
	away     time.Duration // when the owner was lost that has not been found again since; 0: it is there
	resent   uint64        // the sequence that a PublishExpected made us go back to
	resentAt time.Duration
}

type attachState uint8

const (
	waiting   attachState = iota // for an owner: a timer or an event connects
	attaching                    // Attach is sent
	open
)

const (
	firstBackoff  = 2 * time.Millisecond
	lastBackoff   = time.Second
	attachTimeout = 2 * time.Second
)

// retry connects again, if nothing has since.
type retry struct {
	a       *attachment
	attempt uint64
}

// attach gives the attachment of a partition and makes one if there is none.
func (s *Shard) attach(res *catalog.Resource, p ident.Partition) *attachment {
	if a := s.byPartition[p]; a != nil {
		return a
	}
	a := &attachment{sh: s, p: p, res: res, out: newOutbox(s.producer()), backoff: firstBackoff}
	s.byPartition[p] = a
	s.env.Node.attach(p, s.env.Shard)
	s.attachments = append(s.attachments, a)
	a.touch()
	return a
}

// touch has the attachment looked at when the shard flushes.
func (a *attachment) touch() {
	a.idle = false
	if !a.dirty {
		a.dirty = true
		a.sh.dirty = append(a.sh.dirty, a)
		a.sh.box.Touch()
		a.sh.watch()
	}
}

// flush sends what was gathered, or begins to look for the owner.
func (a *attachment) flush() {
	a.dirty = false
	if a.gone {
		return
	}
	if a.state == waiting && a.attempt == 0 {
		a.connect()
	}
	if a.state == open {
		a.sendPublishes()
		a.sendSettles()
		a.askReady()
	}
}

// connect opens a new stream to whoever the directory says is the owner.
func (a *attachment) connect() {
	s := a.sh
	a.attempt++
	to := s.env.Directory.Sender(a.p)
	if to == nil {
		a.wait()
		return
	}
	s.stream++
	a.to, a.node, a.stream = to, a.owner(), s.stream
	a.enter(attaching)
	first := uint64(1)
	if !a.out.fresh {
		first = a.out.head + a.out.shift
	}
	away := time.Duration(0)
	if a.away > 0 {
		away = s.now - a.away
	}
	a.to.Send(protocol.Attach{
		To: a.address(), Reply: s, Producer: a.out.producer, First: first, Epoch: a.epoch, Away: uint64(away.Milliseconds()), Claims: a.claims(), Kept: a.keep(),
	})
	s.watch()
}

func (a *attachment) address() protocol.To {
	return protocol.To{Partition: a.p, Gateway: a.sh.gateway, Stream: a.stream}
}

// enter changes the state. Consumers whose cancellation the stream's end overtakes have ended with it: nothing more comes to them.
func (a *attachment) enter(st attachState) {
	was := a.state
	a.state, a.since = st, a.sh.now
	if was == open && st != open {
		a.endCancelled()
	}
}

// endCancelled answers the cancellations that the owner has not.
func (a *attachment) endCancelled() {
	var cancelled []*consumer
	a.consumers = slices.DeleteFunc(a.consumers, func(c *consumer) bool {
		if c.state == cancelling {
			cancelled = append(cancelled, c)
		}
		return c.state == cancelling
	})
	for _, c := range cancelled {
		c.finishCancel()
	}
}

// wait leaves the stream and connects again after a while that doubles each time, or as soon as an event says so.
func (a *attachment) wait() {
	a.enter(waiting)
	if a.away == 0 {
		a.away = a.sh.now
		a.sh.watch()
	}
	a.to, a.node = nil, ""
	a.sh.box.After(a.backoff, retry{a, a.attempt})
	a.backoff = min(2*a.backoff, lastBackoff)
}

// lost is called when the stream is known to lead nowhere.
func (a *attachment) lost() {
	if a.state != waiting && !a.gone {
		a.wait()
	}
}

// again connects at once: something has changed.
func (a *attachment) again() {
	if !a.gone {
		a.backoff = firstBackoff
		a.connect()
	}
}

// claims are the deliveries that are held, and those whose settling is not confirmed: an owner that does not know of a claim would
// neither take the settle nor keep from delivering again.
func (a *attachment) claims() []protocol.Claim {
	var cs []protocol.Claim
	for _, h := range a.holders {
		h.held.Each(func(off uint64) { cs = append(cs, protocol.Claim{Consumer: h.id, Offset: off}) })
	}
	for _, m := range a.settles.kept {
		cs = appendClaims(cs, m.items)
	}
	return appendClaims(cs, a.settles.open)
}

// keep are the consumers of a queue that an owner has taken and that are to go on.
func (a *attachment) keep() (ks []protocol.KeptConsumer) {
	a.kept = a.kept[:0]
	for _, c := range a.consumers {
		if c.state == running && c.reader == nil {
			a.kept = append(a.kept, c.id)
			ks = append(ks, protocol.KeptConsumer{Consumer: c.id, Delivered: c.delivered})
		}
	}
	return ks
}

func appendClaims(cs []protocol.Claim, items []protocol.SettleItem) []protocol.Claim {
	for _, it := range items {
		for off := it.First; off <= it.Last; off++ {
			cs = append(cs, protocol.Claim{Consumer: it.Consumer, Offset: off})
		}
	}
	return cs
}

// attached is called when the owner has opened the stream: what is in hand is sent again, in order, before anything new.
func (a *attachment) attached(m protocol.Attached) {
	a.enter(open)
	a.epoch = m.Epoch
	if m.Lost {
		a.lose(m.LostFrom)
	}
	a.backoff, a.resent, a.away = firstBackoff, 0, 0
	a.out.expect(a.sh, m.Expect)
	a.resubscribe()
	a.resendSettles()
	if a.undo {
		a.reopen()
	}
	for _, r := range a.requests {
		r.asked = false
	}
	a.touch()
}

// resubscribe gives the owner of a new stream the consumers, under their old numbers. Of those that it was told of and that have gone since, it is
// told that too.
func (a *attachment) resubscribe() {
	for _, id := range a.kept {
		if _, c := a.consumer(id); c == nil {
			a.to.Send(protocol.Unsubscribe{To: a.address(), Consumer: id})
		}
	}
	a.kept = a.kept[:0]
	for _, c := range a.consumers {
		c.subscribe()
	}
}

// drop ends the work with a partition that was deleted.
func (a *attachment) drop(reason string) {
	if a.gone {
		return
	}
	a.gone = true
	s := a.sh
	a.resolve(a.out.sent(), broker.Unknown, reason)
	a.refuse(a.out.tail, reason)
	a.out.pop(s, false)
	a.relieve()
	requests := a.requests
	a.requests = nil
	for _, r := range requests {
		r.done(protocol.Counted{}, protocol.GetDone{}, broker.Errorf(broker.NotFound, "%s", reason))
	}
	consumers := a.consumers
	a.consumers = nil
	for _, c := range consumers {
		c.ended(reason)
	}
	for _, h := range a.holders {
		h.dropped()
	}
	a.holders = nil
	s.remove(a)
}

// busy reports whether anything is in hand that the owner has to know of.
func (a *attachment) busy() bool {
	return !a.out.empty() || len(a.consumers) > 0 || len(a.requests) > 0 || a.closing > 0 || !a.settles.empty() || a.holding()
}

func (a *attachment) holding() bool {
	k := 0
	for _, h := range a.holders {
		if h.held.Len() > 0 {
			a.holders[k] = h
			k++
		} else {
			h.listed = false
		}
	}
	clear(a.holders[k:])
	a.holders = a.holders[:k]
	return k > 0
}

// leave forgets an idle partition, so that one that nobody works with costs nothing here.
func (a *attachment) leave() {
	if a.state == open {
		a.to.Send(protocol.Detach{To: a.address()})
	}
	a.gone = true
	a.sh.remove(a)
}

// receive handles an answer of the owner on the present stream.
func (a *attachment) receive(msg any) {
	switch m := msg.(type) {
	case protocol.Attached:
		if a.state == attaching {
			a.attached(m)
		}
	case protocol.NotServing:
		a.lost()
	case protocol.Published:
		a.published(m)
	case protocol.PublishRefused:
		a.refused(m)
	case protocol.PublishExpected:
		a.expected(m)
	case protocol.PublishUnknown:
		a.lost()
	case protocol.Subscribed:
		a.subscribed(m)
	case protocol.Unsubscribed:
		a.unsubscribed(m)
	case protocol.ConsumerEnded:
		a.consumerEnded(m)
	case protocol.Deliver:
		a.deliver(m)
	case protocol.StreamData:
		a.streamData(m)
	case protocol.Settled:
		a.settles.confirmed(m.Seq)
		if len(a.requests) > 0 {
			a.touch() // one may have waited for this
		}
	case protocol.GetDone:
		a.settles.handed(m.Item)
		a.answered(m.Request, protocol.Counted{}, m)
	case protocol.Denied:
		a.denied(m.Claims)
	case protocol.Counted:
		a.answered(m.Request, m, protocol.GetDone{})
	}
}

// place says which partition and stream an owner's message is of; ok is false for anything else.
func place(msg any) (p ident.Partition, stream uint64, ok bool) {
	switch m := msg.(type) {
	case protocol.Attached:
		return m.Partition, m.Stream, true
	case protocol.NotServing:
		return m.Partition, m.Stream, true
	case protocol.Published:
		return m.Partition, m.Stream, true
	case protocol.PublishRefused:
		return m.Partition, m.Stream, true
	case protocol.PublishExpected:
		return m.Partition, m.Stream, true
	case protocol.PublishUnknown:
		return m.Partition, m.Stream, true
	case protocol.Subscribed:
		return m.Partition, m.Stream, true
	case protocol.Unsubscribed:
		return m.Partition, m.Stream, true
	case protocol.ConsumerEnded:
		return m.Partition, m.Stream, true
	case protocol.Deliver:
		return m.Partition, m.Stream, true
	case protocol.StreamData:
		return m.Partition, m.Stream, true
	case protocol.Settled:
		return m.Partition, m.Stream, true
	case protocol.GetDone:
		return m.Partition, m.Stream, true
	case protocol.Counted:
		return m.Partition, m.Stream, true
	case protocol.Denied:
		return m.Partition, m.Stream, true
	}
	return p, 0, false
}

// lostHeld is why a consumer ends that holds messages which are gone, and a channel that fetched such: what their client said of them later would
// be taken for the messages that get their offsets.
const lostHeld = "messages that it held were given up with the copies that had them (an accepted loss)"

// lose forgets what lay from an offset on: a loss was accepted (design 2 §8), and those offsets are given anew. Readers of a stream go on from
// there; consumers of a queue that hold such messages end, and so do the channels that fetched some.
func (a *attachment) lose(from uint64) {
	trace.Warn(a.sh.env.Trace, "gateway.lost", slog.String("partition", a.p.String()), slog.Uint64("from", from))
	a.settles.cut(from)
	for _, c := range slices.Clone(a.consumers) {
		lost := c.held.Cut(from)
		switch {
		case c.reader != nil:
			c.leaveNear()
			c.reader.cut(from)
		case lost && c.state != cancelling:
			i, _ := a.consumer(c.id)
			a.consumers = slices.Delete(a.consumers, i, i+1)
			c.ended(lostHeld)
		}
	}
	for _, h := range slices.Clone(a.holders) { // of consumers that have ended, and of what was fetched one at a time
		if h.held.Cut(from) && h.id == 0 && !h.session.closed {
			h.session.l.GetsGone(a.p, from, lostHeld)
		}
	}
}
