package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/port/trace"
)

// fake is a backend in memory.
type fake struct {
	users   map[string]UserUpdate
	vhosts  []string
	perms   []catalog.Permission
	ready   error
	overErr error

	attention Attention
	settings  map[string]*catalog.Setting
}

func newFake() *fake {
	secret, admin, monitoring := "secret", []string{Administrator}, []string{Monitoring}
	return &fake{
		users: map[string]UserUpdate{
			"root": {Name: "root", Password: &secret, Roles: &admin}, "watch": {Name: "watch", Password: &secret, Roles: &monitoring},
			"plain": {Name: "plain", Password: &secret}, "guest": {Name: "guest", Password: &secret, Roles: &admin},
		},
		vhosts: []string{"/"},
	}
}

func (f *fake) Authenticate(_ context.Context, user, password string, loopback bool) ([]string, error) {
	u, ok := f.users[user]
	if !ok || *u.Password != password || user == "guest" && !loopback {
		return nil, broker.Errorf(broker.AuthFailed, "wrong user or password")
	}
	if u.Roles == nil {
		return nil, nil
	}
	return *u.Roles, nil
}

func (f *fake) Overview(context.Context) (Overview, error) {
	return Overview{Product: "Tanist", Node: "a", States: map[State]int{Serving: 2}}, f.overErr
}

func (f *fake) Nodes(context.Context) ([]Node, error) {
	return []Node{{Name: "a", AMQP: "127.0.0.1:5672", Live: true, Controller: true, Health: "ok"}}, nil
}

func (f *fake) JoinToken(_ context.Context, node string, life time.Duration) (Token, error) {
	return Token{ID: "1", Token: "made for " + node, Node: node, Expires: life.Milliseconds()}, nil
}

func (f *fake) ReplaceToken(_ context.Context, node string, _ time.Duration) (Token, error) {
	return Token{ID: "2", Token: "in place of " + node, Node: node}, nil
}

func (f *fake) RemoveNode(_ context.Context, node string) error {
	if node != "b" {
		return broker.Errorf(broker.NotFound, "no node '%s'", node)
	}
	return nil
}

func (f *fake) DrainNode(_ context.Context, node string, draining bool) error {
	if node != "b" || !draining {
		return broker.Errorf(broker.NotFound, "no node '%s'", node)
	}
	return nil
}

func (f *fake) Transitions(_ context.Context, of Which, n int) ([]*evidence.Evidence, error) {
	out := []*evidence.Evidence{}
	for _, name := range []string{"q", "s"} {
		if of.Matches("/", name) && len(out) < n {
			e, err := f.Transition(context.Background(), name)
			if err != nil {
				return nil, err
			}
			out = append(out, e)
		}
	}
	return out, nil
}

func (f *fake) Transition(_ context.Context, id string) (*evidence.Evidence, error) {
	if id == "none" {
		return nil, broker.Errorf(broker.NotFound, "no evidence of %q", id)
	}
	return &evidence.Evidence{
		Decided: evidence.Decided{
			ID: id, Resource: id, VHost: "/", Workflow: evidence.Failover, SeenBy: []string{"b"}, Answers: []evidence.Answer{{Clipped: 7}},
			Exclusions: []evidence.Exclusion{{Node: "a", Reason: "did not answer"}}, Chosen: 5,
		},
		Became: evidence.Became{Outcome: evidence.Committed, Cuts: []evidence.Cut{{Node: "a", From: 3, To: 9}}, Serving: 8},
	}, nil
}

func (f *fake) Healthy(context.Context) (Check, error) { return Check{Node: "a"}, nil }

func (f *fake) QuorumCritical(_ context.Context, node string) (Check, error) {
	if node == "none" {
		return Check{}, broker.Errorf(broker.NotFound, "no node '%s'", node)
	}
	return Check{Node: "a", Obstacles: []control.Obstacle{{Subject: node, What: "it is needed"}}, Total: 1}, nil
}

func (f *fake) Attention(context.Context) (Attention, error) { return f.attention, nil }

