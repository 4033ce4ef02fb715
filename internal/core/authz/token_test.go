package authz

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestToken(t *testing.T) {
	var random [40]byte
	for i := range random {
		random[i] = byte(i)
	}
	token := NewToken([32]byte{0xff, 1}, random)
	const want = "tanist1._wEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA.0001020304050607.CAkKCwwNDg8QERITFBUWFxgZGhscHR4fICEiIyQlJic"
	if got := token.Text(); got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	back, err := ParseToken(" " + want + "\n")
	if err != nil || back != token {
		t.Errorf("read back %v, %v", back, err)
	}
	if token.Hash() != sha256.Sum256(random[8:]) {
		t.Error("the hash is not that of the secret alone")
	}
	if s := fmt.Sprint(token); strings.Contains(s, "CAkK") || !strings.Contains(s, token.ID) {
		t.Errorf("printed as %q", s)
	}
	for _, bad := range []string{
		"", "tanist1", strings.Replace(want, "tanist1", "tanist2", 1), want + ".x", want[:len(want)-1], want + "A", "x" + want,
		strings.ToUpper(want), strings.Replace(want, "0001", "00g1", 1), strings.Replace(want, "0001", "01", 1), want[:len(want)-1] + "d",
	} {
		if _, err := ParseToken(bad); !errors.Is(err, ErrToken) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if other := [32]byte{}; SameHash(token.Hash(), other) || !SameHash(token.Hash(), token.Hash()) {
		t.Error("hashes are compared wrongly")
	}
}

func FuzzToken(f *testing.F) {
	f.Add(NewToken([32]byte{1}, [40]byte{2}).Text())
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s)
		if err == nil && token.Text() != strings.TrimSpace(s) {
			t.Errorf("%q reads as %q", s, token.Text())
		}
	})
}
