package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// writeCertificate writes a self-signed certificate for 127.0.0.1 with a serial number. Each file is replaced as a whole.
func writeCertificate(t *testing.T, dir string, serial int64) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return cert, key, pool
}

// TestTLS shows AMQP and the admin API over TLS, and that a changed certificate is taken up without a restart and without ending
// the connections that there are.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key, pool := writeCertificate(t, dir, 1)
	secure, secureAdmin := freePort(t), freePort(t)
	b := newBroker(t, "--amqps", secure, "--admins", secureAdmin, "--tls-cert", cert, "--tls-key", key)
	b.start()

	before, err := amqp.DialTLS("amqps://guest:guest@"+secure+"/", &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	resp, err := client.Get("https://" + secureAdmin + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	if c, err := amqp.DialTLS("amqps://guest:guest@"+secure+"/", &tls.Config{RootCAs: x509.NewCertPool()}); err == nil {
		_ = c.Close()
		t.Fatal("a client that trusts nobody was satisfied")
	}

	_, _, renewed := writeCertificate(t, dir, 2)
	for _, address := range []string{secure, secureAdmin} {
		b.await("the new certificate", func() error { return presents(address, renewed, 2) })
	}
	after, err := amqp.DialTLS("amqps://guest:guest@"+secure+"/", &tls.Config{RootCAs: renewed})
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	for _, c := range []*amqp.Connection{before, after} {
		ch, err := c.Channel()
		if err != nil {
			t.Fatal(err)
		}
		declare(t, ch, "q", nil)
		publishConfirmed(t, ch, "q", "over TLS")
	}
}

func presents(address string, pool *x509.CertPool, serial int64) error {
	c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool})
	if err != nil {
		return err
	}
	defer c.Close()
	if got := c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != serial {
		return fmt.Errorf("serial %d, want %d", got, serial)
	}
	return nil
}