func (f *fake) Resources(context.Context) ([]Resource, error) {
	return []Resource{
		{Name: "q", VHost: "/", Kind: "queue", State: Serving, Arguments: map[string]string{"x-max-length": "3"}},
		{Name: "s", VHost: "v", Kind: "stream", State: Recovering},
	}, nil
}

func (f *fake) Partitions(context.Context) ([]Partition, error) {
	return []Partition{
		{Resource: "q", VHost: "/", Kind: "queue", E: 1, W: 1, R: 1, Owner: "a", State: Serving, Copies: []Copy{{Node: "a", Role: "owner"}}},
		{Resource: "s", VHost: "v", Kind: "stream", State: Recovering},
	}, nil
}

func (f *fake) Users(context.Context) ([]catalog.User, error) {
	var out []catalog.User
	for _, u := range f.users {
		one := catalog.User{Name: u.Name, Hash: "never shown"}
		if u.Roles != nil {
			one.Roles = *u.Roles
		}
		out = append(out, one)
	}
	return out, nil
}

func (f *fake) PutUser(_ context.Context, u UserUpdate) error {
	f.users[u.Name] = u
	return nil
}

func (f *fake) DeleteUser(_ context.Context, name string) error {
	if _, ok := f.users[name]; !ok {
		return broker.Errorf(broker.NotFound, "no user %q", name)
	}
	delete(f.users, name)
	return nil
}

func (f *fake) VHosts(context.Context) ([]catalog.VHost, error) {
	var out []catalog.VHost
	for _, v := range f.vhosts {
		out = append(out, catalog.VHost{Name: v})
	}
	return out, nil
}

func (f *fake) PutVHost(_ context.Context, name string) error {
	f.vhosts = append(f.vhosts, name)
	return nil
}

func (f *fake) DeleteVHost(_ context.Context, name string) error {
	f.vhosts = slices.DeleteFunc(f.vhosts, func(v string) bool { return v == name })
	return nil
}

func (f *fake) Permissions(context.Context) ([]catalog.Permission, error) { return f.perms, nil }

func (f *fake) PutPermission(_ context.Context, p catalog.Permission) error {
	f.perms = append(f.perms, p)
	return nil
}

func (f *fake) DeletePermission(_ context.Context, user, vhost string) error {
	f.perms = slices.DeleteFunc(f.perms, func(p catalog.Permission) bool { return p.User == user && p.VHost == vhost })
	return nil
}

func (f *fake) Metrics() Metrics {
	var seal Seconds
	seal.Add(0.003)
	return Metrics{
		Storage: StorageMetrics{Syncs: 7, Health: "ok", Groups: 7, SyncSeconds: 0.1},
		Gateway: GatewayMetrics{Published: 11, Blocked: true},
		Replicas: ReplicaMetrics{
			States: map[State]uint64{Serving: 2}, LostFollowers: map[string]uint64{"b": 1}, Lag: map[string]uint64{"c": 4},
			Learners: 8, HeldFollowers: map[string]uint64{"b": 1}, Replaced: map[string]uint64{"c": 2},
		},
		Changes: ChangeMetrics{
			Owners: map[Change]uint64{{"failover", "no heartbeat"}: 3}, Suspicions: map[string]uint64{"no heartbeat": 2}, Cleared: 1,
			Phases: map[string]Seconds{"seal": seal}, Unavailable: 0.5, CutEntries: 6, LostEntries: 8,
		},
	}
}

func (f *fake) Ready() error { return f.ready }

func handlerOf(f *fake) http.Handler {
	return Handler(Env{Backend: f, Trace: trace.Discard, Version: "1"})
}

// ask makes a request as a user from this machine; a user of "" does not log in.
func ask(h http.Handler, user, method, path, body string) *httptest.ResponseRecorder {
	return askFrom(h, "127.0.0.1:5", user, method, path, body)
}

