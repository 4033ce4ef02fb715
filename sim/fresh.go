package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"os/exec"
	"runtime/debug"
	"strings"
	"time"
)

// Fresh gives the first seed to look for failures with, and says what it was made of. It is drawn from the commit under test: what passed
// once does not fail later by luck, and every commit tries seeds of its own. Where there is no commit, it is drawn from the clock.
func Fresh() (first uint64, from string) {
	if commit := underTest(); commit != "" {
		return seedOf(commit), "commit " + commit
	}
	now := time.Now().UTC().Format(time.RFC3339Nano)
	return seedOf(now), "the time " + now
}

// seedOf is below 2^48, so that it is easy to type.
func seedOf(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:]) >> 16
}

// underTest is the commit that this program was built of; empty if nobody knows.
func underTest() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && s.Value != "" {
				return s.Value
			}
		}
	}
	out, err := exec.Command("git", "rev-parse", "HEAD").Output() // programs of tests do not carry it
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
