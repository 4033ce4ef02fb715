package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/check"
)

// lossPlan is what tanist plan accept-loss --json prints, as far as it is looked at.
type lossPlan struct {
	Plan             string
	Owner, Candidate string
	FromOffset       uint64 `json:"from_offset"`
	Entries          uint64
	ReportedBy       string `json:"reported_by"`
	Missing          []string
	Against          string
}

func (p *lossPlan) read(b *broker, name string) error {
	text, err := b.space.command("plan", "accept-loss", name, "--json", "--admin-url", "http://"+b.admin).Output()
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	return err
}

// TestALossIsAccepted kills two of a queue's three copies, after they have confirmed what the third has not. It waits under attention, which says
// for whom; the plan says of so many messages that they are gone as were confirmed and are; it is carried out, and the queue goes on; and the
// nodes that come back, longer, follow (issue 5, "Proof").
func TestALossIsAccepted(t *testing.T) {
	c := newCluster(t, 5)
	for _, name := range []string{"n1", "n5"} { // so that the others come back to their places
		demand(t, c.nodes[0], "node", "drain", name)
	}
	const kept, lost = 10, 300
	ch := c.nodes[0].channel()
	c.own(ch, "n2", "q", nil)
	var want []string
	for i := range kept {
		want = append(want, fmt.Sprint("kept ", i))
		publishConfirmed(t, ch, "q", want[i])
	}
	c.bereave(ch, lost)

	var plan lossPlan
	c.up().await("a plan", func() error {
		err := plan.read(c.up(), "q")
		if err == nil && plan.Candidate != "n4" {
			err = fmt.Errorf("%+v", plan)
		}
		return err
	})
	out, code := run(t, "attention", "--admin-url", "http://"+c.up().admin)
	if code != 10 || !strings.Contains(out, "waiting-for-copies: q: ") || !strings.Contains(out, "missing: n2, n3") || !strings.Contains(out, "start n2, n3 again, each over its data directory") {
		t.Errorf("attention ends with %d:\n%s", code, out)
	}
	if plan.FromOffset != kept || plan.Entries != lost || plan.ReportedBy != "n2" || !slices.Equal(plan.Missing, []string{"n2", "n3"}) {
		t.Fatalf("the plan is %+v; %d messages are there and %d are gone", plan, kept, lost)
	}
	demand(t, c.up(), "accept-loss", "q", "--plan", plan.Plan, "--reason", "two disks are gone", "--stopped", "n2,n3")
	for i := range 5 {
		body := fmt.Sprint("new ", i)
		want = append(want, body)
		publishConfirmed(t, ch, "q", body)
	}

	c.nodes[1].start()
	c.nodes[2].start()
	c.up().await("followers", func() error {
		p, err := c.owned("q")
		if err == nil && (p.Epoch != 2 || p.Owner != "n4" || len(p.Followers) != 2) {
			err = fmt.Errorf("owned by %s in epoch %d, followed by %v", p.Owner, p.Epoch, p.Followers)
		}
		return err
	})
	c.nodes[1].says("copy.cut")
	holders := &cluster{t: t, nodes: c.nodes[1:4]}
	holders.identical("q")
	for _, b := range holders.nodes {
		b.launch()
	}
	c.up().await("the queue", func() error { return c.level("q") })
	if got := takeAll(t, c.nodes[0].channel(), "q"); !slices.Equal(got, want) {
		t.Errorf("the queue held %q, want %q", got, want)
	}
	cutIsKept(t, c.nodes[1], "q", lost)
}

// bereave has so many more messages confirmed that the fourth node's copy does not have, and kills the two that have them.
func (c *cluster) bereave(ch *amqp.Channel, messages int) {
	c.t.Helper()
	c.up().await("copies to be level", func() error { return c.level("q") })
	before, err := c.owned("q")
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[3].halt()
	for i := range messages {
		publishConfirmed(c.t, ch, "q", fmt.Sprint("lost ", i))
	}
	c.up().await("all on n3", func() error {
		p, err := c.owned("q")
		if at, ok := p.copyOn("n3"); err == nil && (!ok || at < before.Confirmed+uint64(messages)) {
			err = fmt.Errorf("n3 is at %d", at)
		}
		return err
	})
	pause(1200 * time.Millisecond) // owners say once a second how far they have confirmed
	c.nodes[1].kill()
	c.nodes[2].kill()
	c.nodes[3].goOn()
}

// cutIsKept checks that what was cut on a node can be read there, while the node does not run.
func cutIsKept(t *testing.T, b *broker, name string, messages int) {
	t.Helper()
	var all []struct{ ID string }
	if err := b.get("/api/v1/partitions?resource="+name, &all); err != nil || len(all) != 1 {
		t.Fatalf("%v, %+v", err, all)
	}
	b.kill()
	out, code := run(t, "inspect", b.dir, all[0].ID, "--cut", "--json")
	if got := strings.Count(out, `"kind": "record"`); code != 0 || got != messages {
		t.Errorf("inspect ends with %d and shows %d messages of %d:\n%.500s", code, got, messages, out)
	}
}

