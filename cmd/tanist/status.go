package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

// report is what status prints.
type report struct {
	Overview   admin.Overview    `json:"overview"`
	Nodes      []admin.Node      `json:"nodes"`
	Resources  []admin.Resource  `json:"resources"`
	Partitions []admin.Partition `json:"partitions,omitempty"`
	Attention  admin.Attention   `json:"attention"`
}

func newStatus() *cobra.Command {
	var f adminFlags
	var vhost string
	c := &cobra.Command{
		Use: "status [RESOURCE]", SuggestFor: []string{"queues", "ps", "info", "show"}, Short: "Show the cluster, or one queue or stream with its copies", Args: cobra.MaximumNArgs(1),
		Example: "  tanist status\n  tanist status orders\n  tanist status --json",
		Long: `Shows the nodes, queues and streams of the cluster, or one queue or stream with its copies, as any node sees them; what is not known is a dash.

A partition serves, or waits and says for what. When its owner's node goes away another copy takes over, as soon as enough copies answer.
Of a copy, POSITION is the last entry that it has (a settle is an entry as a publish is), OFFSET the number of
messages or records ever published that it has, DURABLE the last entry that is on its disk, and LAG how many entries it is behind the owner's.
LEADS says whether it owns, could own if the owner was lost now, or why it could not.`,
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			r, err := gather(c.Context(), api, vhost, name)
			if err != nil {
				return err
			}
			if name != "" && len(r.Resources) == 0 {
				return fmt.Errorf("no queue or stream %q; `tanist status` lists them", name)
			}
			if f.json {
				return printJSON(c.OutOrStdout(), r)
			}
			if name != "" {
				return r.printResources(c.OutOrStdout())
			}
			return r.print(c.OutOrStdout())
		}),
	}
	f.add(c)
	c.Flags().StringVar(&vhost, "vhost", "", "only this virtual host (default all)")
	return c
}

func gather(ctx context.Context, api *client.Client, vhost, name string) (r report, err error) {
	if r.Overview, err = api.Overview(ctx); err != nil {
		return r, err
	}
	if r.Nodes, err = api.Nodes(ctx); err != nil {
		return r, err
	}
	if r.Attention, err = api.Attention(ctx); err != nil {
		return r, err
	}
	if r.Resources, err = api.Resources(ctx, vhost, name); err != nil || name == "" {
		return r, err
	}
	r.Partitions, err = api.Partitions(ctx, vhost, name)
	return r, err
}

// shownResources bounds the list on a screen; --json gives all.
const shownResources = 40

func (r *report) print(w io.Writer) error {
	o := r.Overview
	state := "ready"
	if !o.Ready {
		state = "not ready: " + o.NotReady
	}
	fmt.Fprintf(w, "%s %s, node %s, up %s: %s\n", o.Product, o.Version, o.Node, time.Since(time.UnixMilli(o.Started)).Round(time.Second), state)
	if o.Blocked != "" {
		fmt.Fprintf(w, "Publishers are blocked: %s\n", o.Blocked)
	}
	if o.Controller == "" {
		fmt.Fprint(w, "No node leads the catalog: nothing can be declared, deleted or changed until more than half of the nodes are back.\n")
	}
	fmt.Fprintf(w, "%s here; %s, %s (", plural(o.Connections, "connection"), plural(o.Resources, "resource"), plural(o.Partitions, "partition"))
	for i, s := range admin.States {
		if i > 0 {
			fmt.Fprint(w, ", ")
		}
		fmt.Fprintf(w, "%d %s", o.States[s], s)
	}
	fmt.Fprint(w, ")\n")
	printPressing(w, r.Attention)
	fmt.Fprintln(w)
	if err := printNodes(w, r.Nodes); err != nil {
		return err
	}
	if len(r.Resources) == 0 {
		_, err := fmt.Fprint(w, "\nNo queues or streams yet; try: tanist publish --declare queue hello world\n")
		return err
	}
	fmt.Fprintln(w)
	if err := table(w, resourceHeader, resourceRows(r.Resources[:min(len(r.Resources), shownResources)])); err != nil {
		return err
	}
	if more := len(r.Resources) - shownResources; more > 0 {
		fmt.Fprintf(w, "… and %d more; `tanist status NAME` shows one, --json all\n", more)
	}
	if o.States[admin.Waiting] > 0 {
		fmt.Fprint(w, "\nWhat one waits for: tanist status NAME\n")
	}
	return nil
}

// shownConditions bounds what status says of attention.
const shownConditions = 3

// printPressing says in one line each what needs a person most.
func printPressing(w io.Writer, a admin.Attention) {
	what := plural(a.Needing, "thing") + " need"
	switch a.Needing {
	case 0:
		what = "Nothing needs"
	case 1:
		what += "s"
	}
	if a.Total == 0 {
		fmt.Fprintf(w, "%s attention.\n", what)
		return
	}
	fmt.Fprintf(w, "%s attention (tanist attention says more):\n", what)
	for i, x := range a.Conditions {
		if i == shownConditions {
			fmt.Fprintf(w, "  … and %d more\n", a.Total-i)
			break
		}
		fmt.Fprintf(w, "  %s: %s: %s\n", x.Code, admin.Visible(x.Subject), admin.Visible(x.What))
	}
}

const resourceHeader = "RESOURCE VHOST KIND STATE READY UNSETTLED CONSUMERS POLICY"

func resourceRows(all []admin.Resource) (rows [][]string) {
	for _, x := range all {
		rows = append(rows, []string{
			x.Name, x.VHost, x.Kind, string(x.State), counted(x, x.Ready), counted(x, x.Unsettled), counted(x, uint64(x.Consumers)), x.Policy,
		})
	}
	return rows
}

