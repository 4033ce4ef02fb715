package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// patience bounds every wait for another process. It is generous because machines are shared; nothing waits for it to pass.
const patience = 60 * time.Second

// answerBound is how long a node may take to answer one request of a test: a node that hangs must not make the test hang.
const answerBound = 10 * time.Second

// causes are why tests failed, by test: they are said once more after everything else that a failed test prints.
var causes sync.Map // of *testing.T: *cause

type cause struct {
	mu   sync.Mutex
	text []string
}

// remember has the test say at its very end why it failed. Only what is registered before it comes later.
func remember(t *testing.T) *cause {
	c, known := causes.LoadOrStore(t, &cause{})
	own := c.(*cause)
	if !known {
		t.Cleanup(func() {
			causes.Delete(t)
			own.mu.Lock()
			defer own.mu.Unlock()
			if len(own.text) > 0 {
				t.Logf("%s failed:\n%s", t.Name(), strings.Join(own.text, "\n"))
			}
		})
	}
	return own
}

// fatal ends the test, which says why at once and at its end.
func fatal(t *testing.T, format string, a ...any) {
	t.Helper()
	c := remember(t)
	text := fmt.Sprintf(format, a...)
	c.mu.Lock()
	c.text = append(c.text, text)
	c.mu.Unlock()
	t.Fatal(text)
}

// within runs something that waits, and fails the test if it has not ended after patience. still says what was waited for then.
func within(t *testing.T, what string, still func() string, wait func()) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		wait()
	}()
	select {
	case <-over:
	case <-time.After(patience):
		text := ""
		if still != nil {
			text = ": " + still()
		}
		fatal(t, "waiting for %s: not after %v%s", what, patience, text)
	}
}

// outcomeOf waits for the outcome of a publish.
func outcomeOf(t *testing.T, what string, sent *amqp.DeferredConfirmation) (confirmed bool) {
	t.Helper()
	confirmed, err := sent.WaitContext(deadline(t))
	if err != nil {
		fatal(t, "waiting for the outcome of %s: %v", what, err)
	}
	return confirmed
}

// show prints the end of what a node logged, and keeps the whole of it.
func (b *broker) show() {
	text := connections.ReplaceAllString(b.log.String(), "")
	dir := filepath.Join(os.TempDir(), "tanist-e2e-logs", strings.ReplaceAll(b.t.Name(), "/", "-"))
	path := filepath.Join(dir, b.name+".log")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(b.log.String()), 0o644)
	}
	if err != nil {
		b.t.Log(err)
	}
	lines := strings.SplitAfter(text, "\n")
	b.t.Logf("the log of %s (%s), without its connections, ends:\n%s", b.name, path, strings.Join(lines[max(0, len(lines)-shown):], ""))
}

// shown is how many lines of each node's log a failed test prints.
const shown = 60

// steps are what the parts of a load are doing, for whoever waits for them.
type steps struct {
	mu sync.Mutex
	of map[string]step
}

type step struct {
	format string
	a      []any
	since  time.Time
}

// begin says what somebody does from now on. What a has must not change.
func (s *steps) begin(who, format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]step{}
	}
	s.of[who] = step{format, a, time.Now()}
}

func (s *steps) end(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, who)
}

func (s *steps) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, who := range slices.Sorted(maps.Keys(s.of)) {
		d := s.of[who]
		lines = append(lines, fmt.Sprintf("%s %s, for %v", who, fmt.Sprintf(d.format, d.a...), time.Since(d.since).Round(time.Millisecond)))
	}
	return strings.Join(lines, "; ")
}
