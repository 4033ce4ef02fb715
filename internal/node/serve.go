package node

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/engine/gateway"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/amqp"
	"github.com/tanist/tanist/internal/front/amqp/session"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"

	"github.com/tanist/tanist/internal/config"
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
	// Listening is told once the node takes clients. May be nil.
	Listening func(Addresses)
}

// Addresses are where a node listens; empty where it does not.
type Addresses struct {
	AMQP, AMQPS, Admin, Admins string
	Boot                       uint64
	Took                       time.Duration // from the call of Serve
}

// server is a node with its fronts.
type server struct {
	cfg       *config.Config
	opt       ServeOptions
	exec      exec.Executor
	node      *Node
	listeners map[string]net.Listener
	amqp      *amqp.Server
	admin     *admin.Server
}

// Serve runs one node on this machine until ctx ends, and then stops it in order. It returns an error if the node cannot start, or not
// stop in order.
func Serve(ctx context.Context, cfg *config.Config, opt ServeOptions) error {
	start := time.Now()
	if opt.Trace == nil {
		opt.Trace = trace.Discard
	}
	s := &server{cfg: cfg, opt: opt, listeners: map[string]net.Listener{}}
	if err := s.listen(); err != nil {
		return err
	}
	memory, done := context.WithCancel(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { keepMemory(memory) })
	defer keeper.Wait()
	defer done()
	s.exec = exec.New(0)
	defer s.exec.Stop()
	if err := s.startNode(); err != nil {
		s.closeListeners()
		return err
	}
	s.serveFronts()
	if opt.Listening != nil {
		opt.Listening(Addresses{
			AMQP: s.address("amqp"), AMQPS: s.address("amqps"), Admin: s.address("admin"), Admins: s.address("admins"),
			Boot: s.node.local.Boot, Took: time.Since(start),
		})
	}
	<-ctx.Done()
	return s.stop()
}

// listen takes the addresses before anything is touched, so that one that is taken costs nothing.
func (s *server) listen() error {
	for _, l := range []struct{ name, address string }{
		{"amqp", s.cfg.AMQP}, {"amqps", s.cfg.AMQPS}, {"admin", s.cfg.Admin}, {"admins", s.cfg.Admins},
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

func (s *server) startNode() error {
	n, err := New(Env{Clock: clock.System(), Exec: s.exec, FS: vfs.OS(), Random: rand.Reader, Trace: s.opt.Trace}, Config{
		Name: s.cfg.Name, Dir: s.cfg.Data, AMQP: s.address("amqp"), Admin: s.address("admin"), Undertaker: session.Undertaker{},
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
	started := make(chan error, 1)
	n.Start(func(err error) { started <- err })
	if err := <-started; err != nil {
		return errors.Join(err, s.stopNode())
	}
	return nil
}

func (s *server) stopNode() error {
	done := make(chan error, 1)
	s.node.Stop(func(err error) { done <- err })
	return <-done
}

func (s *server) serveFronts() {
	s.amqp = amqp.New(amqp.Env{
		Executor: s.exec, BrokerFor: func(loop int) broker.Broker { return s.node.Broker(loop) }, Clock: clock.System(), Trace: s.opt.Trace,
		Limits: amqp.Limits{
			Connections: s.cfg.Limits.Connections, Channels: uint16(s.cfg.Limits.Channels), FrameMax: uint32(s.cfg.Limits.Frame),
			MessageMax: uint64(s.cfg.Limits.Message),
		},
		Product: Product, Version: s.opt.Version,
	})
	s.admin = admin.New(admin.Env{
		Backend: &backend{n: s.node, front: s.amqp, version: s.opt.Version, started: time.Now(), pid: os.Getpid()}, Trace: s.opt.Trace,
		Version: s.opt.Version,
	})
	for _, l := range []struct {
		name   string
		listen func(net.Listener, *tls.Config)
		tls    *tls.Config
	}{{"admin", s.admin.Listen, nil}, {"admins", s.admin.Listen, s.opt.TLS}, {"amqp", s.amqp.Listen, nil}, {"amqps", s.amqp.Listen, s.opt.TLS}} {
		if ln := s.listeners[l.name]; ln != nil {
			l.listen(ln, l.tls)
		}
	}
}

// stop ends clients first, then the node.
func (s *server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := errors.Join(s.amqp.Shutdown(ctx), s.admin.Shutdown(ctx))
	return errors.Join(err, s.stopNode())
}
