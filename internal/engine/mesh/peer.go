package mesh

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh/wire"
	"github.com/tanist/tanist/internal/port/trace"
)

// peer is another node: its session, and the attempts to have one.
type peer struct {
	m     *GRPC
	node  string
	store ident.StoreID
	// decides says that this node begins sessions with it: its own name is the lower one.
	decides bool
	// turn is held by whoever calls the handler about this peer's sessions.
	turn chan struct{}
	wake chan struct{} // what the dialling waits for may have changed

	ctx    context.Context // ends when the peer is taken off the list
	cancel context.CancelFunc

	// open is the session that the handler knows of: it is sent in. A session that was chosen waits until the one before has gone Down.
	open    atomic.Pointer[session]
	current atomic.Pointer[session] // begun and not ended; between its end and Down it may still be here. Written under mu

	mu       sync.Mutex
	gone     bool // no session is begun any more
	address  string
	answered int                // attempts of the other side that it may begin
	boot     uint64             // of its latest run that spoke
	told     string             // why it was last unreachable
	again    bool               // dial without waiting
	backoff  time.Duration      // before the next attempt
	dialling context.CancelFunc // of the attempt of this side that is not begun
}

func newPeer(m *GRPC, w Peer, turn chan struct{}) *peer {
	if turn == nil {
		turn = make(chan struct{}, 1)
	}
	p := &peer{
		m: m, node: w.Node, store: w.Store, address: w.Address, decides: m.opt.Local.Node < w.Node,
		turn: turn, wake: make(chan struct{}, 1), again: true, backoff: firstBackoff,
	}
	p.ctx, p.cancel = context.WithCancel(m.ctx)
	return p
}

// leave ends what there is with a peer that is no longer one.
func (p *peer) leave() {
	p.mu.Lock()
	p.gone = true
	s := p.current.Load()
	p.mu.Unlock()
	if s != nil {
		s.end(Left, "it is no longer a peer, or this node stops")
	}
	p.cancel()
}

// move takes a new address.
func (p *peer) move(address string) {
	p.mu.Lock()
	moved := p.address != address
	p.address = address
	p.mu.Unlock()
	if moved {
		p.redial()
	}
}

func (p *peer) redial() {
	if p == nil {
		return
	}
	p.mu.Lock()
	if p.current.Load() == nil {
		p.again, p.backoff = true, firstBackoff
	}
	p.mu.Unlock()
	p.stir()
}

func (p *peer) stir() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// session is the one to send in, or nil.
func (p *peer) session() *session {
	if p == nil {
		return nil
	}
	return p.open.Load()
}

// saw notes that a run of the peer spoke. It returns the latest one that has: no earlier one is heard any more.
func (p *peer) saw(boot uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.boot = max(p.boot, boot)
	return p.boot
}

// dial prepares this side's greeting, unless there is a session or may soon be one.
func (p *peer) dial() *wire.Hello {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy() {
		return nil
	}
	return p.m.hello()
}

func (p *peer) busy() bool { return p.current.Load() != nil || p.answered > 0 }

// answer prepares the answer to a greeting of the peer; unanswer must follow. A session with an earlier run is over.
func (p *peer) answer(i ident.Instance) *wire.Hello {
	p.mu.Lock()
	p.answered++
	h, s := p.m.hello(), p.current.Load()
	p.mu.Unlock()
	if s != nil && s.peer.Boot < i.Boot {
		s.end(Reset, "a later run of it speaks")
	}
	return h
}

func (p *peer) unanswer() {
	p.mu.Lock()
	p.answered--
	p.mu.Unlock()
	p.stir()
}

// choose makes s the present session, where this node decides that or the peer has. If there is one already, it is replaced only if allowed:
// by what the peer has begun, or by what it asked for after it lost the one that there is.
func (p *peer) choose(s *session, replace func(present *session) bool) bool {
	p.mu.Lock()
	old := p.current.Load()
	if p.gone || s.peer.Boot < p.boot || old != nil && !old.isOver() && !replace(old) {
		p.mu.Unlock()
		return false
	}
	p.current.Store(s)
	if p.dialling != nil {
		p.dialling()
	}
	p.mu.Unlock()
	if old != nil {
		old.end(Reset, "it began a new session")
	}
	return true
}

// later says that the peer said the greeting of s after that of the present session, or in a later run.
func (s *session) later(present *session) bool {
	return s.peer.Boot > present.peer.Boot || s.serial > present.serial
}

func (s *session) always(*session) bool { return true }
func (s *session) never(*session) bool  { return false }

func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// hold runs a session that was chosen, until it is over.
func (p *peer) hold(s *session) {
	p.turn <- struct{}{}
	began := p.m.opt.Clock.Mono()
	p.open.Store(s)
	s.run(p.m.handler)
	p.open.Store(nil)
	p.mu.Lock()
	p.told = ""
	p.current.CompareAndSwap(s, nil)
	// What ends soon is not tried again at once, but soon.
	if p.m.opt.Clock.Mono()-began >= lastBackoff {
		p.backoff, p.again = firstBackoff, true
	} else {
		p.backoff = min(p.backoff, soonBackoff)
	}
	p.mu.Unlock()
	<-p.turn
	p.stir()
}

// await waits until the peer is to be dialled. It returns false when it no longer is.
func (p *peer) await() bool {
	p.mu.Lock()
	t := time.NewTimer(p.backoff)
	p.mu.Unlock()
	defer t.Stop()
	due := false
	for {
		p.mu.Lock()
		ok := !p.busy() && (due || p.again)
		if ok {
			p.again = false
		}
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-p.ctx.Done():
			return false
		case <-t.C:
			due = true
		case <-p.wake:
		}
	}
}

// dialLoop tries to have a session whenever there is none.
func (p *peer) dialLoop() {
	for p.await() {
		p.mu.Lock()
		p.backoff = min(max(2*p.backoff, firstBackoff), lastBackoff)
		p.mu.Unlock()
		if f := p.attempt(); f != nil && p.ctx.Err() == nil {
			p.unreachable(f)
		}
	}
}

// unreachable tells the handler of a failed attempt, unless there is a session by now.
func (p *peer) unreachable(f *failure) {
	if f.cause == Denied {
		p.m.denied(p.node, f.reason)
	}
	select {
	case p.turn <- struct{}{}:
	case <-p.ctx.Done():
		return
	}
	defer func() { <-p.turn }()
	if p.current.Load() == nil {
		p.mu.Lock()
		news := p.told != f.reason
		p.told = f.reason
		p.mu.Unlock()
		if news && f.cause != Denied {
			trace.Info(p.m.opt.Trace, "mesh.unreachable", slog.String("peer", p.node), slog.String("cause", f.cause.String()),
				slog.String("reason", f.reason))
		}
		p.m.handler.Unreachable(p.node, f.cause, f.reason)
	}
}
