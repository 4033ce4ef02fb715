package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/port/trace"
)

type handler struct{ env Env }

// Failure is the body of every answer that is not a success.
type Failure struct {
	Error FailureText `json:"error"`
}

// FailureText says what failed.
type FailureText struct {
	Code    string `json:"code"` // stable, in lower case with underscores
	Message string `json:"message"`
	Retry   bool   `json:"retry"` // the same request may succeed later without anything being changed
}

// badRequest is a request that no backend was asked about.
type badRequest struct{ text string }

func (e badRequest) Error() string { return e.text }

func (h *handler) serve(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
		defer cancel()
		if !h.admit(ctx, w, r, rt.reads()) {
			return
		}
		if strings.HasSuffix(r.URL.Path, "/") && strings.HasSuffix(rt.path, "}") && !strings.HasSuffix(r.URL.EscapedPath(), "%2F") {
			refuse(w, http.StatusNotFound, "not_found", "the path lacks a name; the virtual host / is written %2F", false)
			return
		}
		result, err := rt.do(ctx, h.env.Backend, &request{
			path: r.PathValue, query: r.URL.Query().Get, body: func(into any) error { return readBody(r, into) },
		})
		switch {
		case err != nil:
			h.fail(w, r, err)
		case rt.response == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			answer(w, http.StatusOK, result)
		}
	}
}

// admit answers the request itself, and reports false, if its user may not make it.
func (h *handler) admit(ctx context.Context, w http.ResponseWriter, r *http.Request, reading bool) bool {
	err := Admit(ctx, h.env.Backend, r, reading)
	var denied *Denied
	switch {
	case err == nil:
		return true
	case errors.As(err, &denied):
		denied.Challenge(w)
		refuse(w, denied.Status, denied.Code, denied.Text, false)
	default:
		h.fail(w, r, err)
	}
	return false
}

// Denied is returned by Admit when the user of a request may not make it. The same request does not succeed later.
type Denied struct {
	Status int    // of HTTP: 401 or 403
	Code   string // stable, as in FailureText
	Text   string
}

func (d *Denied) Error() string { return d.Text }

// Challenge asks the client for a name and a password, where others than it gave could help.
func (d *Denied) Challenge(w http.ResponseWriter) {
	if d.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="tanist", charset="UTF-8"`)
	}
}

// Admit checks whether the user of a request may read, or change what the admin port changes. The error is a *Denied, or what the
// backend says when it cannot tell.
func Admit(ctx context.Context, b Authenticator, r *http.Request, reading bool) error {
	user, password, ok := r.BasicAuth()
	if !ok {
		return &Denied{http.StatusUnauthorized, "unauthorized", "log in with a user's name and password (HTTP basic authentication)"}
	}
	roles, err := b.Authenticate(ctx, user, password, loopback(r.RemoteAddr))
	var known *broker.Error
	if errors.As(err, &known) && (known.Code == broker.AuthFailed || known.Code == broker.AccessRefused) {
		return &Denied{http.StatusUnauthorized, "unauthorized", known.Text}
	}
	if err != nil {
		return err
	}
	if authz.MayAdminister(roles) || reading && authz.MayRead(roles) {
		return nil
	}
	need := Administrator
	if reading {
		need = Monitoring + " or " + Administrator
	}
	return &Denied{
		http.StatusForbidden, "forbidden",
		fmt.Sprintf("user %q lacks the role %s; an administrator gives it with `tanist user add %s --role …`", user, need, user),
	}
}

// loopback reports whether a connection comes from this machine.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func readBody(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return err
		}
		return badRequest{"the body is not what /api/v1/openapi.json says: " + err.Error()}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest{"the body has more than one JSON value"}
	}
	return nil
}

// unknown answers for a path or method that there is not.
func (h *handler) unknown(w http.ResponseWriter, r *http.Request, mux *http.ServeMux) {
	for _, method := range []string{"GET", "PUT", "POST", "DELETE"} {
		probe := &http.Request{Method: method, URL: &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath}, Host: r.Host}
		if _, pattern := mux.Handler(probe); pattern != "/" && pattern != "" {
			w.Header().Add("Allow", method)
		}
	}
	if allow := w.Header().Values("Allow"); len(allow) > 0 {
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", fmt.Sprintf("%s is not possible here", r.Method), false)
		return
	}
	refuse(w, http.StatusNotFound, "not_found", "no such path; GET /api/v1/openapi.json lists them", false)
}

// statuses gives the HTTP status and the stable word for a broker's refusals.
var statuses = map[broker.Code]struct {
	status int
	word   string
}{
	broker.NotFound:       {http.StatusNotFound, "not_found"},
	broker.AccessRefused:  {http.StatusForbidden, "forbidden"},
	broker.AuthFailed:     {http.StatusUnauthorized, "unauthorized"},
	broker.Locked:         {http.StatusConflict, "locked"},
	broker.Precondition:   {http.StatusUnprocessableEntity, "invalid"},
	broker.NotAllowed:     {http.StatusForbidden, "not_allowed"},
	broker.NotImplemented: {http.StatusNotImplemented, "not_implemented"},
	broker.Unavailable:    {http.StatusServiceUnavailable, "unavailable"},
	broker.Uncertain:      {http.StatusServiceUnavailable, "unavailable"},
	broker.ResourceError:  {http.StatusTooManyRequests, "limit_reached"},
	broker.TooLarge:       {http.StatusRequestEntityTooLarge, "too_large"},
}

func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) {
		return // the client left
	}
	status, text := Explain(err)
	if status == http.StatusInternalServerError {
		trace.Error(h.env.Trace, "admin.request.failed", slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	refuse(w, status, text.Code, text.Message, text.Retry)
}

// Explain gives the HTTP status of an error that a backend answered with, and what a client is told. What is a fault of the node stays
// inside: the text does not repeat it.
func Explain(err error) (status int, text FailureText) {
	var known *broker.Error
	var bad badRequest
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		if s, ok := statuses[known.Code]; ok {
			return s.status, FailureText{s.word, known.Text, known.Retryable()}
		}
		return http.StatusInternalServerError, FailureText{"internal", known.Text, false}
	case errors.As(err, &bad):
		return http.StatusBadRequest, FailureText{"bad_request", bad.text, false}
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge, FailureText{"too_large", fmt.Sprintf("a request has at most %d bytes", large.Limit), false}
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, FailureText{"timeout", "the node did not answer in time; what was asked for may still happen", true}
	}
	return http.StatusInternalServerError, FailureText{"internal", "the node failed to answer; its log says why", false}
}

func refuse(w http.ResponseWriter, status int, code, text string, retry bool) {
	answer(w, status, Failure{FailureText{Code: code, Message: text, Retry: retry}})
}

func answer(w http.ResponseWriter, status int, body any) {
	text, err := json.MarshalIndent(body, "", "  ")
	if err != nil { // a value of ours that has no JSON form: nothing the client could mend
		status, text = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"no JSON form","retry":false}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // a client that is gone needs no answer
}