func askFrom(h http.Handler, from, user, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = from
	if user != "" {
		name, password, ok := strings.Cut(user, ":")
		if !ok {
			password = "secret"
		}
		r.SetBasicAuth(name, password)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestDocumentMatchesHandlers asks every operation of the document and holds each answer against its schema.
func TestDocumentMatchesHandlers(t *testing.T) {
	h := handlerOf(newFake())
	w := ask(h, "", "GET", "/api/v1/openapi.json", "")
	var doc map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	schemas := doc["components"].(object)["schemas"].(object)
	asked := 0
	for path, ops := range doc["paths"].(object) {
		for method, op := range ops.(object) {
			if method == "delete" {
				continue // below, once there is something to delete
			}
			real := strings.NewReplacer("{name}", "x%2Fy", "{vhost}", "%2F", "{user}", "u", "{node}", "b", "{id}", "3%2F0@2", "{resource}", "q", "{incarnation}", "7").Replace(path)
			body := ""
			if strings.Contains(path, "/nodes/") {
				real = strings.ReplaceAll(path, "{name}", "b")
			}
			if strings.Contains(path, "/settings/") {
				real = strings.ReplaceAll(path, "{name}", "rebalance")
			}
			switch {
			case strings.Contains(path, "/settings/"):
				body = `{"value":"off"}`
			case strings.Contains(path, "/policies/"):
				body = `{"policy":"all_durable","copies":5}`
			case strings.HasSuffix(path, "/tokens"), strings.HasSuffix(path, "/replace"):
				body = `{"ttl":"30m"}`
			case strings.HasSuffix(path, "/accept-loss"), strings.HasSuffix(path, "/plans/delete"), strings.HasSuffix(path, "/deletions"):
				body = `{"vhost":"/","resource":"q","plan":"abc","reason":"r"}`
				if strings.Contains(path, "/plans/") {
					body = `{"vhost":"/","resource":"q"}`
				}
			case path == "/api/v1/accept-losses":
				body = `{"plan":"abc","reason":"r"}`
			case strings.HasSuffix(path, "/drain"):
				body = `{"draining":true}`
			case strings.Contains(path, "/users/"):
				body = `{"password":"p","roles":["monitoring"]}`
			case strings.Contains(path, "/permissions/"):
				body = `{"configure":"","write":"^a","read":".*"}`
			}
			w := ask(h, "root", strings.ToUpper(method), real, body)
			asked++
			responses := op.(object)["responses"].(object)
			documented, ok := responses[fmt.Sprint(w.Code)].(object)
			if !ok {
				t.Errorf("%s %s: status %d is not in the document: %s", method, path, w.Code, w.Body)
				continue
			}
			content, _ := documented["content"].(object)
			media, ok := content["application/json"].(object)
			if !ok {
				continue
			}
			var got any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Errorf("%s %s: %v", method, path, err)
			}
			conforms(t, method+" "+path, got, media["schema"].(object), schemas)
		}
	}
	if asked < 12 {
		t.Errorf("only %d operations in the document", asked)
	}
}

// conforms is as much of JSON schema as the document uses.
func conforms(t *testing.T, at string, v any, schema, all object) {
	t.Helper()
	if ref, ok := schema["$ref"].(string); ok {
		schema = all[strings.TrimPrefix(ref, "#/components/schemas/")].(object)
	}
	want := map[string]reflect.Kind{"object": reflect.Map, "array": reflect.Slice, "string": reflect.String, "boolean": reflect.Bool, "integer": reflect.Float64, "number": reflect.Float64}
	if v == nil || reflect.TypeOf(v).Kind() != want[schema["type"].(string)] {
		t.Errorf("%s: %v is not of type %v", at, v, schema["type"])
		return
	}
	switch v := v.(type) {
	case []any:
		for i, x := range v {
			conforms(t, fmt.Sprintf("%s[%d]", at, i), x, schema["items"].(object), all)
		}
	case object:
		properties, _ := schema["properties"].(object)
		for name, x := range v {
			p, ok := properties[name].(object)
			if !ok {
				if p, ok = schema["additionalProperties"].(object); !ok {
					t.Errorf("%s: %q is not in the document", at, name)
					continue
				}
			}
			conforms(t, at+"."+name, x, p, all)
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				t.Errorf("%s: lacks %q", at, name)
			}
		}
	case string:
		if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, any(v)) {
			t.Errorf("%s: %q is not one of %v", at, v, enum)
		}
	}
}

