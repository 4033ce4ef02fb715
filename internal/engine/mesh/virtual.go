package mesh

import (
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/exec"
)

// Virtual is the network of a simulation: the ends of all its nodes, joined by function calls in virtual time. It keeps the rules that
// Mesh states and nothing more; what a link does to messages is drawn from the simulation's own randomness, so that a seed replays.
// Everything runs on the simulation's one thread.
type Virtual struct {
	sim  *exec.Sim
	ends []*virtualEnd         // of live nodes, in the order that they began
	cuts map[way]time.Duration // since when
	// Delay is how long a message takes; nil: 0.1 to 1 ms.
	Delay func(from, to string, p Purpose) time.Duration
	// Silence is after how long a peer that is not heard counts as silent; 0: 1.5 s.
	Silence time.Duration
	session uint64
}

// way is one direction between two nodes.
type way struct{ from, to string }

// virtualSession is a session between two runs.
type virtualSession struct {
	id    uint64
	a, b  *virtualEnd
	last  map[virtualLane]time.Duration // when the newest message of a lane arrives
	stuck map[string][]func()           // what could not arrive, by receiver: it is sent again until it does, as TCP does
	ended bool
}

type virtualLane struct {
	to      string
	purpose Purpose
	key     uint64
}

// virtualEnd is one node's end, for one run of it.
type virtualEnd struct {
	v        *Virtual
	local    ident.Instance
	line     ident.Generation
	waits    func() bool // for a catalog of it
	handler  Handler
	peers    []Peer
	sessions []*virtualSession
	backoff  map[string]time.Duration
	trying   map[string]bool
	paused   bool
	pausedAt time.Duration
	waiting  []func() // what came while it was paused
	gone     bool
}

// NewVirtual makes a network without nodes.
func NewVirtual(sim *exec.Sim) *Virtual { return &Virtual{sim: sim, cuts: map[way]time.Duration{}} }

// End makes the end of a run of a node. An earlier run of that node must have been killed.
func (v *Virtual) End(local ident.Instance) Mesh {
	return v.EndOf(local, ident.FirstGeneration, func() bool { return false })
}

// EndOf is End for a run that goes by a generation of the catalog; waits says whether it has none of it yet.
func (v *Virtual) EndOf(local ident.Instance, g ident.Generation, waits func() bool) Mesh {
	return &virtualEnd{v: v, local: local, line: g, waits: waits, backoff: map[string]time.Duration{}, trying: map[string]bool{}}
}

// Kill ends a node's run, as the death of its process does: its sessions break, and who dials it is refused.
func (v *Virtual) Kill(node string) {
	if e := v.find(node); e != nil {
		e.leave(Reset, "the connection was reset")
	}
}

// Pause stops a node's end from hearing anything until Resume: its peers count it as silent after a while. Its loops must be stopped by
// other means.
func (v *Virtual) Pause(node string) {
	e := v.find(node)
	if e == nil || e.paused {
		return
	}
	e.paused, e.pausedAt = true, v.sim.Now()
	for _, s := range slices.Clone(e.sessions) {
		v.silent(s, func() bool { return e.paused })
	}
}

// Resume lets a paused node hear what came meanwhile.
func (v *Virtual) Resume(node string) {
	if e := v.find(node); e != nil && e.paused {
		e.paused = false
		waiting := e.waiting
		e.waiting = nil
		for _, f := range waiting {
			f()
		}
	}
}

// Cut keeps everything that one node sends from arriving at another, until Restore or Heal. A session between them ends when the
// keep-alive notices, and what was on its way in it is lost; where the cut is shorter it arrives late.
func (v *Virtual) Cut(from, to string) {
	if !v.cut(from, to) {
		v.cuts[way{from, to}] = v.sim.Now()
	}
	if e := v.find(from); e != nil {
		if s := e.session(to); s != nil {
			v.silent(s, func() bool { return v.cut(from, to) })
		}
	}
}

func (v *Virtual) cut(from, to string) bool {
	_, is := v.cuts[way{from, to}]
	return is
}

// Restore ends the cut from one node to another.
func (v *Virtual) Restore(from, to string) {
	delete(v.cuts, way{from, to})
	v.resend(from, to)
}

// Heal ends all cuts.
func (v *Virtual) Heal() {
	for _, a := range v.ends {
		for _, b := range v.ends {
			if v.cut(a.local.Node, b.local.Node) {
				v.Restore(a.local.Node, b.local.Node)
			}
		}
	}
	clear(v.cuts)
}

