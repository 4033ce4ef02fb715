package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

func newPlan() *cobra.Command {
	c := &cobra.Command{Use: "plan", Short: "Say what a change would do, without doing it"}
	c.AddCommand(newPlanLoss(), newPlanDelete())
	return c
}

// lossFlags name a partition.
type lossFlags struct {
	adminFlags
	vhost     string
	partition int
}

func (f *lossFlags) add(c *cobra.Command) {
	f.adminFlags.add(c)
	c.Flags().StringVar(&f.vhost, "vhost", catalog.DefaultVHost, "virtual host of the queue or stream")
	c.Flags().IntVar(&f.partition, "partition", -1, "number of the partition, where there are several")
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
		Use: "accept-loss RESOURCE", Short: "Say what giving up on the missing copies of a queue or stream would do, and what may be gone", Args: cobra.ExactArgs(1),
		Long: fmt.Sprintf(`Says what would become of a queue or stream that waits for copies that do not return, if it went on without them: which node would own it, what
was confirmed and may be gone, as far as anyone had reported, and what must be sure before. It changes nothing. Nothing is given up while a new
owner can be chosen without loss, and contradictory copies are never judged by it.

The best way out is always to bring a missing node back with its disk: then nothing is lost.

Exit codes: 0 there is a plan, %d nothing can be given up, 1 it could not be found out.`, exitNo),
		Example: "  tanist plan accept-loss orders",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
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
		Use: "accept-loss RESOURCE --plan HASH --reason TEXT", Short: "Give up on the missing copies of a queue or stream, as planned", Args: cobra.ExactArgs(1),
		Long: `Has a queue or stream go on without copies that are missing, as "tanist plan accept-loss" has shown. What only they held is gone: it is refused if
the plan is another by now. A missing node that could go on by itself must be named with --stopped: make sure that it is, for its clients would
be told that messages are safe which nobody will see. Where its lease fences it (setting fence_on_lease_expiry) that is not needed once the lease
is over; until then the answer says for how long to wait. When a missing copy returns it follows the new owner; what it held beyond is cut
from it, and kept aside where the copy had owned ("tanist inspect" finds it).`,
		Example: "  tanist accept-loss orders --plan 5d1f0c9a4be27a33 --reason 'disks of n1 and n2 burnt' --stopped n1,n2",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			q.LossQuery = f.query(args[0])
			d, err := api.AcceptLoss(c.Context(), q)
			if err != nil {
				return err
			}
			if f.json {
				return printJSON(c.OutOrStdout(), d)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s %s goes on with %s from offset %d on; %s.\n", d.Done.Kind, admin.Visible(d.Done.Resource), d.Done.Candidate, d.Done.FromOffset, gone(d.Done))
			_, err = fmt.Fprintf(c.OutOrStdout(), "Next: tanist evidence %s\n", d.Transition)
			return err
		}),
	}
	f.add(c)
	c.Flags().StringVar(&q.Plan, "plan", "", "hash of the plan, from tanist plan accept-loss")
	c.Flags().StringVar(&q.Reason, "reason", "", "why, for the evidence")
	c.Flags().StringSliceVar(&q.Stopped, "stopped", nil, "nodes that are stopped for sure, with commas between")
	for _, name := range []string{"plan", "reason"} {
		_ = c.MarkFlagRequired(name) // the flag is defined above
	}
	return c
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
		_, err := fmt.Fprintf(w, "No plan for %s: %s.\n", name, admin.Visible(p.Against))
		return err
	}
	row := func(what, format string, a ...any) { fmt.Fprintf(w, "  %-10s %s\n", what, fmt.Sprintf(format, a...)) }
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
	next := "tanist accept-loss " + control.Quoted(p.Resource)
	if p.VHost != catalog.DefaultVHost {
		next += " --vhost " + control.Quoted(p.VHost)
	}
	if p.Partition > 0 {
		next += " --partition " + strconv.Itoa(int(p.Partition))
	}
	next += " --plan " + p.Plan + " --reason TEXT"
	if len(p.MustBeStopped) > 0 {
		row("stop first", "%s", mustStop(p.MustBeStopped))
		next += " --stopped " + strings.Join(p.MustBeStopped, ",")
	}
	_, err := fmt.Fprintf(w, "Next: start a missing node if that is possible at all, for then nothing is lost; else\n  %s\n", next)
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

