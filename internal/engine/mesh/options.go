package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/trust"
)

// Options are what a node's end of the mesh is made of.
type Options struct {
	// Local is this run of this node.
	Local ident.Instance
	// Cluster is the cluster's id. Whoever is of another is refused.
	Cluster ident.StoreID
	// Listener takes connections of other nodes, without TLS. The mesh closes it.
	Listener net.Listener
	// Dial opens connections, without TLS; nil is TCP. An error that wraps ECONNREFUSED counts as proof that the process is gone.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Trust gives this node's certificate and whom it trusts, anew at each connection.
	Trust trust.Source
	// Registrar gives certificates; nil refuses to.
	Registrar Registrar
	// Clock tells the time; nil is the machine's.
	Clock clock.Clock
	// Trace is told of sessions and refusals; nil discards.
	Trace  trace.Sink
	Limits Limits
}

// Limits bound time and memory. Zero values mean the defaults.
type Limits struct {
	// Silence is after how long without a byte a peer counts as silent, and how long reaching one may take (1.5 s).
	Silence time.Duration
	// Queue is how many bytes may wait to be sent to one peer (256 MiB). The engines bound what they send by credits; if that fails,
	// the session ends rather than the memory.
	Queue int64
	// Message is the largest message taken (128 MiB); as much of messages that are not complete may be held for one peer and purpose.
	Message int
}

const (
	firstBackoff = 10 * time.Millisecond
	lastBackoff  = time.Second
)

func (o *Options) fill() error {
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	if o.Trace == nil {
		o.Trace = trace.Discard
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	if o.Limits.Silence <= 0 {
		o.Limits.Silence = 1500 * time.Millisecond
	}
	if o.Limits.Queue <= 0 {
		o.Limits.Queue = 256 << 20
	}
	if o.Limits.Message <= 0 {
		o.Limits.Message = 128 << 20
	}
	if o.Listener == nil || o.Trust == nil || o.Local.Node == "" {
		return errors.New("mesh: a listener, trust and the name of this node are needed")
	}
	node, err := o.Trust.Material().Verify(append(o.Trust.Material().Authorities[:0:0], o.Trust.Material().Certificate.Leaf), o.Cluster, o.Clock.Wall())
	if node != o.Local.Node && err == nil {
		err = fmt.Errorf("%w: it is that of %q", trust.ErrNode, node)
	}
	// An expired certificate can be renewed; a wrong one cannot become right.
	if err != nil && !errors.Is(err, trust.ErrExpired) && !errors.Is(err, trust.ErrEarly) {
		return fmt.Errorf("mesh: this node (%q): %w", o.Local.Node, err)
	}
	return nil
}
