package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

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
			return answer(c, &f.adminFlags, func(w io.Writer, p admin.DeletionPlan) error {
				_, err := fmt.Fprintf(w, "%s %s is deleted, as number %d; copies that return are put aside.\nNext: tanist deleted\n", p.Kind, admin.Visible(p.Resource), p.Incarnation)
				return err
			})(api.ForceDelete(c.Context(), q))
		}),
	}
	f.add(c)
	consentFlags(c, &q.Consent)
	return c
}

func newDeleted() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "deleted", Short: "Show queues and streams that were deleted by force, and the copies put aside", Args: cobra.NoArgs,
		Example: "  tanist deleted",
		RunE: f.with(func(c *cobra.Command, api *client.Client, _ []string) error {
			return answer(c, &f, printDeletions)(api.Deletions(c.Context()))
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
		return printNoPlan(w, name, p.Against)
	}
	row := rowsOn(w)
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
	first := startFirst
	if left {
		first += "; or go on with what is left: tanist plan accept-loss " + admin.Target(p.VHost, p.Resource)
	}
	return printCarryOut(w, first, p.Command(), p.MustBeStopped)
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
