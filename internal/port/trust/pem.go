package trust

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	typeCertificate = "CERTIFICATE"
	typeKey         = "PRIVATE KEY"
)

// Encode is the material as one PEM text: the node's certificate and what leads to the authority, then the private key, then the
// authorities. It is a secret.
func (m *Material) Encode() ([]byte, error) {
	key, err := EncodeKey(m.Certificate.PrivateKey)
	if err != nil {
		return nil, err
	}
	out := EncodeCertificates(m.Certificate.Certificate...)
	out = append(out, key...)
	for _, a := range m.Authorities {
		out = append(out, EncodeCertificates(a.Raw)...)
	}
	return out, nil
}

// Decode reads what Encode wrote.
func Decode(text []byte) (*Material, error) {
	before, after, found := bytes.Cut(text, []byte("-----BEGIN "+typeKey))
	if !found {
		return nil, errors.New("node certificate: there is no private key in the file")
	}
	rest := text[len(before):]
	block, tail := pem.Decode(rest)
	if block == nil {
		return nil, fmt.Errorf("node certificate: the private key of %d bytes is no PEM", len(after))
	}
	return FromPEM(before, rest[:len(rest)-len(tail)], tail)
}

// FromPEM makes material of PEM texts: the node's certificate first of its chain, its key, and the authorities. It fails as NewMaterial
// does.
func FromPEM(chain, key, authorities []byte) (*Material, error) {
	signer, err := DecodeKey(key)
	if err != nil {
		return nil, err
	}
	ders, err := DecodeCertificates(chain)
	if err != nil {
		return nil, err
	}
	roots, err := DecodeCertificates(authorities)
	if err != nil {
		return nil, err
	}
	return NewMaterial(ders, signer, roots)
}

// EncodeCertificates writes certificates in DER as PEM.
func EncodeCertificates(ders ...[]byte) []byte {
	var out []byte
	for _, der := range ders {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Bytes: der})...)
	}
	return out
}

// DecodeCertificates reads the certificates of a PEM text, each in DER. It fails where there is none.
func DecodeCertificates(text []byte) ([][]byte, error) {
	var out [][]byte
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == typeCertificate {
			out = append(out, block.Bytes)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in PEM form")
	}
	return out, nil
}

// EncodeKey writes a private key as PEM, in PKCS #8. It is a secret.
func EncodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: typeKey, Bytes: der}), nil
}

// DecodeKey reads a private key of a PEM text, in PKCS #8 or as older tools write it.
func DecodeKey(text []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case typeKey:
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("private key: %w", err)
		}
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
		return nil, fmt.Errorf("private key: one of kind %T cannot sign", key)
	}
	return nil, errors.New("no private key in PEM form")
}

// Encode is the authority as the catalog keeps it: its certificate and its private key, in PEM. The key is a secret.
func (a *Authority) Encode() (certificate, key string, err error) {
	k, err := EncodeKey(a.key)
	return string(EncodeCertificates(a.cert.Raw)), string(k), err
}

// DecodeAuthority reads what Encode wrote. Of several certificates it takes the one that the key belongs to.
func DecodeAuthority(cluster ClusterID, certificate, key string) (*Authority, error) {
	signer, err := DecodeKey([]byte(key))
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	ders, err := DecodeCertificates([]byte(certificate))
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	for _, der := range ders {
		var a *Authority
		if a, err = LoadAuthority(cluster, der, signer); err == nil {
			return a, nil
		}
	}
	return nil, err
}
