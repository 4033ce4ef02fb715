package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/check"
)

// loss is how a node is lost.
type loss string

const (
	killed loss = "killed"
	halted loss = "halted"
	sick   loss = "its disk failing"
)

// lost chooses a node: the controller's, or another one that owns something if there is one.
func (c *cluster) lost(controller bool, owns map[string]partition) (node int, what string) {
	leads := c.controller()
	node = leads
	if !controller {
		for _, p := range owns {
			if i := slices.Index(c.nodes, c.named(p.Owner)); i != leads {
				node = i
			}
		}
	}
	n := 0
	for _, p := range owns {
		if p.Owner == c.nodes[node].name {
			n++
		}
	}
	what = fmt.Sprintf("%s, owner of %d", c.nodes[node].name, n)
	if node == leads {
		what += " and controller"
	}
	return node, what
}

// strike loses nodes, all at once.
func (r *rig) strike(how loss, nodes ...int) {
	if how == killed {
		r.crash(nodes...)
		return
	}
	for _, node := range nodes {
		b := r.c.nodes[node]
		if how == halted {
			b.signal(syscall.SIGSTOP)
			continue
		}
		// From now on every write to a file fails, beyond the first 4 KiB of it.
		if out, err := exec.Command("prlimit", "--pid", fmt.Sprint(b.cmd.Process.Pid), "--fsize=4096").CombinedOutput(); err != nil {
			r.t.Fatalf("%v: %s", err, out)
		}
	}
	for _, node := range nodes {
		if how == halted {
			r.c.nodes[node].halt()
		}
	}
}

// recover brings it back.
func (r *rig) recover(node int, how loss) {
	b := r.c.nodes[node]
	switch how {
	case sick:
		r.crash(node)
		fallthrough
	case killed:
		b.start()
	case halted:
		b.goOn()
	}
}

func (b *broker) signal(s syscall.Signal) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(s); err != nil {
		b.t.Fatal(err)
	}
}

// halt stops the process until it is sent SIGCONT, and waits until none of its threads runs: the signal is one thread's at first, and the others go
// on until that one has its turn.
func (b *broker) halt() {
	b.t.Helper()
	b.signal(syscall.SIGSTOP)
	b.still = true
	b.await("its halt", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", b.cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("no threads of %s: %w", b.name, err)
		}
		for _, path := range threads {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if after := text[bytes.LastIndexByte(text, ')')+1:]; !bytes.HasPrefix(after, []byte(" T")) {
				return fmt.Errorf("%s is not halted: %s", path, after[:min(len(after), 3)])
			}
		}
		return nil
	})
}

// goOn ends a halt.
func (b *broker) goOn() {
	b.t.Helper()
	b.signal(syscall.SIGCONT)
	b.still = false
}

// TestOwnersAndControllersLost kills nodes, halts them for longer than anybody waits for them, and has their disks fail, under load through all
// three: owners, the controller, and both in one. Others take over what the node owned and nothing else; clients of theirs meet a pause and
// nothing else. Then the node comes back and follows, and nothing moves for that. One that was halted may refuse what its own clients publish in
// the moment in which it goes on: it reaches no copies, and does not know yet why (design 2 §6).
func TestOwnersAndControllersLost(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 3))
	c := newCluster(t, 3)
	r := newRig(t, c.nodes...)
	declareAll(r, "n1", "n2", "n3")
	load := startLoad(r, rng)
	for _, round := range []struct {
		controller bool
		how        loss
	}{{true, killed}, {false, killed}, {true, halted}, {false, halted}, {false, killed}, {false, sick}} {
		before := r.owners("failover")
		node, what := c.lost(round.controller, before)
		victim := c.nodes[node]
		pause(time.Duration(200+rng.IntN(500)) * time.Millisecond)
		if rng.IntN(2) == 0 {
			load.settleAll(r)
		}
		r.disturb(node)
		r.enter(string(round.how))
		began := time.Now()
		r.excuse(node, round.how == halted)
		r.strike(round.how, node)
		load.resume()
		for _, other := range c.nodes {
			if other != victim {
				other.await("another owner", func() error { return c.served(other, victim.name, before) })
			}
		}
		t.Logf("%s, %s: all is served after %v", what, round.how, time.Since(began).Round(time.Millisecond))
		pause(time.Duration(rng.IntN(700)) * time.Millisecond)
		r.recover(node, round.how)
		c.back(victim)
		for _, b := range c.nodes {
			b.await("the same owners as before it came back", func() error { return c.served(b, victim.name, before) })
		}
		r.excuse(node, false)
		r.see(check.Event{Kind: check.Calm})
		r.enter("all up")
		r.verdict()
		r.unharmed()
	}
	r.conclude(load, "failover")
}

