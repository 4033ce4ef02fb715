package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

func newTimeline() *cobra.Command {
	var f adminFlags
	var vhost string
	var n int
	c := &cobra.Command{
		Use: "timeline [RESOURCE]", SuggestFor: []string{"history", "transitions", "failovers"},
		Short: "List changes of owner, and how long each step took", Args: cobra.MaximumNArgs(1),
		Long: `Lists the last changes of owner, the oldest first, of all queues and streams or of one. SUSPECTED is the first sign that the old owner was gone, as
far as that is known, and of one that hung when it was last heard; the columns after it say how many milliseconds later the change was recorded in the catalog, enough copies had answered,
an owner was chosen, the choice was committed, the new owner served, and it confirmed its first message. A dash is what is not known, or did
not happen; later says that the first message came well after the new owner served, so that nobody waited for its confirm. Each time is of the clock of the node that saw it. tanist evidence ID says what a change was decided on.`,
		Example: "  tanist timeline\n  tanist timeline orders --last 3\n  tanist timeline --json",
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > admin.MaxTransitions {
				return fmt.Errorf("--last %d: want a number from 1 to %d", n, admin.MaxTransitions)
			}
			api, err := f.client()
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			all, err := api.Transitions(c.Context(), vhost, name, n)
			if err != nil {
				return err
			}
			if name != "" && len(all) == 0 {
				if err := knownResource(c.Context(), api, vhost, name); err != nil {
					return err
				}
			}
			if f.json {
				return printJSON(c.OutOrStdout(), all)
			}
			return printTimeline(c.OutOrStdout(), all, name)
		},
	}
	f.add(c)
	c.Flags().StringVar(&vhost, "vhost", "", "only this virtual host (default all)")
	c.Flags().IntVar(&n, "last", 20, "how many, the last ones")
	return c
}

// knownResource is an error where there is no queue or stream of a name; an empty virtual host stands for all.
func knownResource(ctx context.Context, api *client.Client, vhost, name string) error {
	all, err := api.Resources(ctx, vhost, name)
	switch {
	case err != nil || len(all) > 0:
		return err
	case vhost != "":
		return fmt.Errorf("no queue or stream %q in virtual host %q; `tanist status` lists them", name, vhost)
	}
	return fmt.Errorf("no queue or stream %q; `tanist status` lists them", name)
}

// moment is one time of a transition.
type moment struct {
	name, says string
	at         func(*evidence.Evidence) int64 // microseconds since 1970; 0: not known
}

// moments are a transition's, in the order of its steps.
var moments = []moment{
	{"LAST", "the old owner confirmed for the last time that anyone knows of", func(e *evidence.Evidence) int64 { return e.LastConfirm }},
	{"SUSPECTED", "the first sign that the old owner was gone", func(e *evidence.Evidence) int64 { return e.Suspected }},
	{"RECORDED", "the catalog recorded the change", func(e *evidence.Evidence) int64 { return e.Recorded }},
	{"SEALED", "enough copies had answered", func(e *evidence.Evidence) int64 { return e.Sealed }},
	{"CHOSEN", "the new owner was chosen", func(e *evidence.Evidence) int64 { return e.Chosen }},
	{"COMMITTED", "the catalog took the choice", func(e *evidence.Evidence) int64 { return e.Committed }},
	{"SERVING", "the new owner served", func(e *evidence.Evidence) int64 { return e.Serving }},
	{"CONFIRMED", "the new owner confirmed its first message", func(e *evidence.Evidence) int64 { return e.FirstConfirm }},
}

// saysOf is what a moment of one transition was.
func (m moment) saysOf(e *evidence.Evidence) string {
	switch {
	case m.name == "SUSPECTED" && control.CauseWord(e.Cause) == control.Expired.String():
		return "the old owner was last heard"
	case m.name == "CONFIRMED" && e.NobodyWaited():
		return m.says + ", which nobody waited for: it was published after the new owner served"
	}
	return m.says
}

