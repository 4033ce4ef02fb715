package gateway

import (
	"time"

	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/stream"
)

// A consumer of a stream is subscribed at the stream's owner, which knows its cursor, says where it starts and counts it. What it reads
// comes from the copy of this node, if that follows: then the subscription has no credit. If the copy says that it does not serve readers
// any more, the consumer takes credit at the owner from where it is, and looks again later whether the copy has recovered.

// nearestAgain is how long a consumer reads from the owner after the copy here has sent it away.
const nearestAgain = 10 * time.Second

// nearest is a reading stream to the copy of this node.
type nearest struct {
	stream uint64
	to     protocol.Sender
}

// readsNear reports whether the consumer should read from the copy here, or does.
func (c *consumer) readsNear() bool {
	r, s := c.reader, c.a.sh
	return r.near != nil || (r.notBefore == 0 || s.now >= r.notBefore) && s.env.Directory.Reader(c.a.p) != nil
}

// readNear begins to read from the copy here, from where the consumer is.
func (c *consumer) readNear() {
	r, s := c.reader, c.a.sh
	r.hoping = false
	to := s.env.Directory.Reader(c.a.p)
	if to == nil {
		c.subscribe()
		return
	}
	s.stream++
	r.near = &nearest{s.stream, to}
	if s.near == nil {
		s.near = map[uint64]*consumer{}
	}
	s.near[s.stream] = c
	c.owed = 0
	to.Send(protocol.Read{To: c.nearAddress(), Consumer: c.id, Offset: r.end(), Credit: c.initial(c.credit()), Reply: s})
}

// credit is what a reader may be sent at the beginning of a stream.
func (c *consumer) credit() int64 { return max(c.window-c.undrain-c.reader.waiting, 1) }

func (c *consumer) nearAddress() protocol.To {
	to := c.a.address()
	to.Stream = c.reader.near.stream
	return to
}

// leaveNear ends the reading stream.
func (c *consumer) leaveNear() {
	if c.reader == nil || c.reader.near == nil {
		return
	}
	c.reader.near.to.Send(protocol.Unread{To: c.nearAddress()})
	delete(c.a.sh.near, c.reader.near.stream)
	c.reader.near = nil
}

// receiveNear takes what the copy here sends.
func (c *consumer) receiveNear(msg any) {
	switch m := msg.(type) {
	case protocol.StreamData:
		c.takeData(m)
	case protocol.NotServing:
		r := c.reader
		delete(c.a.sh.near, r.near.stream)
		r.near, r.notBefore = nil, c.a.sh.now+nearestAgain
		if c.a.state == open && c.state == running {
			c.subscribe()
		}
		c.a.sh.watch()
	}
}

// comeNear has consumers that read from an owner elsewhere go to the copy here, if there is one that may serve them. It reports whether
// one may do so later.
func (a *attachment) comeNear() (later bool) {
	if a.state != open {
		return false
	}
	for _, c := range a.consumers {
		r := c.reader
		if r == nil || r.near != nil || r.hoping || c.state != running || a.sh.env.Directory.Reader(a.p) == nil {
			continue
		}
		if r.notBefore > a.sh.now {
			later = true
			continue
		}
		c.subscribe()
	}
	return later
}

// subscribeReader is subscribe for a stream's consumer.
func (c *consumer) subscribeReader(m *protocol.Subscribe) {
	r := c.reader
	m.Prefetch = 0 // counted here
	m.Credit = c.credit()
	if r.known {
		m.Start, m.Cursor = stream.Start{Kind: stream.StartOffset, Offset: r.end()}, ""
	}
	r.hoping = false
	if c.readsNear() {
		m.Credit = 0
		r.hoping = r.near == nil // until the owner has said where it starts
	}
}
