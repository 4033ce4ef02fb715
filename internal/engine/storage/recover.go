package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// recover reads what the directory holds and makes the store ready to be written to (design 3, "Start").
func (s *Store) recover() error {
	id, known, err := readIdentity(s.env.FS, s.dir)
	if err != nil {
		return err
	}
	whole := known && !id.broken
	files, err := s.openFiles(&id, &known)
	if err != nil {
		return err
	}
	if known && !whole {
		// What is broken or lost may have named a later boot, and a fault of it: a boot that is counted twice would pass for a run that
		// has ended, and own nothing.
		id.boot, id.flags = id.boot+unknownBoots, id.flags|flagFault
	}
	if err := s.begun(id, known); err != nil {
		return err
	}
	rp := newReplay(s, files)
	for _, f := range files {
		s.generation = max(s.generation, f.generation)
	}
	if err := rp.run(files); err != nil {
		return err
	}
	return s.ready(rp, id.flags&flagFault != 0)
}

// begun writes down that a run begins: the boot counter rises.
func (s *Store) begun(id identity, known bool) error {
	if !known {
		id = identity{}
		if _, err := io.ReadFull(s.env.Random, id.store[:]); err != nil {
			return fmt.Errorf("make a store id: %w", err)
		}
	}
	flags := id.flags & flagFault
	if id.cools() {
		flags |= flagCools
		s.cools.Store(true)
	}
	s.identity = identity{format: layout.Format, store: id.store, boot: id.boot + 1, flags: flags, newest: id.newest, slot: id.slot}
	if err := writeIdentity(s.env.FS, s.dir, &s.identity, !s.hasIdentity()); err != nil {
		return fmt.Errorf("write the store's identity: %w", err)
	}
	return nil
}

func (s *Store) hasIdentity() bool {
	_, ok, err := readIdentity(s.env.FS, s.dir)
	return ok && err == nil
}

// openFiles opens the log files and sorts them by generation. Those without a valid header are spares; those of another store are
// refused. Where the identity is lost, the files name the store.
func (s *Store) openFiles(id *identity, known *bool) ([]*logFile, error) {
	names, err := s.env.FS.List(s.dir)
	if err != nil {
		return nil, err
	}
	var used []*logFile
	for _, n := range names {
		number, ok := parseLogName(n)
		if !ok {
			continue
		}
		f := &logFile{name: path.Join(s.dir, n), number: number}
		if f.f, err = s.env.FS.Open(f.name); err != nil {
			return nil, err
		}
		h, err := readHeader(f)
		if errors.Is(err, ErrNewer) {
			return nil, errors.Join(err, f.f.Close())
		}
		if err != nil {
			s.spares = append(s.spares, f)
			continue
		}
		if !*known {
			id.store, *known = h.Store, true
		}
		if h.Store != id.store {
			return nil, errors.Join(fmt.Errorf("storage: %s belongs to store %s, the directory to %s; move it away", f.name, h.Store, id.store),
				f.f.Close())
		}
		id.boot = max(id.boot, h.Boot)
		f.generation = h.Generation
		used = append(used, f)
	}
	slices.SortFunc(used, func(a, b *logFile) int { return cmp.Compare(a.generation, b.generation) })
	return used, nil
}

func readHeader(f *logFile) (layout.FileHeader, error) {
	buf := make([]byte, layout.HeaderUsed)
	if _, err := f.f.ReadAt(buf, 0); err != nil && !errors.Is(err, io.EOF) {
		return layout.FileHeader{}, err
	}
	return layout.ParseFileHeader(buf)
}

// replay rebuilds the store's state from its files.
type replay struct {
	s            *Store
	byGeneration map[uint32]*logFile
	listed       map[uint32]bool // full files that the checkpoint counts and that were not released since
	deleted      map[ident.Partition]bool
	anew         map[ident.Partition]uint64 // by copy, the sequence of the last frame that gave up what it held
	strays       []ident.Partition          // of frames whose copy is not there
	expect       uint64                     // sequence of the next frame
	torn         *logFile
	tornAt       int64
	stale        []int64 // places of frames behind the torn end
	unproven     []unproven
	lost         []lost
	lostFile     string // not empty: a file is gone whose frames cannot be known
	witnesses    []witnessRange
	problems     []string
	counts       [layout.FrameTypeEnd]int
}

