// Package passwords hashes and verifies users' passwords with argon2id. Hashing is slow and takes memory on purpose, so it runs on
// a few loops of its own, and verdicts are remembered by a keyed digest for a while: clients that open many connections do not pay
// for each. Passwords never leave this package, in no log and no error. Who may do what once known is core/authz's business.
package passwords

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/crypto/argon2"
)

// The parameters of new hashes: OWASP's second choice for argon2id. One takes 19 MiB and some 20 ms of one core. Hashes carry
// their own parameters, so that these may be raised at any time.
const (
	memoryKiB  = 19 << 10
	iterations = 2
	lanes      = 1
	saltSize   = 16
	keySize    = 32
)

// Bounds of the parameters that a hash from elsewhere may carry: what is beyond would let one login stop a node.
const (
	maxMemoryKiB  = 1 << 20
	maxIterations = 64
	maxLanes      = 64
)

// ErrHash is returned when a text is not an argon2id hash, or one whose parameters are out of bounds. A retry is of no use.
var ErrHash = errors.New("passwords: not an argon2id hash with parameters in bounds")

// Hash makes a hash of a password in the usual text form, $argon2id$v=19$m=…,t=…,p=…$salt$key, with a salt read from random; nil
// means the system's. The only error is that of reading the salt.
func Hash(password string, random io.Reader) (string, error) {
	if random == nil {
		random = rand.Reader
	}
	salt := make([]byte, saltSize)
	if _, err := io.ReadFull(random, salt); err != nil {
		return "", fmt.Errorf("passwords: reading a salt: %w", err)
	}
	h := parsed{memory: memoryKiB, time: iterations, lanes: lanes, salt: salt}
	h.key = h.derive(password, keySize)
	return h.text(), nil
}

// nobodys makes a hash that no password is known for: its key is drawn, not derived, which takes no time. A check against it takes as long
// as one against a hash of Hash's.
func nobodys(random io.Reader) (string, error) {
	h := parsed{memory: memoryKiB, time: iterations, lanes: lanes, salt: make([]byte, saltSize), key: make([]byte, keySize)}
	for _, p := range [][]byte{h.salt, h.key} {
		if _, err := io.ReadFull(random, p); err != nil {
			return "", fmt.Errorf("passwords: reading a key: %w", err)
		}
	}
	return h.text(), nil
}

func (h *parsed) text() string {
	enc := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.time, h.lanes,
		enc.EncodeToString(h.salt), enc.EncodeToString(h.key))
}

// Check reports whether a password matches a hash. It takes as long as the hash's parameters say, and compares in constant time. It
// returns ErrHash for a text that is no hash.
func Check(hash, password string) (bool, error) {
	h, err := parse(hash)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(h.derive(password, uint32(len(h.key))), h.key) == 1, nil
}

type parsed struct {
	memory, time uint32
	lanes        uint8
	salt, key    []byte
}

func (h *parsed) derive(password string, size uint32) []byte {
	return argon2.IDKey([]byte(password), h.salt, h.time, h.memory, h.lanes, size)
}

func parse(text string) (*parsed, error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return nil, ErrHash
	}
	var h parsed
	var p uint32
	if n, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.time, &p); err != nil || n != 3 {
		return nil, ErrHash
	}
	if h.memory < 8*p || h.memory > maxMemoryKiB || h.time < 1 || h.time > maxIterations || p < 1 || p > maxLanes {
		return nil, ErrHash
	}
	h.lanes = uint8(p)
	var err error
	if h.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil || len(h.salt) < 8 || len(h.salt) > 64 {
		return nil, ErrHash
	}
	if h.key, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil || len(h.key) < 16 || len(h.key) > 64 {
		return nil, ErrHash
	}
	return &h, nil
}

// digest names a verdict by user, hash and password, under a key that lives as long as the process: the cache gives no password away.
func digest(key []byte, user, hash, password string) [sha256.Size]byte {
	m := hmac.New(sha256.New, key)
	for _, s := range []string{user, hash, password} {
		fmt.Fprintf(m, "%d:", len(s))
		io.WriteString(m, s)
	}
	var d [sha256.Size]byte
	m.Sum(d[:0])
	return d
}
