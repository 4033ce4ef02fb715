package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

const (
	// shownObstacles bounds what is printed for people; --json gives all.
	shownObstacles = 20
	// pollEvery is how often wait asks.
	pollEvery = 250 * time.Millisecond
)

func newWait() *cobra.Command {
	c := &cobra.Command{Use: "wait", Short: "Wait until the cluster is as it should be"}
	c.AddCommand(newWaitHealthy())
	return c
}

func newWaitHealthy() *cobra.Command {
	var f adminFlags
	var timeout time.Duration
	c := &cobra.Command{
		Use: "healthy", Short: "Wait until all nodes live and every copy has caught up", Args: cobra.NoArgs,
		Long: fmt.Sprintf(`Waits until every member of the cluster that has a copy or a vote is live and takes writes, the catalog has a leader, and every durable queue and stream is served by its
owner, with no change of owner pending, with as many copies as it should have, each of which holds what its owner had when it was asked. So
the next node of a rolling restart may be stopped. It says what is left on standard error whenever that changes. While no node answers at the
address it goes on asking.

Other things may need a person beside it, such as low disk space: tanist attention lists them.

Exit codes: 0 it is healthy, %d it was not by the timeout, 1 it could not be found out.`, exitNo),
		Example: "  tanist wait healthy\n  tanist check quorum-critical n2 && systemctl restart tanist && tanist wait healthy --timeout 10m",
		RunE: func(c *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return fmt.Errorf("--timeout %v: want a duration above 0, such as 5m", timeout)
			}
			api, err := f.client()
			if err != nil {
				return err
			}
			progress := c.ErrOrStderr()
			if f.json {
				progress = io.Discard
			}
			last, err := waitHealthy(c.Context(), api, timeout, progress)
			if err != nil {
				return err
			}
			if f.json {
				err = printJSON(c.OutOrStdout(), last)
			} else if last.OK {
				_, err = fmt.Fprintln(c.OutOrStdout(), "Healthy: all nodes live, every copy has caught up.")
			} else {
				_, err = fmt.Fprintf(c.OutOrStdout(), "Not healthy after %v:\n", timeout)
				printObstacles(c.OutOrStdout(), last)
			}
			if err == nil && !last.OK {
				err = show.Exit(exitNo)
			}
			return err
		},
	}
	f.add(c)
	c.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait")
	return c
}

// waitHealthy asks until the cluster is healthy or the time is over, and gives the last answer. Where none came at all it is an error.
func waitHealthy(ctx context.Context, api *client.Client, timeout time.Duration, progress io.Writer) (last admin.Check, err error) {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	said, answered := "", false
	for {
		now, failed := api.Healthy(within)
		left := ""
		switch {
		case failed == nil && now.OK:
			return now, nil
		case failed == nil:
			last, answered = now, true
			left = leftOf(now)
		case within.Err() != nil: // the time was over while it was asked
		case !passes(failed):
			return last, failed
		default:
			left, err = failed.Error(), failed
		}
		if left != "" && left != said {
			fmt.Fprintf(progress, "%s: %s\n", time.Now().Format(time.TimeOnly), left)
			said = left
		}
		select {
		case <-tick.C:
		case <-within.Done():
			switch {
			case ctx.Err() != nil:
				return last, ctx.Err()
			case answered:
				return last, nil
			case err == nil:
				err = fmt.Errorf("no answer within %v", timeout)
			}
			return last, err
		}
	}
}

// passes reports whether asking again can help: no node listens yet, or it cannot answer yet.
func passes(err error) bool {
	var refused *client.Error
	var unreachable *client.Unreachable
	return errors.As(err, &unreachable) || errors.As(err, &refused) && (refused.Retry || refused.Status >= http.StatusInternalServerError)
}

func leftOf(c admin.Check) string {
	text := admin.Visible(c.Obstacles[0].Subject + ": " + c.Obstacles[0].What)
	if c.Total > 1 {
		text += fmt.Sprintf("; and %d more", c.Total-1)
	}
	return text
}

func printObstacles(w io.Writer, c admin.Check) {
	shown := c.Obstacles[:min(len(c.Obstacles), shownObstacles)]
	for _, o := range shown {
		fmt.Fprintf(w, "  %s: %s\n", admin.Visible(o.Subject), admin.Visible(o.What))
	}
	if more := c.Total - len(shown); more > 0 {
		fmt.Fprintf(w, "  … and %d more; --json lists up to %d\n", more, len(c.Obstacles))
	}
	if len(shown) > 0 {
		fmt.Fprintf(w, "Next: %s\n", admin.Visible(shown[0].Next))
	}
}

func newCheck() *cobra.Command {
	c := &cobra.Command{Use: "check", Short: "Ask whether something is safe to do"}
	c.AddCommand(newCheckQuorumCritical())
	return c
}

func newCheckQuorumCritical() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "quorum-critical NODE", Short: "Ask whether a node can be stopped now without stopping anything else", Args: cobra.ExactArgs(1),
		Long: fmt.Sprintf(`Says whether anything would stop if the node was stopped now: the catalog, without a majority of its voters; or queues and streams that would
have fewer copies in step than a confirm needs, or, of those that the node owns, too few that could answer for a new owner to be chosen. They
are named. In step is a copy that takes what its owner sends and holds all that was confirmed when it was asked.

It says nothing of clients that are connected to the node: they must connect to another. Queues that live in the node's memory alone end with
it; it says how many.

Exit codes: 0 the node can be stopped, %d it cannot, 1 it could not be found out.`, exitNo),
		Example: "  tanist check quorum-critical n2 && systemctl restart tanist",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			text := func(w io.Writer, answer admin.Check) error { return printCritical(w, args[0], answer) }
			return question(c, &f, text, func(answer admin.Check) bool { return !answer.OK })(api.QuorumCritical(c.Context(), args[0]))
		}),
	}
	f.add(c)
	return c
}

func printCritical(w io.Writer, node string, c admin.Check) error {
	if c.OK {
		fmt.Fprintf(w, "Node %s can be stopped: what it owns is taken over, and every confirm has the copies that it needs.\n", node)
	} else {
		fmt.Fprintf(w, "Node %s is needed; without it:\n", node)
		printObstacles(w, c)
	}
	if c.InMemory > 0 {
		if _, err := fmt.Fprintf(w, "With it end %s that live in its memory alone.\n", plural(c.InMemory, "queue")); err != nil {
			return err
		}
	}
	return nil
}
