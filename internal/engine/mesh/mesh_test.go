package mesh

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tanist/tanist/internal/core/ident"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestThreeNodesMeet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.peers("a", "b", "c")
		a, b, c := w.node("a", 1, all...), w.node("b", 1, all...), w.node("c", 1, all...)
		defer stopAll(a, b, c)
		settle(time.Second)
		wantUp(t, a, "b", "c")
		wantUp(t, b, "a", "c")
		wantUp(t, c, "a", "b")
		for _, n := range []*node{a, b, c} {
			if n.count("up") != 2 || n.count("down") != 0 {
				t.Errorf("%s: both dialled and more than one session resulted: %v", n.self.Node, n.lines())
			}
		}
		for p := range Purposes {
			a.Send("b", p, 1, []byte("to b on "+p.String()))
			c.Send("a", p, 1, nil)
		}
		settle(time.Second)
		for p := range Purposes {
			if got := b.messages("a", p); len(got) != 1 || string(got[0]) != "to b on "+p.String() {
				t.Errorf("b got %q for %v", got, p)
			}
			if got := a.messages("c", p); len(got) != 1 || len(got[0]) != 0 {
				t.Errorf("a got %q for %v, want one empty message", got, p)
			}
		}
		settle(time.Hour)
		for _, n := range []*node{a, b, c} {
			if n.count("down") != 0 {
				t.Errorf("%s: an idle session ended: %v", n.self.Node, n.lines())
			}
		}
	})
}

// Whoever starts first and however both dial, one session results.
func TestBothDial(t *testing.T) {
	for _, gap := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 11 * time.Millisecond, time.Second} {
		for _, order := range []string{"ab", "ba"} {
			t.Run(fmt.Sprint(order, gap), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					all := w.peers("a", "b")
					first := w.node(order[:1], 1, all...)
					<-time.After(gap)
					second := w.node(order[1:], 1, all...)
					defer stopAll(first, second)
					settle(3 * time.Second)
					for _, n := range []*node{first, second} {
						if n.count("up") != 1 || n.count("down") != 0 {
							t.Errorf("%s: %v", n.self.Node, n.lines())
						}
					}
				})
			})
		}
	}
}

func TestKilledAndRestarted(t *testing.T) {
	for _, name := range []string{"a", "c"} { // the one with the lower and the one with the higher name
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				all := w.peers(name, "b")
				b, x := w.node("b", 1, all...), w.node(name, 1, all...)
				settle(time.Second)
				x.Stop()
				settle(time.Second)
				if b.count("down "+name+" 1 reset") != 1 {
					t.Errorf("%v", b.lines())
				}
				lines := b.lines()
				at := slices.Index(lines, "down "+name+" 1 reset") + 1
				if at >= len(lines) || !strings.HasPrefix(lines[at], "unreachable "+name+" refused") {
					t.Errorf("after the break: %v", lines)
				}
				before := b.count("unreachable")
				settle(10 * time.Second)
				if n := b.count("unreachable") - before; n < 9 || n > 12 {
					t.Errorf("%d attempts in 10 s, want one a second", n)
				}
				x = w.node(name, 2, all...)
				settle(2 * time.Second)
				lines = b.lines()
				if last := lines[len(lines)-1]; last != "up "+name+" 2" {
					t.Errorf("after the restart: %s", last)
				}
				b.Send(name, Work, 7, []byte("hello"))
				settle(time.Second)
				if got := x.messages("b", Work); len(got) != 1 {
					t.Errorf("the new run got %q", got)
				}
				stopAll(x, b)
			})
		})
	}
}

// A run that ended without a word is over as soon as a later one speaks.
func TestLaterRunSpeaks(t *testing.T) {
	for _, name := range []string{"a", "c"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				all := w.peers(name, "b")
				b, x := w.node("b", 1, all...), w.node(name, 1, all...)
				settle(time.Second)
				x.net(w).Close() // so that the next run can listen; the process is only frozen
				y := w.node(name, 2, all...)
				settle(100 * time.Millisecond)
				got := b.lines()
				if at := slices.Index(got, "down "+name+" 1 reset"); at < 0 || !slices.Equal(got[at+1:], []string{"up " + name + " 2"}) {
					t.Errorf("%v", got)
				}
				settle(10 * time.Second)
				if after := b.lines(); len(after) != len(got) {
					t.Errorf("the earlier run, which dials still, was let in: %v", after)
				}
				if x.clue.find("mesh.denied", "run 1 of node", "is over") == "" {
					t.Errorf("the earlier run was not told: %v", x.clue.all)
				}
				stopAll(x, y, b)
			})
		})
	}
}

