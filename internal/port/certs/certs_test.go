package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// manual is a clock that a test moves.
type manual struct{ now atomic.Int64 }

func (m *manual) Wall() time.Time     { return time.Unix(0, m.now.Load()) }
func (m *manual) Mono() time.Duration { return time.Duration(m.now.Load()) }

func writePair(t *testing.T, dir string, serial int64) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Unix(1<<33, 0), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "cert.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), serial)
	put(t, filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), serial)
}

// put writes a file with a time of change of its own, since two writes may fall into one tick of the file system's clock.
func put(t *testing.T, path string, text []byte, tick int64) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_000_000+tick, 0)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func serial(t *testing.T, c *tls.Config) int64 {
	t.Helper()
	got, err := c.GetConfigForClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(got.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf.SerialNumber.Int64()
}

func TestReload(t *testing.T) {
	dir, c := t.TempDir(), &manual{}
	writePair(t, dir, 1)
	var reports []error
	f, err := Open(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), "", c, func(err error) { reports = append(reports, err) })
	if err != nil {
		t.Fatal(err)
	}
	config := f.Config()
	writePair(t, dir, 2)
	if got := serial(t, config); got != 1 {
		t.Errorf("looked again within the interval: serial %d", got)
	}
	c.now.Add(int64(interval))
	if got := serial(t, config); got != 2 {
		t.Errorf("serial %d after a change, want 2", got)
	}
	put(t, filepath.Join(dir, "cert.pem"), []byte("rubbish"), 3)
	for range 3 {
		c.now.Add(int64(interval))
		if got := serial(t, config); got != 2 {
			t.Errorf("serial %d after rubbish, want 2 kept", got)
		}
	}
	if len(reports) != 1 {
		t.Errorf("reports %v, want one for one bad change", reports)
	}
	if err := os.Remove(filepath.Join(dir, "cert.pem")); err != nil {
		t.Fatal(err)
	}
	c.now.Add(int64(interval))
	if got := serial(t, config); got != 2 || len(reports) != 1 {
		t.Errorf("a missing file: serial %d, reports %v", got, reports)
	}
	writePair(t, dir, 4)
	c.now.Add(int64(interval))
	if got := serial(t, config); got != 4 {
		t.Errorf("serial %d after mending, want 4", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir, c := t.TempDir(), &manual{}
	writePair(t, dir, 1)
	cert, key, other := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "other")
	put(t, other, []byte("nothing"), 1)
	if _, err := Open(filepath.Join(dir, "none"), key, "", c, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Open(cert, cert, "", c, nil); err == nil {
		t.Error("a certificate was taken for a key")
	}
	if _, err := Open(cert, key, other, c, nil); !errors.Is(err, ErrNoAuthority) {
		t.Errorf("no authority: %v", err)
	}
	f, err := Open(cert, key, cert, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.current().config; got.ClientAuth != tls.RequireAndVerifyClientCert || got.ClientCAs == nil {
		t.Errorf("clients need no certificate: %+v", got)
	}
}

// The mesh takes up changed files as fronts do, and needs authorities.
func TestMaterial(t *testing.T) {
	dir, c := t.TempDir(), &manual{}
	writePair(t, dir, 1)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	f, err := Open(cert, key, cert, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := f.Material()
	if first == nil || first.Certificate.Leaf.SerialNumber.Int64() != 1 || len(first.Authorities) != 1 {
		t.Errorf("%+v", first)
	}
	writePair(t, dir, 2)
	c.now.Add(int64(interval))
	if got := f.Material().Certificate.Leaf.SerialNumber.Int64(); got != 2 {
		t.Errorf("serial %d after a change", got)
	}
	if f, err = Open(cert, key, "", c, nil); err != nil || f.Material() != nil {
		t.Errorf("material without authorities: %v", err)
	}
}
