// Package benches has the verbs of `tanist bench`: flags, and how figures are shown. What is measured, and how, is internal/bench's.
package benches

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/bench"
	"github.com/tanist/tanist/internal/core/units"
	"github.com/tanist/tanist/internal/port/processors"
)

// New is the verb bench with what is below it.
func New() *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "Measure this or another AMQP broker",
		Long: `Measures a broker over AMQP. Every figure comes with what it is to be held against, from the same run: machines differ, ratios less.
Without --url a broker of this program is started over an empty directory and removed afterwards.`,
	}
	c.AddCommand(newBenchThroughput(), newBenchQueues(), newBenchIdle(), newBenchReaders(), newBenchStart(), newBenchFailover(), newBenchReplace())
	return c
}

// benchOptions are the flags of all benchmarks.
type benchOptions struct {
	metrics, dir, size string
	urls, vs           []string
	pid, nodes, repeat int
	json, keep         bool
	load               bench.Load
}

func (o *benchOptions) addTarget(c *cobra.Command) {
	p := c.Flags()
	p.StringSliceVar(&o.urls, "url", nil, "broker to measure; several addresses are nodes of one (default: one that is started for it)")
	p.StringVar(&o.metrics, "metrics", "", "with --url: address of its Prometheus metrics, such as http://127.0.0.1:15672/metrics")
	p.IntVar(&o.pid, "pid", 0, "with --url: its process, if it is on this machine")
	o.addCommon(c)
}

func (o *benchOptions) addCommon(c *cobra.Command) {
	c.Flags().StringVar(&o.dir, "dir", "", "where to put data of brokers that are started (default: the directory for temporary files)")
	show.JSONFlag(c, &o.json)
}

func (o *benchOptions) addNodes(c *cobra.Command) {
	c.Flags().IntVar(&o.nodes, "nodes", 1, "nodes of the broker that is started")
}

func (o *benchOptions) addLoad(c *cobra.Command) {
	// Where clients share the processors with a broker, what it takes to wake their threads is taken from it.
	o.load.During = processors.Keep
	p := c.Flags()
	p.IntVar(&o.load.Connections, "connections", 4, "publishers, each with a connection")
	p.IntVar(&o.load.InFlight, "in-flight", 1000, "unconfirmed messages of each publisher")
	p.StringVar(&o.size, "size", "1KiB", "size of a body")
	p.DurationVar(&o.load.Duration, "duration", 10*time.Second, "how long to measure")
	p.DurationVar(&o.load.Warmup, "warmup", 2*time.Second, "how long to run before measuring")
	p.StringVar(&o.load.Kind, "kind", "queue", "queue or stream")
}

// prepare checks the flags.
func (o *benchOptions) prepare() error {
	n, err := units.ParseSize(o.size)
	if err != nil || n > 16<<20 {
		return fmt.Errorf("--size %q: want a size up to 16MiB, such as 1KiB", o.size)
	}
	o.load.Size, o.load.Prefix = int(n), fmt.Sprintf("tanist-bench-%d", os.Getpid())
	if o.load.Kind != "queue" && o.load.Kind != "stream" {
		return fmt.Errorf("--kind %q: want queue or stream", o.load.Kind)
	}
	if o.load.Connections < 1 || o.load.InFlight < 1 || o.load.Consumers < 0 || o.load.Duration <= 0 {
		return fmt.Errorf("--connections, --in-flight and --duration must be positive")
	}
	return nil
}

// with finds the broker to measure, or starts one, and removes it afterwards.
func (o *benchOptions) with(ctx context.Context, do func(bench.Target) error) error {
	if len(o.urls) > 0 {
		t := bench.Target{URLs: o.urls, Probes: []bench.Probe{{Metrics: o.metrics, PID: o.pid}}}
		if o.metrics == "" && o.pid == 0 {
			var err error
			if t.Probes, err = bench.Listeners(o.urls); err != nil {
				t.Probes = nil // on another machine, or another user's: what it costs is not known
			}
		}
		return do(t)
	}
	return o.scratch(func(program, dir string) error {
		if o.nodes > 1 {
			c, err := bench.StartCluster(ctx, program, dir, o.nodes)
			if err != nil {
				return err
			}
			defer c.KillAll()
			return do(c.Target())
		}
		p, err := bench.NewProcess(program, dir)
		if err != nil {
			return err
		}
		if _, _, err := p.Start(ctx); err != nil {
			return err
		}
		defer func() { _ = p.Stop(true) }() // its data are removed anyway
		return do(bench.Target{URLs: []string{p.URL()}, Probes: []bench.Probe{p.Probe()}})
	})
}

// scratch gives a directory that is removed afterwards.
func (o *benchOptions) scratch(do func(program, dir string) error) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "tanist-bench-")
	if err != nil {
		return err
	}
	if err := do(program, dir); err != nil {
		return err // with the directory left, for its log
	}
	if o.keep {
		_, err = fmt.Fprintf(os.Stderr, "Data and logs are in %s\n", dir)
		return err
	}
	return os.RemoveAll(dir)
}

