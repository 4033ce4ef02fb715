// Package certs is the port through which fronts get their TLS certificates, and the mesh too where an operator brings them: PEM files
// that are looked at again while the node runs, so that a renewed certificate is taken up without a restart. It decides nothing about
// who may connect.
package certs

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/trust"
)

// interval is how long a look at the files counts. A handshake looks at most this often.
const interval = time.Second

// Files are a certificate, its key and the authorities that clients' certificates must come from. Safe for concurrent use.
type Files struct {
	cert, key, ca string
	clock         clock.Clock
	report        func(error)

	mu     sync.Mutex
	looked time.Duration // when the files were last looked at
	stamps [3]stamp
	loaded loaded
}

// loaded is what was read of the files.
type loaded struct {
	config   *tls.Config
	material *trust.Material // nil without a file of authorities
}

// stamp tells one content of a file from another.
type stamp struct {
	changed time.Time
	size    int64
}

// ErrNoAuthority is returned when the file of authorities holds no certificate.
var ErrNoAuthority = errors.New("no certificate in PEM form")

// Open reads the files; ca may be empty. report is told once for each change of the files that could not be taken up: the certificate
// before it stays in use. It may be called from any goroutine.
func Open(cert, key, ca string, c clock.Clock, report func(error)) (*Files, error) {
	f := &Files{cert: cert, key: key, ca: ca, clock: c, report: report, looked: c.Mono()}
	stamps, err := f.look()
	if err != nil {
		return nil, err
	}
	f.stamps = stamps
	if f.loaded, err = f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// Config is a configuration for servers that uses the files as they are at each handshake.
func (f *Files) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.current().config, nil },
		// Not used, since GetConfigForClient comes first; servers want to see that there is a certificate.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &f.current().config.Certificates[0], nil },
	}
}

// Material is what a node proves itself to other nodes with, as the files are now: an operator's own certificates in place of those that
// a cluster's authority signs. The file of authorities says whom to trust. It is nil if Open was given none.
func (f *Files) Material() *trust.Material { return f.current().material }

func (f *Files) current() loaded {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Mono()
	if now-f.looked < interval {
		return f.loaded
	}
	f.looked = now
	stamps, err := f.look()
	if err == nil && stamps == f.stamps {
		return f.loaded
	}
	changed := err == nil
	if err == nil {
		var fresh loaded
		if fresh, err = f.load(); err == nil {
			f.loaded = fresh
		}
	}
	// A file that is gone for the moment of its renaming is looked at again, and not reported.
	if changed {
		f.stamps = stamps
		if err != nil {
			f.report(err)
		}
	}
	return f.loaded
}

func (f *Files) look() (out [3]stamp, err error) {
	for i, path := range []string{f.cert, f.key, f.ca} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return out, fmt.Errorf("TLS file: %w", err)
		}
		out[i] = stamp{info.ModTime(), info.Size()}
	}
	return out, nil
}

func (f *Files) load() (loaded, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return loaded{}, fmt.Errorf("TLS certificate %s with key %s: %w", f.cert, f.key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if f.ca == "" {
		return loaded{config: c}, nil
	}
	text, err := os.ReadFile(f.ca)
	if err != nil {
		return loaded{}, fmt.Errorf("TLS authorities: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return loaded{}, fmt.Errorf("TLS authorities %s: %w", f.ca, ErrNoAuthority)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	authorities, err := trust.DecodeCertificates(text)
	if err != nil {
		return loaded{}, fmt.Errorf("TLS authorities %s: %w", f.ca, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return loaded{}, fmt.Errorf("TLS key %s: one of kind %T cannot sign", f.key, pair.PrivateKey)
	}
	m, err := trust.NewMaterial(pair.Certificate, signer, authorities)
	if err != nil {
		return loaded{}, fmt.Errorf("TLS certificate %s: %w", f.cert, err)
	}
	return loaded{c, m}, nil
}
