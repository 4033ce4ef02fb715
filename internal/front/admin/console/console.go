// Package console is what operators see of the cluster in a browser: an overview with rates, the cluster as a picture, a queue or stream
// with its copies, a change of owner with its timeline drawn, and what needs a person. Pages are made on the server and can be read
// without JavaScript; with it they follow what happens, over server-sent events. They show what the admin port answers, to whom it
// answers, and change nothing. No engine, no rule and nothing from another host may come in. Source: design 6 "Console".
package console

import (
	"bytes"
	"context"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/port/trace"
)

// Backend is what the console shows; the node's is one.
type Backend interface {
	admin.Authenticator
	admin.Recorder
	// Picture is how the cluster stands. It asks every node once.
	Picture(ctx context.Context) (Picture, error)
	// Bindings are as admin.Backend gives them: this node knows them.
	Bindings(ctx context.Context) ([]admin.Binding, error)
	// Clients and Deletions are as admin.Backend gives them: all nodes are asked.
	Clients(ctx context.Context) (admin.Clients, error)
	Deletions(ctx context.Context) ([]admin.Deletion, error)
	// PlanDeletion is as admin.Backend's: the controller is asked, and nothing changes.
	PlanDeletion(ctx context.Context, q admin.DeletionQuery) (admin.DeletionPlan, error)
}

// Picture is what the nodes said at one time, so that what is seen together was said together. Each part is as admin.Backend gives it.
type Picture struct {
	Overview   admin.Overview
	Nodes      []admin.Node
	Resources  []admin.Resource
	Partitions []admin.Partition
	Attention  admin.Attention
	Clients    admin.GatewayMetrics // of the node that answers
}

// Env is what the console stands on.
type Env struct {
	Backend Backend
	Trace   trace.Sink
	Now     func() time.Time // nil: the machine's clock
}

const (
	askTimeout = 20 * time.Second // for the backend to answer
	maxStreams = 64               // pages that follow at the same time; others can be read and reloaded
)

// Content-Security-Policy of every answer: nothing but the console's own files, and no script or style inside a page. Names of queues
// are any bytes, and come from clients.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

//go:embed pages/*.html assets
var files embed.FS

// Console serves the pages below admin.PagesPath.
type Console struct {
	env  Env
	feed *feed

	clients   *shared[admin.Clients]
	deletions *shared[[]admin.Deletion]

	mux     *http.ServeMux
	streams chan struct{}   // a place for each
	ending  context.Context // of all streams
	end     context.CancelFunc
}

var _ admin.Pages = (*Console)(nil)

// Close ends the streams; pages can still be read.
func (c *Console) Close() { c.end() }

// page is one kind of page. show gives its model, and may ask the backend for more than the sample holds.
type page struct {
	title string
	place string // in the navigation; "": none of its own
	show  func(ctx context.Context, c *Console, s *sample, r *http.Request) (any, error)
	tmpl  *template.Template
}

// New makes the console.
func New(env Env) *Console {
	if env.Now == nil {
		env.Now = time.Now
	}
	c := &Console{env: env, feed: newFeed(env.Backend, env.Now), mux: http.NewServeMux(), streams: make(chan struct{}, maxStreams)}
	c.clients, c.deletions = newShared(env.Now, env.Backend.Clients), newShared(env.Now, env.Backend.Deletions)
	c.ending, c.end = context.WithCancel(context.Background())
	for name, p := range map[string]*page{
		"{$}":         {title: "Overview", place: "overview", show: showOverview},
		"cluster":     {title: "Cluster", place: "cluster", show: showCluster},
		"resources":   {title: "Queues and streams", place: "resources", show: showResources},
		"resource":    {title: "Queue or stream", place: "resources", show: showResource},
		"transitions": {title: "Transitions", place: "transitions", show: showTransitions},
		"transition":  {title: "Transition", place: "transitions", show: showTransition},
		"clients":     {title: "Clients", place: "clients", show: showClients},
		"attention":   {title: "Attention", place: "attention", show: showAttention},
		"deletions":   {title: "Deleted by force", place: "attention", show: showDeletions},
		"deletion":    {title: "Deleting by force", place: "resources", show: showDeletion},
	} {
		file := name
		if name == "{$}" {
			file = "overview"
		}
		p.tmpl = parse(file)
		c.mux.HandleFunc("GET "+admin.PagesPath+name, func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, p) })
	}
	c.mux.HandleFunc("GET "+admin.PagesPath+"assets/{file}", c.asset)
	c.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		c.refuse(w, http.StatusNotFound, "There is no such page.")
	})
	return c
}

// ServeHTTP serves a page, a file that it needs, or the events of one that follows.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	if err := admin.Admit(ctx, c.env.Backend, r, true); err != nil {
		c.fail(w, r, err)
		return
	}
	c.mux.ServeHTTP(w, r)
}