// TestDesignFields holds the field names that tools rely on.
func TestDesignFields(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/partitions": "resource vhost kind partition epoch version policy e w r owner followers learners state confirmed copies",
		"/api/v1/nodes":      "name amqp admin live controller health draining",
	} {
		var rows []map[string]any
		if err := json.Unmarshal(ask(handlerOf(newFake()), "watch", "GET", path, "").Body.Bytes(), &rows); err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.Fields(want) {
			if _, ok := rows[0][f]; !ok {
				t.Errorf("%s: no field %q in %v", path, f, rows[0])
			}
		}
	}
	w := ask(handlerOf(newFake()), "watch", "GET", "/api/v1/partitions?resource=q&vhost=/", "")
	for _, f := range []string{"node", "role", "position", "offset", "durable", "lag", "health"} {
		if !strings.Contains(w.Body.String(), `"`+f+`"`) {
			t.Errorf("a copy has no field %q: %s", f, w.Body)
		}
	}
	if strings.Contains(w.Body.String(), `"s"`) {
		t.Errorf("the query was not heeded: %s", w.Body)
	}
}

func TestWhoMayWhat(t *testing.T) {
	for _, c := range []struct {
		name, from, user, method, path string
		status                         int
	}{
		{"nobody", "127.0.0.1:1", "", "GET", "/api/v1/overview", 401},
		{"wrong password", "127.0.0.1:1", "root:no", "GET", "/api/v1/overview", 401},
		{"unknown user", "127.0.0.1:1", "who", "GET", "/api/v1/overview", 401},
		{"no role", "127.0.0.1:1", "plain", "GET", "/api/v1/overview", 403},
		{"monitoring reads", "127.0.0.1:1", "watch", "GET", "/api/v1/overview", 200},
		{"monitoring changes", "127.0.0.1:1", "watch", "PUT", "/api/v1/vhosts/x", 403},
		{"monitoring deletes", "127.0.0.1:1", "watch", "DELETE", "/api/v1/users/plain", 403},
		{"administrator changes", "127.0.0.1:1", "root", "PUT", "/api/v1/vhosts/x", 204},
		{"guest here", "127.0.0.1:1", "guest", "GET", "/api/v1/overview", 200},
		{"guest here by IPv6", "[::1]:1", "guest", "GET", "/api/v1/overview", 200},
		{"guest here by mapped IPv4", "[::ffff:127.0.0.1]:1", "guest", "GET", "/api/v1/overview", 200},
		{"guest from elsewhere", "192.0.2.1:1", "guest", "GET", "/api/v1/overview", 401},
		{"health without login", "192.0.2.1:1", "", "GET", "/livez", 200},
		{"metrics without login", "192.0.2.1:1", "", "GET", "/metrics", 200},
	} {
		if w := askFrom(handlerOf(newFake()), c.from, c.user, c.method, c.path, ""); w.Code != c.status {
			t.Errorf("%s: status %d, want %d: %s", c.name, w.Code, c.status, w.Body)
		}
	}
}

func TestErrorsAreClear(t *testing.T) {
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"no such path", "GET", "/api/v1/nothing", "", 404, "openapi.json"},
		{"wrong method", "POST", "/api/v1/users/x", "", 405, "method_not_allowed"},
		{"no name", "PUT", "/api/v1/users/", "{}", 404, "lacks a name"},
		{"not JSON", "PUT", "/api/v1/users/x", "{", 400, "bad_request"},
		{"unknown field", "PUT", "/api/v1/users/x", `{"pasword":"x"}`, 400, "pasword"},
		{"two values", "PUT", "/api/v1/users/x", `{} {}`, 400, "more than one"},
		{"unknown role", "PUT", "/api/v1/users/x", `{"roles":["king"]}`, 422, "king"},
		{"empty password", "PUT", "/api/v1/users/x", `{"password":""}`, 422, "empty password"},
		{"missing user", "DELETE", "/api/v1/users/x", "", 404, `no user`},
		{"too large", "PUT", "/api/v1/users/x", `{"password":"` + strings.Repeat("x", maxBody) + `"}`, 413, "at most"},
	} {
		w := ask(handlerOf(newFake()), "root", c.method, c.path, c.body)
		var f Failure
		if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil {
			t.Errorf("%s: %v: %s", c.name, err, w.Body)
		}
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) || f.Error.Code == "" || f.Error.Message == "" {
			t.Errorf("%s: status %d, want %d saying %q: %s", c.name, w.Code, c.status, c.says, w.Body)
		}
	}
	f := newFake()
	for err, status := range map[error]int{
		errors.New("secret inside"): 500, context.DeadlineExceeded: 504, broker.Errorf(broker.Unavailable, "no quorum"): 503,
	} {
		f.overErr = err
		w := ask(handlerOf(f), "root", "GET", "/api/v1/overview", "")
		if w.Code != status || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%v: status %d, want %d: %s", err, w.Code, status, w.Body)
		}
	}
}