// Sessions is how many sessions there are that nothing has ended.
func (v *Virtual) Sessions() (n int) {
	for _, e := range v.ends {
		for _, s := range e.sessions {
			if s.a == e && !s.ended {
				n++
			}
		}
	}
	return n
}

// Break ends the session between two nodes, if there is one: the connection breaks and is made anew.
func (v *Virtual) Break(a, b string) {
	if e := v.find(a); e != nil {
		if s := e.session(b); s != nil {
			v.end(s, Reset, "the connection was reset")
		}
	}
}

func (v *Virtual) silence() time.Duration {
	if v.Silence > 0 {
		return v.Silence
	}
	return 1500 * time.Millisecond
}

// silent ends a session after the keep-alive time, if what keeps it from being heard still does.
func (v *Virtual) silent(s *virtualSession, still func() bool) {
	v.sim.At(v.sim.Now()+v.silence(), func() {
		if !s.ended && still() {
			v.end(s, Silent, "nothing was heard of it")
		}
	})
}

func (v *Virtual) find(node string) *virtualEnd {
	for _, e := range v.ends {
		if e.local.Node == node {
			return e
		}
	}
	return nil
}

func (v *Virtual) delay(from, to string, p Purpose) time.Duration {
	if v.Delay != nil {
		return v.Delay(from, to, p)
	}
	return 100*time.Microsecond + time.Duration(v.sim.Rand().Int64N(int64(900*time.Microsecond)))
}

// end ends a session: what is under way is lost, and each end that lives notices in its own time.
func (v *Virtual) end(s *virtualSession, cause Cause, reason string) {
	if s.ended {
		return
	}
	s.ended = true
	late := 3 * time.Millisecond
	if cause == Silent {
		late = v.silence() / 4
	}
	for _, e := range []*virtualEnd{s.a, s.b} {
		v.sim.At(v.sim.Now()+time.Duration(v.sim.Rand().Int64N(int64(late))), func() { e.notice(s, cause, reason) })
	}
}

// notice has an end learn that a session is over, once; where it is paused, after it: until then it has the session, so that no other
// takes its place before it has heard of the end of this one.
func (e *virtualEnd) notice(s *virtualSession, cause Cause, reason string) {
	e.hear(func() {
		i := slices.Index(e.sessions, s)
		if i < 0 {
			return
		}
		e.sessions = slices.Delete(e.sessions, i, i+1)
		o := s.other(e)
		e.handler.Down(o.local, cause, reason)
		e.try(o.local.Node, 0)
	})
}

// hear runs what an end is told: not before it is resumed, and not at all once its run has ended.
func (e *virtualEnd) hear(f func()) {
	switch {
	case e.gone:
	case e.paused:
		e.waiting = append(e.waiting, func() { e.hear(f) })
	default:
		f()
	}
}

func (e *virtualEnd) session(node string) *virtualSession {
	for _, s := range e.sessions {
		if s.other(e).local.Node == node {
			return s
		}
	}
	return nil
}

func (s *virtualSession) other(e *virtualEnd) *virtualEnd {
	if s.a == e {
		return s.b
	}
	return s.a
}

// Start implements Mesh.
func (e *virtualEnd) Start(h Handler) {
	e.v.sim.At(e.v.sim.Now(), func() {
		if e.gone {
			return
		}
		e.handler = h
		e.v.ends = append(e.v.ends, e)
		e.dial()
	})
}

// SetPeers implements Mesh.
func (e *virtualEnd) SetPeers(peers []Peer) {
	peers = slices.Clone(peers)
	e.v.sim.At(e.v.sim.Now(), func() {
		e.peers = peers
		if e.handler == nil || e.gone {
			return
		}
		for _, s := range slices.Clone(e.sessions) {
			if o := s.other(e); !e.knows(o.local) {
				e.v.end(s, Left, "it is not a member any more")
			}
		}
		e.dial()
	})
}

func (e *virtualEnd) knows(i ident.Instance) bool {
	return slices.ContainsFunc(e.peers, func(p Peer) bool { return p.Node == i.Node && p.Store == i.Store })
}

func (e *virtualEnd) dial() {
	for _, p := range e.peers {
		e.try(p.Node, 0)
	}
}

// try attempts to reach a peer after a while.
func (e *virtualEnd) try(node string, after time.Duration) {
	if e.trying[node] || e.gone || node == e.local.Node || !slices.ContainsFunc(e.peers, func(p Peer) bool { return p.Node == node }) {
		return
	}
	e.trying[node] = true
	e.v.sim.At(e.v.sim.Now()+after+e.v.delay(e.local.Node, node, Control), func() {
		e.trying[node] = false
		e.hear(func() { e.attempt(node) })
	})
}