// unproven is a frame, of the file read last, that no later frame says was synced. The first of a file stands for its header and
// checkpoint.
type unproven struct {
	sequence uint64
	at       int64
}

// lost is a range of sequences whose frames were synced and cannot be read.
type lost struct {
	from, to uint64
	victims
	headed uint64 // how many of the frames had a valid head
}

// victims are those whose frames were in some range.
type victims struct {
	parts []ident.Partition
	meta  bool // the consensus log
}

type witnessRange struct {
	from, to uint64
	victims
}

func newReplay(s *Store, files []*logFile) *replay {
	rp := &replay{s: s, byGeneration: map[uint32]*logFile{}, deleted: map[ident.Partition]bool{}, anew: map[ident.Partition]uint64{}}
	for _, f := range files {
		rp.byGeneration[f.generation] = f
	}
	return rp
}

// run finds the newest checkpoint that is whole and replays what follows it.
func (rp *replay) run(files []*logFile) error {
	if err := rp.replayAll(files); err != nil {
		return err
	}
	var newest uint32
	if len(files) > 0 {
		newest = files[len(files)-1].generation
	}
	if known := rp.s.identity.newest; newest < known {
		rp.lostFile = fmt.Sprintf("log file of generation %d is missing or has no header", known)
	}
	return rp.judge()
}

func (rp *replay) replayAll(files []*logFile) error {
	start := -1
	for i := len(files) - 1; i >= 0 && start < 0; i-- {
		body, next, first, err := rp.checkpointOf(files[i])
		if err != nil {
			return err
		}
		if body == nil {
			rp.problem("%s does not begin with a whole checkpoint", files[i].name)
			continue
		}
		rp.listed = map[uint32]bool{}
		if err := rp.s.restoreCheckpoint(body, rp.byGeneration, rp.listed); err != nil {
			rp.problem("checkpoint of %s: %v", files[i].name, err)
			continue
		}
		start = i
		rp.expect = first
		if err := rp.file(files[i], next, i == len(files)-1); err != nil {
			return err
		}
	}
	if start < 0 {
		return rp.without(files)
	}
	for i := start + 1; i < len(files); i++ {
		if err := rp.follow(files[i-1], files[i], i == len(files)-1); err != nil {
			return err
		}
	}
	for _, f := range files[:start] {
		if f.footed = rp.listed[f.generation]; f.footed {
			rp.s.files = append(rp.s.files, f)
			continue
		}
		// It was given up, durably, and may be overwritten at once. It is another value than the one that spans may know.
		rp.s.spares = append(rp.s.spares, &logFile{name: f.name, number: f.number, f: f.f})
	}
	rp.s.files = append(rp.s.files, files[start:]...)
	return nil
}

// follow replays a file whose checkpoint was not whole, behind the one before it.
func (rp *replay) follow(before, f *logFile, last bool) error {
	if rp.torn == before && f.generation == before.generation+1 {
		// The file before ends torn and yet a later one was begun, which is only done after a sync of everything before.
		rp.gap(rp.expect, rp.firstOf(f))
	}
	rp.torn, rp.stale = nil, nil
	first := rp.expect
	if err := rp.file(f, layout.HeaderSize, last); err != nil {
		return err
	}
	if rp.torn == f && rp.expect == first && f.generation <= rp.s.identity.newest {
		rp.lostFile = fmt.Sprintf("%s was in use, and nothing in it can be read", f.name)
	}
	return nil
}

func (rp *replay) firstOf(f *logFile) uint64 {
	h, err := readHeader(f)
	if err != nil {
		return rp.expect
	}
	return h.First
}

