package console

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/port/trace"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fake is a backend in memory. It may be changed while the lock is held.
type fake struct {
	mu      sync.Mutex
	picture Picture
	all     []*evidence.Evidence
	err     error
	asked   int

	clients   admin.Clients
	deletions []admin.Deletion
}

func (f *fake) Authenticate(_ context.Context, user, password string, loopback bool) ([]string, error) {
	if password != "secret" || user == "guest" && !loopback {
		return nil, broker.Errorf(broker.AuthFailed, "wrong user or password")
	}
	return map[string][]string{"watch": {admin.Monitoring}, "root": {admin.Administrator}, "guest": {admin.Administrator}}[user], nil
}

func (f *fake) Picture(context.Context) (Picture, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.picture, f.err
}

func (f *fake) Transitions(_ context.Context, of admin.Which, n int) (out []*evidence.Evidence, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.all {
		if of.Matches(e.VHost, e.Resource) && len(out) < n {
			out = append(out, e)
		}
	}
	return out, nil
}

func (f *fake) Transition(_ context.Context, id string) (*evidence.Evidence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.all {
		if e.ID == id {
			return e, nil
		}
	}
	return nil, broker.Errorf(broker.NotFound, "no transition %q", id)
}

func (f *fake) Attention(context.Context) (admin.Attention, error) { return f.picture.Attention, nil }

func (f *fake) Bindings(context.Context) ([]admin.Binding, error) {
	return []admin.Binding{
		{VHost: "/", Source: "shop\u202e", Destination: "orders", Kind: "queue", Key: "new.#", Arguments: map[string]string{"x-match": "any"}},
		{VHost: "/", Source: "elsewhere", Destination: "orders", Kind: "exchange"},
		{VHost: "v", Source: "elsewhere", Destination: "orders", Kind: "queue"},
	}, nil
}

