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

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

func newList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", SuggestFor: []string{"ls"}, Short: "List exchanges, bindings, connections and consumers",
		Long: "Lists what clients have made, and who they are. Queues and streams are listed by tanist status, named cursors by tanist cursor list.",
	}
	c.AddCommand(
		newListOf("exchanges", "List exchanges", 0, func(ctx context.Context, api *client.Client, vhost, _ string) ([]admin.Exchange, error) {
			return api.Exchanges(ctx, vhost)
		},
			rows("EXCHANGE VHOST TYPE ALTERNATE ARGUMENTS NOTES", exchangeRow)),
		newListOf("bindings [NAME]", "List bindings, or those that lead to or from a queue, stream or exchange", 1,
			func(ctx context.Context, api *client.Client, vhost, name string) ([]admin.Binding, error) {
				return api.Bindings(ctx, vhost, name)
			},
			rows("EXCHANGE VHOST KEY DESTINATION KIND ARGUMENTS", func(b admin.Binding) []string {
				return []string{b.Source, b.VHost, orDash(b.Key), b.Destination, b.Kind, orDash(words(b.Arguments))}
			})),
		newListOf("connections", "List the clients of all nodes", 0, func(ctx context.Context, api *client.Client, vhost, _ string) (admin.Clients, error) {
			return api.Clients(ctx, vhost)
		}, printClients),
		newListOf("consumers [RESOURCE]", "List the consumers of all queues and streams, or of one", 1,
			func(ctx context.Context, api *client.Client, vhost, name string) (admin.Consumers, error) {
				return api.Consumers(ctx, vhost, name)
			}, printConsumers),
	)
	return c
}

// newListOf is a verb that lists something, of one virtual host or all.
func newListOf[T any](use, short string, args int, get func(ctx context.Context, api *client.Client, vhost, name string) (T, error), text func(io.Writer, T) error) *cobra.Command {
	var f adminFlags
	var vhost string
	verb, argument, _ := strings.Cut(use, " ")
	example := "  tanist list " + verb
	if argument != "" {
		example += "\n  tanist list " + verb + " orders"
	}
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.MaximumNArgs(args), Example: example,
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			return answer(c, &f, text)(get(c.Context(), api, vhost, first(args...)))
		}),
	}
	f.add(c)
	c.Flags().StringVar(&vhost, "vhost", "", "only this virtual host (default all)")
	return c
}

// words are arguments in one cell.
func words(arguments map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		out = append(out, name+"="+arguments[name])
	}
	return strings.Join(out, ", ")
}

func exchangeRow(x admin.Exchange) []string {
	var notes []string
	for _, n := range []struct {
		is   bool
		says string
	}{
		{x.Builtin, "built in"}, {!x.Durable, "ends with node " + x.Node}, {x.AutoDelete, "goes with its last binding"}, {x.Internal, "internal"},
	} {
		if n.is {
			notes = append(notes, n.says)
		}
	}
	return []string{first(x.Name, "(default)"), x.VHost, x.Type, orDash(x.Alternate), orDash(words(x.Arguments)), strings.Join(notes, ", ")}
}

func printClients(w io.Writer, all admin.Clients) error {
	now := time.Now()
	row := func(c admin.Client) []string {
		return []string{
			fmt.Sprintf("%s/%d", c.Node, c.ID), c.Peer, orDash(c.User), orDash(c.VHost), c.State, now.Sub(time.UnixMilli(c.Since)).Round(time.Second).String(), strconv.Itoa(c.Channels),
			strconv.Itoa(len(c.Consumers)), strconv.FormatUint(c.Unsettled, 10), orDash(first(c.Name, c.Product)),
		}
	}
	if err := rows("CONNECTION PEER USER VHOST STATE SINCE CHANNELS CONSUMERS UNSETTLED CLIENT", row)(w, all.Clients); err != nil {
		return err
	}
	if more := all.Total - len(all.Clients); more > 0 {
		fmt.Fprintf(w, "… of %s in all virtual hosts\n", plural(all.Total, "connection"))
	}
	return printSilent(w, all.Silent)
}

func printConsumers(w io.Writer, all admin.Consumers) error {
	row := func(k admin.Consumer) []string {
		prefetch := "no bound"
		if k.Prefetch > 0 {
			prefetch = strconv.Itoa(k.Prefetch)
		}
		return []string{k.Resource, k.VHost, fmt.Sprintf("%s/%d", k.Node, k.Connection), strconv.Itoa(k.Channel), k.Tag, prefetch, word(k.NoAck, "as sent", "by the client")}
	}
	if err := rows("RESOURCE VHOST CONNECTION CHANNEL TAG PREFETCH SETTLED", row)(w, all.Consumers); err != nil {
		return err
	}
	return printSilent(w, all.Silent)
}

func printSilent(w io.Writer, silent []string) error {
	if len(silent) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nNot heard, so that their clients are missing: %s\n", strings.Join(silent, ", "))
	return err
}

func newCursor() *cobra.Command {
	c := &cobra.Command{
		Use: "cursor", SuggestFor: []string{"cursors", "offsets"}, Short: "List and delete named cursors of a stream",
		Long: `A named cursor keeps where a consumer of a stream goes on (argument x-cursor, or tanist consume --cursor). OFFSET is that of the next record that
it wants; it moves as deliveries are settled.`,
	}
	c.AddCommand(newCursorList(), newCursorDelete())
	return c
}

func newCursorList() *cobra.Command {
	var f adminFlags
	var vhost string
	c := &cobra.Command{
		Use: "list STREAM", Short: "List the named cursors of a stream", Args: cobra.ExactArgs(1),
		Example: "  tanist cursor list log",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			row := func(x admin.Cursor) []string {
				return []string{x.Name, strconv.FormatUint(uint64(x.Partition), 10), strconv.FormatUint(x.Offset, 10)}
			}
			return answer(c, &f, rows("CURSOR PARTITION OFFSET", row))(api.Cursors(c.Context(), vhost, args[0]))
		}),
	}
	f.add(c)
	c.Flags().StringVar(&vhost, "vhost", catalog.DefaultVHost, "virtual host")
	return c
}

func newCursorDelete() *cobra.Command {
	var f adminFlags
	var vhost string
	c := &cobra.Command{
		Use: "delete STREAM NAME", SuggestFor: []string{"forget", "remove"}, Short: "Delete a named cursor, so that who uses the name next begins anew", Args: cobra.ExactArgs(2),
		Example: "  tanist cursor delete log reports",
		Long: `Deletes a named cursor. Who consumes with its name next begins where x-stream-offset says. A consumer that uses it now goes on, and makes it
anew with its next settle: end it first.`,
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			if err := api.ForgetCursor(c.Context(), vhost, args[0], args[1]); err != nil {
				return err
			}
			return done(c, f.json, "cursor %s of %s is deleted", admin.Visible(args[1]), admin.Visible(args[0]))
		}),
	}
	f.add(c)
	c.Flags().StringVar(&vhost, "vhost", catalog.DefaultVHost, "virtual host")
	return c
}
