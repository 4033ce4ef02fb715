package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// space is a network namespace that a node runs in. Clients reach the node at its loopback address there. nil is the test's own network.
type space struct {
	name    string
	address string // where the other nodes reach it
	web     *http.Client
}

// command is a run of the program in the space.
func (s *space) command(args ...string) *exec.Cmd {
	if s == nil {
		return exec.Command(program, args...)
	}
	return exec.Command("ip", append([]string{"netns", "exec", s.name, program}, args...)...)
}

var web = &http.Client{Timeout: answerBound}

func (s *space) client() *http.Client {
	if s == nil {
		return web
	}
	return s.web
}

// dial connects from inside the space: a socket stays where it was made. A client of AMQP takes the bound off once it is let in.
func (s *space) dial(network, address string) (net.Conn, error) {
	conn, err := s.connect(network, address)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

func (s *space) connect(network, address string) (net.Conn, error) {
	if s == nil {
		return net.DialTimeout(network, address, 30*time.Second)
	}
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	inside, err := os.Open("/run/netns/" + s.name)
	if err != nil {
		return nil, err
	}
	defer inside.Close()
	if err := unix.Setns(int(inside.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter %s: %w", s.name, err)
	}
	conn, err := net.DialTimeout(network, address, 30*time.Second)
	// A thread that cannot come back stays locked, and ends with its goroutine. Others must not end: processes that they started would too.
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return nil, fmt.Errorf("leave %s: %w", s.name, back)
	}
	runtime.UnlockOSThread()
	return conn, err
}

// wires joins spaces, each with each by a wire of its own, whose two directions can be cut one by one. What is cut is lost without a word,
// as on a network that has failed.
type wires struct {
	t      *testing.T
	spaces []*space
}

// newWires makes n spaces. It skips the test where the machine does not let it.
func newWires(t *testing.T, n int) *wires {
	t.Helper()
	w := &wires{t: t}
	for i := range n {
		s := &space{name: fmt.Sprintf("tanist-%d-%d", os.Getpid(), i+1), address: fmt.Sprintf("10.177.0.%d", i+1)}
		s.web = &http.Client{Timeout: answerBound, Transport: &http.Transport{DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return s.connect(network, address)
		}}}
		if out, err := exec.Command("ip", "netns", "add", s.name).CombinedOutput(); err != nil {
			if i == 0 && (os.Geteuid() != 0 || errors.Is(err, exec.ErrNotFound) || os.Getenv("E2E_NETNS") == "") {
				t.Skipf("network namespaces cannot be made here (root, the command ip and the right to are needed): %v: %s", err, out)
			}
			t.Fatalf("%v: %s", err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("ip", "netns", "del", s.name).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		w.spaces = append(w.spaces, s)
		w.ip("-n", s.name, "link", "set", "lo", "up")
		w.ip("-n", s.name, "addr", "add", s.address+"/32", "dev", "lo")
	}
	for i := range n {
		for j := range i {
			w.ip("link", "add", wire(i, j), "address", card(i, j), "netns", w.spaces[i].name, "type", "veth",
				"peer", "name", wire(j, i), "address", card(j, i), "netns", w.spaces[j].name)
			for _, end := range [][2]int{{i, j}, {j, i}} {
				from, to := w.spaces[end[0]], w.spaces[end[1]]
				w.ip("-n", from.name, "link", "set", wire(end[0], end[1]), "up")
				w.ip("-n", from.name, "route", "add", to.address+"/32", "dev", wire(end[0], end[1]), "src", from.address)
				w.mend(end[0], end[1])
			}
		}
	}
	return w
}

// wire and card name the end at node i of the wire to node j, and its hardware address.
func wire(i, j int) string { return fmt.Sprintf("w%d%d", i+1, j+1) }
func card(i, j int) string { return fmt.Sprintf("02:00:00:00:%02x:%02x", i+1, j+1) }

func (w *wires) ip(args ...string) {
	w.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		w.t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

// cut loses what node from sends to node to, from now on: it goes to hardware that nobody has.
func (w *wires) cut(from, to int) { w.address(from, to, "02:00:00:00:ff:ff") }

// mend ends a cut.
func (w *wires) mend(from, to int) { w.address(from, to, card(to, from)) }

func (w *wires) address(from, to int, card string) {
	w.t.Helper()
	w.ip("-n", w.spaces[from].name, "neigh", "replace", w.spaces[to].address, "lladdr", card, "dev", wire(from, to), "nud", "permanent")
}

// mendAll ends every cut.
func (w *wires) mendAll() {
	w.t.Helper()
	for i := range w.spaces {
		for j := range w.spaces {
			if i != j {
				w.mend(i, j)
			}
		}
	}
}
