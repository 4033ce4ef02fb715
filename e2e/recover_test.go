package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// feed publishes to a queue, one message after the other, until its connection breaks or it is told to end; it keeps what was confirmed.
type feed struct {
	mu        sync.Mutex
	confirmed []string
	end       chan struct{}
	done      sync.WaitGroup
}

func feeding(t *testing.T, b *broker, queue string) *feed {
	f, ch := &feed{end: make(chan struct{})}, b.channel()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	f.done.Go(func() {
		for i := 0; ; i++ {
			body := fmt.Sprint("load ", i)
			d, err := ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
			if err != nil {
				return
			}
			select {
			case <-d.Done():
			case <-f.end:
				return
			}
			if !d.Acked() {
				return
			}
			f.mu.Lock()
			f.confirmed = append(f.confirmed, body)
			f.mu.Unlock()
		}
	})
	return f
}

func (f *feed) stop() []string {
	close(f.end)
	f.done.Wait()
	return f.confirmed
}

func (f *feed) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.confirmed)
}

// TestTwoOfThreeNodesLostForGood kills two of three nodes under load, has the catalog go on from the third, gives up on the copies of what waits,
// and has both nodes come back: together they would be the old majority, but each stops when it meets the third, does not start again, and
// follows once its old catalog is put aside. What was confirmed is there, and all copies are the same (design 2 §12).
func TestTwoOfThreeNodesLostForGood(t *testing.T) {
	c := newCluster(t, 3)
	left, n2, n3 := c.nodes[0], c.nodes[1], c.nodes[2]
	ch := left.channel()
	c.own(ch, "n1", "mine", nil)
	c.own(ch, "n2", "another's", nil)
	c.own(ch, "n3", "s", amqp.Table{"x-queue-type": "stream"})
	resources := []string{"mine", "another's", "s"}
	publishConfirmed(t, ch, "another's", "before")
	publishConfirmed(t, ch, "s", "before")
	left.await("copies to be level", func() error { return c.level(resources...) })
	load := feeding(t, left, "mine")
	left.await("load", func() error {
		if n := load.count(); n < 20 {
			return fmt.Errorf("%d are confirmed", n)
		}
		return nil
	})
	_ = n2.cmd.Process.Kill()
	n3.kill()
	n2.kill()
	left.kill()
	want := load.stop()

	recoverCatalog(t, left)
	left.launch()
	left.says("Ready after") // for clients: what it owns waits for copies
	left.says("consensus.loaded", "generation=\"2 (")
	c.giveUpAll("n2,n3", resources...)
	ch = left.channel()
	for _, name := range resources {
		publishConfirmed(t, ch, name, "after")
	}

	c.returnLeftBehind(left, n2, n3)
	c.whole()
	left.await("copies to be level", func() error { return c.level(resources...) })
	publishConfirmed(t, n2.channel(), "another's", "at last")
	if got := takeAll(t, n3.channel(), "another's"); !slices.Equal(got, []string{"before", "after", "at last"}) {
		t.Errorf("another's holds %q", got)
	}
	got := takeAll(t, n3.channel(), "mine")
	for _, body := range append(want, "after") {
		if !slices.Contains(got, body) {
			t.Errorf("%q was confirmed, and is not there", body)
		}
	}
	if got := readStream(t, n2, "s", 2); !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("s holds %q", got)
	}
	c.identical(resources...)
}

