package node

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/gateway"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/console"
	"github.com/tanist/tanist/internal/front/amqp"
	"github.com/tanist/tanist/internal/front/amqp/session"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"

	"github.com/tanist/tanist/internal/config"
	"github.com/tanist/tanist/internal/node/memory"
	"github.com/tanist/tanist/internal/port/processors"
)

// Product is the name that clients are told.
const Product = "Tanist"

// metricsTimeout bounds what a scrape waits for.
const metricsTimeout = 5 * time.Second

// stopTimeout bounds how long clients are waited for at the end.
const stopTimeout = 10 * time.Second

// ServeOptions are what Serve needs beyond the settings.
type ServeOptions struct {
	Version string
	Trace   trace.Sink
	TLS     *tls.Config // for amqps and admins
	// Alone says that the process is this node's and nobody else's: it may choose how many processors it runs on.
	Alone bool
	// Listening is told once the node takes clients. May be nil.
	Listening func(Addresses)
}

// Addresses are where a node listens; empty where it does not.
type Addresses struct {
	AMQP, AMQPS, Admin, Admins, Mesh string
	Boot                             uint64
	Took                             time.Duration // from the call of Serve
}

// server is a node with its fronts.
type server struct {
	cfg       *config.Config
	opt       ServeOptions
	exec      exec.Executor
	node      *Node
	place     *membership
	listeners map[string]net.Listener
	amqp      *amqp.Server
	admin     *admin.Server
	backend   *backend
	removed   chan error // from the cluster, or left behind by it: there is nothing left for the node to do
}

// Serve runs one node on this machine until ctx ends, and then stops it in order. It returns an error if the node cannot start, or not
// stop in order.
func Serve(ctx context.Context, cfg *config.Config, opt ServeOptions) error {
	start := time.Now()
	if opt.Trace == nil {
		opt.Trace = trace.Discard
	}
	s := &server{cfg: cfg, opt: opt, listeners: map[string]net.Listener{}, removed: make(chan error, 1)}
	if err := s.listen(); err != nil {
		return err
	}
	running, done := context.WithCancel(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { memory.Keep(running) })
	defer keeper.Wait()
	defer done()
	s.exec = exec.New(0)
	if opt.Alone {
		keeper.Go(func() { processors.Keep(running) })
	}
	defer s.exec.Stop()
	if err := s.openNode(running); err != nil {
		s.closeListeners()
		return err
	}
	s.serveAdmin()
	if err := s.startNode(running); errors.Is(err, context.Canceled) {
		return s.stop() // while it waited
	} else if err != nil {
		return errors.Join(s.place.left(err), s.stop())
	}
	s.listenOn("amqp", s.amqp.Listen, nil)
	s.listenOn("amqps", s.amqp.Listen, s.opt.TLS)
	s.backend.open.Store(true)
	keeper.Go(func() { s.place.keep(running) })
	if opt.Listening != nil {
		opt.Listening(Addresses{
			AMQP: s.address("amqp"), AMQPS: s.address("amqps"), Admin: s.address("admin"), Admins: s.address("admins"),
			Mesh: s.node.cfg.Mesh, Boot: s.node.local.Boot, Took: time.Since(start),
		})
	}
	select {
	case <-ctx.Done():
		return s.stop()
	case err := <-s.removed:
		return errors.Join(s.place.left(err), s.stop())
	}
}

// listen takes the addresses before anything is touched, so that one that is taken costs nothing.
func (s *server) listen() error {
	for _, l := range []struct{ name, address string }{
		{"amqp", s.cfg.AMQP},
		{"amqps", s.cfg.AMQPS},
		{"admin", s.cfg.Admin},
		{"admins", s.cfg.Admins},
		{"mesh", s.cfg.Mesh},
	} {
		if l.address == "" {
			continue
		}
		ln, err := net.Listen("tcp", l.address)
		if err != nil {
			s.closeListeners()
			if errors.Is(err, syscall.EADDRINUSE) {
				return fmt.Errorf("listen for %s: %w; stop what uses the address, or choose another with --%s (a second node on one machine needs "+
					"addresses and a directory of its own: --amqp, --admin, --data)", l.name, err, l.name)
			}
			return fmt.Errorf("listen for %s: %w; choose another address with --%s", l.name, err, l.name)
		}
		s.listeners[l.name] = ln
	}
	return nil
}

func (s *server) address(name string) string {
	if ln := s.listeners[name]; ln != nil {
		return ln.Addr().String()
	}
	return ""
}

func (s *server) closeListeners() {
	for _, ln := range s.listeners {
		_ = ln.Close() // nothing was accepted
	}
}

// sayHowSyncs says which of its two ways the journal goes, since the slower one may be a setting of the system's that nobody meant.
func sayHowSyncs(t trace.Sink) {
	if why := vfs.Rings(); why != nil {
		trace.Info(t, "storage.sync", slog.String("by", "fdatasync"), slog.String("reason", why.Error()))
		return
	}
	trace.Info(t, "storage.sync", slog.String("by", "io_uring"))
}