func known(v float64, format string) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func newBenchQueues() *cobra.Command {
	var o benchOptions
	var many int
	c := &cobra.Command{
		Use: "queues", Short: "Many queues against one, at the same total rate", Args: cobra.NoArgs,
		Example: "  tanist bench queues\n  tanist bench queues --url amqp://10.0.0.7 --json",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.prepare(); err != nil {
				return err
			}
			return o.with(c.Context(), func(t bench.Target) error {
				r, err := bench.Queues(c.Context(), t, o.load, many)
				if err != nil {
					return err
				}
				if o.json {
					return show.JSON(c.OutOrStdout(), r)
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), `as fast as possible: %.0f confirmed/s with 1, %.0f with %d: ratio %.2f (budget ≥ 0.70)
broker's CPU a message then: %s µs with 1, %s with %d
at %.0f a second offered: %.0f confirmed/s with 1, %.0f with %d: ratio %.2f (budget ≥ 0.70)
syncs then: %.0f a second with 1, %.0f with %d: ratio %s (budget ≤ 1.30)
`, r.One.Rate, r.Many.Rate, many, r.ThroughputRatio,
					known(r.One.CPUPerMessage, "%.1f"), known(r.Many.CPUPerMessage, "%.1f"), many,
					r.OfferedRate, r.OneAtRate.Rate, r.ManyAtRate.Rate, many, r.HeldRatio,
					r.OneAtRate.Syncs, r.ManyAtRate.Syncs, many, known(r.SyncRatio, "%.2f"))
				return err
			})
		},
	}
	o.addTarget(c)
	o.addLoad(c)
	c.Flags().IntVar(&many, "resources", 1000, "how many")
	return c
}

func newBenchIdle() *cobra.Command {
	var o benchOptions
	var queues int
	var settle time.Duration
	c := &cobra.Command{
		Use: "idle", Short: "Memory of idle queues, and restart with them; of a cluster, what it costs idle", Args: cobra.NoArgs,
		Example: "  tanist bench idle",
		RunE: func(c *cobra.Command, _ []string) error {
			return o.scratch(func(program, dir string) error {
				if o.nodes > 1 {
					return o.idleCluster(c, program, dir, queues, settle)
				}
				r, err := bench.Idle(c.Context(), program, dir, queues, settle)
				if err != nil {
					return err
				}
				if o.json {
					return show.JSON(c.OutOrStdout(), r)
				}
				kib := func(m bench.IdleMemory) (heap, resident float64) {
					return m.HeapPerQueue / 1024, m.ResidentPerQueue / 1024
				}
				declared, declaredResident := kib(r.Declared)
				restarted, restartedResident := kib(r.Restarted)
				_, err = fmt.Fprintf(c.OutOrStdout(), `%d idle queues, declared in %.1f s
each, over the empty node of %.0f MiB, after %.0f s alone:
  freshly declared  %.1f KiB of heap, %.1f KiB resident (budget ≤ 4 KiB)
  after a restart   %.1f KiB of heap, %.1f KiB resident (budget ≤ 4 KiB)
restart after kill -9: clients let in after %.2f s, every queue ready after %.2f s (budget ≤ 3 s)
`, r.Queues, r.DeclareSeconds, float64(r.Empty.Resident)/(1<<20), r.SettleSeconds, declared, declaredResident, restarted, restartedResident,
					r.AcceptSeconds, r.RestartSeconds)
				return err
			})
		},
	}
	o.addCommon(c)
	o.addNodes(c)
	c.Flags().IntVar(&queues, "queues", 10000, "how many")
	c.Flags().DurationVar(&o.load.Duration, "duration", 10*time.Second, "with --nodes: how long to measure")
	c.Flags().DurationVar(&settle, "settle", 40*time.Second, "how long to leave the broker alone before each measurement")
	return c
}

func newBenchReaders() *cobra.Command {
	var o benchOptions
	var readers int
	c := &cobra.Command{
		Use: "readers", Short: "Many readers of one stream", Args: cobra.NoArgs,
		Example: "  tanist bench readers",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.prepare(); err != nil {
				return err
			}
			return o.with(c.Context(), func(t bench.Target) error {
				r, err := bench.Readers(c.Context(), t, o.load, readers)
				if err != nil {
					return err
				}
				if o.json {
					return show.JSON(c.OutOrStdout(), r)
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), `%d readers of one stream at %.0f records/s: %d delivered, %d missing, %d out of order
the slowest was at most %d records behind (%.2f s); the broker used %.2f cores and grew by %.0f MiB to %.0f
`, r.Readers, r.Rate, r.Delivered, r.Missing, r.Disorder, r.WorstLag, float64(r.WorstLag)/max(r.Rate, 1), r.CPUShare, r.GrownMiB, r.ResidentMiB)
				if err == nil && (r.Missing > 0 || r.Disorder > 0) {
					err = fmt.Errorf("not every reader got every record once and in order")
				}
				return err
			})
		},
	}
	o.addTarget(c)
	o.addLoad(c)
	p := c.Flags()
	p.IntVar(&readers, "readers", 100, "how many")
	p.Float64Var(&o.load.Rate, "rate", 1000, "records a second")
	return c
}

func newBenchStart() *cobra.Command {
	var o benchOptions
	var times int
	c := &cobra.Command{
		Use: "start", Short: "Time from starting an empty node to accepting clients", Args: cobra.NoArgs,
		Example: "  tanist bench start",
		RunE: func(c *cobra.Command, _ []string) error {
			return o.scratch(func(program, dir string) error {
				r, err := bench.Start(c.Context(), program, func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }, max(times, 1))
				if err != nil {
					return err
				}
				if o.json {
					return show.JSON(c.OutOrStdout(), r)
				}
				all := make([]string, len(r.Times))
				for i, t := range r.Times {
					all[i] = fmt.Sprintf("%.3f", t)
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "an empty node lets clients in after %.3f s (median), %.3f at most, of %s (budget ≤ 1 s)\n", r.Median, r.Max, strings.Join(all, " "))
				return err
			})
		},
	}
	o.addCommon(c)
	c.Flags().IntVar(&times, "times", 5, "how often")
	return c
}
