package benches

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/bench"
)

// failoverOptions are the flags of the failover bench.
type failoverOptions struct {
	benchOptions
	kill          []string
	signal        string
	control       string
	stream, queue bool
	plan          bench.Plan
}

func newBenchFailover() *cobra.Command {
	var o failoverOptions
	c := &cobra.Command{
		Use: "failover", Short: "What clients notice when a node dies", Args: cobra.NoArgs,
		Long: `Publishes to queues or streams of three nodes that are started for it, kills or halts a node under load, waits until the cluster is whole
again with that node, and reads everything back. Each kill is done so often, with new queues or streams that are all owned by one node.
Publishers are connected to the other nodes, except with --kill own: there they are connected to the node that is killed, and go on at
another.

Of each repeat it prints the longest time between two confirms of a queue or stream before the kill and from then on, when after the kill that one began, how soon all of them
had confirmed a message sent after the kill, and what became of the messages: unknown or refused to the publisher, lost (confirmed and not
there), there twice, out of order, at another offset than a reader had seen. The phases of a change of owner are those of the evidence, in
milliseconds since the kill. Verdicts are for three nodes with three copies.

With --vs another broker is done the same to, in turn: AMQP is all that is spoken to either. --vs-control is a command that tells who leads
there and starts a node again; tools/rabbitmq-cluster is one for RabbitMQ.`,
		Example: `  tanist bench failover --kill owner,follower --repeat 20
  tanist bench failover --kill owner --signal STOP --stream
  tanist bench failover --kill owner --resources 1000
  tanist bench failover --kill owner --vs "$(tools/rabbitmq-cluster urls DIR)" --vs-control "tools/rabbitmq-cluster control DIR"`,
		RunE: func(c *cobra.Command, _ []string) error {
			plans, err := o.plans()
			if err != nil {
				return err
			}
			return o.scratch(func(program, dir string) error { return o.run(c, program, dir, plans) })
		},
	}
	o.addCommon(c)
	p := c.Flags()
	p.StringSliceVar(&o.kill, "kill", []string{string(bench.Owner)}, "which nodes, one after the other: owner, follower, controller, owner-controller, own")
	p.StringVar(&o.signal, "signal", "KILL", "KILL, or STOP with CONT after --halted")
	p.DurationVar(&o.plan.Halted, "halted", 10*time.Second, "with --signal STOP: how long the node is halted")
	p.BoolVar(&o.queue, "queue", false, "with queues (default; with --stream too, one after the other)")
	p.BoolVar(&o.stream, "stream", false, "with streams")
	p.IntVar(&o.plan.Resources, "resources", 3, "queues or streams, all owned by one node")
	p.Float64Var(&o.plan.Rate, "rate", 3000, "messages a second, to all of them together")
	p.IntVar(&o.plan.Connections, "connections", 3, "publishers, each with a connection; each queue or stream has one publisher")
	p.StringVar(&o.size, "size", "1KiB", "size of a body")
	p.DurationVar(&o.plan.Warmup, "warmup", 2*time.Second, "how long to publish before measuring")
	p.DurationVar(&o.plan.Before, "at", 5*time.Second, "how long to measure before the kill")
	p.DurationVar(&o.plan.After, "duration", 5*time.Second, "how long to go on after the kill, or after the node was let go on")
	p.IntVar(&o.repeat, "repeat", 20, "how often each")
	p.BoolVar(&o.keep, "keep", false, "leave the data and logs of the nodes that are started")
	p.StringSliceVar(&o.vs, "vs", nil, "nodes of another broker on this machine to do the same to, amqp://USER:PASSWORD@HOST:PORT/,…")
	p.StringVar(&o.control, "vs-control", "", "with --vs: the command that tells who leads there and starts nodes")
	return c
}

// plans checks the flags.
func (o *failoverOptions) plans() (out []bench.Plan, err error) {
	o.load.Kind, o.load.Connections, o.load.InFlight, o.load.Duration = "queue", 1, 1, o.plan.After
	if err := o.prepare(); err != nil {
		return nil, err
	}
	o.plan.Size, o.plan.Prefix, o.plan.Halt = o.load.Size, o.load.Prefix, o.signal == "STOP"
	switch {
	case o.signal != "KILL" && o.signal != "STOP":
		return nil, fmt.Errorf("--signal %q: want KILL or STOP", o.signal)
	case o.plan.Resources < 1 || o.plan.Rate <= 0 || o.plan.Connections < 1 || o.repeat < 1:
		return nil, errors.New("--resources, --rate, --connections and --repeat must be positive")
	case len(o.vs) > 0 && o.control == "":
		return nil, errors.New(`--vs needs --vs-control: a command that tells who leads and starts nodes, such as "tools/rabbitmq-cluster control DIR"`)
	}
	kinds := []string{"queue"}
	if o.stream {
		kinds = []string{"stream"}
		if o.queue {
			kinds = []string{"queue", "stream"}
		}
	}
	for _, kind := range kinds {
		for _, k := range o.kill {
			p := o.plan
			p.Kind, p.Kill = kind, bench.Role(k)
			if !slices.Contains(bench.Roles, p.Kill) {
				return nil, fmt.Errorf("--kill %q: want owner, follower, controller, owner-controller or own", k)
			}
			if p.Kill == bench.Own && p.Halt {
				return nil, errors.New("--kill own --signal STOP: clients of a halted node wait for it")
			}
			p.Prefix = fmt.Sprintf("%s-%s-%s", o.plan.Prefix, k, kind)
			out = append(out, p)
		}
	}
	return out, nil
}

