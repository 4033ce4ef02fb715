package storage

import (
	"fmt"
	"maps"
	"math"
	"path"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// Report is what Inspect finds in a data directory.
type Report struct {
	Store    ident.StoreID  `json:"store"`
	Boot     uint64         `json:"boot"` // of the last run
	Format   uint32         `json:"format"`
	InUse    bool           `json:"in_use"` // by a process: the newest frames may be missing here
	Files    []FileReport   `json:"files"`
	Frames   map[string]int `json:"frames"` // since the newest checkpoint, by type
	Copies   []CopyReport   `json:"copies"`
	Catalog  CatalogReport  `json:"catalog"`
	Problems []string       `json:"problems"` // empty where all is well
}

// FileReport is one log file.
type FileReport struct {
	Name       string `json:"name"`
	Generation uint32 `json:"generation"` // 0: a spare
	Full       bool   `json:"full"`       // with its index, read-only
	Used       int64  `json:"used"`       // bytes, as far as they were read
	Live       int64  `json:"live"`       // bytes of batches that a copy points to
}

// CopyReport is one copy.
type CopyReport struct {
	Partition ident.Partition `json:"partition"`
	Role      string          `json:"role"`
	RoleEpoch uint64          `json:"role_epoch"`
	Promise   uint64          `json:"promise"`
	Head      uint64          `json:"head"` // the lowest position that is kept
	Tail      batch.Tail      `json:"tail"`
	Snapshot  uint64          `json:"snapshot"` // position of the newest
	Batches   int             `json:"batches"`  // read and found whole
	Bytes     int64           `json:"bytes"`    // of these batches
	Records   uint64          `json:"records"`
	Damaged   string          `json:"damaged,omitempty"`
}

// CatalogReport is the consensus log.
type CatalogReport struct {
	Snapshot uint64 `json:"snapshot"` // index
	Entries  int    `json:"entries"`
	Last     uint64 `json:"last"` // index
	Damaged  string `json:"damaged,omitempty"`
}

// readOnly lets nothing be written.
type readOnly struct{ vfs.FS }

func (r readOnly) Open(name string) (vfs.File, error) { return r.FS.OpenRead(name) }

// Inspect reads a data directory without changing anything in it, and checks every batch of every copy: checksum, order and link.
// progress, if not nil, is called with the number of copies checked and of all. It returns ErrNewer where a newer version wrote the
// directory, and errors of the file system.
func Inspect(fsys vfs.FS, dir string, progress func(done, of int)) (*Report, error) {
	s, rp, err := load(fsys, dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.closeFiles() }() // nothing was written: there is nothing to lose
	r := &Report{Store: s.identity.store, Boot: s.identity.boot, Format: layout.Format, Frames: map[string]int{}, Problems: rp.problems}
	for t, n := range rp.counts {
		if n > 0 {
			r.Frames[layout.FrameType(t).String()] = n
		}
	}
	live := map[uint32]int64{}
	all := s.sorted()
	for i, c := range all {
		r.Copies = append(r.Copies, s.inspectCopy(c, live))
		if progress != nil {
			progress(i+1, len(all))
		}
	}
	for _, f := range slices.Concat(s.files, s.spares) {
		r.Files = append(r.Files, FileReport{
			Name: path.Base(f.name), Generation: f.generation, Full: f.footed, Used: f.size, Live: live[f.generation],
		})
	}
	m := &s.meta
	r.Catalog = CatalogReport{
		Snapshot: m.state.Snapshot.Index, Entries: len(m.state.Entries), Last: m.state.Snapshot.Index + uint64(len(m.state.Entries)), Damaged: m.bad,
	}
	for _, c := range r.Copies {
		if c.Damaged != "" {
			r.Problems = append(r.Problems, fmt.Sprintf("copy %s is damaged: %s", c.Partition, c.Damaged))
		}
	}
	if m.bad != "" {
		r.Problems = append(r.Problems, "the consensus log is damaged: "+m.bad)
	}
	if l, err := fsys.Lock(path.Join(dir, lockName)); err == nil {
		_ = l.Close() // nothing was written under it
	} else {
		r.InUse = true
	}
	return r, nil
}

// ReadLog reads the consensus log of a data directory without changing anything in it, and says whose it is and whether a process holds
// the directory: its newest entries may be missing then. It returns ErrDamaged where what was synced is broken, ErrNewer where a newer
// version wrote the directory, and errors of the file system.
func ReadLog(fsys vfs.FS, dir string) (st catalog.LogState, id ident.StoreID, inUse bool, err error) {
	s, _, err := load(fsys, dir)
	if err != nil {
		return st, id, false, err
	}
	defer func() { _ = s.closeFiles() }() // nothing was written: there is nothing to lose
	if l, err := fsys.Lock(path.Join(dir, lockName)); err == nil {
		_ = l.Close() // nothing was written under it
	} else {
		inUse = true
	}
	st, err = s.Consensus().Load()
	return st, s.identity.store, inUse, err
}

// load replays a directory as Open does, and writes nothing.
func load(fsys vfs.FS, dir string) (*Store, *replay, error) {
	s := &Store{env: Env{FS: readOnly{fsys}, Trace: trace.Discard}, dir: dir, opt: Options{}.withDefaults(), copies: map[ident.Partition]*Copy{}}
	s.w = &writer{s: s}
	s.r = newReader(s)
	id, known, err := readIdentity(s.env.FS, dir)
	if err != nil {
		return nil, nil, err
	}
	found := known
	files, err := s.openFiles(&id, &known)
	if err != nil {
		return nil, nil, err
	}
	if !known {
		return nil, nil, fmt.Errorf("%s holds no store: there is neither a valid %s nor a log file", dir, identityName)
	}
	s.identity = id
	rp := newReplay(s, files)
	if !found {
		rp.problem("%s is missing or broken; the next start makes it anew from the log files", identityName)
	}
	if err := rp.run(files); err != nil {
		return nil, nil, err
	}
	return s, rp, nil
}

func (s *Store) inspectCopy(c *Copy, live map[uint32]int64) CopyReport {
	r := CopyReport{
		Partition: c.part, Role: c.role.String(), RoleEpoch: c.roleEpoch, Promise: c.promise, Head: c.logged.Position, Tail: c.logged,
		Bytes: c.bytes, Records: c.records, Damaged: c.damaged,
	}
	if len(c.spans) > 0 {
		r.Head = c.spans[0].first
	}
	if c.snap != nil {
		r.Snapshot = c.snap.at.Position
		for _, p := range c.snap.pages {
			if _, err := s.readPage(c, p); err != nil && r.Damaged == "" {
				r.Damaged = err.Error()
			}
		}
	}
	err := s.eachBatch(c, func(b batch.Batch, l located) {
		r.Batches++
		live[l.f.generation] += int64(b.Size())
	})
	if err != nil && r.Damaged == "" {
		r.Damaged = err.Error()
	}
	return r
}

// eachBatch reads every batch of a copy and checks that each one that has a neighbour before it follows that one.
func (s *Store) eachBatch(c *Copy, each func(batch.Batch, located)) error {
	var last entry
	for i := range c.spans {
		es, err := s.entries(c.part, &c.spans[i])
		if err != nil {
			return err
		}
		for _, e := range es {
			l := located{e, c.spans[i].file}
			b, err := s.readBatch(c, l)
			if err != nil {
				return err
			}
			if last.end() == e.position && last.end() > 0 && b.PrevLink != last.link {
				return fmt.Errorf("%w: the batch at %d does not link to the one before it", ErrDamaged, e.position)
			}
			last = e
			each(b, l)
		}
	}
	return nil
}

// InspectEntries calls f for every entry that a copy holds, in order, until it returns false. It changes nothing. It fails with
// ErrDamaged where the copy cannot be read on, and with ErrGone where there is none.
func InspectEntries(fsys vfs.FS, dir string, p ident.Partition, f func(batch.Batch, batch.Entry) bool) error {
	s, _, err := load(fsys, dir)
	if err != nil {
		return err
	}
	defer func() { _ = s.closeFiles() }() // nothing was written: there is nothing to lose
	c := s.copies[p]
	if c == nil {
		return fmt.Errorf("%w: no copy of %s in %s; inspect without a partition lists those that are there", ErrGone, p, dir)
	}
	more := true
	return s.eachBatch(c, func(b batch.Batch, _ located) {
		if more {
			b.Each(func(e batch.Entry) bool {
				more = f(b, e)
				return more
			})
		}
	})
}

// Comparison is what Compare finds in the data directories of several nodes.
type Comparison struct {
	Partitions []PartitionComparison `json:"partitions"`
	Problems   []string              `json:"problems"` // what differs or cannot be read; empty where all is well
}

// PartitionComparison is one partition in every directory that holds a copy of it.
type PartitionComparison struct {
	Partition ident.Partition `json:"partition"`
	From      uint64          `json:"from"` // the positions that every copy has in common: from the highest head
	To        uint64          `json:"to"`   // up to the lowest end
	Same      int             `json:"same"` // batches found the same in two copies, over all pairs of copies
	Copies    []ComparedCopy  `json:"copies"`
}

// ComparedCopy is one copy that was compared.
type ComparedCopy struct {
	Directory string     `json:"directory"`
	Role      string     `json:"role"`
	RoleEpoch uint64     `json:"role_epoch"`
	Head      uint64     `json:"head"` // the lowest position that is kept
	Tail      batch.Tail `json:"tail"`
	Lag       uint64     `json:"lag"`           // entries behind the longest copy
	Cut       uint64     `json:"cut,omitempty"` // entries at its end that no later epoch took over: its next role cuts them
	Damaged   string     `json:"damaged,omitempty"`
}

// chronicle is what a copy holds, as far as it is compared.
type chronicle struct {
	ComparedCopy
	stones []stone
}

// stone is a batch; at the end of a whole history stands one without entries, for where it ends.
type stone struct {
	position, end uint64
	epoch         uint64
	prev, link    batch.Link
}

// Compare reads data directories of one cluster's nodes and checks that copies of one partition hold the same (design 2 §11, invariant 3):
// wherever two copies hold a batch at a position, it is the same batch with the same history before it, and each copy ends where
// others have the end of a batch. What a copy holds beyond the start of an epoch whose role it has not applied was never confirmed: it
// is counted and not compared. Nothing is changed. Errors are those of Inspect.
func Compare(fsys vfs.FS, dirs []string) (*Comparison, error) {
	by := map[ident.Partition][]chronicle{}
	for _, dir := range dirs {
		s, _, err := load(fsys, dir)
		if err != nil {
			return nil, err
		}
		for _, c := range s.sorted() {
			by[c.part] = append(by[c.part], s.history(c, dir))
		}
		_ = s.closeFiles() // nothing was written: there is nothing to lose
	}
	out := &Comparison{Partitions: []PartitionComparison{}, Problems: []string{}}
	for _, p := range slices.SortedFunc(maps.Keys(by), ident.Partition.Compare) {
		out.add(p, by[p])
	}
	return out, nil
}

// history reads a copy from its head to its end, or to where it is damaged.
func (s *Store) history(c *Copy, dir string) chronicle {
	h := chronicle{ComparedCopy: ComparedCopy{
		Directory: dir, Role: c.role.String(), RoleEpoch: c.roleEpoch, Head: c.logged.Position, Tail: c.logged, Damaged: c.damaged,
	}}
	if len(c.spans) > 0 {
		h.Head = c.spans[0].first
	}
	err := s.eachBatch(c, func(b batch.Batch, l located) {
		h.stones = append(h.stones, stone{position: b.Position, end: b.End(), epoch: b.Epoch, prev: b.PrevLink, link: l.e.link})
	})
	switch {
	case err == nil:
		end := h.Tail.Position
		h.stones = append(h.stones, stone{position: end, end: end, epoch: h.Tail.Epoch, prev: h.Tail.Link, link: h.Tail.Link})
	case h.Damaged == "":
		h.Damaged = err.Error()
	}
	return h
}

// add compares the copies of one partition, each with each.
func (r *Comparison) add(p ident.Partition, all []chronicle) {
	one := PartitionComparison{Partition: p, To: math.MaxUint64}
	longest := uint64(0)
	for i := range all {
		longest = max(longest, all[i].clip(all))
	}
	for i, h := range all {
		h.Lag = longest - min(longest, h.Tail.Position-h.Cut)
		one.From, one.To = max(one.From, h.Head), min(one.To, h.Tail.Position-h.Cut)
		one.Copies = append(one.Copies, h.ComparedCopy)
		if h.Damaged != "" {
			r.Problems = append(r.Problems, fmt.Sprintf("copy %s in %s is damaged: %s", p, h.Directory, h.Damaged))
		}
		for _, o := range all[:i] {
			same, err := compare(o, h)
			one.Same += same
			if err != nil {
				r.Problems = append(r.Problems, fmt.Sprintf("copies of %s in %s and %s differ: %v", p, o.Directory, h.Directory, err))
			}
		}
	}
	one.From = min(one.From, one.To)
	r.Partitions = append(r.Partitions, one)
}

// clip drops what lies beyond the start of an epoch that another copy's role knows and this one's does not (design 2 §5, "clip"), and
// gives the position where the rest ends.
func (h *chronicle) clip(all []chronicle) uint64 {
	limit := h.Tail.Position
	for _, o := range all {
		if o.RoleEpoch <= h.RoleEpoch {
			continue
		}
		later := func(s stone) bool { return s.epoch > h.Tail.Epoch }
		if i := slices.IndexFunc(o.stones, later); i >= 0 {
			limit = min(limit, o.stones[i].position)
		}
	}
	if h.Cut = h.Tail.Position - limit; h.Cut > 0 {
		h.stones = slices.DeleteFunc(h.stones, func(s stone) bool { return s.position >= limit })
	}
	return limit
}

// compare walks two histories and counts the batches that both hold; the error names the first that is not the same.
func compare(a, b chronicle) (same int, err error) {
	for x, y := a.stones, b.stones; len(x) > 0 && len(y) > 0; {
		p, q := x[0], y[0]
		switch {
		case p.position == q.position && p.end == q.end:
			if p.link != q.link {
				return same, fmt.Errorf("at position %d, links %s and %s", p.position, p.link, q.link)
			}
			if p.position < p.end {
				same++
			}
			x, y = x[1:], y[1:]
		case p.end <= q.position:
			if p.end == q.position && p.link != q.prev {
				return same, fmt.Errorf("before position %d, links %s and %s", q.position, p.link, q.prev)
			}
			x = x[1:]
		case q.end <= p.position:
			if q.end == p.position && q.link != p.prev {
				return same, fmt.Errorf("before position %d, links %s and %s", p.position, p.prev, q.link)
			}
			y = y[1:]
		default:
			return same, fmt.Errorf("at position %d, where one has entries %d to %d together and the other %d to %d",
				max(p.position, q.position), p.position, p.end, q.position, q.end)
		}
	}
	return same, nil
}
