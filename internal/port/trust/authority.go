package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/url"
	"time"
)

// Lives of certificates.
const (
	AuthorityLife = 10 * 365 * 24 * time.Hour
	NodeLife      = 90 * 24 * time.Hour
	// backdate is how far a clock may be behind the one of the node that signed.
	backdate = time.Hour
)

// Authority signs the certificates of one cluster's nodes. It is safe for concurrent use.
type Authority struct {
	cluster ClusterID
	cert    *x509.Certificate
	key     crypto.Signer
}

// NewAuthority makes a cluster's authority, with an ECDSA key on P-256. random gives the serial number; the key is made by the runtime's
// own generator.
func NewAuthority(random io.Reader, cluster ClusterID, now time.Time) (*Authority, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial(random)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Tanist cluster " + hex.EncodeToString(cluster[:])},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(AuthorityLife), IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	return LoadAuthority(cluster, der, key)
}

// LoadAuthority takes a certificate in DER and its key. It fails where they do not belong together or may not sign.
func LoadAuthority(cluster ClusterID, der []byte, key crypto.Signer) (*Authority, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	if !cert.IsCA {
		return nil, errors.New("authority: the certificate may not sign others")
	}
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(cert.PublicKey) {
		return nil, errors.New("authority: the key is not that of the certificate")
	}
	return &Authority{cluster: cluster, cert: cert, key: key}, nil
}

// Certificate is the authority's certificate in DER.
func (a *Authority) Certificate() []byte { return a.cert.Raw }

// Fingerprint is what a join token carries to know the authority by.
func (a *Authority) Fingerprint() [sha256.Size]byte { return sha256.Sum256(a.cert.Raw) }

// Issue signs a node's certificate for the key of a request (PKCS #10, DER). Nothing but the key is taken from the request. It fails where
// the request is not signed by its key or the key is of a kind that nodes do not use.
func (a *Authority) Issue(random io.Reader, node string, request []byte, now time.Time) ([]byte, error) {
	csr, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	switch k := csr.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P224() {
			return nil, errors.New("certificate request: the key's curve P-224 is too weak")
		}
	default:
		return nil, fmt.Errorf("certificate request: a key of kind %T; nodes use ECDSA or Ed25519", k)
	}
	id := Identity{a.cluster, node}
	if back, err := IdentityOf(&x509.Certificate{URIs: []*url.URL{id.URI()}}); err != nil || back != id {
		return nil, fmt.Errorf("certificate request: node name %q cannot stand in a certificate", node)
	}
	serial, err := newSerial(random)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: node}, DNSNames: []string{node}, URIs: []*url.URL{id.URI()},
		NotBefore: now.Add(-backdate), NotAfter: earlier(now.Add(NodeLife), a.cert.NotAfter), BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, csr.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("node certificate: %w", err)
	}
	return der, nil
}

// NewKey makes a private key for a node: ECDSA on P-256.
func NewKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	return key, nil
}

// NewRequest asks for a certificate for a key (PKCS #10, DER).
func NewRequest(node string, key crypto.Signer) ([]byte, error) {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: node}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	return der, nil
}

func newSerial(random io.Reader) (*big.Int, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return nil, fmt.Errorf("serial number: %w", err)
	}
	b[0] &= 0x7f // a serial number is positive
	b[0] |= 0x40 // and has a length of its own
	return new(big.Int).SetBytes(b[:]), nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
