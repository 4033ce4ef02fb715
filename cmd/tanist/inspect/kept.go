package inspect

import (
	"fmt"
	"io"
	"strconv"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/archive"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/port/vfs"
)

// inspected is what inspect prints of a data directory: the journal, and what is kept beside it.
type inspected struct {
	*storage.Report
	// Evidence is how many transitions there is evidence of, and EvidenceBroken how many bytes of it could not be read: the other nodes
	// have it, and a torn end is no damage.
	Evidence       int   `json:"evidence"`
	EvidenceBroken int64 `json:"evidence_broken,omitempty"`
	// CutEnds are what was cut from copies that were once owners, the oldest first; CutEndsBroken counts those that are not whole.
	CutEnds       []cutEnd `json:"cut_ends,omitempty"`
	CutEndsBroken int      `json:"cut_ends_broken,omitempty"`
}

// cutEnd is one cut end.
type cutEnd struct {
	Partition ident.Partition `json:"partition"`
	Epoch     uint64          `json:"epoch"` // whose history began where it was cut
	From      uint64          `json:"from"`  // position
	To        uint64          `json:"to"`    // position where the log had ended
	Records   uint64          `json:"records"`
	Bytes     int64           `json:"bytes"`
}

func (r *inspected) addArchive(dir string) error {
	records, broken, err := archive.Records(vfs.OS(), dir)
	if err != nil {
		return fmt.Errorf("evidence: %w", err)
	}
	ids := map[string]bool{}
	for _, e := range records {
		if !e.FactsOnly() {
			ids[e.ID] = true
		}
	}
	r.Evidence, r.EvidenceBroken = len(ids), broken
	ends, n, err := archive.Ends(vfs.OS(), dir)
	if err != nil {
		return fmt.Errorf("what was cut: %w", err)
	}
	r.CutEndsBroken = n
	for _, e := range ends {
		one := cutEnd{Partition: e.Partition, Epoch: e.Epoch, From: e.From, To: e.To}
		for _, b := range e.Batches {
			one.Records += uint64(b.Records)
			one.Bytes += int64(b.Size())
		}
		r.CutEnds = append(r.CutEnds, one)
	}
	return nil
}

func (r *inspected) printArchive(w io.Writer) error {
	fmt.Fprintf(w, "\nevidence of %s%s\n", show.Plural(r.Evidence, "transition"), show.Word(r.EvidenceBroken > 0, fmt.Sprintf("; %d bytes of it cannot be read", r.EvidenceBroken), ""))
	var rows [][]string
	for _, e := range r.CutEnds {
		u := func(n uint64) string { return strconv.FormatUint(n, 10) }
		rows = append(rows, []string{e.Partition.String(), u(e.Epoch), u(e.From), u(e.To), u(e.Records), strconv.FormatInt(e.Bytes, 10)})
	}
	if r.CutEndsBroken > 0 {
		fmt.Fprintf(w, "%s that were cut and kept cannot be read\n", show.Plural(r.CutEndsBroken, "end"))
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return show.Table(w, "CUT EPOCH FROM TO RECORDS BYTES", rows)
}

// inspectCut prints the entries that were cut from a partition's log, the end that was cut first before the others.
func inspectCut(w io.Writer, dir, name string, asJSON bool) error {
	p, err := ident.ParsePartition(name)
	if err != nil {
		return err
	}
	ends, broken, err := archive.Ends(vfs.OS(), dir)
	if err != nil {
		return err
	}
	var l entries
	for _, e := range ends {
		if e.Partition != p {
			continue
		}
		for _, b := range e.Batches {
			b.Each(func(x batch.Entry) bool { return l.add(b, x) })
		}
	}
	if len(l) == 0 {
		return nothingCut(p, dir, broken)
	}
	return l.print(w, asJSON)
}
