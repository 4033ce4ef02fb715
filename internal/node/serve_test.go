package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/config"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/stream"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/amqp"
	"github.com/tanist/tanist/internal/node/identity"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/vfs"
)

func settings(t *testing.T, flags map[string]string) *config.Config {
	t.Helper()
	all := map[string]string{"data": t.TempDir(), "amqp": "127.0.0.1:0", "admin": "127.0.0.1:0", "disk.file": "1MiB", "disk.low": "0", "disk.high": "0"}
	for k, v := range flags {
		all[k] = v
	}
	cfg, _, err := config.Load(config.Input{Flags: all})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestServeUntilItIsTold(t *testing.T) {
	cfg := settings(t, nil)
	for boot := uint64(1); boot <= 2; boot++ {
		ctx, cancel := context.WithCancel(t.Context())
		up, ended := make(chan Addresses, 1), make(chan error, 1)
		go func() { ended <- Serve(ctx, cfg, ServeOptions{Listening: func(a Addresses) { up <- a }}) }()
		var a Addresses
		select {
		case a = <-up:
		case err := <-ended:
			t.Fatal(err)
		}
		if a.Boot != boot || a.AMQP == "" || a.Admin == "" || a.AMQPS != "" {
			t.Errorf("%+v", a)
		}
		resp, err := http.Get("http://" + a.Admin + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("readyz: %s", resp.Status)
		}
		conn, err := net.Dial("tcp", a.AMQP)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if _, err := net.Dial("tcp", a.AMQP); err == nil {
			t.Error("it listens after its end")
		}
	}
}

func TestServeTouchesNothingWhereAnAddressIsTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cfg := settings(t, map[string]string{"admin": ln.Addr().String()})
	err = Serve(t.Context(), cfg, ServeOptions{})
	if err == nil || !strings.Contains(err.Error(), "--admin") {
		t.Fatalf("the error is %v; want one that names the setting", err)
	}
	if names, err := vfs.OS().List(cfg.Data); err != nil || len(names) != 0 {
		t.Errorf("the data directory holds %v, %v", names, err)
	}
}

// A store belongs to the name that it was made under: a start under another one fails, and leaves the directory to who comes next.
func TestServeLeavesNothingOpenWhereTheStartFails(t *testing.T) {
	cfg := settings(t, nil)
	run := func(name string) error {
		cfg.Name = name
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return Serve(ctx, cfg, ServeOptions{Listening: func(Addresses) { cancel() }})
	}
	must(t, run("one"))
	if err := run("two"); !errors.Is(err, identity.ErrUnusable) || !strings.Contains(err.Error(), "--name one") {
		t.Fatalf("under another name: %v", err)
	}
	must(t, run("one"))
}