// recoverCatalog has the catalog go on from a node alone, without n2 and n3, as an operator would: look, plan, do.
func recoverCatalog(t *testing.T, b *broker) {
	t.Helper()
	if out, code := run(t, "recover", "catalog", "--data", b.dir); code != 0 || !strings.Contains(out, "log ends") || !strings.Contains(out, "n1, n2, n3") {
		t.Fatalf("a look ends with %d:\n%s", code, out)
	}
	if out, code := run(t, "recover", "catalog", "--data", b.dir, "--lost", "n2"); code != 1 || !strings.Contains(out, "nothing is said of n3") {
		t.Errorf("a plan that leaves n3 out ends with %d:\n%s", code, out)
	}
	out, code := run(t, "recover", "catalog", "--data", b.dir, "--lost", "n2,n3", "--json")
	var plan struct{ Plan string }
	if err := json.Unmarshal([]byte(out), &plan); err != nil || code != 0 {
		t.Fatalf("the plan ends with %d, %v:\n%s", code, err, out)
	}
	carry := []string{"recover", "catalog", "--data", b.dir, "--lost", "n2,n3", "--reason", "two nodes burnt", "--plan"}
	if out, code := run(t, append(carry, "0123456789abcdef")...); code != 1 || !strings.Contains(out, "the plan is another by now") {
		t.Errorf("another plan ends with %d:\n%s", code, out)
	}
	if out, code := run(t, append(carry, plan.Plan)...); code != 0 {
		t.Fatalf("the recovery ends with %d:\n%s", code, out)
	}
	if out, code := run(t, "recover", "catalog", "--data", b.dir); code != 0 || !strings.Contains(out, "without n2, n3: two nodes burnt") {
		t.Errorf("a look afterwards ends with %d:\n%s", code, out)
	}
}

// giveUpAll gives up on the missing copies of all that waits by one plan, once that names some queues and streams, and leaves none. Each has evidence of
// its own.
func (c *cluster) giveUpAll(stopped string, resources ...string) {
	c.t.Helper()
	var plan struct {
		Plan  string
		Plans []struct{ Resource string }
		Left  []lossPlan
	}
	c.up().await("a plan for all that waits", func() error {
		out, code := run(c.t, "plan", "accept-loss", "--all-waiting", "--json", "--admin-url", "http://"+c.up().admin)
		if err := json.Unmarshal([]byte(out), &plan); err != nil || code != 0 || len(plan.Left) > 0 {
			return fmt.Errorf("it ends with %d: %v: %s", code, err, out)
		}
		for _, name := range resources {
			if !slices.Contains(plan.Plans, struct{ Resource string }{name}) {
				return fmt.Errorf("%s is not in it: %s", name, out)
			}
		}
		return nil
	})
	ask := func(args ...string) string {
		out, code := run(c.t, append(args, "--admin-url", "http://"+c.up().admin)...)
		if code != 0 {
			c.t.Fatalf("%q ends with %d:\n%s", args, code, out)
		}
		return out
	}
	out := ask("accept-loss", "--all-waiting", "--json", "--plan", plan.Plan, "--reason", "two nodes burnt", "--stopped", stopped)
	var done struct {
		Done    []struct{ Transition string }
		Refused []lossPlan
	}
	if err := json.Unmarshal([]byte(out), &done); err != nil || len(done.Done) != len(plan.Plans) || len(done.Refused) > 0 {
		c.t.Fatalf("%v: %s", err, out)
	}
	for _, x := range done.Done {
		if out := ask("evidence", x.Transition); !strings.Contains(out, "accepted loss: two nodes burnt") {
			c.t.Errorf("evidence of %s:\n%s", x.Transition, out)
		}
	}
}

// returnLeftBehind has nodes come back that were left behind: together they would be the old majority. Each stops, does not start again, and follows
// once its old catalog is put aside.
func (c *cluster) returnLeftBehind(left, n2, n3 *broker) {
	c.t.Helper()
	n2.launch()
	n3.launch()
	for _, b := range []*broker{n2, n3} {
		if code := b.exit(); code != 1 {
			c.t.Errorf("%s ends with %d", b.name, code)
		}
		b.says("left behind: node \"n1\" goes by generation 2", "tanist recover rejoin --data "+b.dir)
	}
	left.says("mesh.denied", "the catalog was recovered without n2")
	n2.launch() // alone or not, it does not vote again
	if code := n2.exit(); code != 1 {
		c.t.Errorf("%s ends with %d when it is started again", n2.name, code)
	}
	if out, code := run(c.t, "recover", "catalog", "--data", n2.dir, "--lost", "n1"); code != 1 || !strings.Contains(out, "left behind") {
		c.t.Errorf("a node that was left behind is recovered, with %d:\n%s", code, out)
	}
	for _, b := range []*broker{n2, n3} {
		if out, code := run(c.t, "recover", "rejoin", "--data", b.dir); code != 0 || !strings.Contains(out, "/aside/catalog-1-") {
			c.t.Fatalf("rejoin of %s ends with %d:\n%s", b.name, code, out)
		}
		b.start()
	}
}
