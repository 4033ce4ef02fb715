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
	// Generation is the line of the catalog that this run goes by; zero is the first. Waits says whether it has no catalog of it yet, from any
	// goroutine; nil: it has. Whoever goes by another is refused, and where that is a later one which has its catalog, the handler is told.
	Generation ident.Generation
	Waits      func() bool
	// Listener takes connections of other nodes, without TLS. The mesh closes it.
	Listener net.Listener
	// Dial opens connections, without TLS; nil is TCP. An error that wraps ECONNREFUSED counts as proof that the process is gone.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Trust gives this node's certificate and whom it trusts, anew at each connection.
	Trust trust.Source
	// Removed says of a store whether it has left the cluster for good. Who comes with one is told so. nil: none has.
	Removed func(ident.StoreID) bool
	// Registrar gives certificates; nil refuses to.
	Registrar Registrar
	// Renewed, if set, lets the node renew its certificate when two thirds of its life are over: Trust must be a *trust.Holder then. It
	// is called with the new material before that is put in use, to keep it; if it fails, the old one stays and it is tried again.
	Renewed func(*trust.Material) error
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
	// A process that is being ended closes its sessions before it stops listening: what dials it at once is taken, and broken. It is
	// refused a moment later, and only that tells that it is gone (design 2 §4).
	firstBackoff = time.Millisecond
	soonBackoff  = 50 * time.Millisecond // at most, after a session that ended soon
	lastBackoff  = time.Second
)

// defaults fills in what was not given.
func (o *Options) defaults() {
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
	if o.Generation.IsZero() {
		o.Generation = ident.FirstGeneration
	}
	if o.Waits == nil {
		o.Waits = func() bool { return false }
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
}

// fill makes options complete, or says what is wrong with them.
func (o *Options) fill() error {
	o.defaults()
	if o.Listener == nil || o.Trust == nil || o.Local.Node == "" {
		return errors.New("mesh: a listener, trust and the name of this node are needed")
	}
	if _, ok := o.Trust.(*trust.Holder); o.Renewed != nil && !ok {
		return errors.New("mesh: only a certificate that is held can be renewed")
	}
	m := o.Trust.Material()
	if m == nil {
		return errors.New("mesh: there is a certificate, but no authority to judge others by")
	}
	err := own(m, o.Cluster, o.Local.Node, o)
	// An expired certificate can be renewed; a wrong one cannot become right.
	if err != nil && !errors.Is(err, trust.ErrExpired) && !errors.Is(err, trust.ErrEarly) {
		return fmt.Errorf("mesh: this node (%q): %w", o.Local.Node, err)
	}
	return nil
}