// deletionFlags name a queue or stream that is to be deleted by force.
type deletionFlags struct {
	adminFlags
	vhost string
}

func (f *deletionFlags) add(c *cobra.Command) {
	f.adminFlags.add(c)
	c.Flags().StringVar(&f.vhost, "vhost", catalog.DefaultVHost, "virtual host of the queue or stream")
}

func newPlanDelete() *cobra.Command {
	var f deletionFlags
	c := &cobra.Command{
		Use: "delete RESOURCE", Short: "Say what deleting a queue or stream that cannot be served would give up", Args: cobra.ExactArgs(1),
		Long: fmt.Sprintf(`Says how a queue or stream stands that waits for copies which do not return, and what would be given up if it was deleted: its clients cannot
delete it, for there is no owner who could close it. It changes nothing. What is served is not deleted by force; its clients can delete it.

Exit codes: 0 there is a plan, %d it is not to be deleted by force now, 1 it could not be found out.`, exitNo),
		Example: "  tanist plan delete orders",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			against := func(p admin.DeletionPlan) bool { return p.Against != "" }
			return question(c, &f.adminFlags, printDeletionPlan, against)(api.PlanDeletion(c.Context(), admin.DeletionQuery{VHost: f.vhost, Resource: args[0]}))
		}),
	}
	f.add(c)
	return c
}

func newDelete() *cobra.Command {
	var f deletionFlags
	var q admin.DeletionRequest
	c := &cobra.Command{
		Use: "delete RESOURCE --plan HASH --reason TEXT", Short: "Delete a queue or stream that cannot be served, as planned", Args: cobra.ExactArgs(1),
		Long: `Deletes a queue or stream by force, as "tanist plan delete" has shown: it is refused if the plan is another by now. A missing node that could go
on confirming by itself must be named with --stopped: make sure that it is. Copies that return later are put aside, neither served nor dropped, until
"tanist deleted forget" says that nobody needs them; "tanist deleted" shows where they are, and "tanist inspect" on a stopped node what is in them.
The name is free at once, and nodes that had a copy can be removed. The reason is kept with the deletion, and in the evidence.`,
		Example: "  tanist delete orders --plan 5d1f0c9a4be27a33 --reason 'all three disks burnt' --stopped n1,n2",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			q.DeletionQuery = admin.DeletionQuery{VHost: f.vhost, Resource: args[0]}
			p, err := api.ForceDelete(c.Context(), q)
			if err != nil {
				return err
			}
			if f.json {
				return printJSON(c.OutOrStdout(), p)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s %s is deleted, as number %d; copies that return are put aside.\nNext: tanist deleted\n", p.Kind, admin.Visible(p.Resource), p.Incarnation)
			return err
		}),
	}
	f.add(c)
	c.Flags().StringVar(&q.Plan, "plan", "", "hash of the plan, from tanist plan delete")
	c.Flags().StringVar(&q.Reason, "reason", "", "why, for the record")
	c.Flags().StringSliceVar(&q.Stopped, "stopped", nil, "nodes that are stopped for sure, with commas between")
	for _, name := range []string{"plan", "reason"} {
		_ = c.MarkFlagRequired(name) // the flag is defined above
	}
	return c
}

func newDeleted() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "deleted", Short: "Show queues and streams that were deleted by force, and the copies put aside", Args: cobra.NoArgs,
		Example: "  tanist deleted",
		RunE: f.with(func(c *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Deletions(c.Context())
			if err != nil {
				return err
			}
			if f.json {
				return printJSON(c.OutOrStdout(), all)
			}
			return printDeletions(c.OutOrStdout(), all)
		}),
	}
	f.add(c)
	c.AddCommand(newForget())
	return c
}

