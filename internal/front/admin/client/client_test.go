package client

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
)

func TestRequests(t *testing.T) {
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		user, password, _ := r.BasicAuth()
		seen = append(seen, strings.TrimSpace(strings.Join([]string{user + ":" + password, r.Method, r.RequestURI, string(body)}, " ")))
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":{"code":"not_found","message":"no user \"x\"","retry":false}}`))
			return
		}
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`[{"name":"q"}]`))
		}
	}))
	defer srv.Close()
	c, err := New(srv.URL+"/", "u", "p", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := c.PutPermission(ctx, catalog.Permission{User: "a b", VHost: "/", Read: ".*"}); err != nil {
		t.Error(err)
	}
	if got, err := c.Resources(ctx, "/", "q"); err != nil || len(got) != 1 || got[0].Name != "q" {
		t.Errorf("resources: %v, %v", got, err)
	}
	var refused *Error
	if err := c.DeleteUser(ctx, "x"); !errors.As(err, &refused) || refused.Status != 404 || refused.Code != "not_found" || refused.Error() != `no user "x"` {
		t.Errorf("delete: %v", err)
	}
	want := []string{
		`u:p PUT /api/v1/permissions/a%20b/%2F {"configure":"","write":"","read":".*"}`,
		`u:p GET /api/v1/resources?resource=q&vhost=%2F`, `u:p DELETE /api/v1/users/x`,
	}
	if got := strings.Join(seen, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("requests:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

func TestUnreachable(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	base := srv.URL
	c, err := New(base, "u", "p", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "Tanist node") {
		t.Errorf("another server: %v", err)
	}
	srv.Close()
	var gone *Unreachable
	if _, err := c.Nodes(t.Context()); !errors.As(err, &gone) || !strings.Contains(err.Error(), "tanist serve") {
		t.Errorf("nobody: %v", err)
	}
	if _, err := New("127.0.0.1:1", "u", "p", ""); err == nil {
		t.Error("an address without a scheme was taken")
	}
}

// Of several nodes the first that answers is asked, and asked again, until it does not.
func TestSeveralNodes(t *testing.T) {
	asked := map[string]int{}
	node := func(name string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/livez" {
				asked[name]++
			}
			if r.Method == http.MethodPut {
				body, err := io.ReadAll(r.Body)
				if err != nil || string(body) != `{"configure":"","write":"","read":".*"}` {
					t.Errorf("%s: body %q, %v", name, body, err)
				}
				return
			}
			_, _ = w.Write([]byte(`[]`))
		}))
	}
	a, b, z := node("a"), node("b"), node("z")
	defer a.Close()
	defer b.Close()
	z.Close()
	c, err := New(z.URL+","+a.URL+"/,"+b.URL, "u", "p", "")
	if err != nil {
		t.Fatal(err)
	}
	put := func() error {
		return c.PutPermission(t.Context(), catalog.Permission{User: "u", VHost: "/", Read: ".*"})
	}
	for range 2 {
		if err := put(); err != nil {
			t.Fatal(err)
		}
	}
	if asked["a"] != 2 || asked["b"] != 0 {
		t.Errorf("asked %v", asked)
	}
	a.Close()
	if _, err := c.Nodes(t.Context()); err != nil || asked["b"] != 1 {
		t.Errorf("after one was gone: asked %v, %v", asked, err)
	}
	b.Close()
	var gone *Unreachable
	if err := put(); !errors.As(err, &gone) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := New(a.URL+",", "u", "p", ""); err == nil {
		t.Error("an empty address was taken")
	}
}

// A node that hangs costs a moment and no more: reads are asked of the next one, changes go to one that answers, and a change that was taken
// without an answer is sent to nobody else.
func TestHungNode(t *testing.T) {
	over := make(chan struct{})
	var asked [3]atomic.Int32 // of changes
	hangs := func(which *atomic.Int32, on func(*http.Request) bool) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				which.Add(1)
			}
			if on(r) {
				<-over
			}
			_, _ = w.Write([]byte(`[]`))
		}))
	}
	all := func(*http.Request) bool { return true }
	changes := func(r *http.Request) bool { return r.Method == http.MethodDelete }
	none := func(*http.Request) bool { return false }
	hung, half, sound := hangs(&asked[0], all), hangs(&asked[1], changes), hangs(&asked[2], none)
	defer hung.Close()
	defer half.Close()
	defer sound.Close()
	defer close(over)
	client := func(bases ...string) *Client {
		c, err := New(strings.Join(bases, ","), "u", "p", "")
		if err != nil {
			t.Fatal(err)
		}
		c.patience = 20 * time.Millisecond
		return c
	}
	c := client(hung.URL, sound.URL)
	if _, err := c.Nodes(t.Context()); err != nil || c.at.Load() != 1 {
		t.Errorf("a read: %v, by %d", err, c.at.Load())
	}
	c = client(hung.URL, sound.URL)
	if err := c.DeleteUser(t.Context(), "x"); err != nil || asked[0].Load() != 0 || asked[2].Load() != 1 {
		t.Errorf("a change: %v, asked %d and %d", err, asked[0].Load(), asked[2].Load())
	}
	c = client(half.URL, sound.URL)
	c.http.Timeout = 200 * time.Millisecond
	var gone *Unreachable
	if err := c.DeleteUser(t.Context(), "x"); !errors.As(err, &gone) || !gone.Sent || !strings.Contains(err.Error(), "may have been carried out") {
		t.Errorf("a change without an answer: %v", err)
	}
	if asked[1].Load() != 1 || asked[2].Load() != 1 {
		t.Errorf("a change without an answer went on: asked %d and %d", asked[1].Load(), asked[2].Load())
	}
}

// A node that cannot tell is not believed while another can.
func TestNodeThatCannotTell(t *testing.T) {
	cannot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"error":{"code":"unavailable","message":"it knows no catalog","retry":true}}`))
	}))
	can := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`[]`)) }))
	defer cannot.Close()
	for i := range 2 {
		c, err := New(cannot.URL+","+can.URL, "u", "p", "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Nodes(t.Context())
		var refused *Error
		switch {
		case i == 0 && err != nil:
			t.Error(err)
		case i == 1 && (!errors.As(err, &refused) || refused.Message != "it knows no catalog"): // which says more than that the other is gone
			t.Errorf("%v", err)
		}
		if i == 0 {
			can.Close()
		}
	}
}
