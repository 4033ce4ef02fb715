// Package recovery is `tanist recover`: what an operator does to data directories, with no node running on them, when the majority of the
// catalog's voters is lost for good. It prints; internal/node/recovery does it.
package recovery

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/node/recovery"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/vfs"
)

// New makes the verb.
func New() *cobra.Command {
	c := &cobra.Command{
		Use: "recover", Short: "Go on after the majority of the nodes that vote on the catalog was lost for good",
		Long: `When more than half of the voters are lost for good, nothing can be declared, moved or given up any more, though a node with everything may be
there. These verbs work on the data directories of stopped nodes. The best way out is always to start a lost node again with its disk: then
nothing of this is needed, and nothing is lost.`,
	}
	c.AddCommand(newCatalog(), newRejoin())
	return c
}

// disk is what reaches directories of this machine, until end is called.
func disk() (env recovery.Env, end func()) {
	loops := exec.New(0)
	return recovery.Env{FS: vfs.OS(), Random: rand.Reader, Clock: clock.System(), Exec: loops}, loops.Stop
}

type options struct {
	data string
	json bool
}

func (o *options) add(c *cobra.Command) {
	c.Flags().StringVar(&o.data, "data", "tanist-data", "data directory of the node, which must not run")
	show.JSONFlag(c, &o.json)
}

// missing says where data directories are, if that is what is wrong.
func missing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w; `tanist config` shows where a node keeps its data", err)
	}
	return err
}

func newCatalog() *cobra.Command {
	var o options
	var lost, stopped []string
	var plan, reason string
	c := &cobra.Command{
		Use: "catalog", Short: "Have the catalog go on from this node's log, without the majority of its voters", Args: cobra.NoArgs,
		Long: `Without --lost it says where this node's log of the catalog ends, and changes nothing: of several nodes that are left, recover the one with the
highest term and, of the same term, the highest index. It may be asked beside a running node, but then lacks the newest entries.

With --lost it plans: what it goes by, and what is assumed. Each other voter must be named: with --lost if it is gone for good, with --stopped if it
is there, does not run, and will follow ("tanist recover rejoin"). With --plan and --reason it does so: the log is taken whole, this node is
the only voter, and the catalog begins a new generation. It is recorded why. Then start the node: what it can serve alone it serves, the rest
waits, "tanist attention" names it, and "tanist plan accept-loss" is next.

Nodes that are left behind must not run: those that were lost hold the old majority, and together they would go on by themselves until they meet
this one. Start them one at a time, where they reach this node. Each then stops by itself and says so.`,
		Example: "  tanist recover catalog --data /var/lib/tanist\n  tanist recover catalog --data /var/lib/tanist --lost n2,n3\n" +
			"  tanist recover catalog --data /var/lib/tanist --lost n2,n3 --plan 5d1f0c9a4be27a33 --reason 'rack 2 burnt'",
		RunE: func(c *cobra.Command, _ []string) error {
			w := c.OutOrStdout()
			env, end := disk()
			defer end()
			switch {
			case plan != "" && (len(lost) == 0 || reason == ""):
				return fmt.Errorf("--plan needs the same --lost and --stopped as the plan, and a --reason for the evidence")
			case len(lost) == 0 && len(stopped) > 0:
				return fmt.Errorf("--stopped needs --lost: name the voters that are lost for good")
			case len(lost) == 0:
				d, err := recovery.Look(env, o.data)
				if err != nil {
					return missing(err)
				}
				return o.print(w, d, func() error { return printDirectory(w, d) })
			case plan == "":
				p, err := recovery.Make(env, o.data, lost, stopped, reason)
				if err != nil {
					return missing(err)
				}
				return o.print(w, p, func() error { return printPlan(w, p, o.data, lost, stopped) })
			}
			p, err := recovery.Carry(env, o.data, plan, lost, stopped, reason)
			if err != nil {
				return missing(err)
			}
			return o.print(w, p, func() error { return printCarried(w, p, o.data) })
		},
	}
	o.add(c)
	c.Flags().StringSliceVar(&lost, "lost", nil, "voters that are lost for good, with commas between")
	c.Flags().StringSliceVar(&stopped, "stopped", nil, "voters that are there, are stopped, and will follow, with commas between")
	c.Flags().StringVar(&plan, "plan", "", "hash of the plan, to carry it out")
	c.Flags().StringVar(&reason, "reason", "", "why, for the evidence")
	return c
}

func (o *options) print(w io.Writer, v any, text func() error) error {
	if o.json {
		return show.JSON(w, v)
	}
	return text()
}

