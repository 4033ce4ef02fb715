package console

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/port/trace"
)

// wire is the far end of a stream: each event that was flushed.
type wire struct {
	*httptest.ResponseRecorder
	buf    bytes.Buffer
	events chan string
	stuck  bool // nobody reads, as a path that ends in &stuck asks for
	until  time.Time
}

func (w *wire) Write(p []byte) (int, error)        { return w.buf.Write(p) }
func (w *wire) SetReadDeadline(time.Time) error    { return nil }
func (w *wire) SetWriteDeadline(t time.Time) error { w.until = t; return nil }

func (w *wire) FlushError() error {
	if w.stuck {
		<-time.After(time.Until(w.until))
		return os.ErrDeadlineExceeded
	}
	w.events <- w.buf.String()
	w.buf.Reset()
	return nil
}

// stream follows a page in a bubble of virtual time until the client leaves; ended is closed when the handler has returned.
func stream(c *Console, path string) (w *wire, leave context.CancelFunc, ended chan struct{}) {
	ctx, leave := context.WithCancel(context.Background())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.RemoteAddr = "127.0.0.1:1"
	r.SetBasicAuth("watch", "secret")
	w = &wire{ResponseRecorder: httptest.NewRecorder(), events: make(chan string), stuck: strings.HasSuffix(path, "&stuck")}
	ended = make(chan struct{})
	go func() { defer close(ended); c.ServeHTTP(w, r) }()
	return w, leave, ended
}

func follower(f *fake) *Console { return New(Env{Backend: f, Trace: trace.Discard}) }

func TestPagesFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := whole()
		c := follower(f)
		w, leave, ended := stream(c, "/console/cluster?live")
		began := time.Now()
		first := <-w.events
		if kind := w.Header().Get("Content-Type"); kind != "text/event-stream" || !strings.HasPrefix(first, "event: root\ndata: <div id=\"root\"") || !strings.HasSuffix(first, "\n\n") {
			t.Fatalf("%s: %s", kind, first)
		}
		for line := range strings.Lines(strings.TrimSuffix(first, "\n")) {
			if !strings.HasPrefix(line, "data: ") && line != "event: root\n" {
				t.Fatalf("a line that is no event's: %q", line)
			}
		}
		if next := <-w.events; next != "event: at\ndata: "+clock(time.Now())+"\n\n" || time.Since(began) != period {
			t.Fatalf("nothing but the time has changed, after %v: %s", time.Since(began), next)
		}
		f.mu.Lock()
		f.picture.Overview.Node = "another"
		f.mu.Unlock()
		if next := <-w.events; !strings.Contains(next, "another") || time.Since(began) != 2*period {
			t.Fatalf("after %v: %s", time.Since(began), next)
		}
		f.mu.Lock()
		f.err = broker.Errorf(broker.Unavailable, "no quorum,\nfor now")
		f.mu.Unlock()
		if next := <-w.events; next != "event: fault\ndata: no quorum,\ndata: for now\n\n" {
			t.Fatalf("a fault: %q", next)
		}
		f.mu.Lock()
		f.err = errors.New("secret inside")
		f.mu.Unlock()
		if next := <-w.events; !strings.HasPrefix(next, "event: fault\n") || strings.Contains(next, "secret") {
			t.Fatalf("a fault of the node: %q", next)
		}
		f.mu.Lock()
		f.err = nil
		f.mu.Unlock()
		if next := <-w.events; !strings.HasPrefix(next, "event: root\n") {
			t.Fatalf("after the fault: %q", next)
		}
		leave()
		<-ended
	})
}

// TestFollowersShareSamples: how many look changes little of what a node is asked.
func TestFollowersShareSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := whole()
		c := follower(f)
		const pages = 20
		for range pages {
			w, leave, ended := stream(c, "/console/?live")
			defer func() { leave(); <-ended }()
			go func() {
				for range w.events {
				}
			}()
			defer close(w.events)
		}
		<-time.After(10*period + period/2)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.asked > 11 {
			t.Errorf("%d pages asked %d times in 10 s", pages, f.asked)
		}
	})
}

