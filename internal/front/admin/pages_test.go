package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/port/trace"
)

// pages are a stand-in for the console.
type pages struct{ closed chan struct{} }

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == PagesPath+"long" {
		_ = http.NewResponseController(w).Flush()
		<-p.closed
	}
	_, _ = io.WriteString(w, "page "+r.URL.Path)
}

func (p *pages) Close() { close(p.closed) }

// TestPages: the root leads to the pages, the API stays as it is, and pages that go on end when the server stops.
func TestPages(t *testing.T) {
	p := &pages{closed: make(chan struct{})}
	env := Env{Backend: newFake(), Trace: trace.Discard, Version: "1", Pages: p}
	h := Handler(env)
	if w := ask(h, "", "GET", "/", ""); w.Code != http.StatusSeeOther || w.Header().Get("Location") != PagesPath {
		t.Errorf("the root: status %d to %q", w.Code, w.Header().Get("Location"))
	}
	if w := ask(h, "", "GET", PagesPath+"x", ""); w.Body.String() != "page /console/x" {
		t.Errorf("a page: %s", w.Body)
	}
	for path, status := range map[string]int{"/nothing": 404, "/api/v1/overview": 401, "/livez": 200} {
		if w := ask(h, "", "GET", path, ""); w.Code != status {
			t.Errorf("%s: status %d, want %d", path, w.Code, status)
		}
	}
	if w := ask(h, "", "POST", PagesPath, ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", w.Code)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(env)
	s.Listen(ln, nil)
	resp, err := http.Get("http://" + ln.Addr().String() + PagesPath + "long")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "page /console/long" {
		t.Errorf("the page that went on: %q, %v", text, err)
	}
}