// origin is the moment that the others are counted from: that of the suspicion, or the first known after it.
func origin(e *evidence.Evidence) int64 {
	for _, m := range moments[1:] {
		if at := m.at(e); at != 0 {
			return at
		}
	}
	return e.LastConfirm
}

func millis(us int64) string { return strconv.FormatFloat(float64(us)/1000, 'f', 1, 64) }

func stamp(us int64, layout string) string {
	if us == 0 {
		return "-"
	}
	return time.UnixMicro(us).Format(layout)
}

func printTimeline(w io.Writer, all []*evidence.Evidence, name string) error {
	if len(all) == 0 {
		of := ""
		if name != "" {
			of = " of " + admin.Visible(name)
		}
		_, err := fmt.Fprintf(w, "No changes of owner%s are known to this node.\n", of)
		return err
	}
	var rows [][]string
	for i := range all {
		e := all[len(all)-1-i] // the newest stands where one looks: beside the prompt
		from := origin(e)
		row := []string{stamp(from, "2006-01-02 15:04:05.000"), nameOf(e), string(e.Workflow), ownersOf(e)}
		for _, m := range moments[2:] {
			cell := "-"
			if at := m.at(e); at != 0 {
				cell = millis(at - from)
			}
			if m.name == "CONFIRMED" && e.NobodyWaited() {
				cell = "later"
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, outcomeOf(e), e.ID))
	}
	if err := table(w, "SUSPECTED RESOURCE WORKFLOW OWNER RECORDED SEALED CHOSEN COMMITTED SERVING CONFIRMED OUTCOME ID", rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nMilliseconds after SUSPECTED. What one was decided on: tanist evidence %s\n", all[0].ID)
	return err
}

func nameOf(e *evidence.Evidence) string {
	name := e.Resource
	if e.VHost != catalog.DefaultVHost {
		name = e.VHost + ":" + name
	}
	if e.Partition.Index > 0 {
		name += fmt.Sprintf(", partition %d", e.Partition.Index)
	}
	return name
}

func ownersOf(e *evidence.Evidence) string {
	if e.Kept() {
		return e.Before.Owner.Node + " stays"
	}
	return orDash(e.Before.Owner.Node) + " → " + orDash(e.After.Owner.Node)
}

func outcomeOf(e *evidence.Evidence) string {
	if e.Outcome == "" {
		return "under way"
	}
	return string(e.Outcome)
}

func newEvidence() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "evidence ID", SuggestFor: []string{"transition", "why"},
		Short: "Show what one change of owner was decided on", Args: cobra.ExactArgs(1),
		Long: `Shows one change of owner: why it was begun and who saw that, what each copy answered when it was sealed and which answers did not count, from
which position on the new owner's history goes, what copies had to drop for it, and when each step happened. tanist timeline lists the ids.

Of an answer, POSITION is where the copy's log ended on its disk, EPOCH that of its last batch, COUNTS up to where it counted (what an earlier
owner had not confirmed is left out), CONFIRMED the highest position that the copy knew to be confirmed.`,
		Example: "  tanist evidence 3/0@2.1",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			e, err := api.Transition(c.Context(), args[0])
			var refused *client.Error
			if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
				return fmt.Errorf("%w; another node may: --admin-url", err)
			}
			if err != nil {
				return err
			}
			if f.json {
				return printJSON(c.OutOrStdout(), e)
			}
			return printEvidence(c.OutOrStdout(), e)
		}),
	}
	f.add(c)
	return c
}