func (n *node) net(w *world) *listener {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	return w.net.listeners[n.self.Address]
}

func TestResetIsMendedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.peers("a", "b")
		a, b := w.node("a", 1, all...), w.node("b", 1, all...)
		defer stopAll(a, b)
		settle(5 * time.Second)
		before := a.count("unreachable") + b.count("unreachable") // one may have dialled before the other listened
		for range 3 {
			start := time.Now()
			w.net.reset("a:1")
			for len(a.messages("b", Control)) == 0 {
				b.Send("a", Control, 1, []byte("x"))
				settle(time.Millisecond)
			}
			if took := time.Since(start); took > 5*time.Millisecond {
				t.Errorf("a new session took %v", took)
			}
			a.mu2().Lock()
			clear(a.got)
			a.mu2().Unlock()
			settle(2 * time.Second)
		}
		for _, n := range []*node{a, b} {
			if n.count("up") != 4 || n.count("down") != 3 {
				t.Errorf("%s: %v", n.self.Node, n.lines())
			}
		}
		if n := a.count("unreachable") + b.count("unreachable"); n != before {
			t.Errorf("an attempt failed though both listen: %v, %v", a.lines(), b.lines())
		}
	})
}

// A process that is being ended breaks its connections before it stops listening, so the first attempt is taken and broken. That it is
// gone, which the refusal says, is known a moment later all the same.
func TestRefusedSoonAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.peers("a", "b")
		a, b := w.node("a", 1, all...), w.node("b", 1, all...)
		defer stopAll(a)
		settle(5 * time.Second)
		wantUp(t, a, "b")
		before := a.count("unreachable b refused")
		dying := w.net.listen("b:1") // takes what comes, and nobody answers
		stopAll(b)
		settle(time.Millisecond)
		if n := a.count("unreachable b refused"); n != before || len(dying.queue) == 0 {
			t.Fatalf("%d refused, %d taken", n-before, len(dying.queue))
		}
		if err := dying.Close(); err != nil {
			t.Fatal(err)
		}
		w.net.reset("b:1")
		settle(5 * time.Millisecond)
		if a.count("unreachable b refused") == before {
			t.Errorf("5 ms later: %v", a.lines())
		}
	})
}

func TestSilent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.peers("a", "b")
		a, b := w.node("a", 1, all...), w.node("b", 1, all...)
		defer stopAll(a, b)
		settle(10 * time.Second)
		w.net.silence("b:1", true)
		settle(1100 * time.Millisecond)
		if a.count("down") != 0 {
			t.Errorf("given up after 1.1 s: %v", a.lines())
		}
		settle(420 * time.Millisecond)
		for _, n := range []*node{a, b} {
			if n.count("down") != 1 || n.count("down a 1 silent")+n.count("down b 1 silent") != 1 {
				t.Errorf("%s after 1.52 s: %v", n.self.Node, n.lines())
			}
		}
		settle(5 * time.Second)
		if n := a.count("unreachable b silent"); n < 2 {
			t.Errorf("%v", a.lines())
		}
		w.net.silence("b:1", false)
		settle(4 * time.Second)
		wantUp(t, a, "b")
		wantUp(t, b, "a")
	})
}

func TestListOfPeers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.node("a", 1, w.peers("b")...), w.node("b", 1)
		defer stopAll(a, b)
		settle(100 * time.Millisecond)
		if a.count("unreachable b denied") == 0 || a.clue.find("mesh.denied", `"a" is not a member`) == "" {
			t.Errorf("a dialled who does not know it: %v, %v", a.lines(), a.clue.all)
		}
		if b.clue.find("WARN mesh.denied", `"a" is not a member`) == "" {
			t.Errorf("b says nothing of it: %v", b.clue.all)
		}
		b.SetPeers(w.peers("a", "b"))
		settle(2 * time.Second)
		wantUp(t, a, "b")
		other := w.peer("b")
		other.Store[0]++
		a.SetPeers([]Peer{other})
		settle(time.Second)
		if a.count("down b 1 left") != 1 {
			t.Errorf("another store's session stays: %v", a.lines())
		}
		if a.clue.find("mesh.denied", "its place in the cluster is that of store") == "" || b.clue.find("mesh.denied", "its place in the cluster") == "" {
			t.Errorf("%v, %v", a.clue.all, b.clue.all)
		}
		a.SetPeers(w.peers("b"))
		settle(2 * time.Second)
		wantUp(t, a, "b")
		a.SetPeers(nil)
		settle(time.Second)
		if got := a.lines(); got[len(got)-1] != "down b 1 left" {
			t.Errorf("%v", got)
		}
		a.Send("b", Work, 1, []byte("nobody"))
		a.Redial("b")
	})
}