func (e *virtualEnd) attempt(node string) {
	if s := e.session(node); s != nil {
		if !s.ended {
			return
		}
		e.notice(s, Reset, "the connection was reset")
	}
	again := func() {
		e.backoff[node] = min(max(2*e.backoff[node], firstBackoff), lastBackoff)
		e.try(node, e.backoff[node])
	}
	o := e.v.find(node)
	switch {
	case e.v.cut(e.local.Node, node) || e.v.cut(node, e.local.Node) || o != nil && o.paused:
		e.handler.Unreachable(node, Silent, "no answer")
		again()
	case o == nil:
		e.handler.Unreachable(node, Refused, "connection refused")
		again()
	case e.line != o.line:
		e.handler.Unreachable(node, Denied, different(node, o.line, e.local.Node, e.line))
		e.outrun(o)
		o.outrun(e)
		again()
	case !e.knows(o.local) || !o.knows(e.local):
		e.handler.Unreachable(node, Denied, "it is not known there, or not as what it is")
		again()
	default:
		delete(e.backoff, node)
		delete(o.backoff, e.local.Node)
		if s := o.session(e.local.Node); s != nil {
			o.notice(s, Reset, "the peer has begun anew")
		}
		e.v.session++
		s := &virtualSession{id: e.v.session, a: e, b: o, last: map[virtualLane]time.Duration{}, stuck: map[string][]func(){}}
		e.sessions, o.sessions = append(e.sessions, s), append(o.sessions, s)
		e.handler.Up(o.local)
		o.handler.Up(e.local)
	}
}

// outrun tells an end that another one goes by a later generation.
func (e *virtualEnd) outrun(by *virtualEnd) {
	if by.line.Compare(e.line) > 0 && !by.waits() {
		e.hear(func() { e.handler.Superseded(by.local.Node, by.line) })
	}
}

// Send implements Mesh.
func (e *virtualEnd) Send(node string, p Purpose, key uint64, msg []byte) {
	s := e.session(node)
	if s == nil || e.gone {
		return
	}
	v, o := e.v, s.other(e)
	lane := virtualLane{node, p, key}
	at := max(v.sim.Now()+v.delay(e.local.Node, node, p), s.last[lane])
	s.last[lane] = at
	v.sim.At(at, func() {
		arrive := func() {
			o.hear(func() {
				if !s.ended {
					o.handler.Receive(e.local, p, slices.Clone(msg))
				}
			})
		}
		switch {
		case s.ended:
		case v.cut(e.local.Node, node) || len(s.stuck[node]) > 0:
			s.stuck[node] = append(s.stuck[node], arrive)
		default:
			arrive()
		}
	})
}

// resend lets what a cut held up arrive, once the sender tries again.
func (v *Virtual) resend(from, to string) {
	e := v.find(from)
	if e == nil {
		return
	}
	s := e.session(to)
	if s == nil || len(s.stuck[to]) == 0 {
		return
	}
	v.sim.At(v.sim.Now()+time.Duration(v.sim.Rand().Int64N(int64(200*time.Millisecond))), func() {
		if v.cut(from, to) || s.ended {
			return
		}
		held := s.stuck[to]
		s.stuck[to] = nil
		for _, f := range held {
			f()
		}
	})
}

// Backlog implements Mesh: what is sent is under way at once.
func (e *virtualEnd) Backlog(string) int64 { return 0 }

// Quiet implements Mesh.
func (e *virtualEnd) Quiet(node string) time.Duration {
	s := e.session(node)
	if s == nil {
		return 0
	}
	since, quiet := e.v.cuts[way{node, e.local.Node}]
	if o := s.other(e); o.paused && (!quiet || o.pausedAt < since) {
		since, quiet = o.pausedAt, true
	}
	if !quiet {
		return 0
	}
	return e.v.sim.Now() - since
}

// Redial implements Mesh.
func (e *virtualEnd) Redial(node string) {
	delete(e.backoff, node)
	e.try(node, 0)
}

// Stop implements Mesh.
func (e *virtualEnd) Stop() { e.leave(Left, "the node stops") }

func (e *virtualEnd) leave(cause Cause, reason string) {
	if e.gone {
		return
	}
	e.gone = true
	e.v.ends = slices.DeleteFunc(e.v.ends, func(x *virtualEnd) bool { return x == e })
	for _, s := range slices.Clone(e.sessions) {
		e.v.end(s, cause, reason)
	}
}
