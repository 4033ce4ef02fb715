// Package trust is the port through which nodes prove to each other who they are: an authority that signs, certificates bound to one
// cluster and one node name, and the judgement of a peer's. It is computation over bytes: it opens no file and no socket, and what time
// it is arrives as a value. Who may become a member, and where keys are kept, is decided elsewhere.
//
// A node is who its certificate says (design 6, "Security"): the certificate carries the URI tanist://CLUSTER/node/NAME, CLUSTER being
// the cluster's id in hexadecimal. Certificates that an operator brings may leave CLUSTER empty: then its authority alone binds them.
package trust

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// ClusterID is a cluster's id.
type ClusterID = [16]byte

// Why a certificate is not accepted. The errors that Verify returns wrap one of them and say more.
var (
	ErrNone     = errors.New("no certificate was presented")
	ErrIdentity = errors.New("the certificate names no node; it needs the URI tanist://CLUSTER/node/NAME")
	ErrCluster  = errors.New("the certificate belongs to another cluster")
	ErrStranger = errors.New("the certificate was not signed by an authority of this cluster")
	ErrExpired  = errors.New("the certificate has expired")
	ErrEarly    = errors.New("the certificate is not valid yet; one of the clocks is wrong")
	ErrNode     = errors.New("the certificate is another node's")
	ErrUnfit    = errors.New("the certificate does not serve for this")
)

// Identity is what a certificate says of its holder.
type Identity struct {
	Cluster ClusterID // zero: bound by its authority alone
	Node    string
}

// String names the node and the cluster.
func (i Identity) String() string {
	if i.Cluster == (ClusterID{}) {
		return fmt.Sprintf("node %q", i.Node)
	}
	return fmt.Sprintf("node %q of cluster %s", i.Node, hex.EncodeToString(i.Cluster[:]))
}

const scheme = "tanist"

// URI is the form of an identity in a certificate.
func (i Identity) URI() *url.URL {
	host := ""
	if i.Cluster != (ClusterID{}) {
		host = hex.EncodeToString(i.Cluster[:])
	}
	return &url.URL{Scheme: scheme, Host: host, Path: "/node/" + i.Node}
}

// IdentityOf reads a certificate's identity. It fails with ErrIdentity where there is none or more than one.
func IdentityOf(c *x509.Certificate) (Identity, error) {
	var found []Identity
	for _, u := range c.URIs {
		if u.Scheme != scheme {
			continue
		}
		node, ok := strings.CutPrefix(u.Path, "/node/")
		if !ok || node == "" || strings.Contains(node, "/") || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return Identity{}, fmt.Errorf("%w, not %s", ErrIdentity, u)
		}
		id := Identity{Node: node}
		if u.Host != "" {
			b, err := hex.DecodeString(u.Host)
			if err != nil || len(b) != len(id.Cluster) {
				return Identity{}, fmt.Errorf("%w, not %s", ErrIdentity, u)
			}
			id.Cluster = ClusterID(b)
		}
		found = append(found, id)
	}
	if len(found) != 1 {
		return Identity{}, ErrIdentity
	}
	return found[0], nil
}

// Material is what a node proves itself with and judges others by. It is not changed after it was made.
type Material struct {
	// Certificate is the node's own, with what leads to the authority, and its private key. Leaf is set.
	Certificate tls.Certificate
	// Authorities are whose certificates are accepted.
	Authorities []*x509.Certificate

	pool *x509.CertPool
}

// NewMaterial puts together a chain (the node's own certificate first), its key, and the authorities, all in DER. It fails where they do
// not parse, where the key is another certificate's, or where there is no authority.
func NewMaterial(chain [][]byte, key crypto.Signer, authorities [][]byte) (*Material, error) {
	if len(chain) == 0 {
		return nil, ErrNone
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, fmt.Errorf("node certificate: %w", err)
	}
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(leaf.PublicKey) {
		return nil, errors.New("node certificate: the key is not that of the certificate")
	}
	m := &Material{Certificate: tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, pool: x509.NewCertPool()}
	for _, der := range authorities {
		a, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("authority's certificate: %w", err)
		}
		m.Authorities = append(m.Authorities, a)
		m.pool.AddCert(a)
	}
	if len(m.Authorities) == 0 {
		return nil, errors.New("no authority's certificate")
	}
	return m, nil
}

// Chain is the node's own certificate and what leads to the authority.
func (m *Material) Chain() ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for _, der := range m.Certificate.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("node certificate: %w", err)
		}
		out = append(out, c)
	}
	return out, nil
}

// Identity is who the node is. It fails as IdentityOf does.
func (m *Material) Identity() (Identity, error) { return IdentityOf(m.Certificate.Leaf) }

// Expires is the first moment at which nobody accepts the certificate any more.
func (m *Material) Expires() time.Time { return m.Certificate.Leaf.NotAfter }

// RenewAt is when a new certificate should be asked for: after two thirds of its life, so that a third is left for trying.
func (m *Material) RenewAt() time.Time {
	l := m.Certificate.Leaf
	return l.NotBefore.Add(l.NotAfter.Sub(l.NotBefore) / 3 * 2)
}

// Describe says in one line whose certificate it is and until when.
func (m *Material) Describe() string {
	who := "no node"
	if id, err := m.Identity(); err == nil {
		who = id.String()
	}
	return who + ", valid until " + m.Expires().UTC().Format(time.RFC3339)
}

// Verify judges the chain that a peer presented at a time, and returns the node that it is. The error says what is wrong with it and wraps
// one of the package's errors.
func (m *Material) Verify(chain []*x509.Certificate, cluster ClusterID, now time.Time) (string, error) {
	if len(chain) == 0 {
		return "", ErrNone
	}
	id, err := IdentityOf(chain[0])
	if err != nil {
		return "", err
	}
	if id.Cluster != (ClusterID{}) && id.Cluster != cluster {
		return "", fmt.Errorf("%w: it is that of %v, this is cluster %s", ErrCluster, id, hex.EncodeToString(cluster[:]))
	}
	if now.After(chain[0].NotAfter) {
		return "", fmt.Errorf("%w: that of %v was valid until %s", ErrExpired, id, chain[0].NotAfter.UTC().Format(time.RFC3339))
	}
	if now.Before(chain[0].NotBefore) {
		return "", fmt.Errorf("%w: that of %v is valid from %s", ErrEarly, id, chain[0].NotBefore.UTC().Format(time.RFC3339))
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	// A certificate serves for both directions: a node dials and is dialled.
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		_, err = chain[0].Verify(x509.VerifyOptions{Roots: m.pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use}})
		var unknown x509.UnknownAuthorityError
		switch {
		case err == nil:
		case errors.As(err, &unknown):
			return "", fmt.Errorf("%w: it says that it is that of %v", ErrStranger, id)
		default:
			return "", fmt.Errorf("%w: that of %v: %w", ErrUnfit, id, err)
		}
	}
	return id.Node, nil
}