// openNode opens the data directory and finds out, makes or asks for the node's place in a cluster. What it opened is closed again
// where that fails.
func (s *server) openNode(ctx context.Context) error {
	place, err := openMembership(s.cfg, vfs.OS(), s.opt.Trace)
	if err != nil {
		return err
	}
	s.place = place
	sayHowSyncs(s.opt.Trace)
	env := Env{Clock: clock.System(), Exec: s.exec, FS: vfs.OS(), Random: rand.Reader, Trace: s.opt.Trace}
	if s.cfg.Mesh != "" {
		env.Mesh = func(local ident.Instance, g ident.Generation, waits func() bool) (mesh.Mesh, error) {
			return place.mesh(mesh.Options{
				Local: local, Generation: g, Waits: waits, Listener: s.listeners["mesh"], Registrar: registrar{s.node}, Removed: s.node.removed,
			})
		}
	}
	at, host := s.cfg.Advertise, ""
	meshed := advertised(s.address("mesh"), at.Mesh, "")
	if meshed != "" {
		host, _, _ = net.SplitHostPort(meshed) // an address is one
	}
	n, err := New(env, Config{
		Name: s.cfg.Name, Dir: s.cfg.Data, Undertaker: session.Undertaker{}, Mesh: meshed, Zone: s.cfg.Zone, Joining: place.joining(), PID: os.Getpid(), Failed: s.failed,
		AMQP: frontAddress(s.address("amqp"), s.address("amqps"), "amqps://", at.AMQP, host), Admin: frontAddress(s.address("admin"), s.address("admins"), "https://", at.Admin, host), PeersChanged: place.peersChanged,
		Storage: storage.Options{FileSize: s.cfg.Disk.File, LowWater: s.cfg.Disk.Low, HighWater: s.cfg.Disk.High},
		Limits: gateway.Limits{
			Connections: s.cfg.Limits.Connections, ConnectionsPerUser: s.cfg.Limits.ConnectionsPerUser, Queues: s.cfg.Limits.Queues,
			Consumers: s.cfg.Limits.Consumers, MessageSize: int(s.cfg.Limits.Message), PublishBytes: s.cfg.Memory.Publish,
			PartitionBytes: s.cfg.Memory.Partition, ConsumerBytes: s.cfg.Memory.Consumer, ConfirmTimeout: s.cfg.ConfirmTimeout,
		},
	})
	if err != nil {
		return err
	}
	s.node = n
	if err := place.settle(ctx, n); err != nil {
		return errors.Join(err, s.stopNode())
	}
	return nil
}

// failed is told why the node cannot go on. What it holds can be looked at until an operator stops it, unless it is a member no more, or the
// cluster has left it behind.
func (s *server) failed(err error) {
	if left := (*consensus.Superseded)(nil); errors.Is(err, consensus.ErrRemoved) || errors.As(err, &left) {
		select {
		case s.removed <- err:
		default: // it ends already
		}
	}
}

// startNode waits until clients may come, which takes a quorum of the catalog. It returns context.Canceled where ctx ended before.
func (s *server) startNode(ctx context.Context) error {
	started := make(chan error, 1)
	s.node.Start(func(err error) { started <- err })
	select {
	case err := <-started:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.place.adopt(ctx, s.node)
}

// frontAddress is where a front is reached, for those who ask any node: the plain address, or where only one with TLS leads here from elsewhere that one,
// with its scheme.
func frontAddress(plain, secure, scheme, says, host string) string {
	if secure != "" && (plain == "" || onlyHere(plain) && !onlyHere(secure)) {
		return scheme + advertised(secure, says, host)
	}
	return advertised(plain, says, host)
}

// onlyHere says whether an address is reached from its own machine alone.
func onlyHere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

// advertised is where others reach what listens at an address: what the operator says, with the port of the listener if it has none; else
// the address itself, or if that is every address, the host.
func advertised(listen, says, host string) string {
	if listen == "" {
		return ""
	}
	own, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen // a listener's address is one
	}
	if says != "" {
		if net.ParseIP(says) == nil && strings.Contains(says, ":") {
			return says
		}
		return net.JoinHostPort(says, port)
	}
	if ip := net.ParseIP(own); host != "" && ip != nil && ip.IsUnspecified() {
		own = host
	}
	return net.JoinHostPort(own, port)
}

func (s *server) stopNode() error {
	done := make(chan error, 1)
	s.node.Stop(func(err error) { done <- err })
	return <-done
}

// serveAdmin makes the fronts, and listens for operators: a node that cannot start yet says why.
func (s *server) serveAdmin() {
	s.amqp = amqp.New(amqp.Env{
		Executor: s.exec, BrokerFor: func(loop int) broker.Broker { return s.node.Broker(loop) }, Clock: clock.System(), Trace: s.opt.Trace,
		Limits: amqp.Limits{
			Connections: s.cfg.Limits.Connections, Channels: uint16(s.cfg.Limits.Channels), FrameMax: uint32(s.cfg.Limits.Frame),
			MessageMax: uint64(s.cfg.Limits.Message),
		},
		Product: Product, Version: s.opt.Version,
	})
	s.backend = &backend{n: s.node, front: s.amqp, version: s.opt.Version, started: time.Now()}
	s.node.clients.Store(&clients{s.amqp.Status})
	pages := console.New(console.Env{Backend: s.backend, Trace: s.opt.Trace})
	s.admin = admin.New(admin.Env{Backend: s.backend, Trace: s.opt.Trace, Version: s.opt.Version, Pages: pages})
	s.listenOn("admin", s.admin.Listen, nil)
	s.listenOn("admins", s.admin.Listen, s.opt.TLS)
}

func (s *server) listenOn(name string, listen func(net.Listener, *tls.Config), t *tls.Config) {
	if ln := s.listeners[name]; ln != nil {
		listen(ln, t)
	}
}

// stop ends clients first, then the node.
func (s *server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := errors.Join(s.amqp.Shutdown(ctx), s.admin.Shutdown(ctx), s.stopNode())
	s.closeListeners() // those that were not served yet
	return err
}
