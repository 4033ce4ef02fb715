package benches

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/bench"
	"github.com/tanist/tanist/internal/core/units"
)

func newBenchReplace() *cobra.Command {
	var o benchOptions
	var hold time.Duration
	var history, fill string
	var interrupt, wipe bool
	c := &cobra.Command{
		Use: "replace", Short: "What it costs the publishers when a lost copy is made anew on another node", Args: cobra.NoArgs,
		Long: `Starts four nodes, fills a queue or stream of three copies with a history, and publishes to it with confirms. Then a node that only
follows is killed with SIGKILL and stays away: after the hold the fourth node learns in its stead. Rate and time to a confirm meanwhile are held
against those before, with what the new copy's node wrote. With --interrupt that node is killed half-way and started again.

The data take about five times the history on the disk, with --wipe four times.`,
		Example: `  tanist bench replace --history 1GiB --kind stream
  tanist bench replace --history 10GiB --rate 3000 --interrupt --wipe`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.prepare(); err != nil {
				return err
			}
			p := bench.Replacement{
				Kind: o.load.Kind, Size: o.load.Size, Rate: o.load.Rate, Connections: o.load.Connections, InFlight: o.load.InFlight,
				Warmup: o.load.Warmup, Measured: o.load.Duration, Hold: hold, Interrupt: interrupt, Wipe: wipe, Prefix: o.load.Prefix,
			}
			var err error
			if p.History, err = units.ParseSize(history); err != nil {
				return fmt.Errorf("--history: %w", err)
			}
			size, err := units.ParseSize(fill)
			if err != nil || size < 1 || size > 16<<20 {
				return errors.New("--history-size: want a size up to 16MiB, such as 64KiB")
			}
			p.FillSize = int(size)
			began := time.Now()
			return o.scratch(func(program, dir string) error {
				r, err := bench.Replace(c.Context(), program, dir, p, func(what string) {
					fmt.Fprintf(c.ErrOrStderr(), "%5.0fs %s\n", time.Since(began).Seconds(), what)
				})
				if err != nil {
					return err
				}
				if o.json {
					return show.JSON(c.OutOrStdout(), r)
				}
				return printReplacement(c, r)
			})
		},
	}
	o.addCommon(c)
	o.addLoad(c)
	p := c.Flags()
	p.StringVar(&history, "history", "1GiB", "payload that the resource holds before")
	p.StringVar(&fill, "history-size", "64KiB", "size of a body of the history")
	p.Float64Var(&o.load.Rate, "rate", 0, "messages a second of all publishers; 0 is as fast as possible")
	p.DurationVar(&hold, "hold", 2*time.Second, "follower_loss_hold")
	p.BoolVar(&interrupt, "interrupt", false, "kill the node that learns when it has half, and start it again")
	p.BoolVar(&wipe, "wipe", false, "delete the data of the node that is killed: its disk is lost with it")
	return c
}

func printReplacement(c *cobra.Command, r bench.ReplacementResult) error {
	w := c.OutOrStdout()
	if err := printThroughput(w, []string{"before", "meanwhile"}, []bench.Result{r.Before, r.During}, r.Before); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\n%s was lost; %s began to learn after %.1f s and counted %.1f s later\n\n", r.Lost, r.Learner, r.Held, r.Took); err != nil {
		return err
	}
	return show.Table(w, "BUDGET VALUE BOUND VERDICT", budgetRows(r.Budgets))
}
