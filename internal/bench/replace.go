package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Replacement says what is measured while a copy that is lost for good is made anew on another node.
type Replacement struct {
	Kind        string        `json:"kind"`          // queue or stream
	History     int64         `json:"history_bytes"` // of payload that the resource holds before
	FillSize    int           `json:"-"`             // bytes of a body of those
	Size        int           `json:"size"`          // bytes of a body of what is published meanwhile
	Rate        float64       `json:"rate"`          // messages a second of all publishers; 0: as fast as possible
	Connections int           `json:"connections"`
	InFlight    int           `json:"in_flight"`
	Warmup      time.Duration `json:"-"`
	Measured    time.Duration `json:"-"`         // how long the load is measured before, with all copies whole
	Hold        time.Duration `json:"-"`         // follower_loss_hold
	Interrupt   bool          `json:"interrupt"` // kill the node that learns half-way, and start it again
	Wipe        bool          `json:"wipe"`      // the disk of the node that is killed is lost with it
	Prefix      string        `json:"-"`
}

// ReplacementResult is what came of it.
type ReplacementResult struct {
	Plan    Replacement `json:"plan"`
	Lost    string      `json:"lost"`    // the node that was killed
	Learner string      `json:"learner"` // the one that has the copy now
	Before  Result      `json:"before"`
	During  Result      `json:"during"` // from when the copy began to be made until it counted
	Held    float64     `json:"held_seconds"`
	Took    float64     `json:"replace_seconds"` // from the first byte until the copy counted
	// Written is what the learner's node wrote to its log files for each byte that the copy holds: 1 and a little where nothing was done twice.
	Written float64  `json:"learner_written_per_byte"`
	Epochs  int      `json:"changed_epochs"`
	Budgets []Budget `json:"budgets"`
}

// replacement is one under way.
type replacement struct {
	*Cluster
	plan        Replacement
	name        string
	owner, lost int
	learner     int
	wrote       int64 // by runs of the learner's node that are over
	came        time.Time
	counts      time.Time
	epoch       uint64
	out         ReplacementResult
	tell        func(string)
	halved      bool
}

// Replace starts four nodes, fills a queue or stream, puts a load on it, kills a node that only follows, and measures until another node has
// the copy.
func Replace(ctx context.Context, program, dir string, p Replacement, tell func(string)) (ReplacementResult, error) {
	c, err := StartCluster(ctx, program, dir, 4)
	if err != nil {
		return ReplacementResult{}, err
	}
	defer c.KillAll()
	r := &replacement{Cluster: c, plan: p, name: p.Prefix + "-0", tell: tell, learner: -1, out: ReplacementResult{Plan: p}}
	if err := r.set(ctx, "follower_loss_hold", p.Hold.String()); err != nil {
		return r.out, err
	}
	if err := r.fill(ctx); err != nil {
		return r.out, fmt.Errorf("filling: %w", err)
	}
	tell("the load, with every copy whole")
	if r.out.Before, err = Throughput(ctx, r.target(), r.load()); err != nil {
		return r.out, err
	}
	if err := r.lose(ctx); err != nil {
		return r.out, err
	}
	err = r.close(ctx)
	return r.out, err
}

// set changes a setting of the cluster.
func (c *Cluster) set(ctx context.Context, name, value string) error {
	p := c.nodes[0]
	cmd := exec.CommandContext(ctx, p.program, "setting", "set", name, value, "--admin-url", "http://"+p.admin)
	cmd.Env = append(environment(), "TANIST_PASSWORD=guest")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("setting %s: %w: %s", name, err, text)
	}
	return nil
}

// target is every node but the one that is lost and the one that learns: clients are not what is measured.
func (r *replacement) target() (t Target) {
	for i, p := range r.nodes {
		if i != r.lost && i != r.learner {
			t.URLs, t.Probes = append(t.URLs, p.URL()), append(t.Probes, p.Probe())
		}
	}
	if r.plan.Kind == "queue" {
		t.Arguments = amqp.Table{"x-queue-type": "quorum"}
	}
	return t
}

func (r *replacement) load() Load {
	p := r.plan
	return Load{
		Kind: p.Kind, Resources: 1, Connections: p.Connections, InFlight: p.InFlight, Size: p.Size, Rate: p.Rate, Warmup: p.Warmup, Duration: p.Measured,
		Prefix: p.Prefix, Keep: true,
	}
}

// fill publishes the history, and finds out who holds it: the node without a copy is the one that will learn.
func (r *replacement) fill(ctx context.Context) error {
	r.lost = -1
	t, l := r.target(), r.load()
	l.Size, l.Rate, l.Warmup, l.Duration, l.InFlight = r.plan.FillSize, 0, 0, replaceTimeout, 64
	told := time.Now()
	l.Until = func(confirmed int64) bool {
		held := confirmed * int64(l.Size)
		if time.Since(told) > tellEvery {
			told = time.Now()
			r.tell(fmt.Sprintf("filled with %d MiB of %d", held>>20, r.plan.History>>20))
		}
		return held >= r.plan.History
	}
	if r.plan.History > 0 {
		if _, err := Throughput(ctx, t, l); err != nil {
			return err
		}
	}
	return until(ctx, func() error {
		p, err := r.partitionsOf(ctx, []string{r.name})
		if err != nil {
			return err
		}
		if err := p[0].whole(3); err != nil {
			return err
		}
		controller, err := r.Controller(ctx)
		if err != nil {
			return err
		}
		r.owner, r.lost, r.learner, r.epoch = r.number(p[0].Owner), -1, -1, p[0].Epoch
		for i := range r.nodes {
			switch holds := i == r.owner || slices.Contains(p[0].Followers, nodeName(i)); {
			case !holds:
				r.learner = i
			case i != r.owner && i != controller:
				r.lost = i
			}
		}
		if r.lost < 0 || r.learner < 0 {
			return errors.New("no node only follows, or none is free")
		}
		r.out.Lost, r.out.Learner = nodeName(r.lost), nodeName(r.learner)
		return nil
	})
}

