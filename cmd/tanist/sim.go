package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/sim"
)

type simOptions struct {
	opt     sim.Options
	runs    int
	limit   time.Duration
	faults  []string
	act     string
	json    bool
	verbose bool
}

func newSim() *cobra.Command {
	var o simOptions
	c := &cobra.Command{
		Use: "sim", Short: "Run nodes in virtual time, under faults, and judge what their clients saw", Args: cobra.NoArgs,
		Long: `Runs the node itself, or with --nodes a cluster of them, on one thread in virtual time, over disks that crash, fail and lie and a network
that cuts and delays, under clients that publish, consume, settle, move cursors, declare and delete. What they see is judged. A seed replays exactly; the command that repeats a failure is printed, made
as small as it can be. Without --seed it draws seeds and goes on for --for or --runs.`,
		Example: "  tanist sim --seed 7\n  tanist sim --nodes 3 --seed 7\n  tanist sim --nodes 3 --for 8h",
		RunE: func(c *cobra.Command, _ []string) error {
			if len(o.faults) == 1 && o.faults[0] == sim.NoFaults {
				o.opt.Faults, o.faults = []sim.Fault{}, nil
			}
			for _, f := range o.faults {
				if !slices.Contains(sim.FaultsOf(o.opt.Nodes), sim.Fault(f)) {
					return fmt.Errorf("--faults %s: the faults are %s; %s alone is none of them", f, names(sim.FaultsOf(o.opt.Nodes)), sim.NoFaults)
				}
				o.opt.Faults = append(o.opt.Faults, sim.Fault(f))
			}
			if o.opt.Act = sim.Act(o.act); o.act != "" && !slices.Contains(sim.Acts, o.opt.Act) {
				return fmt.Errorf("--act %s: the acts are %s", o.act, names(sim.Acts))
			}
			return o.run(c, c.Flags().Changed("seed"))
		},
	}
	p := c.Flags()
	p.Uint64Var(&o.opt.Seed, "seed", 0, "seed of the first run (default: drawn)")
	p.IntVar(&o.opt.Nodes, "nodes", 1, "how many nodes make a cluster")
	p.IntVar(&o.runs, "runs", 0, "how many runs, with seeds one after another; 0 is 1 with --seed, else without end")
	p.DurationVar(&o.limit, "for", 0, "end after this time; 0 is never")
	p.DurationVar(&o.opt.For, "virtual", 0, "virtual time that clients work in each run")
	p.StringSliceVar(&o.faults, "faults", nil, "faults that may happen (default all, of a cluster all but flip), or none: "+names(sim.FaultsOf(1))+"; with --nodes: "+names(sim.FaultsOf(3)))
	p.IntSliceVar(&o.opt.Skip, "skip", nil, "places in the plan of faults to leave out")
	p.IntVar(&o.opt.Clients, "clients", 0, "how many clients work at a time (default: drawn)")
	p.StringVar(&o.act, "act", "", "what a cluster goes through after the faults (default: drawn of "+names(sim.DrawnActs)+"): "+names(sim.Acts))
	p.BoolVar(&o.opt.Small, "small", false, "fewer resources and clients, for a shorter time")
	p.BoolVar(&o.verbose, "verbose", false, "print what happens")
	jsonFlag(c, &o.json)
	return c
}

// names are faults or acts for people.
func names[T ~string](of []T) string {
	var list []string
	for _, x := range of {
		list = append(list, string(x))
	}
	return strings.Join(list, ", ")
}

func (o *simOptions) run(c *cobra.Command, seeded bool) error {
	w := c.OutOrStdout()
	if o.verbose {
		o.opt.Verbose = func(line string) { fmt.Fprintln(w, line) }
	}
	if !seeded {
		o.opt.Seed = rand.Uint64N(1 << 32)
	}
	if o.runs == 0 && seeded && o.limit == 0 {
		o.runs = 1
	}
	done := 0
	failed := sim.Many(c.Context(), o.opt, o.runs, o.limit, func(r sim.Result) {
		done++
		o.report(w, r)
	})
	if failed != nil {
		return show.Exit(1)
	}
	if !o.json {
		fmt.Fprintf(w, "%s kept every promise\n", plural(done, "run"))
	}
	return nil
}

func (o *simOptions) report(w io.Writer, r sim.Result) {
	if o.json {
		_ = printJSON(w, r) // standard output that is gone leaves nobody to tell
		return
	}
	verdict := "ok"
	if r.Failed() {
		verdict = "FAILED: " + r.Failure + "\nrepeat it with: " + r.Command()
	}
	fmt.Fprintf(w, "seed %d: hash %016x, %s, %s in %s of virtual time, faults [%s]: %s\n", r.Options.Seed, r.Hash, plural(int(r.Steps), "step"),
		plural(int(r.Events), "event"), r.Virtual.Round(time.Millisecond), strings.Join(r.Injured, " "), verdict)
}
