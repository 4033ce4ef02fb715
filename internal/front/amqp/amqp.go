// Package amqp lets clients of RabbitMQ in: it moves bytes between sockets and the state machine of package session, one actor for each
// connection on one of the node's shared loops. What AMQP means is in session, how it is written in wire; neither decisions nor formats may
// come in here, and nothing outside this folder but the node knows AMQP.
package amqp

import (
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// Env is what a server stands on.
type Env struct {
	Executor exec.Executor
	// BrokerFor is the broker that serves the sessions of shared loop i.
	BrokerFor func(loop int) broker.Broker
	Clock     clock.Clock
	Trace     trace.Sink
	Limits    Limits // zero values stand for the defaults
	// Product and Version are told to clients; ClusterName too, where it is set.
	Product, Version, ClusterName string
}

// Limits bound what clients may use. Each has a clear error of its own.
type Limits struct {
	Connections int           // 10 000
	Channels    uint16        // per connection: 2 047
	FrameMax    uint32        // bytes of a frame: 131 072
	MessageMax  uint64        // bytes of a message's body: 16 MiB
	Heartbeat   time.Duration // offered to clients: 60 s
	Handshake   time.Duration // from accepting a connection to connection.open: 10 s
}
