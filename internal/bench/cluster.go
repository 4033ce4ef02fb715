package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Cluster is several brokers of ours that make one, started for a measurement.
type Cluster struct {
	nodes  []*Process
	halted []bool // by SIGSTOP: they are asked nothing
}

// StartCluster starts so many nodes over directories in dir and waits until they can hold copies for each other. On an error those that
// run are ended.
func StartCluster(ctx context.Context, program, dir string, nodes int) (c *Cluster, err error) {
	c = &Cluster{halted: make([]bool, nodes)}
	defer func() {
		if err != nil {
			c.KillAll()
		}
	}()
	for i := range nodes {
		name := nodeName(i)
		p, err := NewProcess(program, filepath.Join(dir, name))
		if err != nil {
			return c, err
		}
		p.name = name
		p.flags = append(p.flags, "--name", name, "--mesh", p.mesh)
		if i > 0 {
			token, err := c.token(ctx)
			if err != nil {
				return c, err
			}
			p.flags, p.env = append(p.flags, "--join", c.nodes[0].mesh), []string{"TANIST_JOIN_TOKEN=" + token}
		}
		if _, _, err := p.Start(ctx); err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, p)
	}
	return c, c.awaitCopies(ctx)
}

func nodeName(i int) string { return fmt.Sprint("n", i+1) }

// token asks the first node for what lets another join.
func (c *Cluster) token(ctx context.Context) (string, error) {
	p := c.nodes[0]
	cmd := exec.CommandContext(ctx, p.program, "join-token", "--json", "--admin-url", "http://"+p.admin)
	cmd.Env = append(environment(), "TANIST_PASSWORD=guest")
	text, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("join-token: %w: %s", err, exit.Stderr)
	} else if err != nil {
		return "", err
	}
	var out struct{ Token string }
	if err := json.Unmarshal(text, &out); err != nil || out.Token == "" {
		return "", fmt.Errorf("join-token printed %q: no token", text)
	}
	return out.Token, nil
}

// awaitCopies waits until a queue that is declared has a copy on every node, up to three.
func (c *Cluster) awaitCopies(ctx context.Context) error {
	const name = "tanist-bench-copies"
	conn, ch, err := connect(c.nodes[0].URL(), "start")
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
		return err
	}
	want := min(3, len(c.nodes))
	if err := c.nodes[0].poll(ctx, func() error {
		p, err := c.partitionsOf(ctx, []string{name})
		if err == nil && (p[0].Owner == "" || len(p[0].Followers)+1 < want) {
			err = fmt.Errorf("%d of %d copies", len(p[0].Followers)+1, want)
		}
		return err
	}); err != nil {
		return err
	}
	_, err = ch.QueueDelete(name, false, false, false)
	return err
}

// Target is all nodes.
func (c *Cluster) Target() (t Target) {
	for _, p := range c.nodes {
		t.URLs, t.Probes = append(t.URLs, p.URL()), append(t.Probes, p.Probe())
	}
	return t
}

// KillAll ends all nodes at once.
func (c *Cluster) KillAll() {
	for _, p := range c.nodes {
		_ = p.Stop(true) // it is gone, now or before
	}
}

// IdleClusterResult says what a cluster costs that nobody uses.
type IdleClusterResult struct {
	Nodes       int     `json:"nodes"`
	Queues      int     `json:"queues"`
	Seconds     float64 `json:"seconds"`
	CoreShare   float64 `json:"core_share"` // of all processes; 1 is one core
	EmptyShare  float64 `json:"empty_core_share"`
	ResidentMiB float64 `json:"resident_mib"`
}

// IdleCluster starts a cluster, measures it for a while empty and for a while with queues that nobody uses, each after it was left alone
// for settle.
func IdleCluster(ctx context.Context, program, dir string, nodes, queues int, settle, measured time.Duration) (out IdleClusterResult, err error) {
	out.Nodes, out.Queues, out.Seconds = nodes, queues, measured.Seconds()
	c, err := StartCluster(ctx, program, dir, nodes)
	if err != nil {
		return out, err
	}
	defer c.KillAll()
	t := c.Target()
	if out.EmptyShare, _, err = idleShare(ctx, t, settle, measured); err != nil {
		return out, err
	}
	names := make([]string, queues)
	for i := range names {
		names[i] = fmt.Sprint("idle-", i)
	}
	if err := each(t.URLs[0], names, func(ch *amqp.Channel, name string) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, nil)
		return err
	}); err != nil {
		return out, err
	}
	out.CoreShare, out.ResidentMiB, err = idleShare(ctx, t, settle, measured)
	return out, err
}

// idleShare is how much of a core the processes use together while nobody speaks to them. The probes read /proc only: a question would
// be work.
func idleShare(ctx context.Context, t Target, settle, measured time.Duration) (share, resident float64, err error) {
	for i := range t.Probes {
		t.Probes[i].Metrics = ""
	}
	if !wait(ctx, settle) {
		return 0, 0, errors.New("interrupted")
	}
	before, err := t.read(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if !wait(ctx, measured) {
		return 0, 0, errors.New("interrupted")
	}
	after, err := t.read(ctx)
	return (after.CPU - before.CPU).Seconds() / time.Since(began).Seconds(), float64(after.Resident) / (1 << 20), err
}
