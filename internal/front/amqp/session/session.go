// Package session is what AMQP 0-9-1 means: the state machine of one client's connection and of its channels, between frames and
// broker.Session. Bytes of the client go in through Feed, bytes for the client come out through Take, times come in as values.
//
// It is pure: no socket, clock, lock or goroutine may come in, and map order decides nothing. Everything is called on one loop, the
// broker's callbacks included. Broken input ends this one connection with the reply code that AMQP has for it and harms nothing else.
package session

import (
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// Limits bound what the client may use.
type Limits struct {
	Channels   uint16
	FrameMax   uint32
	MessageMax uint64
	Heartbeat  time.Duration
}

// getsMax bounds the messages that basic.get is fetching at a time, over all channels of a connection: what they bring has no byte credit.
const getsMax = 4

// getsPending is how many bytes may wait to be taken when another message is fetched.
const getsPending = 1 << 20

// timeoutsEvery is the longest between two looks at what clients have not settled in time.
const timeoutsEvery = 10 * time.Second

// assemblyMax bounds the parts of unfinished messages, over all channels of a connection, in multiples of the largest message.
const assemblyMax = 4

// Config is what a connection is made with.
type Config struct {
	Broker broker.Broker
	Peer   broker.Peer
	ID     uint64 // unique in this run of the node; names of consumers are made of it
	Limits Limits
	// Product, Version and ClusterName are told to the client.
	Product, Version, ClusterName string
	// Refuse, where not empty, is why connection.open will be refused.
	Refuse string
	// Wake is called when there may be something to Flush or to Feed again that no call of Feed or Tick caused.
	Wake func()
}

// Instant is a moment: Mono as clock.Clock has it, Wall in milliseconds since 1970.
type Instant struct {
	Mono time.Duration
	Wall int64
}

type state uint8

const (
	awaitHeader  state = iota
	awaitStartOk       // connection.start was sent
	authenticating
	awaitTuneOk
	awaitOpen
	opening
	running
	closing // connection.close was sent, everything but its answer is dropped
	closed  // nothing more is read; what was written is still to be sent
)

// Conn is one connection. It implements broker.Listener.
type Conn struct {
	cfg    Config
	state  state
	b      broker.Session
	now    Instant
	lastIn time.Duration
	// lastOut is when something was last written, for heartbeats.
	lastOut   time.Duration
	heartbeat time.Duration
	timeout   time.Duration // the shortest in which any delivery must be settled; 0: none must

	in    []byte // a frame that has not arrived in full
	stuck bool   // input is held back
	hold  bool   // the broker asked not to publish

	frameMax   uint32
	channelMax uint16
	client     Client
	user       string
	claimed    string // the name given at login
	fault      *fault // why the broker closed it
	password   string
	vhost      string

	channels  map[uint16]*channel
	order     []*channel // the same, in the order they were opened
	last      *channel   // the one used last
	opened    uint64     // channels ever opened
	consumers map[uint64]*consumer
	numbered  uint64 // consumers ever started
	getting   int    // messages that basic.get is fetching

	spread    []*channel // channels with parts of messages that refer to what was fed
	assembled uint64     // bytes of unfinished messages that are kept
	names     names

	settles    []broker.Ref // not told to the broker yet
	settlement broker.Settlement

	out       []byte
	owing     []*consumer // deliveries of theirs are in out
	dirty     []*channel  // confirms to tell
	blocked   string
	told      bool // the client was told that it is blocked
	published bool
	stats     Stats
}

// Client is what a client said of itself.
type Client struct {
	Product, Version, Platform, Name string

	cancelNotify, blockedNotify, authClose bool
}

// Stats count for people.
type Stats struct {
	Published, Delivered, Confirmed, Refused, Unknown, Returned uint64
}

// New makes a connection that has received nothing.
func New(cfg Config, at Instant) *Conn {
	c := &Conn{
		cfg: cfg, now: at, lastIn: at.Mono, lastOut: at.Mono, frameMax: cfg.Limits.FrameMax, channelMax: cfg.Limits.Channels,
		channels: map[uint16]*channel{}, consumers: map[uint64]*consumer{},
	}
	c.b = cfg.Broker.Open(cfg.Peer, c)
	return c
}

// Output is what is to be written to the client, and whose deliveries are in it.
type Output struct {
	Bytes  []byte
	drains []drain
}

type drain struct {
	consumer uint64
	bytes    int
}

// Pending is how many bytes wait to be taken.
func (c *Conn) Pending() int { return len(c.out) }

// Take moves what is to be written into o, whose memory is used for what comes next.
func (c *Conn) Take(o *Output) {
	o.Bytes, c.out = c.out, o.Bytes[:0]
	o.drains = o.drains[:0]
	for i, k := range c.owing {
		o.drains = append(o.drains, drain{k.num, k.owed})
		k.owed = 0
		c.owing[i] = nil
	}
	c.owing = c.owing[:0]
	if len(o.Bytes) > 0 {
		c.lastOut = c.now.Mono
	}
}

// Written says that an output was written to the client.
func (c *Conn) Written(o *Output) {
	for _, d := range o.drains {
		if c.b != nil {
			c.b.Drained(d.consumer, d.bytes)
		}
	}
	o.drains = o.drains[:0]
}

// Feed takes bytes from the client and returns how many of them were used up. If that is not all, or if Stuck, the broker wants input
// held back for now, and Feed is to be called again with the rest once Wake was called. Nothing of p is kept.
func (c *Conn) Feed(p []byte, at Instant) (used int) {
	c.now, c.lastIn, c.stuck = at, at.Mono, false
	for c.state != closed && !c.stuck {
		if c.state == awaitHeader {
			n, more := c.protocolHeader(p[used:])
			if used += n; more {
				break
			}
			continue
		}
		if len(c.in) > 0 {
			n, more := c.joined(p[used:])
			if used += n; more {
				break
			}
			continue
		}
		f, n, err := wire.ParseFrame(p[used:], c.frameMax)
		if err != nil {
			c.lost(err)
			break
		}
		if n == 0 {
			c.in = append(c.in[:0], p[used:]...)
			used = len(p)
			break
		}
		if c.holds(f) {
			c.stuck = true
			break
		}
		used += n
		c.frame(f)
	}
	c.gather()
	c.settleNow()
	if c.state == closed {
		return len(p)
	}
	return used
}

// Stuck reports whether a frame that has arrived is held back.
func (c *Conn) Stuck() bool { return c.stuck && c.state != closed }

// joined goes on with a frame that began in an earlier input. more says that the rest of it has yet to come.
func (c *Conn) joined(p []byte) (used int, more bool) {
	for missing := wire.Missing(c.in); missing > 0; missing = wire.Missing(c.in) {
		n := min(missing, len(p)-used)
		c.in = append(c.in, p[used:used+n]...)
		used += n
		if n < missing {
			break
		}
		if _, _, err := wire.ParseFrame(c.in, c.frameMax); err != nil {
			c.lost(err)
			return used, true
		}
	}
	f, n, err := wire.ParseFrame(c.in, c.frameMax)
	switch {
	case err != nil:
		c.lost(err)
		return used, true
	case n == 0:
		return used, true
	case c.holds(f):
		c.stuck = true
		return used, true
	}
	c.frame(f)
	c.gather() // c.in is about to be used again
	c.in = c.in[:0]
	if cap(c.in) > 64<<10 {
		c.in = nil
	}
	return used, false
}

// holds reports whether a frame has to wait. Methods wait while an earlier one of their channel is being answered, publishing waits while
// the broker wants it to, and basic.get while the client has enough of others' answers to take; what is behind waits too, so that order is
// kept.
func (c *Conn) holds(f wire.Frame) bool {
	if f.Type != wire.FrameMethod {
		return false
	}
	if f.Channel == 0 {
		return c.state == authenticating || c.state == opening
	}
	ch := c.channel(f.Channel)
	if ch == nil {
		return false
	}
	if ch.busy {
		return true
	}
	full := c.getting >= getsMax || len(c.out) > getsPending
	if !c.hold && !full {
		return false
	}
	id, _, err := wire.SplitMethod(f.Payload)
	return err == nil && (c.hold && id == wire.IDBasicPublish || full && id == wire.IDBasicGet)
}

func (c *Conn) channel(number uint16) *channel {
	if c.last != nil && c.last.number == number {
		return c.last
	}
	ch := c.channels[number]
	if ch != nil {
		c.last = ch
	}
	return ch
}

func (c *Conn) frame(f wire.Frame) {
	switch {
	case c.state == closing:
		c.whileClosing(f)
	case f.Type == wire.FrameHeartbeat:
		if f.Channel != 0 {
			c.fail(0, &fault{wire.FrameError, "heartbeat on a channel"})
		}
	case f.Channel == 0:
		if f.Type != wire.FrameMethod {
			c.fail(0, &fault{wire.UnexpectedFrame, "content on channel 0"})
			return
		}
		c.connectionMethod(f.Payload)
	case c.state != running:
		c.fail(0, &fault{wire.CommandInvalid, "the connection is not open"})
	default:
		c.channelFrame(f)
	}
}

// whileClosing drops everything but the end.
func (c *Conn) whileClosing(f wire.Frame) {
	if f.Type != wire.FrameMethod || f.Channel != 0 {
		return
	}
	switch id, _, _ := wire.SplitMethod(f.Payload); id {
	case wire.IDConnectionClose:
		c.send(0, &wire.ConnectionCloseOk{})
		c.state = closed
	case wire.IDConnectionCloseOk:
		c.state = closed
	}
}

// Flush tells the client and the broker what is cheaper to say in groups.
func (c *Conn) Flush(at Instant) {
	c.now = at
	c.settleNow()
	if c.timeout > 0 {
		for _, ch := range c.order {
			ch.unsettled.stamp(at.Mono)
		}
	}
	for i, ch := range c.dirty {
		ch.dirty = false
		if !ch.gone {
			c.out = ch.confirms.flush(c.out, ch.number)
		}
		c.dirty[i] = nil
	}
	c.dirty = c.dirty[:0]
}

// Interval is how often Tick is to be called; 0: not at all.
func (c *Conn) Interval() time.Duration {
	if c.state != running {
		return 0
	}
	d := c.heartbeat / 2
	if t := min(max(c.timeout/4, 100*time.Millisecond), timeoutsEvery); c.timeout > 0 && (d == 0 || t < d) {
		d = t
	}
	return d
}

// Tick lets time pass. held says that the caller itself does not read from the client now, whose
// silence then says nothing.
func (c *Conn) Tick(at Instant, held bool) {
	c.now = at
	if c.state != running {
		return
	}
	for i := 0; i < len(c.order) && c.timeout > 0; i++ {
		if ch := c.order[i]; ch.unsettled.overdue(at.Mono) {
			ch.raise(0, faultf(wire.PreconditionFailed,
				"delivery acknowledgement on channel %d timed out. Timeout value used: %d ms", ch.number, ch.timeout.Milliseconds()))
		}
	}
	if c.heartbeat == 0 {
		return
	}
	if held || c.stuck {
		c.lastIn = at.Mono
	}
	if at.Mono-c.lastIn > 2*c.heartbeat+c.heartbeat/4 {
		c.end()
		c.out = c.out[:0]
		c.state = closed
		return
	}
	if at.Mono-c.lastOut >= c.heartbeat/2-time.Millisecond && len(c.out) == 0 {
		c.out = wire.AppendHeartbeat(c.out)
	}
}

// Open reports whether connection.open succeeded.
func (c *Conn) Open() bool { return c.state == running }

// Closing reports whether the client was told to close and has yet to answer.
func (c *Conn) Closing() bool { return c.state == closing }

// Done reports whether the connection has ended: what is left to take is to be written, then the socket closed.
func (c *Conn) Done() bool { return c.state == closed }

// Abandon says that the socket is gone.
func (c *Conn) Abandon() {
	c.end()
	c.state = closed
	c.out = nil
}

// end gives back everything that the connection holds in the broker.
func (c *Conn) end() {
	if c.b == nil {
		return
	}
	c.settleNow()
	for _, ch := range c.order {
		ch.gone = true
	}
	b := c.b
	c.b = nil
	b.Close()
	c.order, c.last, c.spread = nil, nil, nil
	clear(c.channels)
	clear(c.consumers)
	c.password = ""
}

func (c *Conn) wake() {
	if c.cfg.Wake != nil {
		c.cfg.Wake()
	}
}

func (c *Conn) send(channel uint16, m wire.Method) {
	if c.state != closed {
		c.out = wire.AppendMethod(c.out, channel, m)
	}
}
