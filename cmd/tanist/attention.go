package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

// exitNo is the exit code of a question whose answer is no, where 1 is that it was not answered: something needs attention, a node is not
// to be stopped, the cluster is not healthy yet.
const exitNo = 10

func newAttention() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "attention", SuggestFor: []string{"alarms", "alerts", "problems", "health"}, Short: "List what needs a person, and the next command", Args: cobra.NoArgs,
		Example: "  tanist attention\n  tanist attention > /tmp/attention || mail -s 'tanist needs somebody' ops < /tmp/attention",
		Long: fmt.Sprintf(`Lists what needs a person, the most pressing first: what it is about, since when, what limits it, what would end it, and the command to begin
with. It is drawn from what all nodes in reach say now. Last comes what needs nobody: what ends by itself at a time that is known, such as a
lost follower whose place is kept while copies enough are left, and data that is put aside and can be looked into or removed.

Exit codes: 0 nothing needs attention, %d something does, 1 it could not be found out.`, exitNo),
		RunE: f.with(func(c *cobra.Command, api *client.Client, _ []string) error {
			text := func(w io.Writer, a admin.Attention) error { return printAttention(w, a, time.Now()) }
			return question(c, &f, text, func(a admin.Attention) bool { return a.Needing > 0 })(api.Attention(c.Context()))
		}),
	}
	f.add(c)
	return c
}

func printAttention(w io.Writer, a admin.Attention, now time.Time) error {
	if a.Needing == 0 {
		fmt.Fprintln(w, "Nothing needs attention.")
	}
	for i, x := range a.Conditions {
		if i > 0 || a.Needing == 0 {
			fmt.Fprintln(w)
		}
		printCondition(w, x, now)
	}
	if more := a.Total - len(a.Conditions); more > 0 {
		fmt.Fprintf(w, "\n… and %d more\n", more)
	}
	if len(a.Silent) > 0 {
		if _, err := fmt.Fprintf(w, "\nNot heard, so that what only they know is missing: %s\n", strings.Join(a.Silent, ", ")); err != nil {
			return err
		}
	}
	return nil
}

func printCondition(w io.Writer, x control.Condition, now time.Time) {
	fmt.Fprintf(w, "%s: %s: %s\n", x.Code, admin.Visible(x.Subject), admin.Visible(x.What))
	limit := ""
	if x.Limit != "" {
		limit = ", limited by " + string(x.Limit)
	}
	if x.Notice {
		limit += ", which needs nobody"
	}
	since := time.UnixMilli(x.Since)
	fmt.Fprintf(w, "  since %s (%s)%s\n", since.Format(time.DateTime), now.Sub(since).Round(time.Second), limit)
	fmt.Fprintf(w, "  ends when %s\n  next: %s\n", admin.Visible(x.Ends), admin.Visible(x.Next))
}
