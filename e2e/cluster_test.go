package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// cluster is some brokers that are one, or one that is alone.
type cluster struct {
	t     *testing.T
	nodes []*broker
}

// newCluster starts a node that begins a cluster and others that join it, each with a token of its own, and waits until every node can
// do everything. args are further arguments of serve.
func newCluster(t *testing.T, n int, args ...string) *cluster {
	t.Helper()
	return newClusterIn(t, nil, n, args...)
}

// newClusterIn is newCluster with each node in a network of its own; nil: in that of the test.
func newClusterIn(t *testing.T, w *wires, n int, args ...string) *cluster {
	t.Helper()
	c := &cluster{t: t}
	for i := range n {
		b := c.member(fmt.Sprint("n", i+1), args...)
		if w != nil {
			b.space = w.spaces[i]
			b.args[slices.Index(b.args, "--mesh")+1] = b.space.address + ":5680"
		}
		if i > 0 {
			b.env = c.invitation(b.name)
		}
		b.start()
		b.env = nil // a member needs no token
		c.nodes = append(c.nodes, b)
	}
	c.whole()
	return c
}

// whole waits until every node reaches every other, and knows who votes.
func (c *cluster) whole() {
	c.t.Helper()
	for _, b := range c.nodes {
		b.await("the other nodes", func() error { return c.sees(b) })
	}
}

// sees is nil once a node reaches all others, and all vote, where their number is odd.
func (c *cluster) sees(b *broker) error {
	var all []struct {
		Name, Reason string
		Live, Votes  bool
	}
	if err := b.get("/api/v1/nodes", &all); err != nil {
		return err
	}
	if len(all) != len(c.nodes) {
		return fmt.Errorf("%s knows %d nodes of %d", b.name, len(all), len(c.nodes))
	}
	for _, n := range all {
		if !n.Live || !n.Votes && len(all)%2 == 1 {
			return fmt.Errorf("%s says of %s: live %t (%s), votes %t", b.name, n.Name, n.Live, n.Reason, n.Votes)
		}
	}
	return nil
}

// member makes a node with an address for others, and starts nothing.
func (c *cluster) member(name string, args ...string) *broker {
	b := newBroker(c.t, append([]string{"--mesh", freePort(c.t), "--disk-file", "8MiB", "--disk-low", "0", "--disk-high", "0"}, args...)...)
	b.name = name
	if len(c.nodes) > 0 {
		b.args = append(b.args, "--join", c.nodes[0].mesh())
	}
	return b
}

// mesh is where other nodes reach the broker.
func (b *broker) mesh() string { return b.args[slices.Index(b.args, "--mesh")+1] }

// invitation makes a token, as the environment of the node that joins with it.
func (c *cluster) invitation(node string, args ...string) []string {
	return []string{"TANIST_JOIN_TOKEN=" + c.token(append([]string{"--node", node}, args...)...)}
}

func (c *cluster) token(args ...string) string {
	return c.make(append([]string{"join-token"}, args...)...)
}