// TestStreamsEnd: by the client, by the console, by themselves in time, and where nobody reads.
func TestStreamsEnd(t *testing.T) {
	drain := func(w *wire, ended chan struct{}) {
		for {
			select {
			case <-w.events:
			case <-ended:
				return
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := follower(whole())
		w, _, ended := stream(c, "/console/?live")
		<-w.events
		c.Close()
		drain(w, ended)

		c = follower(whole())
		began := time.Now()
		w, leave, ended := stream(c, "/console/attention?live")
		drain(w, ended)
		if took := time.Since(began); took != streamLife {
			t.Errorf("a stream lasted %v, want %v", took, streamLife)
		}
		leave()

		began = time.Now()
		_, leave, ended = stream(c, "/console/?live&stuck")
		<-ended
		if took := time.Since(began); took != sendTimeout {
			t.Errorf("a client that reads nothing was let go after %v, want %v", took, sendTimeout)
		}
		leave()
	})
}

// TestStreamsAreBounded: one more than there may be is refused, and has its place once another leaves.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := follower(whole())
		for range maxStreams {
			w, leave, ended := stream(c, "/console/attention?live")
			<-w.events
			defer func() { leave(); <-ended }()
		}
		w, leave, ended := stream(c, "/console/?live")
		<-ended
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("status %d", w.Code)
		}
		leave()
		<-c.streams // one leaves
		w, leave, ended = stream(c, "/console/?live")
		<-w.events
		leave()
		<-ended
		c.streams <- struct{}{}
	})
}

// TestSlowLooksAreRare: where a look takes long there are fewer, unless it only waited for a node that does not answer.
func TestSlowLooksAreRare(t *testing.T) {
	for _, c := range []struct {
		name   string
		takes  time.Duration
		silent []string
		want   time.Duration
	}{
		{"quick", time.Millisecond, nil, fresh},
		{"slow", 300 * time.Millisecond, nil, 3 * time.Second},
		{"waits", 2 * time.Second, []string{"n2"}, patient},
		{"a node is away", time.Millisecond, []string{"n2"}, fresh},
	} {
		now := noon
		f := whole()
		f.picture.Attention.Silent = c.silent
		feed := newFeed(slow{f, func() { now = now.Add(c.takes) }}, func() time.Time { return now })
		look := func(after time.Duration) int {
			now = noon.Add(after)
			if _, err := feed.get(t.Context()); err != nil {
				t.Fatal(err)
			}
			return f.asked
		}
		if first, early, late := look(0), look(c.want-time.Millisecond), look(c.want); first != 1 || early != 1 || late != 2 {
			t.Errorf("%s: asked %d times, %d just before %v, %d then", c.name, first, early, c.want, late)
		}
	}
}

// slow is a backend whose answers take time.
type slow struct {
	*fake
	takes func()
}

func (s slow) Picture(ctx context.Context) (Picture, error) {
	s.takes()
	return s.fake.Picture(ctx)
}

// TestNothingIsKeptForNobody: what was remembered goes once nobody has looked for as long as it would be shown.
func TestNothingIsKeptForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := follower(whole())
		kept := func() bool {
			c.feed.mu.Lock()
			defer c.feed.mu.Unlock()
			return c.feed.last != nil
		}
		for range 3 {
			if w := ask(c, "watch", "/console/"); w.Code != 200 {
				t.Fatal(w.Code)
			}
			<-time.After(history - time.Second)
		}
		if !kept() {
			t.Error("it was forgotten while it was looked at")
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if kept() {
			t.Error("it is still kept")
		}
	})
}

// TestHeadersOfAStream: to ask for no body is no way to hold a place.
func TestHeadersOfAStream(t *testing.T) {
	r := httptest.NewRequest(http.MethodHead, "/console/?live", nil)
	r.RemoteAddr = "127.0.0.1:1"
	r.SetBasicAuth("watch", "secret")
	w := httptest.NewRecorder()
	follower(whole()).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("status %d", w.Code)
	}
}