// TestBindings: a queue's page shows those that lead to it, and no other.
func TestBindings(t *testing.T) {
	page := ask(follower(whole()), "watch", "/console/resource?vhost=%2F&name=orders").Body.String()
	for _, want := range []string{`<th scope="row">shop\u202e</th><td><code>new.#</code></td><td><code>x-match = any</code> </td>`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	if strings.Contains(page, "elsewhere") {
		t.Error("it shows what leads elsewhere")
	}
}

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// whole is a cluster of three in which n2 is away, with the evidence of a failover.
func whole() *fake {
	copies := func(owner string, position uint64, away string) []admin.Copy {
		var out []admin.Copy
		for _, n := range []string{"n1", "n2", "n3"} {
			c := admin.Copy{Node: n, Role: "follower", Position: position, Offset: position - 1, Durable: position, Health: "ok"}
			if n == owner {
				c.Role = "owner"
			}
			if n == away {
				c = admin.Copy{Node: n, Role: c.Role, Health: "unreachable"}
			}
			out = append(out, c)
		}
		return out
	}
	queue := copies("n1", 5001, "n2")
	queue[2].Position, queue[2].Durable, queue[2].Lag = 4990, 4985, 11
	part := func(name, kind, id, owner string, state admin.State, copies []admin.Copy) admin.Partition {
		p := admin.Partition{
			Resource: name, VHost: "/", Kind: kind, ID: id, Epoch: 2, Version: 3, Policy: "majority_durable", E: 3, W: 2, R: 2, Owner: owner,
			State: state, Confirmed: 5000, Messages: 4999, Copies: copies,
		}
		for _, n := range []string{"n1", "n2", "n3"} {
			if n != owner {
				p.Followers = append(p.Followers, n)
			}
		}
		return p
	}
	waits := part("events", "stream", "2/0", "n2", admin.Waiting, copies("n2", 77, "n2"))
	waits.Reason = "1 of 2 answers needed"
	orders := part("orders", "queue", "1/0", "n1", admin.Serving, queue)
	orders.Held = []admin.Held{
		{Node: "n2", Why: "its place is kept", Since: noon.Add(-time.Minute).UnixMilli(), Until: noon.Add(4 * time.Minute).UnixMilli()},
		{Node: "n3", Why: "its node is draining", Learner: "n4"},
	}
	orders.Changing = []string{"n4 is learning what the others hold", "its policy is still majority_durable"}
	return &fake{
		picture: Picture{
			Overview: admin.Overview{
				Product: "Tanist", Version: "1.2", Node: "n1", Controller: "n3", Ready: true, Nodes: 3, Resources: 2, Partitions: 2,
				States: map[admin.State]int{admin.Serving: 1, admin.Waiting: 1}, Connections: 7,
			},
			Nodes: []admin.Node{
				{Name: "n1", AMQP: "10.0.0.1:5672", Admin: "10.0.0.1:15672", Mesh: "10.0.0.1:25672", Live: true, Votes: true, Health: "ok"},
				{Name: "n2", AMQP: "10.0.0.2:5672", Admin: "10.0.0.2:15672", Votes: true, Health: "unknown", Reason: "refused"},
				{Name: "n3", AMQP: "10.0.0.3:5672", Admin: "10.0.0.3:15672", Live: true, Votes: true, Controller: true, Health: "ok", Zone: "west"},
			},
			Resources: []admin.Resource{
				{Name: "orders", VHost: "/", Kind: "queue", Incarnation: 1, Durable: true, Policy: "majority_durable", Copies: 3, Partitions: 1, State: admin.Serving, Ready: 1200, Unsettled: 34, Consumers: 2, Bytes: 1 << 20, Arguments: map[string]string{"x-max-length": "5000"}},
				{Name: "events", VHost: "/", Kind: "stream", Incarnation: 2, Durable: true, Policy: "majority_durable", Copies: 3, Partitions: 1, State: admin.Waiting},
			},
			Partitions: []admin.Partition{orders, waits},
			Attention: admin.Attention{Node: "n1", Total: 2, Needing: 1, Silent: []string{"n2"}, Conditions: []control.Condition{{
				Code: control.WaitingForCopies, Subject: "events", What: "1 of 2 answers needed; missing: n2", Since: noon.Add(-time.Minute).UnixMilli(),
				Limit: control.MissingQuorum, Ends: "copies that are missing answer: n2", Next: "tanist status events",
			}, {
				Code: control.HoldRunning, Subject: "without n2", What: "copies enough are left, and the place of who is away is kept: orders", Notice: true,
				Ends: "n2 is back, or another node has learned in its place", Next: "tanist node list", Partitions: 1,
			}}},
		},
		all:     []*evidence.Evidence{record()},
		clients: connected(), deletions: forced(),
	}
}

// record is the evidence of a failover from n2 to n1.
func record() *evidence.Evidence {
	start := noon.Add(-time.Minute).UnixMicro()
	return &evidence.Evidence{
		Decided: evidence.Decided{
			ID: "1/0-2-abc", Workflow: evidence.Failover, Partition: ident.Partition{Incarnation: 1}, VHost: "/", Resource: "orders", Kind: ident.Queue,
			Cause: "n2: session broken, process gone", SeenBy: []string{"n1", "n3"},
			Before: evidence.Reign{Owner: ident.Instance{Node: "n2", Boot: 4}, Epoch: 1}, After: evidence.Reign{Owner: ident.Instance{Node: "n1", Boot: 3}, Epoch: 2},
			Version: 2, Policy: "majority_durable", E: 3, W: 2, R: 2,
			Answers: []evidence.Answer{
				{From: ident.Instance{Node: "n1", Boot: 3}, End: evidence.Place{Epoch: 1, Position: 4000, Offset: 3999}, Clipped: 4000, Confirmed: 3990},
				{From: ident.Instance{Node: "n3", Boot: 9}, End: evidence.Place{Epoch: 1, Position: 4010, Offset: 4009}, Clipped: 3995, Confirmed: 3990},
			},
			Exclusions: []evidence.Exclusion{{Node: "n2", Reason: "did not answer"}, {Node: "n3", Reason: "holds less"}},
			Start:      evidence.Place{Epoch: 2, Position: 4000, Offset: 3999}, Floor: evidence.Floor{Position: 3990, By: "n1"},
			LastConfirm: start, Suspected: start + 3_000, Recorded: start + 10_000, Sealed: start + 21_000, Chosen: start + 21_400,
		},
		Became: evidence.Became{
			Outcome: evidence.Committed, Committed: start + 30_000, Serving: start + 41_000, FirstConfirm: start + 45_000,
			Cuts: []evidence.Cut{{Node: "n2", From: 4000, To: 4020, Quarantined: true}},
		},
	}
}

// console makes a console over a backend, on a clock that is set by hand.
func console(f *fake, now *time.Time) *Console {
	return New(Env{Backend: f, Trace: trace.Discard, Now: func() time.Time { return *now }})
}

func ask(h http.Handler, user, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = "127.0.0.1:1"
	if name, password, ok := strings.Cut(user, ":"); ok {
		r.SetBasicAuth(name, password)
	} else if user != "" {
		r.SetBasicAuth(user, "secret")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var every = []string{
	"", "cluster", "resources", "resource?vhost=%2F&name=orders", "resource?vhost=%2F&name=events", "transitions", "transition?id=1%2F0-2-abc", "attention", "clients", "deletions", "deletion?vhost=%2F&name=events", "deletion?vhost=v&name=orders",
}

// TestPages holds each page against a golden file: what is in it after its frame.
func TestPages(t *testing.T) {
	now := noon
	c := console(whole(), &now)
	if w := ask(c, "watch", "/console/"); w.Code != 200 { // a first look, so that there are rates
		t.Fatal(w.Code, w.Body)
	}
	f := c.env.Backend.(*fake)
	for _, in := range []uint64{1500, 900} {
		now = now.Add(10 * time.Second)
		f.picture.Resources = slices.Clone(f.picture.Resources)
		f.picture.Resources[0].Ready += 100
		f.picture.Partitions = slices.Clone(f.picture.Partitions)
		f.picture.Partitions[0].Copies = slices.Clone(f.picture.Partitions[0].Copies)
		f.picture.Partitions[0].Messages += in
		f.picture.Clients.Published += 25
		if w := ask(c, "watch", "/console/"); w.Code != 200 {
			t.Fatal(w.Code, w.Body)
		}
	}
	for _, path := range every {
		w := ask(c, "watch", "/console/"+path)
		text := w.Body.String()
		from, to := strings.Index(text, "<main"), strings.Index(text, "</main>")
		if w.Code != 200 || from < 0 || to < 0 {
			t.Fatalf("%s: status %d: %s", path, w.Code, text)
		}
		name := filepath.Join("testdata", strings.NewReplacer("?", "-", "%2F", "", "&", "-", "=", "-").Replace(cmp.Or(path, "overview"))+".golden")
		got := text[from:to]
		if *update {
			if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not as in %s; look at the difference, then run with -update:\n%s", path, name, got)
		}
	}
}

// TestWhoMayLook: the console has the API's rights, and every answer has the policy that keeps others' script out.
func TestWhoMayLook(t *testing.T) {
	now := noon
	c := console(whole(), &now)
	for _, x := range []struct {
		user   string
		status int
	}{{"", 401}, {"watch:wrong", 401}, {"plain", 403}, {"watch", 200}, {"root", 200}, {"guest", 200}} {
		for _, path := range append(slices.Clone(every), "assets/console.css", "?live") {
			if x.status == 200 && path == "?live" {
				continue // goes on
			}
			w := ask(c, x.user, "/console/"+path)
			if w.Code != x.status {
				t.Errorf("%q, %s: status %d, want %d", x.user, path, w.Code, x.status)
			}
			if got := w.Header().Get("WWW-Authenticate"); (got != "") != (x.status == 401) {
				t.Errorf("%q, %s: challenge %q", x.user, path, got)
			}
			if w.Header().Get("Content-Security-Policy") != policy || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%q, %s: no policy: %v", x.user, path, w.Header())
			}
			if x.status != 200 && strings.Contains(w.Body.String(), "n1") {
				t.Errorf("%q, %s: something is told: %s", x.user, path, w.Body)
			}
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/console/", nil)
	r.SetBasicAuth("guest", "secret")
	r.RemoteAddr = "192.0.2.1:1"
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	if w.Code != 401 {
		t.Errorf("guest from elsewhere: status %d", w.Code)
	}
}

// nasty is a name that would break out of text, an attribute, or a line, where one is not escaped for its place.
const nasty = "'\"><script>alert(1)</script>&amp;\xff\x00\n\r</title>\u202e javascript:x"

// TestNamesAreAnyBytes puts nasty texts wherever a client or another node has a say, and follows every link that comes of it.
func TestNamesAreAnyBytes(t *testing.T) {
	f := whole()
	p := &f.picture
	p.Overview.Node, p.Overview.NotReady, p.Overview.Blocked, p.Overview.Version = nasty, nasty, nasty, nasty
	for i := range p.Nodes {
		n := &p.Nodes[i]
		n.Name, n.AMQP, n.Mesh, n.Zone, n.Reason, n.Health = fmt.Sprint(nasty, i), nasty, nasty, nasty, nasty, nasty
	}
	for i := range p.Resources {
		r := &p.Resources[i]
		r.Name, r.VHost, r.Policy, r.Arguments, r.State = nasty, fmt.Sprint(nasty, i), nasty, map[string]string{nasty: nasty}, nasty
	}
	for i := range p.Partitions {
		x := &p.Partitions[i]
		x.Resource, x.VHost, x.Owner, x.Reason, x.State, x.ID = nasty, fmt.Sprint(nasty, i), nasty+"0", nasty, nasty, nasty
		for j := range x.Copies {
			x.Copies[j].Node, x.Copies[j].Role, x.Copies[j].Health = fmt.Sprint(nasty, j), nasty, nasty
		}
	}
	f.nastyLists()
	p.Attention.Conditions[0] = control.Condition{Code: nasty, Subject: nasty, What: nasty, Limit: nasty, Ends: nasty, Next: nasty, Since: 1}
	e := f.all[0]
	e.ID, e.Workflow, e.VHost, e.Resource, e.Cause, e.SeenBy, e.Policy, e.Outcome, e.Reason = nasty, nasty, nasty, nasty, nasty, []string{nasty}, nasty, nasty, nasty
	e.VHost = nasty + "0" // that of the first resource
	e.Before.Owner.Node, e.After.Owner.Node, e.Floor.By = nasty, nasty, nasty
	for i := range e.Answers {
		e.Answers[i].From.Node, e.Answers[i].Health = nasty, nasty
		e.Exclusions[i] = evidence.Exclusion{Node: nasty, Reason: nasty}
	}
	e.Cuts[0].Node = nasty

	now := noon
	c := console(f, &now)
	todo, seen := []string{"/console/"}, map[string]bool{}
	for len(todo) > 0 {
		path := todo[0]
		todo = todo[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		w := ask(c, "watch", path)
		text := w.Body.String()
		if w.Code != 200 {
			t.Fatalf("%s: status %d: %s", path, w.Code, text)
		}
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			continue
		}
		harmless(t, path, text)
		for _, m := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			if to := html.UnescapeString(m[1]); strings.HasPrefix(to, "/") {
				to, _, _ = strings.Cut(to, "#")
				todo = append(todo, to)
			}
		}
	}
	if want := 5 + 3 + 2 + 2 + 1 + 3; len(seen) != want { // pages of the navigation, clients, those of a queue, deletions, resources, their transitions, one of these, files
		t.Errorf("%d addresses were found, want %d: %q", len(seen), want, slices.Collect(keysOf(seen)))
	}
	for _, path := range []string{"/console/resource?vhost=%FF&name=%3Cscript%3Ealert", "/console/transition?id=%3Cscript%3Ealert%FF", "/console/%3Cscript%3Ealert"} {
		w := ask(c, "watch", path)
		if w.Code != 404 {
			t.Errorf("%s: status %d", path, w.Code)
		}
		harmless(t, path, w.Body.String())
	}
	w := ask(c, "watch", "/console/resources?find=%22%3E%3Cscript%3Ealert%FF&state=%22%3E%3Cscript%3Ealert")
	harmless(t, "find", w.Body.String())
}

func keysOf(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

var (
	element = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)
	inline  = regexp.MustCompile(`(?i)\s(on[a-z]+|style|srcdoc|action="?javascript|href="?\s*javascript)\s*=`)
)

// harmless holds a document against what its policy forbids, and its text against what a reader cannot see.
func harmless(t *testing.T, path, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s is not UTF-8", path)
	}
	for _, bad := range []string{"<script>", "alert(1)</script", "\u202e", "\x00", "\r", "ZgotmplZ", "<style", "'\">"} {
		if strings.Contains(text, bad) {
			t.Errorf("%s contains %q", path, bad)
		}
	}
	for _, e := range element.FindAllString(text, -1) {
		if inline.MatchString(e) {
			t.Errorf("%s has script or style inside: %s", path, e)
		}
		if strings.HasPrefix(e, "<script") && !regexp.MustCompile(`^<script src="/console/assets/console\.js\?[0-9a-f]+" defer>$`).MatchString(e) {
			t.Errorf("%s has a script of another place: %s", path, e)
		}
	}
}

// TestFailures: what the node cannot tell is said in a page, with its status, and nothing of its inside.
func TestFailures(t *testing.T) {
	for err, status := range map[error]int{
		errors.New("secret inside"): 500, context.DeadlineExceeded: 504, broker.Errorf(broker.Unavailable, "no quorum"): 503,
	} {
		now := noon
		f := whole()
		f.err = err
		w := ask(console(f, &now), "watch", "/console/cluster")
		if w.Code != status || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), "That did not work") {
			t.Errorf("%v: status %d, want %d: %s", err, w.Code, status, w.Body)
		}
	}
}

