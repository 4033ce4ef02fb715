package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	rand2 "math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// says waits until a node's log has a line with all of the given words.
func (b *broker) says(words ...string) {
	b.t.Helper()
	b.await(fmt.Sprintf("%q in the log of %s", words, b.name), func() error { return b.said(words...) })
}

func (b *broker) said(words ...string) error {
	for line := range strings.Lines(b.log.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return nil
		}
	}
	return fmt.Errorf("no line with %q", words)
}

// TestTokens shows that a token which does not let a node in is refused with a clear line on both sides (issue 3, "Proof").
func TestTokens(t *testing.T) {
	c := newCluster(t, 1)
	first := c.nodes[0]
	// refused starts a node that is to be refused, and gives what it says.
	refused := func(name, token string, words ...string) {
		t.Helper()
		b := c.member(name)
		b.env = []string{"TANIST_JOIN_TOKEN=" + token}
		b.launch()
		if code := b.exit(); code == 0 {
			t.Errorf("%s was let in", name)
		}
		if err := b.said(words...); err != nil {
			t.Errorf("%s ends with %v:\n%s", name, err, b.log)
		}
		first.says(append([]string{"mesh.denied", "127.0.0.1", name}, words...)...)
		if strings.Contains(b.log.String()+first.log.String(), token) {
			t.Error("the token is in a log")
		}
	}
	used := c.token()
	b := c.member("second")
	b.env = []string{"TANIST_JOIN_TOKEN=" + used}
	b.start()
	refused("replays", used, "was used already")
	refused("impostor", c.token("--node", "honest"), "was made for another node than")
	refused("second", c.token(), "is taken by another node")

	short := c.token("--ttl", "1s")
	made := time.Now()
	first.await("the token to expire", func() error {
		if left := time.Second - time.Since(made); left > 0 {
			return fmt.Errorf("it lasts for another %v", left)
		}
		return nil
	})
	refused("late", short, "has expired")

	// A secret that was changed: the last characters of a token are of its secret.
	text := c.token()
	end := byte('A')
	if text[len(text)-3] == end {
		end = 'B'
	}
	refused("guesses", text[:len(text)-3]+string(end)+text[len(text)-2:], "join token")

	// A token of another cluster names another authority: its secret is not even said.
	other := newCluster(t, 1)
	foreign := c.member("foreign")
	foreign.env = []string{"TANIST_JOIN_TOKEN=" + other.token()}
	foreign.launch()
	if code := foreign.exit(); code == 0 {
		t.Error("a token of another cluster let a node in")
	}
	if err := foreign.said("the node is not of the cluster that the token was made in"); err != nil {
		t.Errorf("%v:\n%s", err, foreign.log)
	}
	first.says("mesh.denied", "did not accept this node's certificate")
}

// TestForeignCluster lets a member of one cluster find a node of another at the address of its peer: neither takes the other in, and both
// say why.
func TestForeignCluster(t *testing.T) {
	c := newCluster(t, 2)
	gone, left := c.nodes[0], c.nodes[1]
	gone.kill()
	stranger := newBroker(t, "--mesh", gone.mesh(), "--disk-file", "8MiB")
	stranger.name = gone.name
	stranger.start()
	left.says("mesh.denied", gone.name, "the certificate belongs to another cluster")
	stranger.says("mesh.denied", "did not accept this node's certificate")
	if err := stranger.said("mesh.up"); err == nil {
		t.Fatal("nodes of two clusters have a session")
	}
}

// authority is what signs nodes' certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a stranger"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

// identity is what the file of a node's identity says, as far as it matters here.
type identity struct {
	Cluster   string
	Authority struct{ Certificate, Key string }
}

func (b *broker) identity() (id identity, a authority) {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, "identity", "node.json"))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &id); err != nil {
		b.t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(id.Authority.Certificate))
	key, _ := pem.Decode([]byte(id.Authority.Key))
	if block == nil || key == nil {
		b.t.Fatal("the identity of the first node holds no authority")
	}
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		b.t.Fatal(err)
	}
	private, err := x509.ParsePKCS8PrivateKey(key.Bytes)
	if err != nil {
		b.t.Fatal(err)
	}
	a.key = private.(*ecdsa.PrivateKey)
	return id, a
}

