package session

import (
	"bytes"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

const (
	mechanisms   = "PLAIN AMQPLAIN"
	frameMinSize = wire.FrameMinSize
)

// protocolHeader reads what a client sends first. Whoever speaks something else is told what is spoken here, as AMQP wants it.
func (c *Conn) protocolHeader(p []byte) (used int, more bool) {
	used = min(len(wire.ProtocolHeader)-len(c.in), len(p))
	c.in = append(c.in, p[:used]...)
	if !bytes.HasPrefix([]byte(wire.ProtocolHeader), c.in) {
		c.out = append(c.out, wire.ProtocolHeader...)
		c.end()
		c.state = closed
		return used, true
	}
	if len(c.in) < len(wire.ProtocolHeader) {
		return used, true
	}
	c.in = c.in[:0]
	c.state = awaitStartOk
	c.send(0, &wire.ConnectionStart{
		VersionMajor: 0, VersionMinor: 9, ServerProperties: c.serverProperties(), Mechanisms: mechanisms, Locales: "en_US",
	})
	return used, false
}

// serverProperties claims what is true and nothing more.
func (c *Conn) serverProperties() wire.Table {
	var can wire.Table
	for _, name := range []string{
		"publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify", "connection.blocked",
		"consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
	} {
		can = append(can, wire.Field{Name: name, Value: wire.Bool(true)})
	}
	t := wire.Table{
		{Name: "product", Value: wire.String(c.cfg.Product)},
		{Name: "version", Value: wire.String(c.cfg.Version)},
		{Name: "platform", Value: wire.String("Go")},
		{Name: "capabilities", Value: wire.Nested(can)},
	}
	if c.cfg.ClusterName != "" {
		t = append(t, wire.Field{Name: "cluster_name", Value: wire.String(c.cfg.ClusterName)})
	}
	return t
}

// connectionMethod handles a method on channel 0.
func (c *Conn) connectionMethod(payload []byte) {
	m, err := wire.DecodeMethod(payload)
	if err != nil {
		c.broken(err)
		return
	}
	var f *fault
	switch m := m.(type) {
	case *wire.ConnectionClose:
		c.end()
		c.send(0, &wire.ConnectionCloseOk{})
		c.state = closed
		return
	case *wire.ConnectionStartOk:
		if c.state == awaitStartOk {
			c.startOk(m)
			return
		}
	case *wire.ConnectionTuneOk:
		if c.state == awaitTuneOk {
			f = c.tuneOk(m)
			if f == nil {
				return
			}
		}
	case *wire.ConnectionOpen:
		if c.state == awaitOpen {
			c.open(m)
			return
		}
	case *wire.ConnectionUpdateSecret:
		if c.state == running {
			c.updateSecret(m)
			return
		}
	}
	if f == nil {
		f = faultf(wire.CommandInvalid, "%s was not expected now", m.ID())
	}
	c.fail(m.ID(), f)
}

// claimMost bounds the bytes of a name that is kept of who is not logged in.
const claimMost = 255

func (c *Conn) startOk(m *wire.ConnectionStartOk) {
	c.client = clientOf(m.ClientProperties)
	var user, password string
	ok := false
	switch m.Mechanism {
	case "PLAIN":
		user, password, ok = plain(m.Response)
	case "AMQPLAIN":
		user, password, ok = amqplain(m.Response)
	case "EXTERNAL":
		c.fail(m.ID(), faultf(wire.NotImplemented,
			"authentication mechanism EXTERNAL is not available in this version; use PLAIN or AMQPLAIN"))
		return
	default:
		c.fail(m.ID(), faultf(wire.CommandInvalid, "unknown authentication mechanism '%s'; use PLAIN or AMQPLAIN", m.Mechanism))
		return
	}
	if !ok {
		c.refuseLogin(m, broker.Errorf(broker.AuthFailed, "the response cannot be read"))
		return
	}
	c.state, c.claimed = authenticating, user[:min(len(user), claimMost)]
	c.b.Authenticate(user, password, func(err *broker.Error) {
		if c.state != authenticating {
			return
		}
		if err != nil {
			c.refuseLogin(m, err)
			return
		}
		c.user, c.password, c.state = user, password, awaitTuneOk
		c.send(0, &wire.ConnectionTune{
			ChannelMax: c.cfg.Limits.Channels, FrameMax: c.cfg.Limits.FrameMax, Heartbeat: uint16(c.cfg.Limits.Heartbeat / time.Second),
		})
		c.wake()
	})
}

// refuseLogin closes the way the client expects: with connection.close where it said that it understands that, or where it is not the login
// that was wrong, else by ending the connection, which is how AMQP says it.
func (c *Conn) refuseLogin(m *wire.ConnectionStartOk, err *broker.Error) {
	f := faultOf(err)
	if f.code == wire.AccessRefused {
		f.text = "Login was refused using authentication mechanism " + m.Mechanism + ". " + f.text
	}
	if c.client.authClose || f.code != wire.AccessRefused {
		c.fail(m.ID(), f)
		return
	}
	c.end()
	c.fault, c.state = f, closed
	c.wake()
}

func plain(response string) (user, password string, ok bool) {
	parts := bytes.Split([]byte(response), []byte{0})
	if len(parts) != 3 {
		return "", "", false
	}
	return string(parts[1]), string(parts[2]), true
}

func amqplain(response string) (user, password string, ok bool) {
	t, err := wire.DecodeTable([]byte(response))
	if err != nil {
		return "", "", false
	}
	u, ok1 := t.Get("LOGIN")
	p, ok2 := t.Get("PASSWORD")
	return u.Str, p.Str, ok1 && ok2
}

func clientOf(t wire.Table) Client {
	str := func(name string) string {
		v, _ := t.Get(name)
		return v.Str
	}
	can, _ := t.Get("capabilities")
	capable := func(name string) bool {
		v, _ := can.Table.Get(name)
		return v.Int != 0
	}
	return Client{
		Product: str("product"), Version: str("version"), Platform: str("platform"), Name: str("connection_name"),
		cancelNotify: capable("consumer_cancel_notify"), blockedNotify: capable("connection.blocked"),
		authClose: capable("authentication_failure_close"),
	}
}

func (c *Conn) tuneOk(m *wire.ConnectionTuneOk) *fault {
	limits := c.cfg.Limits
	if m.FrameMax != 0 && m.FrameMax < frameMinSize {
		return faultf(wire.NotAllowed, "negotiated frame_max = %d is lower than the minimum of %d", m.FrameMax, frameMinSize)
	}
	if m.FrameMax > limits.FrameMax {
		return faultf(wire.NotAllowed, "negotiated frame_max = %d is higher than the maximum of %d", m.FrameMax, limits.FrameMax)
	}
	if m.ChannelMax > limits.Channels {
		return faultf(wire.NotAllowed, "negotiated channel_max = %d is higher than the maximum of %d", m.ChannelMax, limits.Channels)
	}
	if m.FrameMax != 0 {
		c.frameMax = m.FrameMax
	}
	if m.ChannelMax != 0 {
		c.channelMax = m.ChannelMax
	}
	c.heartbeat = time.Duration(m.Heartbeat) * time.Second
	c.state = awaitOpen
	return nil
}

func (c *Conn) open(m *wire.ConnectionOpen) {
	if c.cfg.Refuse != "" {
		c.fail(m.ID(), &fault{wire.NotAllowed, c.cfg.Refuse})
		return
	}
	c.state = opening
	c.b.Login(c.user, c.password, m.VirtualHost, func(err *broker.Error) {
		if c.state != opening {
			return
		}
		c.password = ""
		if err != nil {
			f := faultOf(err)
			if f.code == wire.NotFound || f.code == wire.AccessRefused {
				f.code = wire.NotAllowed // AMQP wants a hard code here
			}
			c.fail(m.ID(), f)
			return
		}
		c.vhost, c.state = m.VirtualHost, running
		c.send(0, &wire.ConnectionOpenOk{})
		c.wake()
	})
}

func (c *Conn) updateSecret(m *wire.ConnectionUpdateSecret) {
	c.b.SetSecret(m.NewSecret, func(err *broker.Error) {
		if c.state != running {
			return
		}
		if err != nil {
			f := faultOf(err)
			if f.code == wire.AccessRefused {
				f.code = wire.NotAllowed // AMQP wants a hard code here
			}
			c.fail(m.ID(), f)
			return
		}
		c.send(0, &wire.ConnectionUpdateSecretOk{})
		c.wake()
	})
}
