package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var program string

// TestMain builds the program once.
func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tanist-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "tanist")
	build := exec.Command("go", "build", "-o", program, "./cmd/tanist")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build ./cmd/tanist: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// broker is one tanist process at a time, over one data directory.
type broker struct {
	t     *testing.T
	name  string
	dir   string
	amqp  string // host:port
	admin string
	args  []string
	env   []string // beside what the test itself has
	space *space   // the network that it is in; nil: the test's own
	still bool     // halted: it answers nobody
	cmd   *exec.Cmd
	ended chan error
	log   *tail
}

// newBroker chooses a directory and ports and starts nothing. args are further arguments of serve.
func newBroker(t *testing.T, args ...string) *broker {
	t.Helper()
	remember(t)
	b := &broker{t: t, name: "one", dir: filepath.Join(t.TempDir(), "data"), amqp: freePort(t), admin: freePort(t), args: args, log: &tail{}}
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			b.show()
		}
	})
	return b
}

var connections = regexp.MustCompile(`(?m)^.* level=INFO msg=amqp\.connection\..*\n`)

// freePort finds a port that nobody listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// launch starts the process and does not wait for it.
func (b *broker) launch() {
	b.t.Helper()
	args := append([]string{"serve", "--name", b.name, "--data", b.dir, "--amqp", b.amqp, "--admin", b.admin}, b.args...)
	b.cmd = b.space.command(args...)
	b.cmd.Stdout, b.cmd.Stderr, b.cmd.Env = b.log, b.log, append(os.Environ(), b.env...)
	// A broker must not outlive a test that panics.
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan error) { ended <- cmd.Wait() }(b.cmd, b.ended)
}

// start starts the process and waits until it is ready.
func (b *broker) start() {
	b.t.Helper()
	b.launch()
	b.await("its readiness", b.ready)
}

// ready is nil if the broker serves every partition that it owns.
func (b *broker) ready() error {
	resp, err := b.space.client().Get("http://" + b.admin + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	return nil
}

// await asks until the answer is nil, the process has ended, or patience has.
func (b *broker) await(what string, ask func() error) {
	b.t.Helper()
	began := time.Now()
	if err := b.poll(ask); err != nil {
		fatal(b.t, "waiting %v with %s for %s: %v", time.Since(began).Round(time.Millisecond), b.name, what, err)
	}
}

func (b *broker) poll(ask func() error) error {
	err := poll(b.ended, ask)
	var end *endedError
	if errors.As(err, &end) {
		b.ended <- end.end
		return fmt.Errorf("%s ended: %v", b.name, end.end)
	}
	return err
}

// endedError is returned by poll when the process ended first.
type endedError struct{ end error }

func (e *endedError) Error() string { return fmt.Sprintf("the process ended: %v", e.end) }

// poll asks until the answer is nil, something has ended, or patience has.
func poll(ended <-chan error, ask func() error) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	err := ask()
	for err != nil {
		select {
		case end := <-ended:
			return &endedError{end}
		case <-deadline:
			return err
		case <-tick.C:
			err = ask()
		}
	}
	return nil
}

// kill ends the process with SIGKILL and waits for its end.
func (b *broker) kill() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	within(b.t, "the end of "+b.name+" after SIGKILL", nil, func() { <-b.ended })
	b.cmd, b.still = nil, false
}

// stop ends the process with SIGTERM and gives its exit code.
func (b *broker) stop() int {
	b.t.Helper()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.t.Fatal(err)
	}
	return b.exit()
}

// exit waits for the process to end by itself and gives its exit code.
func (b *broker) exit() int {
	b.t.Helper()
	select {
	case err := <-b.ended:
		b.cmd = nil
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			return failed.ExitCode()
		}
		if err != nil {
			b.t.Fatal(err)
		}
		return 0
	case <-time.After(patience):
		fatal(b.t, "waiting for the end of %s: not after %v", b.name, patience)
		return 0
	}
}

func (b *broker) url() string { return "amqp://guest:guest@" + b.amqp + "/" }

// dial connects a client whose connection is closed with the test.
func (b *broker) dial() *amqp.Connection {
	b.t.Helper()
	c, err := b.connect()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (b *broker) connect() (*amqp.Connection, error) {
	return amqp.DialConfig(b.url(), amqp.Config{Heartbeat: 30 * time.Second, Locale: "en_US", Dial: b.space.dial})
}

// channel opens a channel on a connection of its own.
func (b *broker) channel() *amqp.Channel {
	b.t.Helper()
	ch, err := b.dial().Channel()
	if err != nil {
		b.t.Fatal(err)
	}
	return ch
}

// get reads JSON from the admin API.
func (b *broker) get(path string, into any) error {
	req, err := http.NewRequest(http.MethodGet, "http://"+b.admin+path, nil)
	if err != nil {
		return err
	}
	req.SetBasicAuth("guest", "guest")
	resp, err := b.space.client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return json.Unmarshal(text, into)
}

// resource is a line of /api/v1/resources.
type resource struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	State     string `json:"state"`
	Ready     uint64 `json:"ready"`
	Unsettled uint64 `json:"unsettled"`
}

func (b *broker) resources() (map[string]resource, error) {
	var list []resource
	if err := b.get("/api/v1/resources", &list); err != nil {
		return nil, err
	}
	all := map[string]resource{}
	for _, r := range list {
		all[r.Name] = r
	}
	return all, nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const tailSize = 64 << 10

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if extra := w.buf.Len() - tailSize; extra > tailSize {
		w.buf.Next(extra)
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.buf.String()
	return s[max(0, len(s)-tailSize):]
}

// run runs a verb of the program to its end.
func run(t *testing.T, args ...string) (output string, code int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*patience) // some verbs wait themselves
	defer stop()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if ctx.Err() != nil {
		fatal(t, "waiting for tanist %s: not after %v:\n%s", strings.Join(args, " "), 2*patience, out)
	}
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return string(out), failed.ExitCode()
	}
	if err != nil {
		t.Fatalf("tanist %s: %v", strings.Join(args, " "), err)
	}
	return string(out), 0
}
