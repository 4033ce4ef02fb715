package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/bench"
	"github.com/tanist/tanist/internal/config"
)

func newBench() *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "Measure this or another AMQP broker",
		Long: `Measures a broker over AMQP. Every figure comes with what it is to be held against, from the same run: machines differ, ratios less.
Without --url a broker of this program is started over an empty directory and removed afterwards.`,
	}
	c.AddCommand(newBenchThroughput(), newBenchQueues(), newBenchIdle(), newBenchReaders(), newBenchStart())
	return c
}

// benchOptions are the flags of all benchmarks.
type benchOptions struct {
	url, metrics, dir, size string
	vs                      []string
	pid                     int
	json                    bool
	load                    bench.Load
}

func (o *benchOptions) addTarget(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&o.url, "url", "", "broker to measure (default: one that is started for it)")
	p.StringVar(&o.metrics, "metrics", "", "with --url: address of its Prometheus metrics, such as http://127.0.0.1:15672/metrics")
	p.IntVar(&o.pid, "pid", 0, "with --url: its process, if it is on this machine")
	o.addCommon(c)
}

func (o *benchOptions) addCommon(c *cobra.Command) {
	c.Flags().StringVar(&o.dir, "dir", "", "where to put data of brokers that are started (default: the directory for temporary files)")
	jsonFlag(c, &o.json)
}

func (o *benchOptions) addLoad(c *cobra.Command) {
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
	n, err := config.ParseSize(o.size)
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
	if o.url != "" {
		return do(bench.Target{URL: o.url, Probe: bench.Probe{Metrics: o.metrics, PID: o.pid}})
	}
	return o.scratch(func(program, dir string) error {
		p, err := bench.NewProcess(program, dir)
		if err != nil {
			return err
		}
		if _, _, err := p.Start(ctx); err != nil {
			return err
		}
		defer func() { _ = p.Stop(true) }() // its data are removed anyway
		return do(bench.Target{URL: p.URL(), Probe: p.Probe()})
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
	return os.RemoveAll(dir)
}

func newBenchThroughput() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use: "throughput", Short: "Confirmed publishes a second, with what each costs the broker", Args: cobra.NoArgs,
		Long: `Publishes with confirms from several connections, with consumers that settle each message if asked for, and prints rates, the time
to a confirm, and what a message costs the broker: CPU, and bytes written for each byte of payload. With --vs other brokers are put under
the same load in the same run, one after the other, and compared with the first.`,
		Example: "  tanist bench throughput --consumers 1\n  tanist bench throughput --vs amqp://guest:guest@127.0.0.1:5673/",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.prepare(); err != nil {
				return err
			}
			return o.with(c.Context(), func(t bench.Target) error {
				targets := []bench.Target{t}
				for _, u := range o.vs {
					targets = append(targets, bench.Target{URL: u})
				}
				var results []bench.Result
				for _, t := range targets {
					r, err := bench.Throughput(c.Context(), t, o.load)
					if err != nil {
						return err
					}
					results = append(results, r)
				}
				if o.json {
					return printJSON(c.OutOrStdout(), results)
				}
				return printThroughput(c.OutOrStdout(), results)
			})
		},
	}
	o.addTarget(c)
	o.addLoad(c)
	p := c.Flags()
	p.IntVar(&o.load.Consumers, "consumers", 0, "consumers, each with a connection")
	p.Int64Var(&o.load.Backlog, "backlog", 20000, "with consumers, hold publishers back while more than this many messages wait; 0 is never")
	p.IntVar(&o.load.Resources, "resources", 1, "queues or streams to spread the messages over")
	p.Float64Var(&o.load.Rate, "rate", 0, "messages a second of all publishers; 0 is as fast as possible")
	p.StringSliceVar(&o.vs, "vs", nil, "other brokers to compare with, amqp://USER:PASSWORD@HOST:PORT/")
	return c
}

func printThroughput(w io.Writer, results []bench.Result) error {
	var rows [][]string
	for _, r := range results {
		rows = append(rows, []string{
			r.URL, fmt.Sprintf("%.0f", r.Rate), fmt.Sprintf("%.2f", r.Rate/results[0].Rate), fmt.Sprintf("%.0f", r.Consuming),
			fmt.Sprintf("%.2f", r.ConfirmP50), fmt.Sprintf("%.2f", r.ConfirmP99), known(r.CPUPerMessage, "%.1f"), known(r.WrittenPayload, "%.2f"),
			known(r.Syncs, "%.0f"), known(r.MessagesPerSync, "%.0f"), known(r.ResidentMiB, "%.0f"),
		})
	}
	return table(w, "BROKER CONFIRMED/S RATIO CONSUMED/S P50-MS P99-MS CPU-US/MSG WRITTEN/PAYLOAD SYNCS/S MSGS/SYNC RESIDENT-MIB", rows)
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
					return printJSON(c.OutOrStdout(), r)
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
		Use: "idle", Short: "Memory of idle queues, and restart with them", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.scratch(func(program, dir string) error {
				r, err := bench.Idle(c.Context(), program, dir, queues, settle)
				if err != nil {
					return err
				}
				if o.json {
					return printJSON(c.OutOrStdout(), r)
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
	c.Flags().IntVar(&queues, "queues", 10000, "how many")
	c.Flags().DurationVar(&settle, "settle", 40*time.Second, "how long to leave the broker alone before each measurement")
	return c
}

func newBenchReaders() *cobra.Command {
	var o benchOptions
	var readers int
	c := &cobra.Command{
		Use: "readers", Short: "Many readers of one stream", Args: cobra.NoArgs,
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
					return printJSON(c.OutOrStdout(), r)
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
		RunE: func(c *cobra.Command, _ []string) error {
			return o.scratch(func(program, dir string) error {
				r, err := bench.Start(c.Context(), program, func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }, max(times, 1))
				if err != nil {
					return err
				}
				if o.json {
					return printJSON(c.OutOrStdout(), r)
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
