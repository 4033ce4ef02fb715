package passwords

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/port/exec"
)

func TestHashAndCheck(t *testing.T) {
	h, err := Hash("correct horse", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(h, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatalf("hash %q", h)
	}
	for password, want := range map[string]bool{"correct horse": true, "correct horsf": false, "": false} {
		got, err := Check(h, password)
		if err != nil || got != want {
			t.Errorf("Check(%q) = %v, %v; want %v", password, got, err, want)
		}
	}
	other, _ := Hash("correct horse", nil)
	if other == h {
		t.Error("two hashes of one password are alike: no salt")
	}
}

func TestSaltComesFromRandom(t *testing.T) {
	a, _ := Hash("x", bytes.NewReader(make([]byte, 16)))
	b, _ := Hash("x", bytes.NewReader(make([]byte, 16)))
	if a != b {
		t.Error("the same randomness gave different hashes")
	}
	if _, err := Hash("x", bytes.NewReader(make([]byte, 3))); err == nil {
		t.Error("a short read of the salt went unnoticed")
	}
}

func TestWhatIsNoHash(t *testing.T) {
	for _, h := range []string{
		"", "secret", "$2b$12$abcdefghijklmnopqrstuv", "$argon2i$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$a2V5a2V5a2V5a2V5a2V5",
		"$argon2id$v=19$m=99999999,t=1,p=1$c2FsdHNhbHQ$a2V5a2V5a2V5a2V5a2V5", "$argon2id$v=19$m=64,t=0,p=1$c2FsdHNhbHQ$a2V5a2V5a2V5a2V5a2V5",
		"$argon2id$v=19$m=64,t=1,p=0$c2FsdHNhbHQ$a2V5a2V5a2V5a2V5a2V5", "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$",
	} {
		if ok, err := Check(h, "secret"); ok || !errors.Is(err, ErrHash) {
			t.Errorf("Check of %q = %v, %v; want ErrHash", h, ok, err)
		}
	}
}

// manual is a clock that a test moves.
type manual struct {
	mu  sync.Mutex
	now time.Duration
}

func (m *manual) Wall() time.Time { return time.Unix(0, 0).Add(m.Mono()) }
func (m *manual) Mono() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *manual) add(d time.Duration) {
	m.mu.Lock()
	m.now += d
	m.mu.Unlock()
}

func verify(k *Checker, u *catalog.User, password string) (right, atOnce bool) {
	got := make(chan bool, 1)
	k.Verify(u, password, func(ok bool, _ *broker.Error) { got <- ok })
	select {
	case right = <-got:
		return right, true
	default:
		return <-got, false
	}
}

func TestVerdictsAreKeptForAWhile(t *testing.T) {
	x := exec.New(1)
	defer x.Stop()
	now := &manual{}
	k, err := New(x, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	hash, _ := Hash("secret", nil)
	u := &catalog.User{Name: "ann", Hash: hash}
	if right, _ := verify(k, u, "secret"); !right {
		t.Fatal("the right password was refused")
	}
	if right, atOnce := verify(k, u, "secret"); !right || !atOnce {
		t.Errorf("the second time: right %v, at once %v", right, atOnce)
	}
	if right, _ := verify(k, u, "wrong"); right {
		t.Error("a wrong password was taken")
	}
	if right, _ := verify(k, &catalog.User{Name: "bob", Hash: "not a hash"}, "secret"); right {
		t.Error("a password was taken for a user without a hash")
	}
	changed, _ := Hash("other", nil)
	if right, _ := verify(k, &catalog.User{Name: "ann", Hash: changed}, "secret"); right {
		t.Error("an old password was taken from the cache after the hash had changed")
	}
	if _, atOnce := verify(k, u, "wrong"); atOnce {
		t.Error("a wrong password was remembered: that tells users who exist from those who do not")
	}
	now.add(keepRight)
	if right, atOnce := verify(k, u, "secret"); !right || atOnce {
		t.Errorf("after its time: right %v, at once %v; want right, and checked again", right, atOnce)
	}
}

func TestNobodyTakesAsLongAsSomebody(t *testing.T) {
	x := exec.New(1)
	defer x.Stop()
	k, err := New(x, &manual{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if right, atOnce := verify(k, nil, "secret"); right || atOnce {
			t.Errorf("an unknown user: right %v, at once %v; want neither", right, atOnce)
		}
	}
}

func TestChecksThatWaitAreBounded(t *testing.T) {
	x := exec.New(1)
	defer x.Stop()
	k, err := New(x, &manual{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	k.waiting = maxWaiting
	told := false
	k.Verify(nil, "secret", func(right bool, err *broker.Error) {
		told = true
		if right || err == nil || !err.Retryable() {
			t.Errorf("beyond the bound: right %v, %v; want that it is not known, and may be asked again", right, err)
		}
	})
	if !told {
		t.Error("beyond the bound nothing was said at once")
	}
}

// Thousands of clients with one name and password come at once after a node was lost. One of them is checked, or as many as there are
// workers; a hash for each would take the machine for seconds.
func TestWhatOthersLearntMeanwhileIsNotLearntAgain(t *testing.T) {
	x := exec.New(1)
	defer x.Stop()
	k, err := New(x, &manual{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := check{hash: "no hash: checked again it would not match", digest: digest(k.key, "ann", "h", "secret")}
	c.done = func(right bool, err *broker.Error) {
		if !right || err != nil {
			t.Errorf("right %v, %v", right, err)
		}
	}
	k.remember(c.digest, true)
	k.run(c)
}
