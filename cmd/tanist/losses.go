package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

// lossFlags name a partition, or all that wait.
type lossFlags struct {
	adminFlags
	vhost     string
	partition int
	all       bool
}

func (f *lossFlags) add(c *cobra.Command) {
	f.adminFlags.add(c)
	c.Flags().StringVar(&f.vhost, "vhost", catalog.DefaultVHost, "virtual host of the queue or stream")
	c.Flags().IntVar(&f.partition, "partition", -1, "number of the partition, where there are several")
	c.Flags().BoolVar(&f.all, "all-waiting", false, "every queue and stream that waits for missing copies, in place of one that is named")
	c.MarkFlagsMutuallyExclusive("all-waiting", "partition")
	c.MarkFlagsMutuallyExclusive("all-waiting", "vhost")
}

// named checks that one resource is named, or all are meant.
func (f *lossFlags) named(_ *cobra.Command, args []string) error {
	if f.all == (len(args) == 0) && len(args) <= 1 {
		return nil
	}
	return errors.New("want a name, or --all-waiting") // usage says what is wanted
}

func (f *lossFlags) query(name string) admin.LossQuery {
	q := admin.LossQuery{VHost: f.vhost, Resource: name}
	if f.partition >= 0 {
		q.Partition = new(uint32(f.partition))
	}
	return q
}

func newPlanLoss() *cobra.Command {
	var f lossFlags
	c := &cobra.Command{
		Use: "accept-loss RESOURCE | --all-waiting", Short: "Say what giving up on the missing copies of a queue or stream would do, and what may be gone", Args: f.named,
		Long: fmt.Sprintf(`Says what would become of a queue or stream that waits for copies that do not return, if it went on without them: which node would own it, what
was confirmed and may be gone, as far as anyone had reported, and what must be sure before. It changes nothing. Nothing is given up while a new
owner can be chosen without loss, and contradictory copies are never judged by it.

The best way out is always to bring a missing node back with its disk: then nothing is lost.

With --all-waiting it says so of every queue and stream that waits, as after "tanist recover catalog": one plan, one hash, and at most 1000 partitions.

Exit codes: 0 there is a plan, %d nothing can be given up, 1 it could not be found out.`, exitNo),
		Example: "  tanist plan accept-loss orders\n  tanist plan accept-loss --all-waiting",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			if f.all {
				return question(c, &f.adminFlags, printLossesPlan, func(p admin.LossesPlan) bool { return p.Plan == "" })(api.PlanLosses(c.Context()))
			}
			text := func(w io.Writer, p admin.LossPlan) error { return printLossPlan(w, p, time.Now()) }
			return question(c, &f.adminFlags, text, func(p admin.LossPlan) bool { return p.Against != "" })(api.PlanLoss(c.Context(), f.query(args[0])))
		}),
	}
	f.add(c)
	return c
}

func newAcceptLoss() *cobra.Command {
	var f lossFlags
	var q admin.LossRequest
	c := &cobra.Command{
		Use: "accept-loss RESOURCE | --all-waiting --plan HASH --reason TEXT", Short: "Give up on the missing copies of a queue or stream, as planned", Args: f.named,
		Long: `Has a queue or stream go on without copies that are missing, as "tanist plan accept-loss" has shown. What only they held is gone: it is refused if
the plan is another by now. A missing node that could go on by itself must be named with --stopped: make sure that it is, for its clients would
be told that messages are safe which nobody will see. Where its lease fences it (setting fence_on_lease_expiry) that is not needed once the lease
is over; until then the answer says for how long to wait. When a missing copy returns it follows the new owner; what it held beyond is cut
from it, and kept aside where the copy had owned ("tanist inspect" finds it).

With --all-waiting everything goes on that the plan of the same flag has named. Each queue and stream is given up on by itself, with evidence of its own and the
same reason; where one is refused then, the others go on, and the exit code is 10.`,
		Example: "  tanist accept-loss orders --plan 5d1f0c9a4be27a33 --reason 'disks of n1 and n2 burnt' --stopped n1,n2\n" +
			"  tanist accept-loss --all-waiting --plan 972b9a72ef3c866d --reason 'disks of n1 and n2 burnt' --stopped n1,n2",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			if f.all {
				return question(c, &f.adminFlags, printLosses, func(d admin.LossesDone) bool { return len(d.Refused) > 0 })(api.AcceptLosses(c.Context(), q.Consent))
			}
			q.LossQuery = f.query(args[0])
			return answer(c, &f.adminFlags, printLoss)(api.AcceptLoss(c.Context(), q))
		}),
	}
	f.add(c)
	consentFlags(c, &q.Consent)
	return c
}