func TestRedial(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node("a", 1, w.peers("b")...)
		defer stopAll(a)
		settle(20 * time.Second)
		<-time.After(500 * time.Millisecond)
		before := a.count("unreachable b refused")
		for range 5 {
			a.Redial("b")
			settle(time.Millisecond)
		}
		if got := a.count("unreachable b refused") - before; got != 5 {
			t.Errorf("%d attempts for 5 calls", got)
		}
	})
}

// A message of 16 MiB, under way, delays no small one of another key; one key's stay in order.
func TestLargeDelaysNoSmall(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.peers("a", "b")
		a, b := w.node("a", 1, all...), w.node("b", 1, all...)
		defer stopAll(a, b)
		settle(time.Second)
		large := make([]byte, 16<<20)
		for i := range large {
			large[i] = byte(i * 7 >> 8)
		}
		a.Send("b", Control, 1, []byte("before"))
		a.Send("b", Control, 1, large)
		a.Send("b", Control, 1, []byte("after"))
		a.Send("b", Control, 2, []byte("seal"))
		a.Send("b", Control, 3, large[:1<<20])
		settle(time.Minute)
		var sizes []int
		got := b.messages("a", Control)
		for _, m := range got {
			sizes = append(sizes, len(m))
		}
		if want := []int{6, 4, 1 << 20, 16 << 20, 5}; !slices.Equal(sizes, want) {
			t.Fatalf("sizes %v, want %v", sizes, want)
		}
		if !bytes.Equal(got[3], large) || !bytes.Equal(got[2], large[:1<<20]) {
			t.Error("a large message came out wrong")
		}
	})
}

func TestOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.peers("a", "b")
		a, b := w.node("a", 1, all...), w.node("b", 1, all...)
		defer stopAll(a, b)
		settle(time.Second)
		const keys, each = 5, 400
		next := make([]uint64, keys)
		for i := range keys * each {
			key := uint64(i*i+i/3) % keys
			size := 16 + i%3000
			if i%97 == 0 {
				size = packetBytes + i
			}
			m := make([]byte, size)
			binary.LittleEndian.PutUint64(m, key)
			binary.LittleEndian.PutUint64(m[8:], next[key])
			next[key]++
			a.Send("b", Copies, key, m)
		}
		settle(time.Minute)
		seen := make([]uint64, keys)
		got := b.messages("a", Copies)
		for _, m := range got {
			key, n := binary.LittleEndian.Uint64(m), binary.LittleEndian.Uint64(m[8:])
			if n != seen[key] {
				t.Fatalf("key %d: message %d after %d", key, n, seen[key])
			}
			seen[key]++
		}
		if len(got) != keys*each {
			t.Errorf("%d messages of %d", len(got), keys*each)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.limits.Queue = 1 << 20
		all := w.peers("a", "b")
		a, b := w.node("a", 1, all...), w.node("b", 1, all...)
		defer stopAll(a, b)
		settle(time.Second)
		a.Send("b", Bulk, 1, make([]byte, 2<<20))
		settle(100 * time.Millisecond)
		if a.count("down b 1 reset") != 1 || a.clue.find("mesh.down", "bytes wait to be sent to it, at most 1048576 may") == "" {
			t.Errorf("%v, %v", a.lines(), a.clue.all)
		}
		settle(2 * time.Second)
		wantUp(t, a, "b")
		wantUp(t, b, "a")
	})
}

// Messages sent from within Up arrive in the session.
func TestSendInUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.peers("a", "b")
		a := w.node("a", 1, all...)
		defer stopAll(a)
		b := w.make(Options{}, "b", 1, all...)
		b.Start(&greeter{b.recorder, b.GRPC})
		defer stopAll(b)
		settle(2 * time.Second)
		if got := a.messages("b", Work); len(got) != 1 || string(got[0]) != "hello a/612d7374/1" {
			t.Errorf("%q", got)
		}
	})
}

type greeter struct {
	*recorder
	m *GRPC
}

func (g *greeter) Up(p ident.Instance) {
	g.recorder.Up(p)
	g.m.Send(p.Node, Work, 1, []byte("hello "+p.String()))
}

