package amqp

import (
	"net"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp/amqptest"
	"github.com/tanist/tanist/internal/front/amqp/wire"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
)

// The time for the handshake ends with the handshake: it must not cut off the farewell of a client that connected a moment ago.
func TestHandshakeLimitDoesNotCutTheFarewell(t *testing.T) {
	sim := exec.NewSim(1)
	b := amqptest.New()
	s := New(Env{
		Executor: sim.Node("n", 1), Clock: clock.NewSim(sim.Now, time.Unix(1_700_000_000, 0)), BrokerFor: func(int) broker.Broker { return b },
		Limits: Limits{Handshake: 3 * time.Second},
	})
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	c := newConn(s, 1, near, false)
	in := wire.AppendMethod([]byte(wire.ProtocolHeader), 0, &wire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest"})
	in = wire.AppendMethod(in, 0, &wire.ConnectionTuneOk{})
	in = wire.AppendMethod(in, 0, &wire.ConnectionOpen{VirtualHost: "/"})
	<-c.free
	c.mb.Post(&input{data: in, n: len(in)})
	written := func() bool {
		select {
		case o := <-c.outgoing:
			c.mb.Post(o)
		default:
		}
		return c.s != nil && len(c.idle) == 2 && c.s.Pending() == 0
	}
	if !sim.RunUntil(func() bool { return written() && c.opened }, time.Second) {
		t.Fatal("the handshake was not done")
	}
	c.mb.Post(disconnect("an operator's wish"))
	if !sim.RunUntil(func() bool { return written() && c.closing }, time.Second) {
		t.Fatal("the client was not told to close")
	}
	sim.RunFor(4 * time.Second)
	if c.over {
		t.Fatal("cut off by the limit of the handshake")
	}
	sim.RunFor(2 * time.Second)
	if !c.over {
		t.Error("a client that does not answer was not cut off")
	}
}
