package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"testing"
	"time"
)

var (
	cluster = ClusterID{0xab, 1}
	now     = time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)
)

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func issued(t *testing.T, a *Authority, node string) *Material {
	t.Helper()
	key := must(NewKey())(t)
	leaf := must(a.Issue(rand.Reader, node, must(NewRequest("whatever", key))(t), now))(t)
	return must(NewMaterial([][]byte{leaf}, key, [][]byte{a.Certificate()}))(t)
}

func TestIssueAndVerify(t *testing.T) {
	a := must(NewAuthority(rand.Reader, cluster, now))(t)
	m := issued(t, a, "b")
	chain := must(m.Chain())(t)
	if got := chain[0].URIs[0].String(); got != "tanist://ab010000000000000000000000000000/node/b" {
		t.Errorf("URI %s", got)
	}
	if len(chain[0].DNSNames) != 1 || chain[0].DNSNames[0] != "b" || chain[0].Subject.CommonName != "b" {
		t.Errorf("names %v, %v: taken from the request?", chain[0].DNSNames, chain[0].Subject)
	}
	if d := m.Expires().Sub(now); d != NodeLife {
		t.Errorf("lives %v", d)
	}
	if at := m.RenewAt(); at.Sub(now) < 59*24*time.Hour || at.Sub(now) > 60*24*time.Hour {
		t.Errorf("renewed at %v", at)
	}
	for _, c := range []struct {
		name  string
		chain []*x509.Certificate
		of    ClusterID
		at    time.Time
		want  error
	}{
		{"good", chain, cluster, now, nil},
		{"until its end", chain, cluster, m.Expires(), nil},
		{"from a clock an hour behind", chain, cluster, now.Add(-time.Hour), nil},
		{"none", nil, cluster, now, ErrNone},
		{"expired", chain, cluster, m.Expires().Add(time.Second), ErrExpired},
		{"early", chain, cluster, now.Add(-2 * time.Hour), ErrEarly},
		{"of another cluster", chain, ClusterID{1}, now, ErrCluster},
		{"authority's own", []*x509.Certificate{a.cert}, cluster, now, ErrIdentity},
		{"stranger's", must(issued(t, must(NewAuthority(rand.Reader, cluster, now))(t), "b").Chain())(t), cluster, now, ErrStranger},
	} {
		node, err := m.Verify(c.chain, c.of, c.at)
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || node != "b") {
			t.Errorf("%s: %q, %v", c.name, node, err)
		}
	}
	if m.Fingerprint() != a.Fingerprint() || a.Fingerprint() != sha256.Sum256(a.Certificate()) {
		t.Error("the node presents another authority than its own")
	}
}

// An operator's certificate may name no cluster; its authority binds it then. One that serves one direction only does not do.
func TestOperatorsCertificates(t *testing.T) {
	a := must(NewAuthority(rand.Reader, cluster, now))(t)
	make := func(uri string, uses ...x509.ExtKeyUsage) *Material {
		key := must(NewKey())(t)
		u := must(url.Parse(uri))(t)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), URIs: []*url.URL{u}, NotBefore: now, NotAfter: now.Add(time.Hour), ExtKeyUsage: uses,
		}
		der := must(x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key))(t)
		return must(NewMaterial([][]byte{der}, key, [][]byte{a.Certificate()}))(t)
	}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for _, c := range []struct {
		uri  string
		uses []x509.ExtKeyUsage
		want error
	}{
		{"tanist:///node/b", both, nil},
		{"tanist://ab010000000000000000000000000000/node/b", both, nil},
		{"tanist:///node/b", both[:1], ErrUnfit},
		{"tanist:///node/b", both[1:], ErrUnfit},
		{"tanist:///node/", both, ErrIdentity},
		{"tanist:///node/a/b", both, ErrIdentity},
		{"tanist:///b", both, ErrIdentity},
		{"tanist://ab/node/b", both, ErrIdentity},
		{"tanist://xx010000000000000000000000000000/node/b", both, ErrIdentity},
		{"https:///node/b", both, ErrIdentity},
	} {
		m := make(c.uri, c.uses...)
		node, err := m.Verify(must(m.Chain())(t), cluster, now)
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || node != "b") {
			t.Errorf("%s %v: %q, %v", c.uri, c.uses, node, err)
		}
	}
}

func TestIssueRefuses(t *testing.T) {
	a := must(NewAuthority(rand.Reader, cluster, now))(t)
	key := must(NewKey())(t)
	good := must(NewRequest("b", key))(t)
	for _, name := range []string{"", "a/b"} {
		if _, err := a.Issue(rand.Reader, name, good, now); err == nil {
			t.Errorf("name %q", name)
		}
	}
	bad := bytes.Clone(good)
	bad[len(bad)-1]++
	if _, err := a.Issue(rand.Reader, "b", bad, now); err == nil {
		t.Error("a request with a broken signature")
	}
	old := must(rsa.GenerateKey(rand.Reader, 2048))(t)
	if _, err := a.Issue(rand.Reader, "b", must(NewRequest("b", old))(t), now); err == nil {
		t.Error("an RSA key")
	}
	weak := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))(t)
	if _, err := a.Issue(rand.Reader, "b", must(NewRequest("b", weak))(t), now); err == nil {
		t.Error("a P-224 key")
	}
	if _, err := a.Issue(bytes.NewReader(nil), "b", good, now); err == nil {
		t.Error("no randomness")
	}
	end := a.cert.NotAfter
	leaf := must(x509.ParseCertificate(must(a.Issue(rand.Reader, "b", good, end.Add(-time.Hour)))(t)))(t)
	if !leaf.NotAfter.Equal(end) {
		t.Errorf("outlives its authority: %v", leaf.NotAfter)
	}
}

func TestPEM(t *testing.T) {
	a := must(NewAuthority(rand.Reader, cluster, now))(t)
	m := issued(t, a, "b")
	text := must(m.Encode())(t)
	back := must(Decode(text))(t)
	if !bytes.Equal(must(back.Encode())(t), text) || back.Describe() != m.Describe() {
		t.Error("another material")
	}
	for i := range text {
		if text[i] == '\n' {
			if got, err := Decode(text[:i]); err == nil && len(got.Authorities) == 0 {
				t.Fatalf("%d bytes of %d read as material without authority", i, len(text))
			}
		}
	}
	cert, key, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	other := must(NewAuthority(rand.Reader, cluster, now))(t)
	first, _, _ := other.Encode()
	again := must(DecodeAuthority(cluster, first+cert, key))(t)
	if again.Fingerprint() != a.Fingerprint() {
		t.Error("another authority")
	}
	if _, err := DecodeAuthority(cluster, first, key); err == nil {
		t.Error("a key of another authority")
	}
	leaf := string(EncodeCertificates(m.Certificate.Certificate[0]))
	leafKey := must(EncodeKey(m.Certificate.PrivateKey))(t)
	if _, err := DecodeAuthority(cluster, leaf, string(leafKey)); err == nil {
		t.Error("a node's certificate as authority")
	}
	if _, err := NewMaterial(m.Certificate.Certificate, must(NewKey())(t), [][]byte{a.Certificate()}); err == nil {
		t.Error("another's key")
	}
}
