package admin

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// A browser that has logged in to the console sends the password along with whatever a page of another site makes it ask for.
func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	for _, c := range []struct {
		method string
		header map[string]string
		status int
	}{
		{"POST", map[string]string{"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}, 403},
		{"POST", map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{"POST", map[string]string{"Origin": "https://elsewhere.example"}, 403},
		{"POST", map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
		{"POST", map[string]string{"Origin": "http://example.com"}, 200}, // this host
		{"POST", nil, 200}, // no browser
		{"GET", map[string]string{"Sec-Fetch-Site": "cross-site"}, 200},
	} {
		path, body := "/api/v1/tokens", "{}"
		if c.method == "GET" {
			path, body = "/api/v1/overview", ""
		}
		r := httptest.NewRequest(c.method, path, strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1"
		r.SetBasicAuth("root", "secret")
		for k, v := range c.header {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		handlerOf(newFake()).ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s %v: status %d, want %d: %s", c.method, c.header, w.Code, c.status, w.Body)
		}
	}
}