// newBackend runs a node on real loops, without fronts.
func newBackend(t *testing.T) *backend {
	t.Helper()
	x := exec.New(2)
	n, err := New(Env{Clock: clock.System(), Exec: x, FS: vfs.OS(), Random: exec.NewSimRandom(1, "node")}, Config{
		Name: "one", Dir: t.TempDir(), AMQP: "a:1", Admin: "b:2", Storage: storage.Options{FileSize: 1 << 20, LowWater: 1, HighWater: 1},
		GuestHash: func() (string, error) { return cheap, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	n.Start(func(err error) { started <- err })
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopped := make(chan error, 1)
		n.Stop(func(err error) { stopped <- err })
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		x.Stop()
	})
	front := amqp.New(amqp.Env{Executor: x, BrokerFor: n.Broker, Clock: clock.System()})
	b := &backend{n: n, front: front}
	b.open.Store(true)
	return b
}

func wantCode(t *testing.T, what string, err error, code broker.Code) {
	t.Helper()
	var e *broker.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: %v; want an error of code %d", what, err, code)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Before the catalog is there nobody's password is wrong.
func TestNobodyIsRefusedForTheWantOfACatalog(t *testing.T) {
	b := &backend{n: &Node{view: catalog.NewView()}}
	_, err := b.Authenticate(t.Context(), "guest", "guest", true)
	wantCode(t, "guest", err, broker.Unavailable)
	if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "no catalog yet") {
		t.Errorf("ready: %v", err)
	}
}

func TestUsersAndRights(t *testing.T) {
	b, ctx := newBackend(t), t.Context()
	if roles, err := b.Authenticate(ctx, "guest", "guest", true); err != nil || len(roles) != 1 {
		t.Errorf("guest: %v, %v", roles, err)
	}
	_, err := b.Authenticate(ctx, "guest", "guest", false)
	wantCode(t, "guest from elsewhere", err, broker.AuthFailed)
	_, err = b.Authenticate(ctx, "nobody", "guest", true)
	wantCode(t, "an unknown user", err, broker.AuthFailed)

	password, roles := "secret", []string{"monitoring"}
	wantCode(t, "a new user without a password", b.PutUser(ctx, admin.UserUpdate{Name: "eve", Roles: &roles}), broker.Precondition)
	must(t, b.PutUser(ctx, admin.UserUpdate{Name: "eve", Password: &password}))
	must(t, b.PutUser(ctx, admin.UserUpdate{Name: "eve", Roles: &roles})) // the password stays
	if got, err := b.Authenticate(ctx, "eve", password, false); err != nil || len(got) != 1 || got[0] != "monitoring" {
		t.Errorf("eve: %v, %v", got, err)
	}
	users, err := b.Users(ctx)
	must(t, err)
	text, err := json.Marshal(users)
	must(t, err)
	if len(users) != 2 || strings.Contains(string(text), "argon2") {
		t.Errorf("users: %s", text)
	}

	wantCode(t, "the only administrator", b.DeleteUser(ctx, "guest"), broker.Precondition)
	wantCode(t, "the only administrator's role", b.PutUser(ctx, admin.UserUpdate{Name: "guest", Roles: &roles}), broker.Precondition)
	must(t, b.PutVHost(ctx, "shop"))
	bad := catalog.Permission{User: "eve", VHost: "shop", Configure: "(", Write: ".*", Read: ".*"}
	wantCode(t, "a pattern that is none", b.PutPermission(ctx, bad), broker.Precondition)
	good := catalog.Permission{User: "eve", VHost: "shop", Configure: "^$", Write: ".*", Read: ".*"}
	must(t, b.PutPermission(ctx, good))
	good.VHost = "nowhere"
	wantCode(t, "an unknown virtual host", b.PutPermission(ctx, good), broker.NotFound)
	must(t, b.DeletePermission(ctx, "eve", "shop"))
	must(t, b.DeleteVHost(ctx, "shop"))
	must(t, b.DeleteUser(ctx, "eve"))
	wantCode(t, "a user that is gone", b.DeleteUser(ctx, "eve"), broker.NotFound)
	_, err = b.Authenticate(ctx, "eve", password, true)
	wantCode(t, "who was deleted", err, broker.AuthFailed)
}

// While some change a user's roles all the time, another changes the password: it stays changed.
func TestNobodyUndoesAnothersChangeOfAUser(t *testing.T) {
	b, ctx := newBackend(t), t.Context()
	password := "first"
	must(t, b.PutUser(ctx, admin.UserUpdate{Name: "eve", Password: &password}))
	const others = 3
	stop, ended := make(chan struct{}), make(chan error, others)
	for w := range others {
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					ended <- nil
					return
				default:
				}
				roles := []string{fmt.Sprintf("role %d of %d", i, w)}
				if err := b.PutUser(ctx, admin.UserUpdate{Name: "eve", Roles: &roles}); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	for i := range 5 {
		password = fmt.Sprint("password ", i)
		must(t, b.PutUser(ctx, admin.UserUpdate{Name: "eve", Password: &password}))
	}
	close(stop)
	for range others {
		must(t, <-ended)
	}
	if roles, err := b.Authenticate(ctx, "eve", password, true); err != nil || len(roles) != 1 {
		t.Errorf("after all changes: roles %v, %v", roles, err)
	}
}

func TestWhatOperatorsSee(t *testing.T) {
	b, ctx := newBackend(t), t.Context()
	must(t, b.propose(ctx, catalog.DeclareResource(catalog.Resource{
		VHost: "/", Name: "river", Kind: catalog.Stream, Durable: true, Policy: "majority_durable", Stream: &stream.Settings{},
	}, b.n.Local(), nil, 1)))
	o, err := b.Overview(ctx)
	for deadline := time.Now().Add(10 * time.Second); err == nil && !o.Ready && time.Now().Before(deadline); { // the first epoch begins
		o, err = b.Overview(ctx)
	}
	must(t, err)
	if !o.Ready || o.Resources != 1 || o.Partitions != 1 || o.Node != "one" || o.Controller != "one" {
		t.Errorf("overview: %+v", o)
	}
	ps, err := b.Partitions(ctx)
	must(t, err)
	if len(ps) != 1 || ps[0].Resource != "river" || ps[0].E != 1 || ps[0].W != 1 || ps[0].R != 1 || ps[0].Owner != "one" ||
		len(ps[0].Copies) != 1 || ps[0].Followers == nil || ps[0].Learners == nil {
		t.Errorf("partitions: %+v", ps)
	}
	nodes, err := b.Nodes(ctx)
	must(t, err)
	if len(nodes) != 1 || nodes[0].AMQP != "a:1" || nodes[0].Admin != "b:2" || !nodes[0].Live || nodes[0].Health != "ok" {
		t.Errorf("nodes: %+v", nodes)
	}
	rs, err := b.Resources(ctx)
	must(t, err)
	if len(rs) != 1 || rs[0].Kind != "stream" {
		t.Errorf("resources: %+v", rs)
	}
	if m := b.Metrics(); m.Storage.Syncs == 0 || m.Catalog.Applied == 0 || !m.Catalog.Leader || m.Gateway.Blocked {
		t.Errorf("metrics: %+v", m)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := await(ended, func(func(int)) {}); err == nil {
		t.Error("it waits for ever")
	}
}

// TestFrontAddresses: who asks a node where others are is told an address that leads there.
func TestFrontAddresses(t *testing.T) {
	for _, c := range []struct{ plain, secure, says, want string }{
		{"", "", "", ""},
		{"[::]:15672", "", "", "one.example:15672"},
		{"[::]:15672", "[::]:15671", "", "one.example:15672"},
		{"127.0.0.1:15672", "[::]:15671", "", "https://one.example:15671"},
		{"127.0.0.1:15672", "127.0.0.1:15671", "", "127.0.0.1:15672"},
		{"", "127.0.0.1:15671", "", "https://127.0.0.1:15671"},
		{"", "[::]:15671", "lb.example", "https://lb.example:15671"},
		{"127.0.0.1:15672", "", "lb.example:80", "lb.example:80"},
	} {
		if got := frontAddress(c.plain, c.secure, "https://", c.says, "one.example"); got != c.want {
			t.Errorf("plain %q, TLS %q, told to say %q: %q, want %q", c.plain, c.secure, c.says, got, c.want)
		}
	}
}
