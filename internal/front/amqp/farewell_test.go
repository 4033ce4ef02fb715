package amqp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp/amqptest"
	"github.com/tanist/tanist/internal/front/amqp/wire"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
)

// watched is a connection that says what is done with it.
type watched struct {
	net.Conn
	halves, writes atomic.Int32
}

func (w *watched) CloseWrite() error {
	w.halves.Add(1)
	return nil
}

func (w *watched) Write(p []byte) (int, error) {
	w.writes.Add(1)
	return w.Conn.Write(p)
}

// alone is a connection whose reader and writer the test plays.
func alone(t *testing.T, nc net.Conn) (*conn, *exec.Sim) {
	sim := exec.NewSim(1)
	b := amqptest.New()
	s := New(Env{
		Executor: sim.Node("n", 1), Clock: clock.NewSim(sim.Now, time.Unix(1_700_000_000, 0)), BrokerFor: func(int) broker.Broker { return b },
	})
	t.Cleanup(func() { _ = nc.Close() })
	return newConn(s, 1, nc, false), sim
}

// To end the way to a client may have to be waited for: with TLS something is written, and the client may take nothing. A loop must not.
func TestTheLoopDoesNotWaitForAFarewell(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	w := &watched{Conn: near}
	c, sim := alone(t, w)
	in := []byte(wire.ProtocolHeader)
	in = wire.AppendMethod(in, 0, &wire.ConnectionClose{ReplyCode: 200})
	<-c.free
	c.mb.Post(&input{data: in, n: len(in)})
	var last *output
	if !sim.RunUntil(func() bool {
		select {
		case o := <-c.outgoing:
			if o.last {
				last = o
			} else {
				c.mb.Post(o)
			}
		default:
		}
		return last != nil
	}, time.Second/2) {
		t.Fatal("the writer was not asked to end the way to the client")
	}
	if n := w.halves.Load(); n != 0 || c.over {
		t.Fatalf("the loop has ended it %d times, and the connection: %v", n, c.over)
	}
	c.mb.Post(last)
	sim.RunFor(lingerLimit / 2)
	if c.over {
		t.Error("the client was given no time to hang up")
	}
	sim.RunFor(lingerLimit)
	if !c.over {
		t.Error("a client that does not hang up is waited for")
	}
}

// A connection is cut from a loop too. Nothing is written then, not even TLS's goodbye.
func TestCuttingWritesNothing(t *testing.T) {
	near, far := net.Pipe()
	w := &watched{Conn: near}
	secure := tls.Server(w, selfSigned(t))
	client := tls.Client(far, &tls.Config{InsecureSkipVerify: true})
	done := make(chan error, 1)
	go func() { done <- client.Handshake() }()
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = client.Read(make([]byte, 1)) }() // what the handshake left, and the end
	c, _ := alone(t, secure)
	before := w.writes.Load()
	c.cut()
	if n := w.writes.Load() - before; n != 0 {
		t.Errorf("%d writes", n)
	}
}

func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
