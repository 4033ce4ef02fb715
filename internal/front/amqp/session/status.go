package session

import "github.com/tanist/tanist/internal/front/amqp/wire"

// Status is a connection as people see it.
type Status struct {
	User, VHost string
	Claimed     string // the name given at login, also where it was refused
	Fault       string // why the broker closed the connection; empty: it did not, or it was told to (320)
	Client      Client
	State       string // "opening", "running", "blocked" (publishing is held), "closing"
	FrameMax    uint32
	Heartbeat   int // seconds
	Channels    []ChannelStatus
	Consumers   []ConsumerStatus // by channel, in the order in which they began
	Stats       Stats
}

// ChannelStatus is a channel as people see it.
type ChannelStatus struct {
	Number      uint16
	Consumers   int
	Unsettled   int
	Unconfirmed int
	Prefetch    uint32
	Confirms    bool
	Paused      bool // by the client, with channel.flow
}

// ConsumerStatus is a consumer as people see it.
type ConsumerStatus struct {
	Channel  uint16
	Tag      string
	Queue    string
	Prefetch uint32 // of its channel; 0: no bound
	NoAck    bool
}

// Channels is how many channels are open.
func (c *Conn) Channels() int { return len(c.order) }

// Status describes the connection.
func (c *Conn) Status() Status {
	s := Status{
		User: c.user, VHost: c.vhost, Client: c.client, State: "opening", FrameMax: c.frameMax, Heartbeat: int(c.heartbeat.Seconds()),
		Stats: c.stats, Claimed: c.claimed,
	}
	if c.fault != nil && c.fault.code != wire.ConnectionForced {
		s.Fault = c.fault.full()
	}
	switch {
	case c.state >= closing:
		s.State = "closing"
	case c.state == running && c.hold:
		s.State = "blocked"
	case c.state == running:
		s.State = "running"
	}
	for _, ch := range c.order {
		s.Channels = append(s.Channels, ChannelStatus{
			Number: ch.number, Consumers: len(ch.consumers), Unsettled: ch.unsettled.len(),
			Unconfirmed: len(ch.confirms.fates) - ch.confirms.head, Prefetch: ch.prefetch, Confirms: ch.confirms.on, Paused: ch.paused,
		})
		for _, k := range ch.consumers {
			s.Consumers = append(s.Consumers, ConsumerStatus{Channel: ch.number, Tag: k.tag, Queue: k.queue, Prefetch: ch.prefetch, NoAck: k.noAck})
		}
	}
	return s
}
