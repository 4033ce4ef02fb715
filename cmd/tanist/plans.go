package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/front/admin"
)

// What gives something up is planned first, and carried out by the plan's hash, with a reason.

func newPlan() *cobra.Command {
	c := &cobra.Command{Use: "plan", Short: "Say what a change would do, without doing it"}
	c.AddCommand(newPlanLoss(), newPlanDelete())
	return c
}

// consentFlags are those with which a plan is carried out.
func consentFlags(c *cobra.Command, to *admin.Consent) {
	c.Flags().StringVar(&to.Plan, "plan", "", "hash of the plan, from tanist plan "+c.Name())
	c.Flags().StringVar(&to.Reason, "reason", "", "why, for the evidence")
	c.Flags().StringSliceVar(&to.Stopped, "stopped", nil, "nodes that are stopped for sure, with commas between")
	for _, name := range []string{"plan", "reason"} {
		_ = c.MarkFlagRequired(name) // the flag is defined above
	}
}

const startFirst = "start a missing node if that is possible at all, for then nothing is lost"

func printNoPlan(w io.Writer, name, against string) error {
	_, err := fmt.Fprintf(w, "No plan for %s: %s.\n", name, admin.Visible(against))
	return err
}

// rowsOn prints the rows of a plan.
func rowsOn(w io.Writer) func(what, format string, a ...any) {
	return func(what, format string, a ...any) { fmt.Fprintf(w, "  %-10s %s\n", what, fmt.Sprintf(format, a...)) }
}

// targetOf names a resource in a command.
func targetOf(vhost, resource string) string {
	target := control.Quoted(resource)
	if vhost != catalog.DefaultVHost {
		target += " --vhost " + control.Quoted(vhost)
	}
	return target
}

// printCarryOut says what to do before a plan is carried out, and the command that does it.
func printCarryOut(w io.Writer, first, verb, plan string, stop []string) error {
	next := verb + " --plan " + plan + " --reason TEXT"
	if len(stop) > 0 {
		rowsOn(w)("stop first", "%s", mustStop(stop))
		next += " --stopped " + strings.Join(stop, ",")
	}
	_, err := fmt.Fprintf(w, "Next: %s; else\n  %s\n", first, next)
	return err
}

// mustStop says which nodes have to be stopped for sure, and why.
func mustStop(nodes []string) string {
	if len(nodes) == 1 {
		return joined(nodes) + ": if it runs, it could go on by itself"
	}
	return joined(nodes) + ": if they run, they could go on by themselves"
}