// counted is a count of a resource's owners. None while an owner does not serve is not known.
func counted(x admin.Resource, n uint64) string {
	if n == 0 && x.State != admin.Serving && x.State != admin.Moving {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

func (r *report) printResources(w io.Writer) error {
	if err := table(w, resourceHeader, resourceRows(r.Resources)); err != nil {
		return err
	}
	for _, x := range r.Resources {
		for _, name := range slices.Sorted(maps.Keys(x.Arguments)) {
			fmt.Fprintf(w, "  %s = %s\n", name, admin.Visible(x.Arguments[name]))
		}
	}
	for _, p := range r.Partitions {
		if err := printPartition(w, p); err != nil {
			return err
		}
	}
	return nil
}

func printPartition(w io.Writer, p admin.Partition) error {
	owned := slices.ContainsFunc(p.Copies, func(c admin.Copy) bool { return c.Node == p.Owner && answers(c) })
	known := func(is bool, n uint64) string {
		if !is {
			return "-"
		}
		return strconv.FormatUint(n, 10)
	}
	fmt.Fprintf(w, "\npartition %d of %s (%s to inspect): %s, epoch %d, version %d, %s: %d of %s confirm\n",
		p.Partition, admin.Visible(p.Resource), p.ID, p.State, p.Epoch, p.Version, p.Policy, p.W, plural(p.E, "copy"))
	if owned {
		fmt.Fprintf(w, "  confirmed up to position %d: %s since it was made\n", p.Confirmed, plural(int(p.Messages), "message"))
	}
	if p.Reason != "" {
		fmt.Fprintf(w, "  %s: %s\n", p.State, admin.Visible(p.Reason))
	}
	if p.Transition != "" {
		fmt.Fprintf(w, "  a change of owner is under way: tanist evidence %s\n", p.Transition)
	}
	for _, line := range placesOf(p, time.Now()) {
		fmt.Fprintf(w, "  %s\n", admin.Visible(line))
	}
	var rows [][]string
	reached := 0
	for _, c := range p.Copies {
		is := answers(c)
		if is && (c.Role == "owner" || c.Role == "follower") {
			reached++
		}
		rows = append(rows, []string{
			c.Node, c.Role, known(is, c.Position), known(is, c.Offset), known(is, c.Durable), known(is && owned, c.Lag), c.Health, leads(p, c),
		})
	}
	if p.State == admin.Serving && reached < p.W {
		fmt.Fprintf(w, "  nothing is confirmed: %d in reach of the %d that a confirm needs; publishes are refused until more nodes are back\n", reached, p.W)
	}
	return table(w, "COPY ROLE POSITION OFFSET DURABLE LAG HEALTH LEADS", rows)
}

// placesOf says what becomes of the places of followers that are not simply there, how far learners are, and what is yet to do beside.
func placesOf(p admin.Partition, now time.Time) (out []string) {
	for _, h := range p.Held {
		out = append(out, heldText(h, now))
	}
	var owner admin.Copy
	for _, c := range p.Copies {
		if c.Node == p.Owner {
			owner = c
		}
	}
	for _, c := range p.Copies {
		if c.Reason != "" {
			out = append(out, c.Node+": "+c.Reason)
		}
		if c.Moved == 0 || !answers(c) {
			continue
		}
		text := fmt.Sprintf("%s has caught up %d of %s", c.Node, c.Position, plural(int(owner.Position), "entry"))
		if owner.Position > 0 {
			text += fmt.Sprintf(" (%d %%), %s of %s kept in logs", 100*min(c.Position, owner.Position)/owner.Position, mebibytes(c.Bytes), mebibytes(owner.Bytes))
		}
		out = append(out, text+fmt.Sprintf(", and came further %v ago", max(0, now.Sub(time.UnixMilli(c.Moved))).Round(time.Second)))
	}
	for _, c := range p.Copies {
		if c.Kept != 0 {
			until := time.UnixMilli(c.Kept)
			out = append(out, fmt.Sprintf("%s has no place any more: its copy (%s) is kept for another %v, until %s",
				c.Node, mebibytes(c.Bytes), max(0, until.Sub(now)).Round(time.Second), until.Format(time.TimeOnly)))
		}
	}
	if len(p.Changing) > 0 {
		out = append(out, "yet to do: "+strings.Join(p.Changing, "; "))
	}
	return out
}

// heldText says what becomes of the place of a follower that is not simply there.
func heldText(h admin.Held, now time.Time) string {
	text := h.Node
	if h.Since != 0 {
		text += fmt.Sprintf(" is away since %s", time.UnixMilli(h.Since).Format(time.DateTime))
	}
	text += ": " + h.Why
	if h.Until != 0 {
		text += fmt.Sprintf(" for another %v, until %s", max(0, time.UnixMilli(h.Until).Sub(now)).Round(time.Second), time.UnixMilli(h.Until).Format(time.TimeOnly))
	}
	switch {
	case h.Learner != "":
		text += "; " + h.Learner + " learns in its stead"
	case h.Until == 0:
		text += "; no node learns in its stead yet"
	}
	return text
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// leads says whether a copy owns, or could if the owner was lost now, or why it could not.
func leads(p admin.Partition, c admin.Copy) string {
	switch {
	case !c.CouldLead:
		return "no: " + c.WhyNot
	case c.Node == p.Owner:
		return "owns"
	}
	return "could"
}

// answers says whether a copy's node told of it.
func answers(c admin.Copy) bool { return c.Health != "unreachable" && c.Health != "missing" }

func word(b bool, yes, no string) string { return show.Word(b, yes, no) }