// without handles files none of which begins with a whole checkpoint: either the first start never finished, or everything is lost.
func (rp *replay) without(files []*logFile) error {
	rp.s.copies, rp.s.meta = map[ident.Partition]*Copy{}, metaLog{}
	synced := false
	for _, f := range files {
		rp.expect = rp.firstOf(f)
		if err := rp.file(f, layout.HeaderSize, true); err != nil {
			return err
		}
		synced = synced || rp.expect > rp.firstOf(f) && f.generation > 1 || len(rp.lost) > 0
	}
	if synced {
		rp.s.meta.bad = "no checkpoint of the journal can be read"
		for _, c := range rp.s.copies {
			c.damaged = "no checkpoint of the journal can be read"
		}
		rp.s.files = files
		return nil
	}
	rp.s.spares = append(rp.s.spares, files...)
	rp.torn = nil
	return nil
}

func (rp *replay) problem(format string, a ...any) {
	rp.problems = append(rp.problems, fmt.Sprintf(format, a...))
}

// gap notes that the frames [from, to) were synced and are gone.
func (rp *replay) gap(from, to uint64) {
	if from < to {
		rp.lost = append(rp.lost, lost{from: from, to: to})
		rp.problem("frames %d to %d were synced and cannot be read", from, to-1)
	}
}

// judge marks the copies damaged that lost synced frames.
func (rp *replay) judge() error {
	if rp.lostFile != "" {
		rp.problem("%s", rp.lostFile)
		rp.s.meta.bad = rp.lostFile
		for _, c := range rp.s.copies {
			if c.damaged == "" {
				c.damaged = rp.lostFile
			}
		}
	}
	for _, l := range rp.lost {
		v, all := rp.hurt(l)
		why := fmt.Sprintf("frames %d to %d of the journal were synced and cannot be read", l.from, l.to-1)
		if all || v.meta {
			rp.s.meta.bad = why
		}
		// A copy that nothing else speaks of may be one whose creation is among what was lost: it is damaged, never new.
		v.parts = append(v.parts, rp.strays...)
		for _, p := range v.parts {
			if rp.s.copies[p] == nil && !rp.deleted[p] && rp.anew[p] < l.to {
				rp.s.copies[p] = &Copy{s: rp.s, part: p}
			}
		}
		for p, c := range rp.s.copies {
			if (all || slices.Contains(v.parts, p)) && c.damaged == "" && rp.anew[p] < l.to {
				c.damaged = why
			}
		}
	}
	for _, c := range rp.s.copies {
		if f := c.missing(); f != nil && c.damaged == "" {
			c.damaged = fmt.Sprintf("a part of it lay in a file that is not there (generation %d)", f.generation)
		}
		if c.importing() == nil {
			c.pending = nil
		}
	}
	for _, p := range rp.problems {
		trace.Warn(rp.s.env.Trace, "storage.problem", slog.String("what", p))
	}
	return nil
}

// missing is a file that the copy needs and that was not found.
func (c *Copy) missing() *logFile {
	for i := range c.spans {
		if c.spans[i].file.f == nil {
			return c.spans[i].file
		}
	}
	for _, sn := range c.snapshots() {
		for _, p := range sn.pages {
			if p.file.f == nil && (sn == c.snap || c.importing() != nil) {
				return p.file
			}
		}
	}
	return nil
}

// hurt says whose frames a lost range held, as heads and witnesses have it; all is true where they do not cover it.
func (rp *replay) hurt(l lost) (v victims, all bool) {
	v = victims{slices.Clone(l.parts), l.meta}
	if l.headed == l.to-l.from {
		return v, false
	}
	covered := l.from
	for _, w := range rp.witnesses {
		if w.to <= l.from || w.from >= l.to {
			continue
		}
		if w.from > covered {
			return v, true
		}
		covered = max(covered, w.to)
		v.parts, v.meta = append(v.parts, w.parts...), v.meta || w.meta
	}
	return v, covered < l.to
}

