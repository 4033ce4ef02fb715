package authz

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// Token lets one node join a cluster, once. It carries how to know the cluster (the SHA-256 of its authority's certificate) and a secret
// that the cluster knows only the hash of. Its text is
//
//	tanist1.FINGERPRINT.ID.SECRET
//
// with the fingerprint and the secret in unpadded base64url and the id in hexadecimal. The text is a secret; String leaves it out.
type Token struct {
	Fingerprint [sha256.Size]byte
	ID          string
	Secret      [32]byte
}

const (
	tokenPrefix = "tanist1"
	tokenID     = 8 // bytes
)

// ErrToken is returned for a text that is no join token. It does not repeat the text.
var ErrToken = errors.New("not a join token: it has the form tanist1.FINGERPRINT.ID.SECRET")

// NewToken makes a token for the authority with the fingerprint, out of random bytes.
func NewToken(fingerprint [sha256.Size]byte, random [40]byte) Token {
	t := Token{Fingerprint: fingerprint, ID: hex.EncodeToString(random[:tokenID])}
	copy(t.Secret[:], random[tokenID:])
	return t
}

// ParseToken reads what Text wrote. It fails with ErrToken.
func ParseToken(text string) (Token, error) {
	var t Token
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(parts) != 4 || parts[0] != tokenPrefix {
		return t, ErrToken
	}
	if id, err := hex.DecodeString(parts[2]); err != nil || len(id) != tokenID || hex.EncodeToString(id) != parts[2] {
		return t, ErrToken
	}
	t.ID = parts[2]
	if !decodeExactly(t.Fingerprint[:], parts[1]) || !decodeExactly(t.Secret[:], parts[3]) {
		return Token{}, ErrToken
	}
	return t, nil
}

func decodeExactly(to []byte, text string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && copy(to, b) == len(to) && len(b) == len(to)
}

// Text is the token as a person carries it.
func (t Token) Text() string {
	e := base64.RawURLEncoding
	return strings.Join([]string{tokenPrefix, e.EncodeToString(t.Fingerprint[:]), t.ID, e.EncodeToString(t.Secret[:])}, ".")
}

// String names the token without its secret.
func (t Token) String() string { return "join token " + t.ID }

// Hash is what the cluster keeps of the secret.
func (t Token) Hash() [sha256.Size]byte { return HashSecret(t.Secret[:]) }

// HashSecret is the hash of a token's secret.
func HashSecret(secret []byte) [sha256.Size]byte { return sha256.Sum256(secret) }

// SameHash compares hashes in a time that does not depend on them.
func SameHash(a, b [sha256.Size]byte) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }
