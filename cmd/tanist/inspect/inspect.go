// Package inspect is `tanist inspect`: it reads the data directories of nodes that are stopped, and writes nothing but what it is asked to export.
package inspect

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/port/vfs"
)

type inspectOptions struct {
	asJSON, compare, cut bool
	export               string
}

// New makes the verb.
func New() *cobra.Command {
	var o inspectOptions
	c := &cobra.Command{
		Use: "inspect [DIRECTORY [PARTITION]]", SuggestFor: []string{"check", "verify"}, Short: "Check a data directory without a node",
		Long: `Reads a data directory (default ./tanist-data), checks every batch of every copy (checksum, order, link), and says what is there. Nothing
is changed. It may run beside a node, but then lacks the newest entries. With a PARTITION, as the list names it, it prints that copy's
entries; with --cut those of the ends that were cut from it, and are kept aside because it was an owner's. The exit code is 2 if anything is
damaged.

With --export its messages are written whole to a file, one a line as JSON, for tanist publish --from: so what an accepted loss set aside is
published again. Those of which the same log says that they were settled or are gone for another reason are marked, and are not published.

With --compare it reads the data directories of several nodes of one cluster and checks that copies of one queue or stream hold the same:
wherever two hold a batch at a position, it is the same batch with the same history before it. What a copy holds that no later owner took
over was never confirmed, unless a loss was accepted; it is counted and not compared. The exit code is 2 if copies differ or are damaged. Directories of nodes that run
lack their newest entries, which shows as a lag and not as a difference.`,
		Example: "  tanist inspect /var/lib/tanist\n  tanist inspect --compare n1/data n2/data n3/data\n" +
			"  tanist inspect /var/lib/tanist 7/0 --cut --export orders.json && tanist publish orders --from orders.json --producer recovered",
		Args: cobra.ArbitraryArgs, // RunE knows how many
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	show.JSONFlag(c, &o.asJSON)
	c.Flags().BoolVar(&o.cut, "cut", false, "print what was cut from a partition's log")
	c.Flags().StringVar(&o.export, "export", "", "write the messages of a partition to this file, which must not be there yet, or - for standard output")
	c.Flags().BoolVar(&o.compare, "compare", false, "compare the copies in several data directories")
	return c
}

func (o *inspectOptions) run(c *cobra.Command, args []string) error {
	switch {
	case o.compare && len(args) < 2:
		return fmt.Errorf("--compare needs two data directories or more; `%s --help` has an example", c.CommandPath())
	case !o.compare && len(args) > 2:
		return fmt.Errorf("got %s; want: %s, or --compare", show.Plural(len(args), "argument"), c.UseLine())
	case o.compare:
		return inspectCompare(c.OutOrStdout(), args, o.asJSON)
	case (o.cut || o.export != "") && len(args) < 2:
		return fmt.Errorf("--cut and --export need a directory and a partition; `%s DIRECTORY` lists the copies, and what was cut", c.CommandPath())
	case o.export != "":
		return inspectExport(c.OutOrStdout(), c.ErrOrStderr(), args[0], args[1], o.export, o.cut)
	case o.cut:
		return inspectCut(c.OutOrStdout(), args[0], args[1], o.asJSON)
	case len(args) > 1:
		return inspectEntries(c.OutOrStdout(), args[0], args[1], o.asJSON)
	}
	dir := "tanist-data"
	if len(args) > 0 {
		dir = args[0]
	}
	return inspectAll(c.OutOrStdout(), dir, o.asJSON)
}

// inspectAll checks a whole data directory.
func inspectAll(w io.Writer, dir string, asJSON bool) error {
	r, err := storage.Inspect(vfs.OS(), dir, inspectProgress())
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w; is %s a data directory? `tanist config` shows where a node keeps its data", err, dir)
	}
	if err != nil {
		if below, berr := os.Stat(filepath.Join(dir, "data")); berr == nil && below.IsDir() {
			return fmt.Errorf("%w; tanist dev keeps a node's data in %s", err, filepath.Join(dir, "data"))
		}
		return err
	}
	all := inspected{Report: r}
	if err := all.addArchive(dir); err != nil {
		return err
	}
	if asJSON {
		err = show.JSON(w, all)
	} else {
		err = printReport(w, &all)
	}
	if err == nil && damaged(r) {
		return show.Exit(2)
	}
	return err
}

func inspectCompare(w io.Writer, dirs []string, asJSON bool) error {
	r, err := storage.Compare(vfs.OS(), dirs)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w; `tanist config` shows where a node keeps its data", err)
	}
	if err != nil {
		return err
	}
	if asJSON {
		err = show.JSON(w, r)
	} else {
		err = printComparison(w, r)
	}
	if err == nil && len(r.Problems) > 0 {
		return show.Exit(2)
	}
	return err
}

