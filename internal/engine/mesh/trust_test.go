package mesh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/trust"
)

// Certificates that are not accepted, whichever side has them and whichever dials: no session, and a line on both sides.
func TestRefusedCertificates(t *testing.T) {
	for _, c := range []struct {
		name string
		// bad makes the certificate of node, which is refused.
		bad  func(w *world, node string) (*trust.Material, ident.StoreID)
		want string // what the node that refuses says
	}{
		{"another cluster", func(w *world, node string) (*trust.Material, ident.StoreID) {
			other := ident.StoreID{9}
			a := must(trust.NewAuthority(rand.Reader, other, time.Now()))(w.t)
			return w.material(a, node, time.Now()), other
		}, "belongs to another cluster: it is that of node %q of cluster 09000000000000000000000000000000"},
		{"expired", func(w *world, node string) (*trust.Material, ident.StoreID) {
			return w.material(w.authority, node, time.Now().Add(-trust.NodeLife-time.Minute)), w.cluster
		}, "has expired: that of node %q of cluster"},
		{"not yet valid", func(w *world, node string) (*trust.Material, ident.StoreID) {
			return w.material(w.authority, node, time.Now().Add(2*time.Hour)), w.cluster
		}, "is not valid yet; one of the clocks is wrong: that of node %q"},
		{"a stranger's of the same names", func(w *world, node string) (*trust.Material, ident.StoreID) {
			a := must(trust.NewAuthority(rand.Reader, w.cluster, time.Now()))(w.t)
			return w.material(a, node, time.Now()), w.cluster
		}, "was not signed by an authority of this cluster: it says that it is that of node %q"},
	} {
		for _, dials := range []string{"bad", "good"} {
			for _, name := range []string{"a", "c"} {
				t.Run(fmt.Sprintf("%s/%s dials/%s", c.name, dials, name), func(t *testing.T) {
					bubble(t, func(t *testing.T, w *world) {
						m, cluster := c.bad(w, name)
						o := Options{Trust: trust.Hold(m), Cluster: cluster}
						var good, bad *node
						if dials == "bad" {
							good, bad = w.node("b", 1), w.nodeWith(o, name, 1, w.peers("b")...)
						} else {
							good, bad = w.node("b", 1, w.peers(name)...), w.nodeWith(o, name, 1)
						}
						defer stopAll(good, bad)
						settle(5 * time.Second)
						if good.count("up")+bad.count("up") != 0 {
							t.Errorf("a session: %v, %v", good.lines(), bad.lines())
						}
						dialler, other := bad, "b"
						if dials == "good" {
							dialler, other = good, name
						}
						if n := dialler.count("unreachable " + other + " denied"); n < 3 {
							t.Errorf("%v", dialler.lines())
						}
						if good.clue.find("WARN mesh.denied") == "" || bad.clue.find("WARN mesh.denied") == "" {
							t.Errorf("no line: %q, %q", good.clue.all, bad.clue.all)
						}
						want := strings.ReplaceAll(fmt.Sprintf(c.want, name), `\`, "")
						// Where both refuse each other, the one that dials comes first.
						if good.clue.find(want) == "" && (c.name == "expired" || c.name == "not yet valid" || dials == "good") {
							t.Errorf("%q is not said by the one who refuses: %q", want, good.clue.all)
						}
						if n := len(good.clue.all); n > 3 {
							t.Errorf("%d lines for one thing in 5 s: %q", n, good.clue.all)
						}
					})
				})
			}
		}
	}
}

// A node whose certificate is another member's is not taken for who it says it is.
func TestAnotherMembersCertificate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := w.peer("c")
		c.Address = "b:1" // where b listens
		a, b := w.node("a", 1, c), w.node("b", 1, w.peers("a")...)
		defer stopAll(a, b)
		settle(time.Second)
		if a.count("unreachable c denied") == 0 || a.clue.find(`the certificate is another node's: it is that of "b", at the address of "c"`) == "" {
			t.Errorf("%v, %v", a.lines(), a.clue.all)
		}
		if b.clue.find("did not accept this node's certificate", `that of node "b" of cluster 01020300`) == "" {
			t.Errorf("%v", b.clue.all)
		}
	})
}

func TestNewRefusesForeignCertificate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		o := Options{Listener: w.net.listen("x:1"), Cluster: w.cluster, Local: ident.Instance{Node: "x"}}
		if _, err := New(o); err == nil {
			t.Error("no trust")
		}
		o.Trust = trust.Hold(w.material(w.authority, "y", time.Now()))
		if _, err := New(o); !errors.Is(err, trust.ErrNode) {
			t.Errorf("another's certificate: %v", err)
		}
		o.Trust, o.Cluster = trust.Hold(w.material(w.authority, "x", time.Now())), ident.StoreID{7}
		if _, err := New(o); !errors.Is(err, trust.ErrCluster) {
			t.Errorf("another cluster's certificate: %v", err)
		}
	})
}

// registrar is a Registrar with tokens in a map.
type registrar struct {
	w      *world
	mu     sync.Mutex
	tokens map[string][32]byte
	asked  int
	fail   error
	peers  []Peer
}

func (r *registrar) Enrol(_ context.Context, q EnrolRequest) (EnrolAnswer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if hash, ok := r.tokens[q.TokenID]; !ok || !authz.SameHash(hash, q.TokenHash) {
		return EnrolAnswer{}, fmt.Errorf("token %s was used or never made: %w", q.TokenID, ErrRefused)
	}
	delete(r.tokens, q.TokenID)
	return r.sign(q.Node, q.CSR)
}

func (r *registrar) Renew(_ context.Context, q RenewRequest) (EnrolAnswer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.fail != nil {
		return EnrolAnswer{}, r.fail
	}
	return r.sign(q.Node, q.CSR)
}

func (r *registrar) sign(node string, csr []byte) (EnrolAnswer, error) {
	leaf, err := r.w.authority.Issue(rand.Reader, node, csr, time.Now())
	return EnrolAnswer{
		Cluster: r.w.cluster, Chain: [][]byte{leaf}, Authorities: [][]byte{r.w.authority.Certificate()}, Peers: r.peers,
		Generation: ident.Generation{Number: 3, Mark: 1 << 63},
	}, err
}

// count is how often it was asked.
func (r *registrar) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func (r *registrar) token(fingerprint [32]byte) authz.Token {
	var random [40]byte
	_, _ = rand.Read(random[:])
	t := authz.NewToken(fingerprint, random)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens[t.ID] = t.Hash()
	return t
}

func TestJoin(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := &registrar{w: w, tokens: map[string][32]byte{}, peers: w.peers("a")}
		w.registrar = r
		a := w.node("a", 1)
		defer stopAll(a)
		token := r.token(w.authority.Fingerprint())
		if got := a.opt.Trust.Material().Fingerprint(); got != token.Fingerprint {
			t.Errorf("the node presents %x", got)
		}
		b := w.peer("b")
		ask := Joining{Address: "a:1", Token: token, Node: "b", Store: b.Store, Mesh: b.Address, Dial: w.net.dialer("b:1")}
		joined, err := Join(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		if joined.Generation != (ident.Generation{Number: 3, Mark: 1 << 63}) {
			t.Errorf("it is to wait for generation %v", joined.Generation)
		}
		if joined.Cluster != w.cluster || len(joined.Peers) != 1 || joined.Peers[0] != w.peer("a") {
			t.Errorf("%+v", joined)
		}
		n := w.nodeWith(Options{Trust: trust.Hold(joined.Material)}, "b", 1, joined.Peers...)
		defer stopAll(n)
		a.SetPeers([]Peer{b})
		settle(2 * time.Second)
		wantUp(t, n, "a")

		// A token serves once, and a wrong secret never.
		if _, err := Join(t.Context(), ask); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "was used or never made") {
			t.Errorf("a used token: %v", err)
		}
		if a.clue.find("WARN mesh.denied", "was used or never made", `it says that it is "b"`) == "" {
			t.Errorf("a says nothing of it: %q", a.clue.all)
		}
		ask.Token = r.token(w.authority.Fingerprint())
		ask.Token.Secret[0]++
		if _, err := Join(t.Context(), ask); !errors.Is(err, ErrRefused) {
			t.Errorf("a wrong secret: %v", err)
		}

		// The secret is not said to whoever is not of the token's authority.
		asked := r.count()
		ask.Token = r.token([32]byte{1})
		if _, err := Join(t.Context(), ask); !errors.Is(err, ErrRefused) || !errors.Is(err, trust.ErrFingerprint) {
			t.Errorf("another authority: %v", err)
		}
		if r.count() != asked {
			t.Error("the registrar was asked")
		}
		synctest.Wait()
		if a.clue.find("did not accept this node's certificate") == "" {
			t.Errorf("a says nothing of it: %q", a.clue.all)
		}
		ask.Address = "nobody:1"
		if _, err := Join(t.Context(), ask); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("nobody there: %v", err)
		}
	})
}