// make runs a verb that makes a token.
func (c *cluster) make(args ...string) string {
	c.t.Helper()
	b := c.up()
	out, err := b.space.command(append(args, "--admin-url", "http://"+b.admin)...).Output()
	if err != nil {
		c.t.Fatalf("tanist %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// up is a node that runs.
func (c *cluster) up() *broker {
	c.t.Helper()
	for _, b := range c.nodes {
		if b.cmd != nil && !b.still {
			return b
		}
	}
	c.t.Fatal("no node runs")
	return nil
}

func (c *cluster) named(name string) *broker {
	c.t.Helper()
	i := slices.IndexFunc(c.nodes, func(b *broker) bool { return b.name == name })
	if i < 0 {
		c.t.Fatalf("there is no node %q", name)
	}
	return c.nodes[i]
}

// partition is a line of /api/v1/partitions.
type partition struct {
	Resource  string
	Epoch     uint64
	Owner     string
	Followers []string
	Learners  []string
	State     string
	Reason    string
	Confirmed uint64
	Copies    []struct {
		Node     string
		Role     string
		Position uint64
		Reason   string
	}
}

func (b *broker) partitions() (map[string]partition, error) {
	var all []partition
	if err := b.get("/api/v1/partitions", &all); err != nil {
		return nil, err
	}
	by := map[string]partition{}
	for _, p := range all {
		by[p.Resource] = p
	}
	return by, nil
}

// owned is what the owner of a resource says of it.
func (c *cluster) owned(name string) (partition, error) {
	by, err := c.up().partitions()
	if err != nil {
		return partition{}, err
	}
	p, ok := by[name]
	if !ok {
		return p, fmt.Errorf("no resource %q", name)
	}
	if by, err = c.named(p.Owner).partitions(); err != nil {
		return partition{}, err
	}
	return by[name], nil
}

// copyOn is where the copy of a node ends.
func (p partition) copyOn(node string) (position uint64, ok bool) {
	for _, x := range p.Copies {
		if x.Node == node {
			return x.Position, true
		}
	}
	return 0, false
}

// count is what the owner of a resource counts.
func (c *cluster) count(name string) (resource, error) {
	p, err := c.owned(name)
	if err != nil {
		return resource{}, err
	}
	all, err := c.named(p.Owner).resources()
	return all[name], err
}

// confirms is nil once owners have confirmed all that was in their logs when it was first asked, or when they began to own. Others may go on
// publishing: their logs' ends move on, and need never be what is confirmed.
func (c *cluster) confirms(resources ...string) func() error {
	type end struct{ epoch, position uint64 }
	ends := map[string]end{}
	return func() error {
		for _, name := range resources {
			p, err := c.owned(name)
			if err != nil {
				return err
			}
			position, ok := p.copyOn(p.Owner)
			if !ok {
				return fmt.Errorf("%s says nothing of its copy of %s", p.Owner, name)
			}
			if ends[name].epoch != p.Epoch {
				ends[name] = end{p.Epoch, position}
			}
			if want := ends[name].position; p.Confirmed < want {
				return fmt.Errorf("the log of %s on %s was at %d, confirmed is %d", name, p.Owner, want, p.Confirmed)
			}
		}
		return nil
	}
}

// level is nil if owners have confirmed all that is in their logs, and every follower has the same.
func (c *cluster) level(resources ...string) error {
	views := map[string]map[string]partition{}
	for _, b := range c.nodes {
		by, err := b.partitions()
		if err != nil {
			return err
		}
		views[b.name] = by
	}
	for _, name := range resources {
		p := views[c.nodes[0].name][name]
		own, ok := views[p.Owner][name]
		if !ok {
			return fmt.Errorf("nobody owns %s", name)
		}
		for _, node := range append([]string{p.Owner}, p.Followers...) {
			have, ok := views[node][name].copyOn(node)
			if !ok {
				return fmt.Errorf("%s says nothing of its copy of %s", node, name)
			}
			if have != own.Confirmed {
				return fmt.Errorf("the copy of %s on %s is at %d, confirmed is %d", name, node, have, own.Confirmed)
			}
		}
	}
	return nil
}

// own declares a queue or stream that a certain node owns. Placement evens out what nodes own, so others are declared where it goes
// elsewhere.
func (c *cluster) own(ch *amqp.Channel, owner, name string, args amqp.Table) {
	c.t.Helper()
	for i := range 50 {
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			c.t.Fatal(err)
		}
		by, err := c.up().partitions()
		if err != nil {
			c.t.Fatal(err)
		}
		if by[name].Owner == owner {
			return
		}
		if _, err := ch.QueueDelete(name, false, false, false); err != nil {
			c.t.Fatal(err)
		}
		if _, err := ch.QueueDeclare(fmt.Sprint("beside ", name, i), true, false, false, false, nil); err != nil {
			c.t.Fatal(err)
		}
	}
	c.t.Fatalf("%s is never placed on %s", name, owner)
}

// killAll ends every process at once.
func (c *cluster) killAll() {
	for _, b := range c.nodes {
		if b.cmd != nil {
			_ = b.cmd.Process.Kill()
		}
	}
	for _, b := range c.nodes {
		b.kill()
	}
}

// startAll starts every process, and waits for all.
func (c *cluster) startAll() {
	c.t.Helper()
	for _, b := range c.nodes {
		b.launch()
	}
	for _, b := range c.nodes {
		b.await("readiness of "+b.name, b.ready)
	}
}

// identical ends all nodes as they are and compares what they hold: the same everywhere, and nothing behind.
func (c *cluster) identical(resources ...string) {
	c.t.Helper()
	c.up().await("copies to be level", func() error { return c.level(resources...) })
	c.killAll()
	args := []string{"inspect", "--compare", "--json"}
	for _, b := range c.nodes {
		args = append(args, b.dir)
	}
	out, code := run(c.t, args...)
	var found struct {
		Partitions []struct {
			Same   int
			Copies []struct{ Lag, Cut uint64 }
		}
		Problems []string
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != 0 || len(found.Problems) > 0 {
		c.t.Fatalf("exit code %d, %v:\n%s", code, err, out)
	}
	same := 0
	for _, p := range found.Partitions {
		same += p.Same
		for _, x := range p.Copies {
			if x.Lag != 0 || x.Cut != 0 || len(p.Copies) != len(c.nodes) {
				c.t.Fatalf("copies are not identical:\n%s", out)
			}
		}
	}
	if len(found.Partitions) < len(resources) || same == 0 {
		c.t.Fatalf("%d partitions were compared, and %d pairs of batches:\n%s", len(found.Partitions), same, out)
	}
	c.t.Logf("%d partitions are identical on %d nodes; %d pairs of batches compared", len(found.Partitions), len(c.nodes), same)
}