// planResult is what came of one plan, with each broker.
type planResult struct {
	Plan    bench.Plan          `json:"plan"`
	Ours    []bench.FailoverRun `json:"ours"`
	Theirs  []bench.FailoverRun `json:"theirs,omitempty"`
	Budgets []bench.Budget      `json:"budgets"`
}

func (o *failoverOptions) run(c *cobra.Command, program, dir string, plans []bench.Plan) error {
	ctx, began := c.Context(), time.Now()
	var other bench.Subject
	if len(o.vs) > 0 {
		var err error
		if other, err = bench.NewControlled(o.vs, o.control); err != nil {
			return err
		}
	}
	cluster, err := bench.StartCluster(ctx, program, dir, 3)
	if err != nil {
		return err
	}
	defer cluster.KillAll()
	tell := func(what string) {
		fmt.Fprintf(c.ErrOrStderr(), "%5.0fs %s\n", time.Since(began).Seconds(), what)
	}
	var results []planResult
	for _, p := range plans {
		r, err := o.repeats(ctx, p, cluster, other, tell)
		if err != nil {
			return err
		}
		results = append(results, r)
		if o.json {
			continue
		}
		if err := r.print(c.OutOrStdout()); err != nil {
			return err
		}
	}
	if o.json {
		return show.JSON(c.OutOrStdout(), results)
	}
	return nil
}

// repeats does a plan so often, to both brokers in turn.
func (o *failoverOptions) repeats(ctx context.Context, p bench.Plan, ours, theirs bench.Subject, tell func(string)) (r planResult, err error) {
	r.Plan = p
	for n := range o.repeat {
		tell(fmt.Sprintf("%s: %d of %d", p, n+1, o.repeat))
		run, err := bench.Failover(ctx, ours, p, n, tell)
		if err != nil {
			return r, fmt.Errorf("%s: %s: %w", ours.Name(), p, err)
		}
		r.Ours = append(r.Ours, run)
		if theirs == nil {
			continue
		}
		if run, err = bench.Failover(ctx, theirs, p, n, tell); err != nil {
			return r, fmt.Errorf("%s: %s: %w", theirs.Name(), p, err)
		}
		r.Theirs = append(r.Theirs, run)
	}
	r.Budgets = p.Judge(r.Ours)
	return r, nil
}

func (r planResult) print(w io.Writer) error {
	fmt.Fprintf(w, "\n%s\n", r.Plan)
	var rows [][]string
	for _, runs := range [][]bench.FailoverRun{r.Ours, r.Theirs} {
		for _, run := range runs {
			rows = append(rows, failoverRow(run))
		}
	}
	if err := show.Table(w, "BROKER KILLED PAUSE-BEFORE PAUSE PAUSE-AT SERVE RECONNECT CLOSED EPOCHS PUBLISHED CONFIRMED UNKNOWN NACKED LOST DUPLICATE REORDERED MOVED OTHER", rows); err != nil {
		return err
	}
	if err := r.printPhases(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return show.Table(w, "BUDGET VALUE BOUND VERDICT", budgetRows(r.Budgets))
}

func failoverRow(r bench.FailoverRun) []string {
	b, epochs := r.Books, "-"
	if r.Moved >= 0 {
		epochs = fmt.Sprintf("+%d", r.Moved)
	}
	row := []string{
		r.Broker, r.Node, fmt.Sprintf("%.1f", r.Before), fmt.Sprintf("%.1f", r.Pause), fmt.Sprintf("%.0f", r.PauseAt), fmt.Sprintf("%.1f", r.Served),
		known(r.Reconnected, "%.1f"), fmt.Sprint(r.Closed), epochs,
	}
	for _, n := range []int64{
		b.Published, b.Confirmed, b.Unknown, b.Nacked, b.Lost, b.Duplicate, b.Reordered, b.Moved, b.Unsettled + b.Twice + b.Damaged,
	} {
		row = append(row, fmt.Sprint(n))
	}
	return row
}

// printPhases shows the steps of each repeat of which there is evidence.
func (r planResult) printPhases(w io.Writer) error {
	var rows [][]string
	for _, run := range r.Ours {
		p := run.Phases
		if p == nil {
			continue
		}
		row := []string{run.Node, fmt.Sprint(p.Transitions)}
		for _, ms := range []float64{p.Suspected, p.Recorded, p.Sealed, p.Chosen, p.Committed, p.Serving, p.FirstConfirm} {
			row = append(row, known(ms, "%.1f"))
		}
		rows = append(rows, append(row, fmt.Sprint(p.Cut)))
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return show.Table(w, "KILLED TRANSITIONS SUSPECTED RECORDED SEALED CHOSEN COMMITTED SERVING FIRST-CONFIRM CUT", rows)
}

func budgetRows(budgets []bench.Budget) (rows [][]string) {
	for _, b := range budgets {
		bound, met := fmt.Sprintf("≥%.2f", b.Bound), "met"
		if b.AtMost {
			bound = strings.Replace(bound, "≥", "≤", 1)
		}
		if !b.Met {
			met = "missed"
		}
		rows = append(rows, []string{b.What, fmt.Sprintf("%.2f", b.Value), bound, met})
	}
	return rows
}