// giveUp carries an accepted loss of a resource out by its plan, which must have the fourth node own, and gives how many entries are known to be gone.
func (r *rig) giveUp(name string) uint64 {
	r.t.Helper()
	var plan lossPlan
	r.c.up().await("a plan for "+name, func() error {
		err := plan.read(r.c.up(), name)
		if err == nil && (plan.Candidate != "n4" || !slices.Equal(plan.Missing, []string{"n2", "n3"})) {
			err = fmt.Errorf("%+v", plan)
		}
		return err
	})
	r.givesUp(name, plan.FromOffset)
	demand(r.t, r.c.up(), "accept-loss", name, "--plan", plan.Plan, "--reason", "two disks are gone", "--stopped", "n2,n3")
	return plan.Entries
}

// follows is nil once every resource is owned by a node and followed by two others, and the copies of all of them hold what is confirmed.
func (c *cluster) follows(owner string, copies ...*broker) error {
	err := c.ownedBy(c.up(), owner)
	by, failed := c.up().partitions()
	err = errors.Join(err, failed)
	for _, name := range everything {
		if p := by[name]; err == nil && len(p.Followers) != 2 {
			err = fmt.Errorf("%s is followed by %v, learners %v", name, p.Followers, p.Learners)
		}
	}
	for _, b := range copies {
		if err == nil {
			err = c.reach(b)()
		}
	}
	return err
}

// TestALossIsAcceptedUnderLoad kills two of the three copies of everything that publishers, consumers and readers work with on all five nodes, after
// they have confirmed what the third has not, and gives what is gone up. Whatever was confirmed and lies outside of what the plans named is held
// against the broker, and so is all that is confirmed afterwards; the two come back and follow (issue 5, "Proof").
func TestALossIsAcceptedUnderLoad(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 10))
	c := newCluster(t, 5)
	for _, name := range []string{"n1", "n5"} {
		demand(t, c.nodes[0], "node", "drain", name)
	}
	r := newRig(t, c.nodes...)
	declareAll(r, "n2")
	r.enter("all up")
	load := startLoad(r, rng)
	pause(500 * time.Millisecond)
	load.settleAll(r)
	load.resume()
	for node := range c.nodes {
		r.excuse(node, true)
	}
	r.see(check.Event{Kind: check.Disturbed}) // what clients of n4 hold may be given up
	r.enter("n4 halted")
	c.nodes[3].halt()
	pause(1200 * time.Millisecond) // owners say once a second how far they have confirmed
	r.disturb(1)
	r.disturb(2)
	r.enter("two copies lost")
	r.crash(1, 2)
	c.nodes[3].goOn()
	// What was on its way to clients when its owner died is seen before it is given up.
	last := r.number()
	c.up().await("sessions that began after the loss", func() error { return r.renewed(last) })
	gone := uint64(0)
	for _, name := range slices.Backward(everything) { // graves before who is buried in them
		gone += r.giveUp(name)
	}
	r.enter("one copy")
	if gone == 0 {
		t.Error("nothing was lost: the test shows nothing")
	}
	for _, b := range []*broker{c.nodes[0], c.nodes[3], c.nodes[4]} {
		b.await("everything to be served", func() error { return c.ownedBy(b, "n4") })
	}
	r.owners("accepted loss")
	r.verdict()
	pause(time.Duration(rng.IntN(1000)) * time.Millisecond)
	r.enter("the others come back")
	c.nodes[1].start()
	c.nodes[2].start()
	c.up().await("followers", func() error { return c.follows("n4", c.nodes[1], c.nodes[2]) })
	for node := range c.nodes {
		r.excuse(node, false)
	}
	r.see(check.Event{Kind: check.Calm})
	r.enter("all up again")
	pause(500 * time.Millisecond)
	load.finish(r)
	r.unharmed()
	r.owners("")
	r.drainAll()
	r.verdict()
	(&cluster{t: t, nodes: c.nodes[1:4]}).identical(everything...)
	t.Logf("%d entries given up; %d messages, %d events; longest times without a confirm %s", gone, r.messages, r.judge.Events(), r.pauses())
}

// ownedBy is nil once a node says that another one serves everything.
func (c *cluster) ownedBy(b *broker, owner string) error {
	by, err := b.partitions()
	for _, name := range everything {
		if p := by[name]; err == nil && (p.State != "serving" || p.Owner != owner) {
			err = fmt.Errorf("%s says that %s is %s on %s", b.name, name, p.State, p.Owner)
		}
	}
	return err
}