func printComparison(w io.Writer, r *storage.Comparison) error {
	u := func(n uint64) string { return strconv.FormatUint(n, 10) }
	for _, p := range r.Partitions {
		fmt.Fprintf(w, "%s: positions %d to %d in every copy, %s the same\n", p.Partition, p.From, p.To, show.Plural(p.Same, "batch pair"))
		var rows [][]string
		for _, c := range p.Copies {
			rows = append(rows, []string{
				c.Directory, c.Role, u(c.RoleEpoch), u(c.Head), u(c.Tail.Position), c.Tail.Link.String(), u(c.Lag), u(c.Cut),
				show.Word(c.Damaged == "", "ok", "DAMAGED"),
			})
		}
		if err := show.Table(w, "DIRECTORY ROLE EPOCH HEAD POSITION LINK LAG CUT STATE", rows); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, "problem:", p)
	}
	verdict := "All copies hold the same, as far as they reach."
	if len(r.Problems) > 0 {
		verdict = "Copies differ or are damaged. Keep all of the directories before anything else."
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}

func inspectProgress() func(done, of int) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	return func(done, of int) {
		if done%100 == 0 || done == of {
			fmt.Fprintf(os.Stderr, "\r%d of %d copies checked", done, of)
		}
		if done == of {
			fmt.Fprintln(os.Stderr)
		}
	}
}

func damaged(r *storage.Report) bool {
	return len(r.Problems) > 0 || r.Catalog.Damaged != "" || slices.ContainsFunc(r.Copies, func(c storage.CopyReport) bool { return c.Damaged != "" })
}

func printReport(w io.Writer, all *inspected) error {
	r := all.Report
	fmt.Fprintf(w, "store %s, boot %d, format %d%s\n", r.Store, r.Boot, r.Format, show.Word(r.InUse, ", in use by a process: the newest entries may be missing here", ""))
	fmt.Fprintf(w, "catalog: snapshot at %d, %s after it, last %d%s\n", r.Catalog.Snapshot, show.Plural(r.Catalog.Entries, "entry"), r.Catalog.Last,
		show.Word(r.Catalog.Damaged != "", ", DAMAGED: "+r.Catalog.Damaged, ""))
	var rows [][]string
	for _, f := range r.Files {
		state := show.Word(f.Generation == 0, "spare", show.Word(f.Full, "full", "current"))
		rows = append(rows, []string{f.Name, state, strconv.FormatUint(uint64(f.Generation), 10), strconv.FormatInt(f.Used, 10), strconv.FormatInt(f.Live, 10)})
	}
	fmt.Fprintln(w)
	if err := show.Table(w, "FILE STATE GENERATION USED LIVE", rows); err != nil {
		return err
	}
	rows = nil
	for _, c := range r.Copies {
		u := func(n uint64) string { return strconv.FormatUint(n, 10) }
		rows = append(rows, []string{
			c.Partition.String(), c.Role, u(c.RoleEpoch), u(c.Promise), u(c.Head), u(c.Tail.Position), u(c.Tail.Offset), u(c.Snapshot),
			strconv.Itoa(c.Batches), strconv.FormatInt(c.Bytes, 10), show.Word(c.Damaged == "", "ok", "DAMAGED: "+c.Damaged),
		})
	}
	fmt.Fprintln(w)
	if err := show.Table(w, "COPY ROLE EPOCH PROMISE HEAD POSITION OFFSET SNAPSHOT BATCHES BYTES STATE", rows); err != nil {
		return err
	}
	if err := all.printArchive(w); err != nil {
		return err
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, "problem:", p)
	}
	verdict := "\nAll is well."
	if damaged(r) {
		verdict = "\nThere is damage. Keep a copy of the directory before anything else; what is not marked is whole."
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}

// entry is one entry of a log as inspect prints it.
type entry struct {
	Position uint64  `json:"position"`
	Epoch    uint64  `json:"epoch"`
	Kind     string  `json:"kind"`
	Offset   *uint64 `json:"offset,omitempty"` // of records
	Bytes    int     `json:"bytes"`
	Start    string  `json:"start"` // the first bytes, in hexadecimal
}

func kindName(k batch.Kind) string {
	switch k {
	case batch.KindRecord:
		return "record"
	case batch.KindEvent:
		return "event"
	case batch.KindMark:
		return "mark"
	}
	return strconv.Itoa(int(k))
}

const shownBytes = 32

func inspectEntries(w io.Writer, dir, name string, asJSON bool) error {
	p, err := ident.ParsePartition(name)
	if err != nil {
		return err
	}
	var l entries
	if err = storage.InspectEntries(vfs.OS(), dir, p, l.add); err != nil {
		return err
	}
	return l.print(w, asJSON)
}

// entries are those of a log, to be printed.
type entries []entry

func (l *entries) add(b batch.Batch, e batch.Entry) bool {
	one := entry{Position: e.Position, Epoch: b.Epoch, Kind: kindName(e.Kind), Bytes: len(e.Body), Start: hex.EncodeToString(e.Body[:min(len(e.Body), shownBytes)])}
	if e.Kind == batch.KindRecord {
		one.Offset = &e.Offset
	}
	*l = append(*l, one)
	return true
}

func (l entries) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return show.JSON(w, l)
	}
	var rows [][]string
	for _, one := range l {
		offset := "-"
		if one.Offset != nil {
			offset = strconv.FormatUint(*one.Offset, 10)
		}
		rows = append(rows, []string{strconv.FormatUint(one.Position, 10), strconv.FormatUint(one.Epoch, 10), one.Kind, offset, strconv.Itoa(one.Bytes), one.Start})
	}
	return show.Table(w, "POSITION EPOCH KIND OFFSET BYTES START", rows)
}
