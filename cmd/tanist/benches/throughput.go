package benches

import (
	"fmt"
	"io"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/bench"
)

func newBenchThroughput() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use: "throughput", Short: "Confirmed publishes a second, with what each costs the broker", Args: cobra.NoArgs,
		Long: `Publishes with confirms from several connections, with consumers that settle each message if asked for, and prints rates, the time
to a confirm, and what a message costs the broker: CPU, and bytes written for each byte of payload. Clients are spread over the nodes.

With --vs another broker, given by its nodes' addresses, is put under the same loads in the same run, in turn with the first: as fast as
possible without and with a consumer, and at 1000 and 5000 messages a second. Both speak AMQP; queues are declared with x-queue-type
quorum, so that both keep copies. What processes cost is read from /proc, by the ports they listen on.`,
		Example: `  tanist bench throughput --consumers 1
  tanist bench throughput --nodes 3 --vs amqp://guest:guest@127.0.0.1:25801/,amqp://guest:guest@127.0.0.1:25802/,amqp://guest:guest@127.0.0.1:25803/`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.prepare(); err != nil {
				return err
			}
			return o.with(c.Context(), func(t bench.Target) error {
				if len(o.vs) > 0 {
					return o.versus(c, t)
				}
				r, err := bench.Throughput(c.Context(), t, o.load)
				if err != nil {
					return err
				}
				if o.json {
					return show.JSON(c.OutOrStdout(), r)
				}
				return printThroughput(c.OutOrStdout(), []string{r.URL}, []bench.Result{r}, r)
			})
		},
	}
	o.addTarget(c)
	o.addNodes(c)
	o.addLoad(c)
	p := c.Flags()
	p.IntVar(&o.load.Consumers, "consumers", 0, "consumers, each with a connection")
	p.Int64Var(&o.load.Backlog, "backlog", 20000, "with consumers, hold publishers back while more than this many messages wait; 0 is never")
	p.IntVar(&o.load.Resources, "resources", 1, "queues or streams to spread the messages over")
	p.Float64Var(&o.load.Rate, "rate", 0, "messages a second of all publishers; 0 is as fast as possible")
	p.StringSliceVar(&o.vs, "vs", nil, "nodes of another broker to compare with, amqp://USER:PASSWORD@HOST:PORT/,…")
	p.IntVar(&o.repeat, "repeat", 3, "with --vs: how often each load is put on each; medians count")
	return c
}

// versus compares a broker with the other one.
func (o *benchOptions) versus(c *cobra.Command, ours bench.Target) error {
	theirs := bench.Target{URLs: o.vs}
	var err error
	if theirs.Probes, err = bench.Listeners(o.vs); err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "What the other broker's processes cost is not known: %v\n", err)
	}
	if o.load.Kind == "queue" {
		ours.Arguments = amqp.Table{"x-queue-type": "quorum"}
		theirs.Arguments = ours.Arguments
	}
	began := time.Now()
	r, err := bench.Versus(c.Context(), ours, theirs, o.load, max(o.repeat, 1), func(what string) {
		fmt.Fprintf(c.ErrOrStderr(), "%4.0fs %s\n", time.Since(began).Seconds(), what)
	})
	if err != nil {
		return err
	}
	if o.json {
		return show.JSON(c.OutOrStdout(), r)
	}
	return printVersus(c.OutOrStdout(), r)
}

func printVersus(w io.Writer, r bench.VersusResult) error {
	var names []string
	var results []bench.Result
	for _, p := range r.Phases {
		names = append(names, p.Name, p.Name)
		results = append(results, p.Ours, p.Theirs)
	}
	if err := printThroughput(w, names, results, bench.Result{}); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return show.Table(w, "BUDGET VALUE BOUND VERDICT", budgetRows(r.Budgets))
}

// printThroughput shows results under the names of their loads, with ratios to first, or to the second of each pair where there is no first.
func printThroughput(w io.Writer, names []string, results []bench.Result, first bench.Result) error {
	var rows [][]string
	for i, r := range results {
		over := first.Rate
		if over == 0 {
			over = results[i|1].Rate
		}
		rows = append(rows, []string{
			names[i], strings.TrimPrefix(r.URL, "amqp://"), fmt.Sprintf("%.0f", r.Rate), fmt.Sprintf("%.2f", r.Rate/over),
			fmt.Sprintf("%.0f", r.Consuming), fmt.Sprintf("%.2f", r.ConfirmP50), fmt.Sprintf("%.2f", r.ConfirmP99),
			fmt.Sprintf("%.1f", r.LongestGap), known(r.CPUPerMessage, "%.1f"), known(r.ClientPerMsg, "%.1f"), known(r.WrittenPayload, "%.2f"),
			known(r.DiskPayload, "%.2f"), known(r.Syncs, "%.0f"), known(r.MessagesPerSync, "%.0f"), known(r.ResidentMiB, "%.0f"),
		})
	}
	return show.Table(w, "LOAD BROKER CONFIRMED/S RATIO CONSUMED/S P50-MS P99-MS GAP-MS CPU-US/MSG CLIENT-US/MSG WRITTEN/PAYLOAD DISK/PAYLOAD SYNCS/S MSGS/SYNC RESIDENT-MIB", rows)
}

// idleCluster shows what several nodes cost that nobody uses.
func (o *benchOptions) idleCluster(c *cobra.Command, program, dir string, queues int, settle time.Duration) error {
	r, err := bench.IdleCluster(c.Context(), program, dir, o.nodes, queues, settle, o.load.Duration)
	if err != nil {
		return err
	}
	if o.json {
		return show.JSON(c.OutOrStdout(), r)
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), `%d nodes, %d idle queues, over %.0f s after %.0f s alone:
%.1f %% of a core for all nodes (budget ≤ 3 %% with 3 nodes and 1000 queues), %.1f %% without queues; %.0f MiB resident together
`, r.Nodes, r.Queues, r.Seconds, settle.Seconds(), 100*r.CoreShare, 100*r.EmptyShare, r.ResidentMiB)
	return err
}