func newForget() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "forget NUMBER", Short: "Drop the copies that were put aside for a forced deletion, for good", Args: cobra.ExactArgs(1),
		Example: "  tanist deleted forget 17",
		Long:    `Forgets a forced deletion. What was put aside for it is dropped on every node, also on nodes that return later. There is no way back.`,
		RunE: func(c *cobra.Command, args []string) error {
			n, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil {
				return fmt.Errorf("%q is not the number of a deletion; tanist deleted shows them", args[0])
			}
			api, err := f.client()
			if err != nil {
				return err
			}
			if err := api.ForgetDeletion(c.Context(), n); err != nil {
				return err
			}
			return done(c, f.json, "deletion %d is forgotten; what was put aside for it is dropped", n)
		},
	}
	f.add(c)
	return c
}

func printDeletionPlan(w io.Writer, p admin.DeletionPlan) error {
	name := p.Kind + " " + admin.Visible(p.Resource)
	if p.Against != "" {
		_, err := fmt.Fprintf(w, "No plan for %s: %s.\n", name, admin.Visible(p.Against))
		return err
	}
	row := func(what, format string, a ...any) { fmt.Fprintf(w, "  %-10s %s\n", what, fmt.Sprintf(format, a...)) }
	fmt.Fprintf(w, "Plan %s: delete %s with all that it holds\n", p.Plan, name)
	left := false
	for _, e := range p.Partitions {
		of := ""
		if len(p.Partitions) > 1 {
			of = fmt.Sprintf("partition %d: ", e.Partition)
		}
		if e.Served {
			row("served", "%sby %s", of, e.Owner)
			continue
		}
		known := "nothing was reported as confirmed"
		if e.Confirmed > 0 {
			known = fmt.Sprintf("up to position %d it was confirmed, as far as anyone has reported", e.Confirmed)
		}
		row("gone", "%s%s", of, known)
		if len(e.Missing) > 0 {
			row("missing", "%s%s: put aside on return", of, joined(e.Missing))
		}
		if len(e.Left) > 0 {
			left = true
			row("left", "%s%s: put aside", of, joined(e.Left))
		}
	}
	target := control.Quoted(p.Resource)
	if p.VHost != catalog.DefaultVHost {
		target += " --vhost " + control.Quoted(p.VHost)
	}
	next := "tanist delete " + target + " --plan " + p.Plan + " --reason TEXT"
	if len(p.MustBeStopped) > 0 {
		row("stop first", "%s", mustStop(p.MustBeStopped))
		next += " --stopped " + strings.Join(p.MustBeStopped, ",")
	}
	first := "start a missing node if that is possible at all, for then nothing is lost"
	if left {
		first += "; or go on with what is left: tanist plan accept-loss " + target
	}
	_, err := fmt.Fprintf(w, "Next: %s; else\n  %s\n", first, next)
	return err
}

func printDeletions(w io.Writer, all []admin.Deletion) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "Nothing was deleted by force, or all of it is forgotten.")
		return err
	}
	for _, d := range all {
		name := admin.Visible(d.Resource)
		if d.VHost != catalog.DefaultVHost {
			name = admin.Visible(d.VHost) + ": " + name
		}
		fmt.Fprintf(w, "%d: %s %s, deleted %s: %s\n", d.Incarnation, d.Kind, name, time.UnixMilli(d.At).Format(time.DateTime), admin.Visible(d.Reason))
		fmt.Fprintf(w, "  had copies on %s\n", joined(d.Held))
		for _, x := range d.Aside {
			fmt.Fprintf(w, "  put aside on %s: up to position %d, %s", admin.Visible(x.Node), x.Position, mebibytes(x.Bytes))
			if x.Damaged != "" {
				fmt.Fprintf(w, "; damaged: %s", admin.Visible(x.Damaged))
			}
			fmt.Fprintln(w)
		}
	}
	_, err := fmt.Fprintln(w, "Next: tanist deleted forget NUMBER drops what was put aside, once nobody needs it")
	return err
}

// mustStop says which nodes have to be stopped for sure, and why.
func mustStop(nodes []string) string {
	if len(nodes) == 1 {
		return joined(nodes) + ": if it runs, it could go on by itself"
	}
	return joined(nodes) + ": if they run, they could go on by themselves"
}
