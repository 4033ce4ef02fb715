package trust

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Source gives the material of the moment. It is safe for concurrent use: *Holder and *Files are sources.
type Source interface{ Material() *Material }

// protocols is what is spoken over the connections.
var protocols = []string{"h2"}

// Server is the configuration of the mesh port: TLS 1.3, no resumption. It asks for a certificate and judges none: who listens does, with
// Verify, so that it can tell the other side what was wrong. A connection without an accepted certificate is good for enrolling only.
func Server(s Source) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols, SessionTicketsDisabled: true, ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Material().presented(), nil },
	}
}

// presented is the node's chain with the authority that signed it: one who joins knows it by its fingerprint.
func (m *Material) presented() *tls.Certificate {
	c := m.Certificate
	last, err := x509.ParseCertificate(c.Certificate[len(c.Certificate)-1])
	if err != nil {
		return &c
	}
	for _, a := range m.Authorities {
		if !last.Equal(a) && last.CheckSignatureFrom(a) == nil {
			c.Certificate = append(c.Certificate[:len(c.Certificate):len(c.Certificate)], a.Raw)
			break
		}
	}
	return &c
}

// Fingerprint is what a join token carries to know this node's cluster by: that of the authority which the node presents.
func (m *Material) Fingerprint() [sha256.Size]byte {
	chain := m.presented().Certificate
	return sha256.Sum256(chain[len(chain)-1])
}

// Client is the configuration for dialling a member. judge is given what it presented; its error ends the handshake.
func Client(s Source, judge func([]*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.Material().presented(), nil },
		// Host names are not what nodes are known by: judge checks the chain and the identity, on every connection.
		InsecureSkipVerify: true,
		VerifyConnection:   func(c tls.ConnectionState) error { return judge(c.PeerCertificates) },
	}
}

// Joining is the configuration for dialling a member without a certificate of one's own: the member must be of the authority whose
// certificate has the fingerprint.
func Joining(fingerprint [sha256.Size]byte, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols,
		InsecureSkipVerify: true, // the fingerprint stands for the host name and for the system's authorities
		VerifyConnection:   func(c tls.ConnectionState) error { return pinned(c.PeerCertificates, fingerprint, now()) },
	}
}

// ErrFingerprint is returned when the node that was dialled is not of the authority that the token names.
var ErrFingerprint = errors.New("the node is not of the cluster that the token was made in")

func pinned(chain []*x509.Certificate, fingerprint [sha256.Size]byte, now time.Time) error {
	if len(chain) == 0 {
		return ErrNone
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for _, c := range chain[1:] {
		if sha256.Sum256(c.Raw) == fingerprint {
			roots.AddCert(c)
			found = true
		} else {
			between.AddCert(c)
		}
	}
	if !found {
		return fmt.Errorf("%w: it presents no authority with the token's fingerprint", ErrFingerprint)
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if _, err := chain[0].Verify(options); err != nil {
		return fmt.Errorf("%w: %w", ErrFingerprint, err)
	}
	return nil
}