func (c *Console) serve(w http.ResponseWriter, r *http.Request, p *page) {
	if r.URL.Query().Has("live") {
		c.follow(w, r, p)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	text, _, err := c.render(ctx, r, p, "document")
	if err != nil {
		c.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text) // a client that is gone needs no answer
}

// render makes a page, or the part of it that follows, of what the nodes said at a time.
func (c *Console) render(ctx context.Context, r *http.Request, p *page, part string) (text []byte, at time.Time, err error) {
	s, err := c.feed.get(ctx)
	if err != nil {
		return nil, at, err
	}
	body, err := p.show(ctx, c, s, r)
	if err != nil {
		return nil, at, err
	}
	var out bytes.Buffer
	if err := p.tmpl.ExecuteTemplate(&out, part, frameOf(p, s, r, body)); err != nil {
		return nil, at, err
	}
	return legible(out.Bytes()), s.at, nil
}

// fail answers with what went wrong, as a page.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	var denied *admin.Denied
	switch {
	case errors.As(err, &denied):
		denied.Challenge(w)
		c.refuse(w, denied.Status, denied.Text)
	case errors.Is(err, context.Canceled): // the client left
	default:
		c.refuse(w, c.explain(r, err), explained(err))
	}
}

// explain gives the status for an error, and logs what is the node's fault.
func (c *Console) explain(r *http.Request, err error) int {
	status, _ := admin.Explain(err)
	if status == http.StatusInternalServerError {
		trace.Error(c.env.Trace, "admin.page.failed", slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	return status
}

func explained(err error) string {
	_, text := admin.Explain(err)
	return text.Message
}

var refusal = parse("refusal")

func (c *Console) refuse(w http.ResponseWriter, status int, text string) {
	var out bytes.Buffer
	f := frame{Title: http.StatusText(status), Body: text, Refused: true}
	if err := refusal.ExecuteTemplate(&out, "document", f); err != nil {
		out.Reset()
		fmt.Fprintln(&out, http.StatusText(status))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(legible(out.Bytes())) // a client that is gone needs no answer
}

// asset is a file with what it is served as and a name for its content, which pages ask for it by: it may be kept for ever.
type asset struct {
	kind, version string
	text          []byte
}

var assets = loadAssets()

func loadAssets() map[string]asset {
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	out := map[string]asset{}
	entries, err := fs.ReadDir(files, "assets")
	for _, e := range entries {
		var text []byte
		if text, err = files.ReadFile("assets/" + e.Name()); err != nil {
			break
		}
		h := fnv.New64a()
		_, _ = h.Write(text)
		out[e.Name()] = asset{kind: kinds[path.Ext(e.Name())], version: hex.EncodeToString(h.Sum(nil)), text: text}
	}
	if err != nil {
		panic("console: an embedded file cannot be read: " + err.Error())
	}
	return out
}

func (c *Console) asset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets[r.PathValue("file")]
	if !ok {
		c.refuse(w, http.StatusNotFound, "There is no such file.")
		return
	}
	w.Header().Set("Content-Type", a.kind)
	if r.URL.RawQuery == a.version {
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	_, _ = w.Write(a.text) // a client that is gone needs no answer
}

// assetURL is where a page finds a file.
func assetURL(file string) string {
	return admin.PagesPath + "assets/" + file + "?" + assets[file].version
}

func parse(name string) *template.Template {
	t := template.New("console").Funcs(functions)
	return template.Must(t.ParseFS(files, "pages/frame.html", "pages/parts.html", "pages/"+name+".html"))
}

// frame is what every page has around its body.
type frame struct {
	Title   string
	Place   string
	Refused bool // the page is about an error: there is no sample
	Node    string
	Version string
	At      time.Time
	Alerts  int
	Others  []other
	Body    any
}

// other is another node's console.
type other struct{ Name, URL string }

func frameOf(p *page, s *sample, r *http.Request, body any) frame {
	f := frame{
		Title: p.title, Place: p.place, Node: s.Overview.Node, Version: s.Overview.Version, At: s.at, Alerts: s.Attention.Needing, Body: body,
	}
	if t, ok := body.(interface{ title() string }); ok {
		f.Title = t.title()
	}
	for _, n := range s.Nodes {
		if n.Name != f.Node && n.Live && n.Admin != "" {
			f.Others = append(f.Others, other{n.Name, urlOf(r, n.Admin) + admin.PagesPath})
		}
	}
	return f
}

// urlOf is where another node's console is. An address says its scheme where only TLS leads there; any other is asked as this one was, since nodes
// of a cluster are taken to be set up alike.
func urlOf(r *http.Request, address string) string {
	switch {
	case strings.Contains(address, "://"):
		return address
	case r.TLS != nil:
		return "https://" + address
	}
	return "http://" + address
}

// event is one server-sent event.
func event(name string, text []byte) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "event: %s\n", name)
	for line := range strings.Lines(string(text)) {
		out.WriteString("data: ")
		out.WriteString(strings.TrimRight(line, "\r\n"))
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	return out.Bytes()
}
