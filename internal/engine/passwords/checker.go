package passwords

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
)

// workers bounds the hashes that are computed at the same time, and with it their memory: 2 × 19 MiB.
const workers = 2

// maxWaiting bounds the checks that wait for a worker; of what comes beyond it is not known whether it is right, and a client may try again.
const maxWaiting = 1024

// Only right verdicts are kept. A wrong password takes its full time whenever it is tried, as a user who does not exist does: else
// the second try would tell one from the other.
const (
	keepRight = 10 * time.Minute
	maxKept   = 10_000
)

// Checker verifies passwords on loops of its own. Its methods may be called from any goroutine.
type Checker struct {
	clock clock.Clock
	key   []byte
	dummy string
	boxes []exec.Mailbox

	mu      sync.Mutex
	waiting int
	next    int
	kept    map[[sha256.Size]byte]time.Duration // right until then
	order   [][sha256.Size]byte                 // of kept, oldest first
}

// New makes a checker. random gives the cache's key; nil means the system's.
func New(x exec.Executor, c clock.Clock, random io.Reader) (*Checker, error) {
	if random == nil {
		random = rand.Reader
	}
	k := &Checker{clock: c, key: make([]byte, sha256.Size), kept: map[[sha256.Size]byte]time.Duration{}}
	if _, err := io.ReadFull(random, k.key); err != nil {
		return nil, fmt.Errorf("passwords: reading a key: %w", err)
	}
	// To be checked where there is no user: a wrong name must take as long as a wrong password.
	var err error
	if k.dummy, err = nobodys(random); err != nil {
		return nil, err
	}
	for i := range workers {
		name := fmt.Sprintf("password-%d", i)
		k.boxes = append(k.boxes, x.Dedicated(name).Spawn(name, worker{k}))
	}
	return k, nil
}

// check is one password to be verified.
type check struct {
	digest   [sha256.Size]byte
	hash     string
	password string
	nobody   bool // there is no such user
	done     func(right bool, err *broker.Error)
}

// Verify says whether a password is the user's. done is called once: before Verify returns if the verdict is known, otherwise on a
// loop of the checker's. A nil user is never right. An error, broker.Unavailable, says that too many wait to be checked: then nothing is known
// of the password, and the same request may succeed later.
func (k *Checker) Verify(user *catalog.User, password string, done func(right bool, err *broker.Error)) {
	c := check{password: password, done: done, hash: k.dummy, nobody: true}
	name := ""
	if user != nil {
		name, c.hash, c.nobody = user.Name, user.Hash, false
	}
	c.digest = digest(k.key, name, c.hash, password)
	known, box := k.admit(&c)
	switch {
	case known:
		done(true, nil)
	case box == nil:
		done(false, broker.Errorf(broker.Unavailable, "too many logins wait to be checked; try again in a moment"))
	default:
		box.Post(c)
	}
}

// admit looks a verdict up, or gives the worker that will find it; nil if too many wait.
func (k *Checker) admit(c *check) (known bool, box exec.Mailbox) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keeps(c.digest) {
		return true, nil
	}
	if k.waiting >= maxWaiting {
		return false, nil
	}
	k.waiting++
	k.next = (k.next + 1) % len(k.boxes)
	return false, k.boxes[k.next]
}

// keeps reports whether a verdict is known. The lock is held.
func (k *Checker) keeps(d [sha256.Size]byte) bool {
	until, ok := k.kept[d]
	return ok && k.clock.Mono() < until
}

type worker struct{ k *Checker }

// Receive implements exec.Actor.
func (w worker) Receive(msg any) {
	if c, ok := msg.(check); ok {
		w.k.run(c)
	}
}

// Flush implements exec.Actor.
func (w worker) Flush() {}

// run finds the verdict. It may have been found while the check waited: when a node comes up, or another is lost, all clients of an
// application log in at once, with one name.
func (k *Checker) run(c check) {
	k.mu.Lock()
	right := k.keeps(c.digest)
	k.mu.Unlock()
	if !right {
		matches, err := Check(c.hash, c.password)
		right = matches && err == nil && !c.nobody // what is stored and is no hash matches nothing
	}
	k.remember(c.digest, right)
	c.done(right, nil)
}

func (k *Checker) remember(d [sha256.Size]byte, right bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting--
	if !right {
		return
	}
	if _, ok := k.kept[d]; !ok {
		k.order = append(k.order, d)
	}
	k.kept[d] = k.clock.Mono() + keepRight
	for len(k.order) > maxKept {
		delete(k.kept, k.order[0])
		k.order = k.order[1:]
	}
}