// TestALongerEndIsCut gives an owner an end that nobody else has, halts it, and has the others, who were away, choose one of themselves. When it
// goes on it is cut and follows; and the publish that was in that end is confirmed by the new owner, and stored once.
func TestALongerEndIsCut(t *testing.T) {
	c := newCluster(t, 3)
	own := c.nodes[0]
	ch := own.channel()
	c.own(ch, "n1", "q", nil)
	publishConfirmed(t, ch, "q", "before")
	own.await("copies to be level", func() error { return c.level("q") })
	held, err := c.owned("q")
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[1].halt() // it thinks that they are there, and takes what it is given
	c.nodes[2].halt()
	sent, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", "q", false, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("in the longer end")})
	if err != nil {
		t.Fatal(err)
	}
	own.await("an end that nobody else has", func() error {
		p, err := c.owned("q")
		if at, ok := p.copyOn("n1"); err == nil && (!ok || at <= held.Confirmed) {
			err = fmt.Errorf("its copy ends at %d, confirmed is %d", at, held.Confirmed)
		}
		return err
	})
	c.nodes[1].kill()
	c.nodes[2].kill()
	own.halt()
	c.nodes[1].launch()
	c.nodes[2].launch()
	second := c.nodes[1]
	second.await("another owner", func() error {
		by, err := second.partitions()
		if p := by["q"]; err == nil && (p.Epoch != held.Epoch+1 || p.State != "serving" || p.Owner == "n1") {
			err = fmt.Errorf("owned by %s in epoch %d, %s", p.Owner, p.Epoch, p.State)
		}
		return err
	})
	publishConfirmed(t, second.channel(), "q", "after")
	own.goOn()
	if !outcomeOf(t, "what was in flight", sent) {
		t.Error("what was in flight when its owner was halted is not confirmed")
	}
	own.says("copy.cut")
	c.whole()
	if got := takeAll(t, second.channel(), "q"); !slices.Equal(got, []string{"before", "after", "in the longer end"}) {
		t.Errorf("the queue held %q", got)
	}
	own.await("the end of what moves", func() error {
		by, err := own.partitions()
		if p := by["q"]; err == nil && (p.Epoch != held.Epoch+1 || p.Owner == "n1" || len(p.Followers) != 2) {
			err = fmt.Errorf("owned by %s in epoch %d, followed by %v", p.Owner, p.Epoch, p.Followers)
		}
		return err
	})
	c.identical("q")
}

// TestDeletedWhileANodeIsAway kills the controller's node, which owns one of two queues and a copy of the other, and deletes both and a stream,
// and makes others under their names, without it: what has the name now has nothing of what had it before, on any node, and the node that comes
// back drops its old copies. The queue that it did not own is served all the time.
func TestDeletedWhileANodeIsAway(t *testing.T) {
	c := newCluster(t, 3)
	leads := c.controller()
	away, other, third := c.nodes[leads], c.nodes[(leads+1)%3], c.nodes[(leads+2)%3]
	ch := other.channel()
	stream := amqp.Table{"x-queue-type": "stream"}
	c.own(ch, away.name, "its", nil)
	c.own(ch, other.name, "another's", nil)
	c.own(ch, third.name, "s", stream)
	names := []string{"its", "another's", "s"}
	old := c.up().incarnations()
	for _, name := range names {
		publishConfirmed(t, ch, name, "old 1", "old 2", "old 3")
	}
	away.kill()
	began := time.Now()
	publishConfirmed(t, third.channel(), "another's", "while the controller is away")
	t.Logf("%s, controller, killed: a queue of another owner went on within %v", away.name, time.Since(began).Round(time.Millisecond))
	ch = third.channel()
	for _, name := range names {
		if _, err := ch.QueueDelete(name, false, false, false); err != nil {
			t.Fatal(err)
		}
	}
	declare(t, ch, "its", nil)
	declare(t, ch, "another's", nil)
	declare(t, ch, "s", stream)
	for _, name := range names {
		publishConfirmed(t, ch, name, "new")
	}
	away.start()
	c.whole()
	for _, b := range c.nodes {
		for _, name := range names { // made without the node, they grow onto it
			b.await("three new copies", func() error {
				by, err := b.partitions()
				if p := by[name]; err == nil && (p.Epoch != 1 || p.State != "serving" || len(p.Followers) != 2) {
					err = fmt.Errorf("%s says of %s: %+v", b.name, name, p)
				}
				return err
			})
		}
	}
	back := away.channel()
	for _, name := range names[:2] {
		if got := takeAll(t, back, name); !slices.Equal(got, []string{"new"}) {
			t.Errorf("%s holds %q", name, got)
		}
	}
	if got := readStream(t, away, "s", 1); !slices.Equal(got, []string{"new"}) {
		t.Errorf("the stream holds %q", got)
	}
	away.await("its old copies to be dropped", func() error {
		for _, name := range names {
			if err := away.said("copy.dropped", fmt.Sprintf("partition=%d/0", old[name])); err != nil {
				return err
			}
		}
		return nil
	})
	c.identical(names...)
}

// incarnations are the numbers of resources, by name: one that was deleted and declared again has another.
func (b *broker) incarnations() map[string]uint64 {
	b.t.Helper()
	var all []struct {
		Name        string
		Incarnation uint64
	}
	if err := b.get("/api/v1/resources", &all); err != nil {
		b.t.Fatal(err)
	}
	by := map[string]uint64{}
	for _, r := range all {
		by[r.Name] = r.Incarnation
	}
	return by
}

// readStream reads the first records of a stream.
func readStream(t *testing.T, b *broker, name string, n int) (bodies []string) {
	t.Helper()
	ch := b.channel()
	if err := ch.Qos(100, 0, false); err != nil {
		t.Fatal(err)
	}
	ds, err := ch.ConsumeWithContext(context.Background(), name, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		select {
		case d, ok := <-ds:
			if !ok {
				t.Fatal(errors.New("the deliveries ended"))
			}
			bodies = append(bodies, string(d.Body))
			_ = d.Ack(false)
		case <-time.After(patience):
			t.Fatalf("got %q of %d", bodies, n)
		}
	}
	return bodies
}