// TestWithdrawn: a suspicion that was wrong left the owner where it was.
func TestWithdrawn(t *testing.T) {
	f := whole()
	e := f.all[0]
	e.After.Owner, e.Outcome, e.Reason = ident.Instance{}, evidence.Cancelled, "nothing was a reason any more"
	e.Sealed, e.Chosen, e.Committed, e.Serving, e.FirstConfirm, e.Answers, e.Cuts = 0, 0, 0, 0, 0, nil, nil
	now := noon
	c := console(f, &now)
	for path, says := range map[string][]string{
		"transitions":               {"n2 stays", "cancelled", `<td class="n wide">7.0` + thin + "ms</td>"},
		"transition?id=1%2F0-2-abc": {"n2 (epoch 1) stays", "nothing was a reason any more", "until the last moment below", "No copy has answered"},
	} {
		w := ask(c, "watch", "/console/"+path)
		for _, text := range says {
			if !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s: no %q in %s", path, text, w.Body)
			}
		}
		if strings.Contains(w.Body.String(), "not known") || strings.Contains(w.Body.String(), "nobody") {
			t.Errorf("%s: something is still to come: %s", path, w.Body)
		}
	}
}

// TestEmpty: a cluster that has nothing yet.
func TestEmpty(t *testing.T) {
	f := &fake{picture: Picture{Overview: admin.Overview{Node: "one", Ready: true}, Nodes: []admin.Node{{Name: "one", Live: true, Health: "ok"}}}}
	now := noon
	c := console(f, &now)
	for path, says := range map[string]string{
		"": "There are no queues and streams yet", "cluster": "There are no queues and streams yet", "resources": "None.",
		"transitions": "No owner has changed", "attention": "Nothing needs a person",
	} {
		if w := ask(c, "watch", "/console/"+path); w.Code != 200 || !strings.Contains(w.Body.String(), says) {
			t.Errorf("%q: status %d, want %q: %s", path, w.Code, says, w.Body)
		}
	}
}

