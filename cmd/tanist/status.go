package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

// report is what status prints.
type report struct {
	Overview   admin.Overview    `json:"overview"`
	Nodes      []admin.Node      `json:"nodes"`
	Resources  []admin.Resource  `json:"resources"`
	Partitions []admin.Partition `json:"partitions,omitempty"`
}

func newStatus() *cobra.Command {
	var f adminFlags
	var vhost string
	c := &cobra.Command{
		Use: "status [RESOURCE]", SuggestFor: []string{"list", "queues", "ls", "ps", "info", "show"}, Short: "Show the cluster, or one queue or stream with its copies", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := f.client()
			if err != nil {
				return err
			}
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
		},
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
	fmt.Fprintf(w, "%s here; %s, %s (", plural(o.Connections, "connection"), plural(o.Resources, "resource"), plural(o.Partitions, "partition"))
	for i, s := range admin.States {
		if i > 0 {
			fmt.Fprint(w, ", ")
		}
		fmt.Fprintf(w, "%d %s", o.States[s], s)
	}
	fmt.Fprint(w, ")\n\n")
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
	return nil
}

const resourceHeader = "RESOURCE VHOST KIND STATE READY UNSETTLED CONSUMERS POLICY"

func resourceRows(all []admin.Resource) (rows [][]string) {
	for _, x := range all {
		rows = append(rows, []string{
			x.Name, x.VHost, x.Kind, string(x.State), strconv.FormatUint(x.Ready, 10), strconv.FormatUint(x.Unsettled, 10),
			strconv.Itoa(x.Consumers), x.Policy,
		})
	}
	return rows
}

func (r *report) printResources(w io.Writer) error {
	if err := table(w, resourceHeader, resourceRows(r.Resources)); err != nil {
		return err
	}
	for _, x := range r.Resources {
		for _, name := range slices.Sorted(maps.Keys(x.Arguments)) {
			fmt.Fprintf(w, "  %s = %s\n", name, x.Arguments[name])
		}
	}
	for _, p := range r.Partitions {
		fmt.Fprintf(w, "\npartition %d of %s (%s to inspect): %s, epoch %d, version %d, %s, E %d W %d R %d, confirmed %d\n",
			p.Partition, p.Resource, p.ID, p.State, p.Epoch, p.Version, p.Policy, p.E, p.W, p.R, p.Confirmed)
		if p.Reason != "" {
			fmt.Fprintf(w, "  %s: %s\n", p.State, p.Reason)
		}
		var rows [][]string
		for _, c := range p.Copies {
			rows = append(rows, []string{
				c.Node, c.Role, strconv.FormatUint(c.Position, 10), strconv.FormatUint(c.Offset, 10), strconv.FormatUint(c.Durable, 10),
				strconv.FormatUint(c.Lag, 10), c.Health,
			})
		}
		if err := table(w, "COPY ROLE POSITION OFFSET DURABLE LAG HEALTH", rows); err != nil {
			return err
		}
	}
	return nil
}

func word(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}
