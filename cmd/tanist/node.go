package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

func newJoinToken() *cobra.Command {
	var f adminFlags
	var q admin.TokenRequest
	c := &cobra.Command{
		Use: "join-token", Short: "Make a token that lets one node join the cluster, once", Args: cobra.NoArgs,
		Long: `Makes a token with which one new node joins, once. It is printed here and kept nowhere: give it to the node as TANIST_JOIN_TOKEN, or in a
file with --join-token-file. Flags are seen in process lists.`,
		Example: "  tanist join-token --node n2 --ttl 10m",
		RunE: f.with(func(c *cobra.Command, api *client.Client, _ []string) error {
			t, err := api.JoinToken(c.Context(), q)
			if err != nil {
				return err
			}
			return printToken(c, f.json, t)
		}),
	}
	f.add(c)
	c.Flags().StringVar(&q.Node, "node", "", "the only name that may use it (default any)")
	c.Flags().StringVar(&q.TTL, "ttl", "1h", "how long it can be used, at most 168h")
	return c
}

// printToken gives the token alone to programs and pipes, and what to do with it to the other stream.
func printToken(c *cobra.Command, asJSON bool, t admin.Token) error {
	if asJSON {
		return printJSON(c.OutOrStdout(), t)
	}
	if _, err := fmt.Fprintln(c.OutOrStdout(), t.Token); err != nil {
		return err
	}
	name, at := first(t.Node, "NAME"), "HOST:PORT"
	if len(t.Join) > 0 {
		at = t.Join[0]
	}
	_, err := fmt.Fprintf(c.ErrOrStderr(), "Use it until %s:\n  TANIST_JOIN_TOKEN=… tanist serve --name %s --data DIR --mesh ADDRESS --join %s\n",
		time.UnixMilli(t.Expires).Format(time.DateTime+" MST"), name, at)
	return err
}

func newNode() *cobra.Command {
	c := &cobra.Command{Use: "node", Short: "List the nodes of the cluster, and change who they are"}
	c.AddCommand(newNodeList(), newNodeDrain(true), newNodeDrain(false), newNodeRemove(), newNodeReplace())
	return c
}

func newNodeList() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "list", Short: "List the members of the cluster", Args: cobra.NoArgs,
		Example: "  tanist node list",
		RunE: f.with(func(c *cobra.Command, api *client.Client, _ []string) error {
			return answer(c, &f, printNodes)(api.Nodes(c.Context()))
		}),
	}
	f.add(c)
	return c
}

func printNodes(w io.Writer, nodes []admin.Node) error {
	var rows [][]string
	for _, n := range nodes {
		var notes []string
		for _, x := range []struct {
			is   bool
			says string
		}{
			{n.Controller, "controller"},
			{n.Draining, "draining"},
			{n.Live && n.Lease == 0 && len(nodes) > 1, "holds no lease"},
			{n.Absent != 0, "away since " + time.UnixMilli(n.Absent).Format(time.DateTime)},
			{n.Reason != "", n.Reason},
		} {
			if x.is {
				notes = append(notes, x.says)
			}
		}
		rows = append(rows, []string{
			n.Name, show.PID(n.PID), orDash(n.AMQP), orDash(n.Admin), orDash(n.Mesh), word(n.Live, "live", "gone"), n.Health, strings.Join(notes, ", "),
		})
	}
	return table(w, "NODE PROCESS AMQP ADMIN MESH STATE HEALTH", rows)
}

func newNodeDrain(on bool) *cobra.Command {
	var f adminFlags
	use, short, said := "drain NAME", "Put no copies on a node, and have others follow in its stead",
		"node %s takes no new copies, and those that follow leave it as others can take them; what it owns stays; `tanist node undrain` takes it back"
	if !on {
		use, short, said = "undrain NAME", "Let a node take new copies again", "node %s takes new copies"
	}
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), Example: "  tanist node " + strings.Replace(use, "NAME", "n3", 1),
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			if err := api.DrainNode(c.Context(), args[0], on); err != nil {
				return err
			}
			return done(c, f.json, said, args[0])
		}),
	}
	f.add(c)
	return c
}

func newNodeRemove() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "remove NAME", Short: "Take a node that holds no copies out of the cluster, for good", Args: cobra.ExactArgs(1),
		Example: "  tanist node drain n3\n  tanist node remove n3",
		Long: `Takes a node out of the cluster. It is refused while the node owns or follows a durable queue or stream. Its data directory never
becomes a member again: to come back, the node joins with an empty one. tanist node drain first has other nodes follow in its stead. What a
node owns is moved by nothing yet but by its stop, upon which another copy owns.`,
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			if err := api.RemoveNode(c.Context(), args[0]); err != nil {
				return err
			}
			return done(c, f.json, "node %s is removed; its data directory is of no more use", args[0])
		}),
	}
	f.add(c)
	return c
}

// ownedBy counts the partitions that a node owns.
func ownedBy(ctx context.Context, api *client.Client, node string) (n int, err error) {
	all, err := api.Partitions(ctx, "", "")
	for _, p := range all {
		if p.Owner == node {
			n++
		}
	}
	return n, err
}

func newNodeReplace() *cobra.Command {
	var f adminFlags
	var ttl string
	c := &cobra.Command{
		Use: "replace NAME", Short: "Make a token for a node that takes the place of a lost one", Args: cobra.ExactArgs(1),
		Example: "  tanist node replace n3",
		Long: `Makes a token with which a node with an empty data directory joins under the name of one that is lost, and takes its places. Refused while
the node lives. Only for a node whose data directory is lost: where it still exists, start the node with it instead. From the join on the old
directory is of no more use. Queues and streams that the lost node followed get their copies back from the others; those
that it owned were taken over when it was lost, unless too few copies were left for that: those wait, and its directory may hold what no other
does.`,
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			t, err := api.ReplaceNode(c.Context(), args[0], ttl)
			if err != nil {
				return err
			}
			owned, err := ownedBy(c.Context(), api, args[0])
			if err != nil {
				return err
			}
			if owned > 0 {
				fmt.Fprintf(c.ErrOrStderr(), "Node %s still owns %s, which no other copy has taken over: what was confirmed may be in its data directory alone.\n"+
					"If that still exists, do not use the token: start the node with it. `tanist attention` says what they wait for.\n", args[0], plural(owned, "partition"))
			}
			return printToken(c, f.json, t)
		}),
	}
	f.add(c)
	c.Flags().StringVar(&ttl, "ttl", "1h", "how long the token can be used, at most 168h")
	return c
}