func newRejoin() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "rejoin", Short: "Have a node that was left behind by a recovery of the catalog follow again", Args: cobra.NoArgs,
		Long: `For a node that stopped because the catalog was recovered without it. Its old catalog is kept in a file; it waits for the present one, as a node
that joins does. It keeps its name, its store and its copies: they follow again, and what a copy holds beyond the new history is cut and kept
aside by the usual rules. Copies of queues and streams that the present catalog does not know are dropped when the node starts: if something was
declared on the lost nodes in their last moments, keep a copy of the directory first. Then start the node as before.`,
		Example: "  tanist recover rejoin --data /var/lib/tanist",
		RunE: func(c *cobra.Command, _ []string) error {
			w := c.OutOrStdout()
			env, end := disk()
			defer end()
			r, err := recovery.Rejoin(env, o.data)
			if err != nil {
				return missing(err)
			}
			return o.print(w, r, func() error {
				fmt.Fprintf(w, "Node %s waits for the catalog of generation %s.", admin.Visible(r.Node), r.Generation)
				if r.Aside != "" {
					fmt.Fprintf(w, " Its old one is kept in %s.", r.Aside)
				}
				_, err := fmt.Fprintln(w, "\nNext: start it as before")
				return err
			})
		},
	}
	o.add(c)
	return c
}

func row(w io.Writer, what, format string, a ...any) {
	fmt.Fprintf(w, "  %-11s %s\n", what, fmt.Sprintf(format, a...))
}

func names(all []consensus.Member) string {
	var out []string
	for _, m := range all {
		out = append(out, admin.Visible(m.Node))
	}
	return strings.Join(out, ", ")
}

func printDirectory(w io.Writer, d *recovery.Directory) error {
	fmt.Fprintf(w, "Node %s, store %s\n", admin.Visible(d.Node), d.Store)
	if d.InUse {
		row(w, "in use", "a process holds the directory: the newest entries may be missing here")
	}
	if d.LeftBy != "" {
		row(w, "left behind", "node %s goes by a later generation; next: tanist recover rejoin", admin.Visible(d.LeftBy))
	}
	l := d.Log
	if l == nil {
		_, err := fmt.Fprintln(w, "  It has no catalog.")
		return err
	}
	row(w, "log ends", "in term %d at index %d; known to be committed up to %d", l.Term, l.Index, l.Committed)
	row(w, "generation", "%s", l.Generation)
	row(w, "voters", "%s", names(l.Voters))
	for _, r := range l.Recoveries {
		row(w, "recovered", "%s on %s, without %s: %s", time.UnixMilli(r.At).Format(time.DateTime), admin.Visible(r.Node), names(r.Lost), admin.Visible(r.Reason))
	}
	_, err := fmt.Fprintln(w, "Of several nodes that are left, the one whose log ends in the highest term, and of the same term at the highest index, has all that the others have.")
	return err
}

func printPlan(w io.Writer, p *recovery.Plan, dir string, lost, stopped []string) error {
	l, r := p.Directory.Log, p.Recovery
	fmt.Fprintf(w, "Plan %s: have the catalog go on from node %s alone\n", p.Plan, admin.Visible(p.Directory.Node))
	row(w, "goes by", "its log, which ends in term %d at index %d; known to be committed up to %d, %s after that are taken too", l.Term, l.Index, l.Committed, show.Plural(l.Unconfirmed, "entry"))
	row(w, "lost", "%s, for good by your word", names(r.Lost))
	if len(r.Stopped) > 0 {
		row(w, "stopped", "%s, by your word, with logs that end no further; they follow after `tanist recover rejoin` there", names(r.Stopped))
	}
	row(w, "gone", "what %s committed beyond that end: declarations, changes of users and settings, changes of owner, and what was confirmed under those", names(r.Lost))
	row(w, "generation", "%d in place of %s: nodes of the old one are refused, and stop when they meet this one", r.Number, l.Generation)
	row(w, "owners", "each is chosen anew: what this node cannot serve alone waits for copies, or for `tanist accept-loss`")
	next := "tanist recover catalog --data " + control.Quoted(dir) + " --lost " + strings.Join(lost, ",")
	if len(stopped) > 0 {
		next += " --stopped " + strings.Join(stopped, ",")
	}
	_, err := fmt.Fprintf(w, "Next: start a lost node if that is possible at all, for then nothing is lost; else keep a copy of the directory, and\n  %s --plan %s --reason TEXT\n", next, p.Plan)
	return err
}

func printCarried(w io.Writer, p *recovery.Plan, dir string) error {
	g := p.Recovery.Generation()
	fmt.Fprintf(w, "The catalog goes on from node %s alone, as generation %s.\n", admin.Visible(p.Directory.Node), g)
	_, err := fmt.Fprintf(w, "Next: start it (tanist serve --data %s …); `tanist attention` then names what waits, and `tanist plan accept-loss` says what can be done\n", control.Quoted(dir))
	return err
}