// Certificates renew by themselves at two thirds of their life, through a peer where the node has no registrar of its own.
func TestRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := &registrar{w: w, fail: errors.New("no quorum")}
		w.limits.Silence = 24 * time.Hour // no more signs of life than the days of this test want
		var kept *trust.Material
		hold := trust.Hold(w.material(w.authority, "b", time.Now()))
		b := w.nodeWith(Options{Trust: hold, Renewed: func(m *trust.Material) error { kept = m; return nil }}, "b", 1, w.peers("a")...)
		w.registrar = r
		a := w.nodeWith(Options{Renewed: func(*trust.Material) error { return nil }}, "a", 1, w.peers("b")...)
		defer stopAll(a, b)
		first := b.Expires()
		settle(59 * 24 * time.Hour)
		if r.count() != 0 {
			t.Error("renewed too early")
		}
		settle(2 * 24 * time.Hour)
		if r.count() < 5 || b.Expires() != first || b.clue.find("WARN mesh.renewal.failed", "no quorum") == "" {
			t.Errorf("asked %d times while it fails: %q", r.count(), b.clue.all)
		}
		r.mu.Lock()
		r.fail = nil
		r.mu.Unlock()
		settle(2 * time.Hour)
		if !b.Expires().After(first) || kept != hold.Material() {
			t.Errorf("expires %v, first %v; kept %v", b.Expires(), first, kept != nil)
		}
		if b.count("down") != 0 {
			t.Errorf("the session ended: %v", b.lines())
		}
		// The new one is what a new connection is made with.
		settle(40 * 24 * time.Hour)
		w.net.reset("b:1")
		settle(time.Second)
		if b.count("up") != 2 {
			t.Errorf("%v %v", b.lines(), b.clue.all)
		}
	})
}