func TestChanges(t *testing.T) {
	f := newFake()
	h := handlerOf(f)
	for _, step := range [][3]string{
		{"PUT", "/api/v1/vhosts/a%2Fb", ""},
		{"PUT", "/api/v1/permissions/u/%2F", `{"configure":"c","write":"w","read":"r"}`},
		{"PUT", "/api/v1/permissions/u/a%2Fb", `{}`},
		{"DELETE", "/api/v1/permissions/u/a%2Fb", ""},
		{"DELETE", "/api/v1/vhosts/%2F", ""},
		{"DELETE", "/api/v1/users/plain", ""},
	} {
		if w := ask(h, "root", step[0], step[1], step[2]); w.Code != 204 {
			t.Fatalf("%v: status %d: %s", step, w.Code, w.Body)
		}
	}
	if !slices.Equal(f.vhosts, []string{"a/b"}) {
		t.Errorf("virtual hosts %q", f.vhosts)
	}
	if want := (catalog.Permission{User: "u", VHost: "/", Configure: "c", Write: "w", Read: "r"}); len(f.perms) != 1 || f.perms[0] != want {
		t.Errorf("permissions %+v", f.perms)
	}
	if w := ask(h, "root", "GET", "/api/v1/users", ""); strings.Contains(w.Body.String(), "never shown") {
		t.Errorf("a hash is shown: %s", w.Body)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	f := newFake()
	h := handlerOf(f)
	if w := ask(h, "", "GET", "/readyz", ""); w.Code != 200 {
		t.Errorf("ready: %d", w.Code)
	}
	f.ready = errors.New("3 partitions recover")
	if w := ask(h, "", "GET", "/readyz", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "3 partitions recover") {
		t.Errorf("not ready: %d %s", w.Code, w.Body)
	}
	if w := ask(h, "", "GET", "/livez", ""); w.Code != 200 {
		t.Errorf("alive: %d", w.Code)
	}
	text, err := io.ReadAll(ask(h, "", "GET", "/metrics", "").Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"tanist_storage_syncs_total 7", "tanist_messages_published_total 11", "tanist_publishers_blocked 1", "tanist_storage_healthy 1",
		`tanist_partitions{state="serving"} 2`, `tanist_partitions{state="waiting"} 0`, "tanist_storage_group_seconds_sum 0.1",
		"tanist_storage_group_seconds_count 7", "tanist_ready 0",
		`tanist_owner_changes_total{cause="no heartbeat",workflow="failover"} 3`, `tanist_suspicions_total{symptom="no heartbeat"} 2`,
		`tanist_owner_change_phase_seconds_bucket{phase="seal",le="0.0025"} 0`, `tanist_owner_change_phase_seconds_bucket{phase="seal",le="0.005"} 1`,
		`tanist_owner_change_phase_seconds_count{phase="confirm"} 0`, "tanist_unavailable_seconds_total 0.5", "tanist_cut_entries_total 6", "tanist_lost_entries_total 8",
		"tanist_learners 8", `tanist_followers_lost{node="b"} 1`, `tanist_followers_held{node="b"} 1`, `tanist_followers_to_replace{node="c"} 2`,
		`tanist_follower_lag_entries{node="c"} 4`, "tanist_suspicions_cleared_total 1", "# HELP tanist_messages_unknown_total",
		"process_cpu_seconds_total ", "go_memstats_heap_alloc_bytes ", "go_sched_gomaxprocs_threads ",
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("metrics lack %q", line)
		}
	}
	if wrong, err := promlint.New(bytes.NewReader(text)).Lint(); err != nil || len(wrong) > 0 { // what promtool check metrics says
		t.Errorf("metrics that Prometheus objects to: %v, %v", wrong, err)
	}
}