func printLoss(w io.Writer, d admin.LossDone) error {
	p := d.Done
	_, err := fmt.Fprintf(w, "%s %s goes on with %s from offset %d on; %s.\nNext: tanist evidence %s\n", p.Kind, admin.Visible(p.Resource), p.Candidate, p.FromOffset, gone(p), d.Transition)
	return err
}

// gone says what is lost by a plan that was carried out. As the plan does, it promises nothing of what nobody reported; an owner that goes on
// holds all that was confirmed.
func gone(p admin.LossPlan) string {
	switch {
	case p.Candidate == p.Owner && p.Entries == 0:
		return "nothing that was confirmed is gone"
	case p.Entries == 0:
		return "nothing that anyone has reported as confirmed is gone, but what was confirmed after that on missing copies only is"
	}
	return plural(int(p.Entries), "confirmed entry") + " may be gone, and what was confirmed after that on missing copies only"
}

func printLossPlan(w io.Writer, p admin.LossPlan, now time.Time) error {
	name := p.Kind + " " + admin.Visible(p.Resource)
	if p.Against != "" {
		return printNoPlan(w, name, p.Against)
	}
	row := rowsOn(w)
	fmt.Fprintf(w, "Plan %s: give up on the missing copies of %s\n", p.Plan, name)
	row("missing", "%s: cut to the new history on return, to follow", joined(p.Missing))
	if p.Candidate == p.Owner && p.Entries == 0 {
		row("owner", "%s goes on, with a new epoch after %d; it holds all that was confirmed: nothing is lost", p.Candidate, p.Epoch)
	} else {
		row("owner", "%s, in place of %s (epoch %d); its copy ends at position %d, offset %d", p.Candidate, p.Owner, p.Epoch, p.From, p.FromOffset)
		by := ""
		if p.ReportedBy != "" {
			by = " as " + p.ReportedBy + " reported"
			if p.ReportedAt != 0 {
				at := time.UnixMilli(p.ReportedAt)
				by += fmt.Sprintf(" at %s (%s ago)", at.Format(time.DateTime), now.Sub(at).Round(time.Second))
			}
		}
		if p.Entries > 0 {
			row("gone", "positions %d to %d, which were confirmed%s: %s, offsets %d to at most %d", p.From, p.To-1, by, plural(int(p.Entries), "entry"), p.FromOffset, p.FromOffset+p.Entries-1)
		} else {
			row("gone", "nothing that anyone has reported as confirmed")
		}
		row("", "and whatever else was confirmed and is on missing copies only; settles among it are undone, and their messages come again")
	}
	if len(p.Followers) > 0 {
		row("followers", "%s, which hold all that %s does", joined(p.Followers), p.Candidate)
	}
	for _, n := range p.Notes {
		row("note", "%s", admin.Visible(n))
	}
	return printCarryOut(w, startFirst, p.Command(), p.MustBeStopped)
}