// ready makes the store writable: a torn end is dropped and synced, or rewritten elsewhere where an error of the run before makes
// what the kernel says doubtful.
func (s *Store) ready(rp *replay, doubtful bool) error {
	s.w.sequence, s.w.synced = rp.expect, rp.expect
	// Nothing in a spare says that it was the reserve: without this every start would set aside one more file.
	for i := range s.spares[:min(len(s.spares), max(0, s.opt.Reserve))] {
		s.spares[i].reserve = true
	}
	s.fillReserve()
	if len(s.files) == 0 {
		f, err := s.allocate()
		if err != nil {
			return err
		}
		s.w.sequence, s.w.synced = 1, 1
		return s.w.enter(f)
	}
	last := s.newest()
	if doubtful {
		if err := s.rewrite(last); err != nil {
			return err
		}
		s.identity.boot++ // a flag is only cleared by a later boot
		s.identity.flags = flagCools
		if err := writeIdentity(s.env.FS, s.dir, &s.identity, false); err != nil {
			return err
		}
	}
	// A process that was killed right after a failed sync may have left pages that the kernel takes for clean and that were never
	// written, without having been able to leave a mark. Written again they are dirty, and the sync below means them.
	if at := rp.unproven[0].at; at < last.size {
		again := io.NewOffsetWriter(last.f, at)
		if _, err := io.Copy(again, io.NewSectionReader(last.f, at, last.size-at)); err != nil {
			return fmt.Errorf("journal %s: %w", last.name, err)
		}
	}
	for _, at := range rp.stale {
		if _, err := last.f.WriteAt(make([]byte, layout.FrameHead), at); err != nil {
			return fmt.Errorf("journal %s: %w", last.name, err)
		}
	}
	if err := last.f.Sync(); err != nil {
		return fmt.Errorf("journal %s: %w", last.name, err)
	}
	last.unwritten.Store(last.size)
	s.w.cur = last
	if s.identity.newest < last.generation { // a start before this one was cut short
		s.identity.newest = last.generation
		if err := writeIdentity(s.env.FS, s.dir, &s.identity, false); err != nil {
			return err
		}
	}
	for _, c := range s.copies {
		c.tail = c.logged
		for i := range c.spans {
			if c.spans[i].file == last {
				s.w.footer += footerEntryMax * int64(len(c.spans[i].entries))
			}
		}
	}
	return nil
}

// rewrite puts a file's bytes into a new one under the same name: after an error of a sync its clean pages may never have been written.
func (s *Store) rewrite(last *logFile) error {
	name := last.name + ".new"
	if err := ignoreMissing(s.env.FS.Remove(name)); err != nil {
		return err
	}
	f, err := s.fresh(name)
	if err != nil {
		return err
	}
	// The header names this run, so that its boot is known even if the identity is lost once more.
	h, err := readHeader(last)
	h.Boot = s.identity.boot
	if err == nil {
		err = copyBytes(f, last.f, last.size)
	}
	if err == nil {
		_, err = f.WriteAt(h.Encode(), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	err = errors.Join(s.env.FS.Rename(name, last.name), s.env.FS.SyncDir(s.dir), last.f.Close())
	last.f = f
	trace.Warn(s.env.Trace, "storage.rewritten", slog.String("file", last.name))
	return err
}

// fresh makes a file under a name, of a spare one where the disk is full.
func (s *Store) fresh(name string) (vfs.File, error) {
	f, err := s.env.FS.Create(name)
	if err == nil {
		if err = f.Preallocate(s.opt.FileSize); err != nil {
			err = errors.Join(err, f.Close(), s.env.FS.Remove(name))
		}
	}
	if err == nil || Classify(err) != Full || len(s.spares) == 0 {
		return f, err
	}
	last := len(s.spares) - 1
	spare := s.spares[last]
	s.spares = s.spares[:last]
	return spare.f, s.env.FS.Rename(spare.name, name)
}

func copyBytes(to io.WriterAt, from io.ReaderAt, n int64) error {
	buf := make([]byte, 1<<20)
	for at := int64(0); at < n; {
		p := buf[:min(int64(len(buf)), n-at)]
		if _, err := from.ReadAt(p, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := to.WriteAt(p, at); err != nil {
			return err
		}
		at += int64(len(p))
	}
	return nil
}