// TestMetricsDocumented holds the table of metrics in docs/OPERATIONS.md against the metrics. It prints the table if that is wrong.
func TestMetricsDocumented(t *testing.T) {
	document, err := os.ReadFile("../../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	text := ask(handlerOf(newFake()), "", "GET", "/metrics", "").Body.String()
	var table strings.Builder
	table.WriteString("| metric | kind | meaning |\n|---|---|---|\n")
	for line := range strings.Lines(text) {
		if help, ok := strings.CutPrefix(line, "# HELP tanist_"); ok {
			name, help, _ := strings.Cut(strings.TrimSpace(help), " ")
			_, kind, _ := strings.Cut(text, "# TYPE tanist_"+name+" ")
			kind, _, _ = strings.Cut(kind, "\n")
			table.WriteString("| `tanist_" + name + "` | " + kind + " | " + help + " |\n")
		}
	}
	if !strings.Contains(string(document), table.String()) {
		t.Errorf("docs/OPERATIONS.md lacks this table:\n%s", table.String())
	}
}

func TestTransitionsAreAskedFor(t *testing.T) {
	h := handlerOf(newFake())
	for _, c := range []struct {
		path   string
		status int
		ids    []string
	}{
		{"/api/v1/transitions", 200, []string{"q", "s"}},
		{"/api/v1/transitions?n=1", 200, []string{"q"}},
		{"/api/v1/transitions?resource=s&vhost=/", 200, []string{"s"}},
		{"/api/v1/transitions?vhost=v", 200, []string{}},
		{"/api/v1/transitions?n=0", 422, nil},
		{"/api/v1/transitions?n=4097", 422, nil},
		{"/api/v1/transitions?n=x", 422, nil},
		{"/api/v1/transitions/none", 404, nil},
	} {
		w := ask(h, "watch", "GET", c.path, "")
		if w.Code != c.status {
			t.Errorf("%s: status %d, want %d: %s", c.path, w.Code, c.status, w.Body)
		}
		if c.status != 200 {
			continue
		}
		var got []*evidence.Evidence
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		ids := []string{}
		for _, e := range got {
			ids = append(ids, e.ID)
		}
		if !slices.Equal(ids, c.ids) {
			t.Errorf("%s: %q, want %q", c.path, ids, c.ids)
		}
	}
	for _, path := range []string{"/api/v1/transitions/3%2F0@2", "/api/v1/transitions/3/0@2"} {
		if w := ask(h, "watch", "GET", path, ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"id": "3/0@2"`) {
			t.Errorf("%s: status %d: %s", path, w.Code, w.Body)
		}
	}
	if w := ask(h, "watch", "GET", "/api/v1/attention", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"conditions": []`) {
		t.Errorf("nothing needs attention: status %d: %s", w.Code, w.Body)
	}
}

func TestChecksSayYesOrNo(t *testing.T) {
	h := handlerOf(newFake())
	for path, want := range map[string]string{
		"/api/v1/checks/healthy":              `{"ok":true,"node":"a","obstacles":[],"total":0,"in_memory":0}`,
		"/api/v1/checks/quorum-critical/b":    `{"ok":false,"node":"a","obstacles":[{"subject":"b","what":"it is needed","next":""}],"total":1,"in_memory":0}`,
		"/api/v1/checks/quorum-critical/none": `{"error":{"code":"not_found","message":"no node 'none'","retry":false}}`,
	} {
		var got bytes.Buffer
		if err := json.Compact(&got, ask(h, "watch", "GET", path, "").Body.Bytes()); err != nil || got.String() != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", path, err, got.String(), want)
		}
	}
}