// What is sent before Down was told belongs to the old session and is lost with it, though the next one is there already.
func TestSendBeforeDownIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.peers("a", "b")
		b := w.node("b", 1, all...)
		a := w.make(Options{}, "a", 1, all...)
		s := &slow{recorder: a.recorder, down: make(chan struct{}), release: make(chan struct{})}
		a.Start(s)
		defer stopAll(a, b)
		settle(2 * time.Second)
		w.net.reset("a:1")
		<-s.down
		settle(time.Second)
		if b.count("up") != 2 {
			t.Fatalf("no next session: %v", b.lines())
		}
		a.Send("b", Work, 1, []byte("old"))
		close(s.release)
		settle(100 * time.Millisecond)
		a.Send("b", Work, 1, []byte("new"))
		settle(time.Second)
		if got := b.messages("a", Work); len(got) != 1 || string(got[0]) != "new" {
			t.Errorf("%q arrived", got)
		}
	})
}

// slow is a Handler whose Down takes until it is released.
type slow struct {
	*recorder
	down, release chan struct{}
}

func (s *slow) Down(p ident.Instance, c Cause, reason string) {
	select {
	case <-s.release:
	default:
		close(s.down)
		<-s.release
	}
	s.recorder.Down(p, c, reason)
}

// On real sockets: a peer that is gone refuses, at once.
func TestLoopback(t *testing.T) {
	to := &sink{signal: make(chan struct{}, 1)}
	from := &watcher{sink: sink{}, causes: make(chan Cause, 64)}
	a, b := couple(t, from, to)
	a.Send("b", Control, 1, []byte("x"))
	<-to.signal
	b.Stop()
	for refused := false; !refused; {
		select {
		case c := <-from.causes:
			refused = c == Refused
		case <-time.After(30 * time.Second):
			t.Fatal("nobody refused")
		}
	}
	a.Stop()
}

// watcher is a Handler that tells why a peer is unreachable.
type watcher struct {
	sink
	causes chan Cause
}

func (w *watcher) Unreachable(_ string, c Cause, _ string) {
	select {
	case w.causes <- c:
	default:
	}
}

// Whatever the network does, the rules of sessions hold (the recorder watches them), and when it calms down everybody has one session with
// everybody, of the runs that there are.
func TestDisturbed(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				r := rand.New(rand.NewPCG(seed, 1))
				names := []string{"a", "b", "c"}
				all := w.peers(names...)
				boots := []uint64{1, 1, 1}
				nodes := []*node{w.node("a", 1, all...), w.node("b", 1, all...), w.node("c", 1, all...)}
				for range 150 {
					<-time.After(time.Duration(r.IntN(200_000)) * time.Microsecond)
					i := r.IntN(3)
					switch n := nodes[i]; r.IntN(6) {
					case 0:
						w.net.reset(names[i] + ":1")
					case 1:
						w.net.silence(names[i]+":1", r.IntN(3) == 0)
					case 2:
						n.Stop()
						boots[i]++
						nodes[i] = w.node(names[i], boots[i], all...)
					case 3:
						n.SetPeers(all[:r.IntN(4)])
					case 4:
						n.SetPeers(all)
						n.Redial(names[r.IntN(3)])
					default:
						for range r.IntN(20) {
							n.Send(names[r.IntN(3)], Purpose(r.IntN(int(Purposes))), r.Uint64N(4), make([]byte, r.IntN(600<<10)))
						}
					}
				}
				for i, n := range nodes {
					w.net.silence(names[i]+":1", false)
					n.SetPeers(all)
				}
				settle(10 * time.Second)
				for _, n := range nodes {
					n.mu2().Lock()
					for j, other := range names {
						if other != n.self.Node && n.up[other].Boot != boots[j] {
							t.Errorf("%s: session with %s is that of run %d, not %d", n.self.Node, other, n.up[other].Boot, boots[j])
						}
					}
					clear(n.got)
					n.mu2().Unlock()
				}
				for _, n := range nodes {
					for _, other := range names {
						n.Send(other, Control, 1, []byte("calm"))
					}
				}
				settle(time.Second)
				for _, n := range nodes {
					for _, other := range names {
						if got := n.messages(other, Control); other != n.self.Node && (len(got) != 1 || string(got[0]) != "calm") {
							t.Errorf("%s got %d messages from %s", n.self.Node, len(got), other)
						}
					}
				}
				stopAll(nodes...)
			})
		})
	}
}
