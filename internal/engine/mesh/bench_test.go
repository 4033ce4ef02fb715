package mesh

import (
	"crypto/rand"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/trust"
)

// sink is a Handler that counts.
type sink struct {
	up     chan struct{}
	bytes  atomic.Int64
	count  atomic.Int64
	signal chan struct{} // after each message, if it is not nil
	echo   func(ident.Instance, Purpose, []byte)
}

func (s *sink) Up(ident.Instance)                   { s.up <- struct{}{} }
func (s *sink) opened(c chan struct{})              { s.up = c }
func (s *sink) Down(ident.Instance, Cause, string)  {}
func (s *sink) Unreachable(string, Cause, string)   {}
func (s *sink) Superseded(string, ident.Generation) {}
func (s *sink) Receive(p ident.Instance, purpose Purpose, msg []byte) {
	s.bytes.Add(int64(len(msg)))
	s.count.Add(1)
	if s.echo != nil {
		s.echo(p, purpose, msg)
	}
	if s.signal != nil {
		s.signal <- struct{}{}
	}
}

// opener is a Handler that says when a session begins.
type opener interface {
	Handler
	opened(chan struct{})
}

// couple is two nodes on loopback, with TLS, that have met.
func couple(tb testing.TB, from, to opener) (a, b *GRPC) {
	tb.Helper()
	cluster := ident.StoreID{1}
	authority := must(trust.NewAuthority(rand.Reader, cluster, time.Now()))(tb)
	var all []Peer
	var ends []Options
	for _, name := range []string{"a", "b"} {
		l := must(net.Listen("tcp", "127.0.0.1:0"))(tb)
		key := must(trust.NewKey())(tb)
		leaf := must(authority.Issue(rand.Reader, name, must(trust.NewRequest(name, key))(tb), time.Now()))(tb)
		m := must(trust.NewMaterial([][]byte{leaf}, key, [][]byte{authority.Certificate()}))(tb)
		all = append(all, Peer{name, ident.StoreID{name[0]}, l.Addr().String()})
		ends = append(ends, Options{
			Local: ident.Instance{Node: name, Store: ident.StoreID{name[0]}, Boot: 1}, Cluster: cluster, Listener: l, Trust: trust.Hold(m),
		})
	}
	up := make(chan struct{}, 8)
	from.opened(up)
	to.opened(up)
	a, b = must(New(ends[0]))(tb), must(New(ends[1]))(tb)
	a.SetPeers(all)
	b.SetPeers(all)
	a.Start(from)
	b.Start(to)
	<-up
	<-up
	return a, b
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMesh prints what a message costs both ends together on loopback with TLS: wall time, CPU time and allocations.
func BenchmarkMesh(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "64KiB": 64 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) { stream1(b, size) })
	}
	b.Run("pingpong", pingPong)
}

// stream1 sends messages with at most 8 MiB under way.
func stream1(b *testing.B, size int) {
	window := max(8, 8<<20/size)
	credit := make(chan struct{}, window)
	to := &sink{}
	to.echo = func(ident.Instance, Purpose, []byte) { <-credit }
	from, other := couple(b, &sink{}, to)
	msg := make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	start := cpu()
	for b.Loop() {
		credit <- struct{}{}
		from.Send("b", Copies, 1, msg)
	}
	for range window {
		credit <- struct{}{} // all have arrived
	}
	b.ReportMetric(float64(cpu()-start)/float64(b.N), "cpu-ns/op")
	from.Stop()
	other.Stop()
}

// pingPong sends one message there and back at a time.
func pingPong(b *testing.B) {
	back := &sink{signal: make(chan struct{}, 1)}
	to := &sink{}
	from, other := couple(b, back, to)
	to.echo = func(p ident.Instance, purpose Purpose, msg []byte) { other.Send(p.Node, purpose, 1, msg) }
	msg := make([]byte, 1<<10)
	b.ReportAllocs()
	start := cpu()
	for b.Loop() {
		from.Send("b", Copies, 1, msg)
		<-back.signal
	}
	b.ReportMetric(float64(cpu()-start)/float64(b.N), "cpu-ns/op")
	from.Stop()
	other.Stop()
}