// TestLongLists are cut into pages, and every row is on one of them.
func TestLongLists(t *testing.T) {
	f := whole()
	f.picture.Resources, f.picture.Partitions = nil, nil
	for i := range 250 {
		f.picture.Resources = append(f.picture.Resources, admin.Resource{Name: fmt.Sprintf("q%03d", i), VHost: "/", Kind: "queue", State: admin.Serving, Incarnation: uint64(i + 1)})
		f.picture.Partitions = append(f.picture.Partitions, admin.Partition{Resource: fmt.Sprintf("q%03d", i), VHost: "/", ID: fmt.Sprint(i+1, "/0"), Owner: "n1", State: admin.Serving})
	}
	now := noon
	c := console(f, &now)
	for _, list := range []string{"/console/resources?find=q", "/console/cluster?x=1"} {
		for page, want := range map[string][2]string{"": {"q000", "q099"}, "&page=2": {"q100", "q199"}, "&page=3": {"q200", "q249"}, "&page=9": {"q200", "q249"}, "&page=-1": {"q000", "q099"}, "&page=x": {"q000", "q099"}} {
			text := ask(c, "watch", list+page).Body.String()
			var found []string
			for _, m := range regexp.MustCompile(`<th scope="row"><a[^>]*>.*?(q\d\d\d)`).FindAllStringSubmatch(text, -1) {
				found = append(found, m[1])
			}
			if len(found) == 0 || found[0] != want[0] || found[len(found)-1] != want[1] {
				t.Errorf("%s%s: %q, want from %s to %s", list, page, found, want[0], want[1])
			}
		}
	}
	text := ask(c, "watch", "/console/resources?find=q&page=2").Body.String()
	for _, link := range []string{`href="/console/resources?find=q&amp;page=1"`, `href="/console/resources?find=q&amp;page=3"`, "101 to 200 of 250"} {
		if !strings.Contains(text, link) {
			t.Errorf("no %s in %s", link, text)
		}
	}
	if text := ask(c, "watch", "/console/resources?find=q24").Body.String(); !strings.Contains(text, "10 of 250") {
		t.Errorf("find: %s", text)
	}
}