// lossRows are plans as a table has them: what goes on with which copy, and what is known to be gone.
func lossRows(plans []admin.LossPlan) (lines [][]string) {
	for _, p := range plans {
		known, from := "nothing known", strconv.FormatUint(p.FromOffset, 10)
		switch {
		case p.Entries > 0:
			known = plural(int(p.Entries), "entry")
		case p.Candidate == p.Owner: // it goes on where it is, and nobody has asked it where that is
			known, from = "nothing", "-"
		}
		lines = append(lines, []string{p.Kind, p.Resource, p.VHost, strconv.Itoa(int(p.Partition)), p.Candidate, from, known, strings.Join(p.Missing, ", ")})
	}
	return lines
}

func printLossesPlan(w io.Writer, p admin.LossesPlan) error {
	if p.Plan == "" {
		fmt.Fprintln(w, "No plan: nothing waits for copies that could be given up.")
	} else {
		fmt.Fprintf(w, "Plan %s: give up on the missing copies of %s\n\n", p.Plan, plural(len(p.Plans), "partition"))
		if err := table(w, "KIND RESOURCE VHOST PARTITION GOES-ON-WITH FROM-OFFSET GONE MISSING", lossRows(p.Plans)); err != nil {
			return err
		}
		fmt.Fprint(w, "\nGone is what anyone has reported as confirmed. Whatever else was confirmed and is on missing copies only is gone too; settles among it are undone,\n"+
			"and their messages come again. What one loses: tanist plan accept-loss RESOURCE\n")
	}
	printLeft(w, "left as it is", p.Left)
	if p.More > 0 {
		fmt.Fprintf(w, "  and %s wait for the next plan\n", plural(p.More, "partition"))
	}
	if p.Plan == "" {
		return nil
	}
	return printCarryOut(w, startFirst, p.Command(), p.MustBeStopped)
}

// printLeft says of which partitions nothing is given up, and why.
func printLeft(w io.Writer, word string, of []admin.LossPlan) {
	for _, p := range of {
		fmt.Fprintf(w, "  %s: %s %s, partition %d: %s\n", word, p.Kind, admin.Visible(p.Resource), p.Partition, admin.Visible(p.Against))
	}
}

func printLosses(w io.Writer, d admin.LossesDone) error {
	for _, x := range d.Done {
		p := x.Done
		fmt.Fprintf(w, "%s %s, partition %d, goes on with %s from offset %d on; %s. Evidence: %s\n", p.Kind, admin.Visible(p.Resource), p.Partition, p.Candidate, p.FromOffset, gone(p), x.Transition)
	}
	printLeft(w, "refused", d.Refused)
	next := "tanist wait healthy"
	if len(d.Refused) > 0 {
		next = "tanist plan accept-loss --all-waiting"
	}
	_, err := fmt.Fprintf(w, "%s, %d refused. Next: %s\n", plural(len(d.Done), "partition"), len(d.Refused), next)
	return err
}

// lossOf says what an accepted loss has given up.
func lossOf(e *evidence.Evidence) string {
	if e.Floor.Position <= e.Start.Position {
		return fmt.Sprintf("accepted by an operator: what lies from position %d on; nothing of it was known to be confirmed", e.Start.Position)
	}
	return fmt.Sprintf("accepted by an operator: what lies from position %d on; up to %d it was confirmed, as %s reported (%s, from offset %d on)",
		e.Start.Position, e.Floor.Position, orDash(e.Floor.By), plural(int(e.Floor.Position-e.Start.Position), "entry"), e.Start.Offset)
}

func joined(names []string) string { return admin.Visible(strings.Join(names, ", ")) }

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

// printCarryOut says what to do before a plan is carried out, and the command that does it.
func printCarryOut(w io.Writer, first, command string, stop []string) error {
	if len(stop) > 0 {
		rowsOn(w)("stop first", "%s", mustStop(stop))
	}
	_, err := fmt.Fprintf(w, "Next: %s; else\n  %s\n", first, command)
	return err
}

// mustStop says which nodes have to be stopped for sure, and why.
func mustStop(nodes []string) string {
	if len(nodes) == 1 {
		return joined(nodes) + ": if it runs, it could go on by itself"
	}
	return joined(nodes) + ": if they run, they could go on by themselves"
}