// lose kills the follower under load and measures from when its successor begins to learn.
func (r *replacement) lose(ctx context.Context) error {
	killed := time.Now()
	if err := r.Kill(r.lost); err != nil {
		return err
	}
	r.halted[r.lost] = true // it is asked nothing
	if r.plan.Wipe {
		if err := r.nodes[r.lost].Wipe(); err != nil {
			return err
		}
	}
	r.tell(fmt.Sprintf("%s is killed; its place is held for %s", r.out.Lost, r.plan.Hold))
	watching, stop := context.WithCancel(ctx)
	defer stop()
	learning, counting, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		failed <- r.watch(watching, learning)
		close(counting)
	}()
	l := r.load()
	l.Duration, l.Warmup, l.Begin = replaceTimeout, 0, learning
	l.Until = func(int64) bool { return over(counting) }
	during, err := Throughput(ctx, r.target(), l)
	if err != nil {
		return err
	}
	if err := <-failed; err != nil {
		return err
	}
	r.out.During = during
	r.out.Held, r.out.Took = r.came.Sub(killed).Seconds(), r.counts.Sub(r.came).Seconds()
	return nil
}

func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

const (
	// replaceTimeout bounds a replacement.
	replaceTimeout = time.Hour
	// tellEvery is how often somebody who waits is told how far it is.
	tellEvery = 5 * time.Second
)

// watch follows the new copy from its first word until it counts; learning is closed at the first.
func (r *replacement) watch(ctx context.Context, learning chan struct{}) error {
	told := time.Now()
	for deadline := time.Now().Add(replaceTimeout); time.Now().Before(deadline); {
		p, err := r.partitionsOf(ctx, []string{r.name})
		if err != nil {
			return err
		}
		for _, c := range p[0].Copies {
			if c.Node != r.out.Learner {
				continue
			}
			if r.came.IsZero() {
				r.came = time.Now()
				close(learning)
				r.tell(r.out.Learner + " learns")
			}
			if time.Since(told) > tellEvery {
				told = time.Now()
				r.tell(fmt.Sprintf("%s: %s, %d entries behind", c.Node, c.Role, c.Lag))
			}
			if c.Role == "follower" {
				r.counts = time.Now()
				return nil
			}
		}
		if err := r.interrupt(ctx); err != nil {
			return err
		}
		if !wait(ctx, 50*time.Millisecond) {
			return errors.New("interrupted")
		}
	}
	return fmt.Errorf("the copy does not count after %s", replaceTimeout)
}

// interrupt kills the learner's node once, when it has about half of the history, and starts it again.
func (r *replacement) interrupt(ctx context.Context) error {
	if !r.plan.Interrupt || r.halved || r.came.IsZero() {
		return nil
	}
	now, err := r.nodes[r.learner].Probe().Read(ctx)
	if err != nil || now.Written < r.plan.History/2 {
		return err
	}
	r.halved, r.wrote = true, now.Written
	r.tell(r.out.Learner + " is killed half-way, and started again")
	if err := r.Kill(r.learner); err != nil {
		return err
	}
	return r.Start(ctx, r.learner)
}

// close judges.
func (r *replacement) close(ctx context.Context) error {
	now, err := r.nodes[r.learner].Probe().Read(ctx)
	if err != nil {
		return err
	}
	p, err := r.partitionsOf(ctx, []string{r.name})
	if err != nil {
		return err
	}
	o := &r.out
	if p[0].Epoch != r.epoch {
		o.Epochs = int(p[0].Epoch - r.epoch)
	}
	holds := float64(r.plan.History) + float64(o.Before.Confirmed+o.During.Confirmed)*float64(r.plan.Size)
	o.Written = float64(r.wrote+now.Written) / holds
	o.Budgets = []Budget{
		{What: "confirmed rate while the copy is made, of that before", Value: o.During.Rate / o.Before.Rate, Bound: 0.9},
		{What: "p99 of a confirm while the copy is made, of that before", Value: o.During.ConfirmP99 / o.Before.ConfirmP99, Bound: 2, AtMost: true},
		{What: "publishes that failed", Value: float64(o.Before.Nacked + o.During.Nacked), AtMost: true},
		{What: "epochs begun", Value: float64(o.Epochs), AtMost: true},
		{What: "bytes that the new copy's node wrote, of those that the copy holds", Value: o.Written, Bound: 1.2, AtMost: true},
	}
	for i := range o.Budgets {
		if b := &o.Budgets[i]; b.AtMost {
			b.Met = b.Value <= b.Bound
		} else {
			b.Met = b.Value >= b.Bound
		}
	}
	return nil
}