// TestFilesAreKept: a page asks for files by a name for their content, which may be kept; any other may not.
func TestFilesAreKept(t *testing.T) {
	now := noon
	c := console(whole(), &now)
	for _, name := range []string{"console.css", "console.js", "icon.svg"} {
		if w := ask(c, "watch", assetURL(name)); w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Header().Get("Content-Type") == "" {
			t.Errorf("%s: status %d, %v", name, w.Code, w.Header())
		}
		if w := ask(c, "watch", "/console/assets/"+name); w.Code != 200 || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s without its content's name: status %d, %v", name, w.Code, w.Header())
		}
	}
	if w := ask(c, "watch", "/console/assets/..%2fpages%2fframe.html"); w.Code != 404 {
		t.Errorf("a file that is none: status %d", w.Code)
	}
}

// TestOtherNodesAreLinked: with TLS alone an address says so itself, whichever way this page came.
func TestOtherNodesAreLinked(t *testing.T) {
	plain, secure := httptest.NewRequest("GET", "http://one/", nil), httptest.NewRequest("GET", "https://one/", nil)
	for _, c := range []struct {
		r             *http.Request
		address, want string
	}{{plain, "two:1", "http://two:1"}, {secure, "two:1", "https://two:1"}, {plain, "https://two:2", "https://two:2"}, {secure, "https://two:2", "https://two:2"}} {
		if got := urlOf(c.r, c.address); got != c.want {
			t.Errorf("%s from %s: %s, want %s", c.address, c.r.URL, got, c.want)
		}
	}
}
