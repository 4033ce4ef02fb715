package storage

import (
	"fmt"
	"path"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
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
	Head      uint64          `json:"head"`
	Tail      batch.Tail      `json:"tail"`
	Snapshot  uint64          `json:"snapshot"` // position of the newest
	Batches   int             `json:"batches"`  // read and found whole
	Bytes     int64           `json:"bytes"`
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
	r := &Report{Store: s.identity.store, Boot: s.identity.boot, Format: Format, Frames: map[string]int{}, Problems: rp.problems}
	for t, n := range rp.counts {
		if n > 0 {
			r.Frames[frameType(t).String()] = n
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
	err := s.eachBatch(c, func(b batch.Batch, f *logFile) {
		r.Batches++
		live[f.generation] += int64(b.Size())
	})
	if err != nil && r.Damaged == "" {
		r.Damaged = err.Error()
	}
	return r
}

// eachBatch reads every batch of a copy and checks that each one that has a neighbour before it follows that one.
func (s *Store) eachBatch(c *Copy, each func(batch.Batch, *logFile)) error {
	var last entry
	for i := range c.spans {
		es, err := s.entries(c.part, &c.spans[i])
		if err != nil {
			return err
		}
		for _, e := range es {
			b, err := s.readBatch(c, located{e, c.spans[i].file})
			if err != nil {
				return err
			}
			if last.end() == e.position && last.end() > 0 && b.PrevLink != last.link {
				return fmt.Errorf("%w: the batch at %d does not link to the one before it", ErrDamaged, e.position)
			}
			last = e
			each(b, c.spans[i].file)
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
	return s.eachBatch(c, func(b batch.Batch, _ *logFile) {
		if more {
			b.Each(func(e batch.Entry) bool {
				more = f(b, e)
				return more
			})
		}
	})
}
