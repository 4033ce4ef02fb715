package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
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