// certify makes certificate files of a node and gives the flags that name them.
func (a authority) certify(t *testing.T, cluster, node string, until time.Time) []string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: node}, NotBefore: until.Add(-3 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs: []*url.URL{{Scheme: "tanist", Host: cluster, Path: "/node/" + node}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var flags []string
	for flag, block := range map[string]*pem.Block{
		"--mesh-cert": {Type: "CERTIFICATE", Bytes: der}, "--mesh-key": {Type: "PRIVATE KEY", Bytes: private},
		"--mesh-ca": {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		path := filepath.Join(dir, flag+".pem")
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, flag, path)
	}
	return flags
}

// TestCertificates restarts a member with certificates that are not the cluster's: none gives it a session, and both sides say why.
func TestCertificates(t *testing.T) {
	c := newCluster(t, 2)
	first, member := c.nodes[0], c.nodes[1]
	id, own := first.identity()
	args := member.args
	// refused starts the member, which runs and comes to nothing.
	refused := func(why string, flags []string) {
		t.Helper()
		member.args = append(args[:len(args):len(args)], flags...)
		first.log, member.log = &tail{}, &tail{}
		first.start()
		member.launch()
		first.says("mesh.denied", why, member.name)
		member.says("mesh.denied", first.name)
		first.kill()
		member.kill()
		if first.said("mesh.up") == nil || member.said("mesh.up") == nil {
			t.Errorf("a session, though %q", why)
		}
	}
	c.killAll()
	refused("was not signed by an authority of this cluster", newAuthority(t).certify(t, id.Cluster, member.name, time.Now().Add(time.Hour)))
	refused("has expired", own.certify(t, id.Cluster, member.name, time.Now().Add(-time.Minute)))

	// With one that is not its own it does not even start.
	for why, flags := range map[string][]string{
		"belongs to another cluster": own.certify(t, strings.Repeat("09", 16), member.name, time.Now().Add(time.Hour)),
		"is another node's":          own.certify(t, id.Cluster, "someone", time.Now().Add(time.Hour)),
	} {
		member.args = append(args[:len(args):len(args)], flags...)
		member.launch()
		if code := member.exit(); code == 0 || member.said(why) != nil {
			t.Errorf("it ends with code %d; want it to say that the certificate %s:\n%s", code, why, member.log)
		}
	}

	member.args = args
	c.startAll()
	c.whole()
}

// TestNoQuorum kills two nodes of three: what would change the catalog fails with a clear text in bounded time, a queue whose policy needs
// no other copy is served on while its lease runs, and everything goes on when the nodes are back.
func TestNoQuorum(t *testing.T) {
	c := newCluster(t, 3, "--confirm-timeout", "3s")
	ch := c.nodes[0].channel()
	c.own(ch, "n1", "alone", amqp.Table{"x-policy": "local_durable"})
	c.own(ch, "n1", "together", nil)
	publishConfirmed(t, ch, "together", "before")
	for _, b := range c.nodes[1:] {
		_ = b.cmd.Process.Kill()
	}
	for _, b := range c.nodes[1:] {
		b.kill()
	}
	publishConfirmed(t, ch, "alone", "meanwhile") // its lease runs
	if d, ok, err := ch.Get("alone", true); err != nil || !ok || string(d.Body) != "meanwhile" {
		t.Errorf("got %q, %t, %v", d.Body, ok, err)
	}
	withoutQuorum(t, c.nodes[0])
	publishInVain(t, ch, "together", 0)
	for _, b := range c.nodes[1:] {
		b.start()
	}
	c.whole()
	for i, b := range c.nodes {
		ch := b.channel()
		if _, err := ch.QueueDeclare(fmt.Sprint("after", i), true, false, false, false, nil); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
		publishConfirmed(t, ch, "together", "after")
	}
	for i, want := range []string{"before", "after", "after", "after"} {
		d, ok, err := ch.Get("together", true)
		if i == 1 && err == nil && string(d.Body) == "in vain" { // what was not confirmed may be there
			d, ok, err = ch.Get("together", true)
		}
		if err != nil || !ok || string(d.Body) != want {
			t.Errorf("got %q, %t, %v, want %q", d.Body, ok, err, want)
		}
	}
}

// noQuorumBound is how long what needs a quorum may take to fail.
const noQuorumBound = 20 * time.Second

// withoutQuorum asks a node that is alone for changes of the catalog, all at once.
func withoutQuorum(t *testing.T, b *broker) {
	t.Helper()
	var all sync.WaitGroup
	for what, try := range map[string]func(*amqp.Channel) error{
		"declaring a queue": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("another", true, false, false, false, nil)
			return err
		},
		"declaring an exchange": func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("another", "topic", true, false, false, false, nil)
		},
		"binding": func(ch *amqp.Channel) error { return ch.QueueBind("alone", "k", "amq.direct", false, nil) },
		"deleting": func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("alone", false, false, false)
			return err
		},
	} {
		own := b.channel()
		all.Go(func() {
			began := time.Now()
			err := try(own)
			took := time.Since(began)
			if err == nil || took > noQuorumBound || !strings.Contains(err.Error(), "the catalog has no quorum") {
				t.Errorf("%s without a quorum ends after %v with %v", what, took, err)
			}
			t.Logf("%s ends after %v: %v", what, took.Round(time.Millisecond), err)
		})
	}
	all.Wait()
}

// TestReplaced loses a node with its disk under load, and has another take its place: no publish fails, no epoch changes, and the new
// copies end identical to the others.
func TestReplaced(t *testing.T) {
	rng := rand2.New(rand2.NewPCG(seed(t), 6))
	c := newCluster(t, 3)
	r := newRig(t, c.nodes...)
	declareAll(r, "n1")
	before := r.owners("created")
	load := startLoad(r, rng)
	pause(500 * time.Millisecond)
	const node = 2
	lost := c.nodes[node]
	r.crash(node)
	if err := os.RemoveAll(lost.dir); err != nil {
		t.Fatal(err)
	}
	lost.env = []string{"TANIST_JOIN_TOKEN=" + c.make("node", "replace", lost.name)}
	lost.start()
	lost.env = nil
	c.whole()
	c.up().await("copies of everything on the new store", func() error {
		by, err := c.up().partitions()
		for _, name := range everything {
			if p := by[name]; err == nil && (len(p.Followers) != 2 || len(p.Learners) > 0) {
				err = fmt.Errorf("%s is followed by %v, learners %v", name, p.Followers, p.Learners)
			}
		}
		return err
	})
	c.back(lost)
	r.verdict()
	r.unharmed()
	r.sameEpochs(before, r.conclude(load, ""))
}
