package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tanist/tanist/internal/port/trace"
)

// Env is what the front stands on.
type Env struct {
	Backend Backend
	Trace   trace.Sink
	Version string // of the product
	// Pages are what people read in a browser, under PagesPath; nil: none. They ask Admit themselves.
	Pages Pages
}

// PagesPath is where the pages are; / leads there.
const PagesPath = "/console/"

// Pages are served beside the API. Close ends the answers that go on for long, so that the server can stop; it may be called once.
type Pages interface {
	http.Handler
	Close()
}

// Limits of a request. Answers may take a while on a large cluster, requests are small.
const (
	maxBody      = 64 << 10
	maxHeader    = 32 << 10
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
	askTimeout   = 20 * time.Second // for the backend to answer
)

// Handler is the front as an HTTP handler.
func Handler(env Env) http.Handler {
	h := &handler{env: env}
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(r.method+" "+r.pattern(), h.serve(r))
	}
	document := openapi(env.Version)
	mux.HandleFunc("GET /api/v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, document) })
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collector{env.Backend}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{Timeout: askTimeout, MaxRequestsInFlight: 4})
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "alive\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := env.Backend.Ready(); err != nil {
			plain(w, http.StatusServiceUnavailable, "not ready: "+err.Error()+"\n")
			return
		}
		plain(w, http.StatusOK, "ready\n")
	})
	if env.Pages != nil {
		mux.Handle("GET "+PagesPath, env.Pages)
		mux.Handle("GET /{$}", http.RedirectHandler(PagesPath, http.StatusSeeOther))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { h.unknown(w, r, mux) })
	return http.MaxBytesHandler(sameSite().Handler(mux), maxBody)
}

// sameSite refuses what the page of another site has a browser ask for that changes anything: a browser that has logged in to the console
// would send the password along.
func sameSite() *http.CrossOriginProtection {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "cross_origin", "this was asked for by a page of another site", false)
	}))
	return p
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a client that is gone needs no answer
}

// Server serves the front on listeners.
type Server struct {
	http  *http.Server
	trace trace.Sink
}

// New makes a server that listens nowhere yet.
func New(env Env) *Server {
	s := &Server{trace: env.Trace, http: &http.Server{
		Handler: Handler(env), ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(discard{}, slog.LevelDebug), // TLS handshakes that failed: the other end's affair
	}}
	if env.Pages != nil {
		s.http.RegisterOnShutdown(env.Pages.Close)
	}
	return s
}

type discard struct{}

func (discard) Enabled(context.Context, slog.Level) bool  { return false }
func (discard) Handle(context.Context, slog.Record) error { return nil }
func (d discard) WithAttrs([]slog.Attr) slog.Handler      { return d }
func (d discard) WithGroup(string) slog.Handler           { return d }

// Listen serves ln, over TLS if t is not nil, until Shutdown. It does not block.
func (s *Server) Listen(ln net.Listener, t *tls.Config) {
	if t != nil {
		t = t.Clone()
		t.NextProtos = []string{"http/1.1"}
		ln = tls.NewListener(ln, t)
	}
	go func() {
		if err := s.http.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			trace.Error(s.trace, "admin.listener.failed", slog.String("address", ln.Addr().String()), slog.Any("error", err))
		}
	}()
}

// Shutdown stops listening and waits for the requests in hand, until ctx ends; then it ends them.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	return err
}