// A node that is not a member gets no certificate, though it has one.
func TestRenewalOfStranger(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := &registrar{w: w}
		hold := trust.Hold(w.material(w.authority, "b", time.Now().Add(-60*24*time.Hour))) // due
		b := w.nodeWith(Options{Trust: hold, Renewed: func(*trust.Material) error { return nil }}, "b", 1, w.peers("a")...)
		w.registrar = r
		a := w.node("a", 1)
		defer stopAll(a, b)
		settle(time.Minute)
		if r.count() != 0 || a.clue.find("mesh.denied", `node "b" is not a member`) == "" {
			t.Errorf("asked %d, %q", r.count(), a.clue.all)
		}
	})
}

// A store that has left the cluster is told so, and by nobody who does not know it; it is never taken for gone.
func TestARemovedStoreIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		gone := w.peer("b").Store
		a := w.nodeWith(Options{Removed: func(s ident.StoreID) bool { return s == gone }}, "a", 1)
		c := w.nodeWith(Options{Removed: func(ident.StoreID) bool { return false }}, "c", 1)
		b := w.node("b", 1, w.peers("a", "c")...)
		defer stopAll(a, b, c)
		settle(5 * time.Second)
		if a.count("up")+b.count("up")+c.count("up") != 0 {
			t.Errorf("a session: %v, %v, %v", a.lines(), b.lines(), c.lines())
		}
		if b.count("unreachable a removed") == 0 || b.count("unreachable c denied") == 0 || b.count("unreachable a denied")+b.count("unreachable c removed") != 0 {
			t.Errorf("it heard %v", b.lines())
		}
	})
}