func printEvidence(w io.Writer, e *evidence.Evidence) error {
	fmt.Fprintf(w, "%s %s of %s %s: %s\n", e.Workflow, e.ID, e.Kind, admin.Visible(nameOf(e)), outcomeOf(e))
	line := func(name, format string, values ...any) {
		fmt.Fprintf(w, "  %-9s %s\n", name, fmt.Sprintf(format, values...))
	}
	if e.Reason != "" {
		line("because", "%s", admin.Visible(e.Reason))
	}
	seen := ""
	if len(e.SeenBy) > 0 && !strings.Contains(e.Cause, "seen by") {
		seen = ", seen by " + strings.Join(e.SeenBy, ", ")
	}
	line("cause", "%s%s", orDash(admin.Visible(e.Cause)), seen)
	kept := ""
	if e.Kept() {
		kept = ": the same node, which held everything that was confirmed"
	}
	line("owner", "%s in epoch %d → %s in epoch %d%s", runOf(e.Before.Owner), e.Before.Epoch, runOf(e.After.Owner), e.After.Epoch, kept)
	line("policy", "%s: %d of %s confirm, so %d had to answer; catalog version %d of the assignment", e.Policy, e.W, plural(e.E, "copy"), e.R, e.Version)
	switch {
	case e.Loses():
		line("loss", "%s", lossOf(e))
	case e.Floor.Position > 0:
		line("floor", "%d was confirmed, as %s reported: no copy that ends before it could be chosen", e.Floor.Position, orDash(e.Floor.By))
	}
	if e.Watermark != (evidence.Place{}) {
		line("watermark", "%s", placeOf(e.Watermark))
	}
	if e.After.Owner.Node != "" {
		line("start", "%s", placeOf(e.Start))
	}
	line("digest", "%s", e.Digest())
	if err := printAnswers(w, e); err != nil {
		return err
	}
	for _, x := range e.Cuts {
		kept := "not kept"
		if x.Quarantined {
			kept = "kept in quarantine on that node"
		}
		were := "which were never confirmed"
		if e.Workflow == evidence.LossWindow {
			were = "which were given up"
		}
		fmt.Fprintf(w, "cut on %s: entries %d to %d, %s, %s\n", x.Node, x.From, x.To, were, kept)
	}
	return printMoments(w, e)
}

func printAnswers(w io.Writer, e *evidence.Evidence) error {
	var rows [][]string
	excluded := map[ident.StoreID]string{}
	answered := map[ident.StoreID]bool{}
	for _, x := range e.Exclusions {
		excluded[x.Store] = x.Reason
	}
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	for _, a := range e.Answers {
		answered[a.From.Store] = true
		judged := "counted"
		if why := excluded[a.From.Store]; why != "" {
			judged = "did not count: " + why
		} else if a.Health != "" {
			judged = "did not count: " + a.Health
		}
		rows = append(rows, []string{
			a.From.Node, number(a.From.Boot), number(a.End.Epoch), number(a.End.Position), number(a.End.Offset), number(a.Clipped), number(a.Confirmed),
			short(a.End.Link), judged,
		})
	}
	for _, x := range e.Exclusions {
		if !answered[x.Store] {
			rows = append(rows, []string{x.Node, "-", "-", "-", "-", "-", "-", "-", x.Reason})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return table(w, "COPY BOOT EPOCH POSITION OFFSET COUNTS CONFIRMED LINK ANSWER", rows)
}

func printMoments(w io.Writer, e *evidence.Evidence) error {
	from := origin(e)
	if from == 0 {
		return nil
	}
	var rows [][]string
	known := slices.DeleteFunc(slices.Clone(moments), func(m moment) bool { return m.at(e) == 0 })
	slices.SortStableFunc(known, func(a, b moment) int { return cmp.Compare(a.at(e), b.at(e)) })
	for _, m := range known {
		rows = append(rows, []string{stamp(m.at(e), "2006-01-02 15:04:05.000000"), millis(m.at(e) - from), m.saysOf(e)})
	}
	fmt.Fprintln(w)
	return table(w, "TIME MILLISECONDS WHAT", rows)
}

func runOf(i ident.Instance) string {
	if i.Node == "" {
		return "nobody"
	}
	return fmt.Sprintf("%s (store %s, boot %d)", i.Node, i.Store.String()[:8], i.Boot)
}

func short(l evidence.Link) string {
	text, _ := l.MarshalText() // it never fails
	return string(text[:8])
}

func placeOf(p evidence.Place) string {
	return fmt.Sprintf("position %d, offset %d, epoch %d, link %s", p.Position, p.Offset, p.Epoch, short(p.Link))
}
