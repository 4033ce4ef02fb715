package gateway

import "github.com/tanist/tanist/internal/core/protocol"

// What is delivered and has not left for the client is bounded for each consumer, by its byte credit, and for the session: a client with many
// consumers that reads nothing would take their windows, and one message of any size for each, many times over. Credit cannot be shared out
// among consumers beforehand, for one whose queue is empty would keep its share from the others. So when a session has too much, the credit
// of all its consumers is taken back at once, and given back when the client has taken half of it. What is on its way by then comes.

// sessionBytes is how much of what was delivered may wait in one session before it is given no more.
const sessionBytes = 32 << 20

// crowdBytes is how much may be on its way to a shard on the owner's own node: so far it may pass sessionBytes.
const crowdBytes = 32 << 20

// handed takes note that bytes went to the client's session.
func (c *consumer) handed(n int64) {
	c.undrain += n
	x := c.session
	x.undrain += n
	if !x.over && x.undrain > x.window() {
		x.over = true
		for _, o := range x.order {
			o.revoke()
		}
	}
}

// window is what may wait in the session.
func (x *session) window() int64 { return max(sessionBytes, 4*x.sh.limits.ConsumerBytes) }

// took takes note that bytes have left for the client, or count no more.
func (x *session) took(n int64) {
	x.undrain -= n
	if x.over && x.undrain <= x.window()/2 {
		x.over = false
		for _, o := range x.order {
			o.restore()
		}
	}
}

// revoke takes a consumer's credit: the whole window, so that none is left whatever of it was used.
func (c *consumer) revoke() {
	if !c.revoked {
		c.revoked = c.give(-c.window)
	}
}

func (c *consumer) restore() {
	if c.revoked {
		c.revoked = false
		c.give(c.window)
	}
}

// initial is what a consumer is given on a new stream.
func (c *consumer) initial(n int64) int64 {
	if c.revoked = c.session.over; c.revoked {
		return n - c.window
	}
	return n
}

// give gives credit to whoever the consumer is served by; false if that is nobody now. Less than nothing takes it.
func (c *consumer) give(n int64) bool {
	r := c.reader
	switch {
	case c.state != running && c.state != subscribing:
		return false
	case r != nil && r.near != nil:
		r.near.to.Send(protocol.Credit{To: c.nearAddress(), Consumer: c.id, Bytes: n})
	case c.a.state != open || r != nil && r.hoping:
		return false
	default:
		c.a.to.Send(protocol.Credit{To: c.a.address(), Consumer: c.id, Bytes: n})
	}
	return true
}

// deliveredBytes is what a message from an owner brings for clients.
func deliveredBytes(msg any) (n int64) {
	switch m := msg.(type) {
	case protocol.Deliver:
		for i := range m.Items {
			n += int64(len(m.Items[i].Body))
		}
	case protocol.StreamData:
		for _, b := range m.Batches {
			n += int64(b.Size())
		}
	}
	return n
}
