package node

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
	"github.com/tanist/tanist/internal/port/trust"
)

// operator is somebody with an authority of their own.
type operator struct {
	t *testing.T
	a *trust.Authority
}

// certify writes a certificate for a node and gives the settings that use it.
func (o operator) certify(node string) map[string]string {
	o.t.Helper()
	check := func(err error) {
		if err != nil {
			o.t.Fatal(err)
		}
	}
	key, err := trust.NewKey()
	check(err)
	request, err := trust.NewRequest(node, key)
	check(err)
	der, err := o.a.Issue(rand.Reader, node, request, time.Now())
	check(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)
	dir := o.t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return map[string]string{
		"mesh_cert": write("cert.pem", "CERTIFICATE", der), "mesh_key": write("key.pem", "PRIVATE KEY", secret),
		"mesh_ca": write("ca.pem", "CERTIFICATE", o.a.Certificate()),
	}
}

// run serves a node until the test ends, or gives its error.
func run(t *testing.T, flags ...map[string]string) (Addresses, error) {
	t.Helper()
	all := map[string]string{"mesh": "127.0.0.1:0"}
	for _, f := range flags {
		for k, v := range f {
			all[k] = v
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	up, ended := make(chan Addresses, 1), make(chan error, 1)
	go func() { ended <- Serve(ctx, settings(t, all), ServeOptions{Listening: func(a Addresses) { up <- a }}) }()
	select {
	case a := <-up:
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return a, nil
	case err := <-ended:
		cancel()
		return Addresses{}, err
	}
}

func token(t *testing.T, a Addresses) map[string]string {
	t.Helper()
	c, err := client.New("http://"+a.Admin, "guest", "guest", "")
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.JoinToken(t.Context(), admin.TokenRequest{TTL: "1h"})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"join": a.Mesh, "join_token": made.Token}
}

func TestAClusterWithCertificatesOfItsOperator(t *testing.T) {
	authority, err := trust.NewAuthority(rand.Reader, trust.ClusterID{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := operator{t, authority}
	first, err := run(t, o.certify("a"), map[string]string{"name": "a"})
	if err != nil {
		t.Fatal(err)
	}
	with := token(t, first)
	if _, err := run(t, map[string]string{"name": "b"}, with); err == nil || !strings.Contains(err.Error(), "mesh_cert") {
		t.Fatalf("without a certificate: %v", err)
	}
	if _, err := run(t, o.certify("b"), map[string]string{"name": "b"}, with); err != nil {
		t.Fatal(err)
	}
	// A cluster that signs its own takes nobody else's.
	signs, err := run(t, map[string]string{"name": "c"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, o.certify("d"), map[string]string{"name": "d"}, token(t, signs)); err == nil || !strings.Contains(err.Error(), "leave out mesh_cert") {
		t.Fatalf("with another's certificate: %v", err)
	}
}
