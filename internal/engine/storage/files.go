package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

const (
	logSuffix = ".log"
	// footerEntryMax is the greatest size of a batch's entry in a footer, its share of the section's head included.
	footerEntryMax = 10*4 + 8 + 16 + 30
	footerPart     = 512 << 10
	// entryBytes and sectionBytes are what an entry and a copy of a footer take in memory.
	entryBytes   = 80
	sectionBytes = 64
)

// logFile is one file of the journal.
type logFile struct {
	name       string
	number     uint64 // of the name
	generation uint32
	f          vfs.File
	size       int64 // of what has been written
	footed     bool  // has its index and is read-only
	footerAt   int64 // where the index begins; 0: not known
	owners     []*Copy
	reserve    bool // of a spare
	released   bool // it is being given up: the reader's own
	// unwritten is where in the current file the group begins that is being built, whose frames the index knows already; 0: nowhere.
	unwritten atomic.Int64
}

// holds reports whether a frame at a place has been written.
func (f *logFile) holds(at int64, body uint32) bool {
	from := f.unwritten.Load()
	return from == 0 || at+int64(layout.SizeOf(int(body))) <= from
}

func logName(number uint64) string { return fmt.Sprintf("%012d%s", number, logSuffix) }

func parseLogName(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, logSuffix)
	if !ok || len(digits) != 12 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// newest is the file that is written to.
func (s *Store) newest() *logFile { return s.files[len(s.files)-1] }

// nextNumber is a file name not taken.
func (s *Store) nextNumber() uint64 {
	var n uint64
	for _, f := range slices.Concat(s.files, s.spares) {
		n = max(n, f.number)
	}
	return n + 1
}

// allocate gives a file to overwrite: a spare, else a new one, else, on a full disk, the reserve. It returns an error that is
// ENOSPC where there is nothing. Only the writer's loop changes the lists of files, so only its changes need the lock.
func (s *Store) allocate() (*logFile, error) {
	if f, err := s.takeSpare(false); f != nil || err != nil {
		return f, err
	}
	f, err := s.create()
	if err == nil || Classify(err) != Full {
		return f, err
	}
	spare, spareErr := s.takeSpare(true)
	if spare == nil && spareErr == nil {
		return nil, err
	}
	return spare, spareErr
}

// takeSpare gives the first spare that has its full size, or can get it; nil where there is none.
func (s *Store) takeSpare(reserve bool) (*logFile, error) {
	for i, f := range s.spares {
		if f.reserve != reserve {
			continue
		}
		// It may have been made by a run with other settings, or be what damage left of a file.
		if err := f.f.Preallocate(s.opt.FileSize); err != nil {
			if Classify(err) == Full {
				continue
			}
			return nil, err
		}
		s.mu.Lock()
		s.spares = slices.Delete(s.spares, i, i+1)
		s.mu.Unlock()
		f.reserve = false
		if reserve {
			trace.Warn(s.env.Trace, "storage.reserve.used")
		}
		s.metrics.recycled.Add(1)
		return f, nil
	}
	return nil, nil
}

// create makes and preallocates a file. On failure nothing is left behind.
func (s *Store) create() (*logFile, error) {
	number := s.nextNumber()
	name := path.Join(s.dir, logName(number))
	f, err := s.env.FS.Create(name)
	if err != nil {
		return nil, err
	}
	if err = f.Preallocate(s.opt.FileSize); err == nil {
		err = s.env.FS.SyncDir(s.dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), s.env.FS.Remove(name))
	}
	s.metrics.created.Add(1)
	return &logFile{name: name, number: number, f: f}, nil
}

// fillReserve sees to the reserve, if there is room for it above the low-water mark.
func (s *Store) fillReserve() {
	have := 0
	for _, f := range s.spares {
		if f.reserve {
			have++
		}
	}
	for have < s.opt.Reserve {
		if free, err := s.env.FS.Free(s.dir); err != nil || int64(free) < s.opt.FileSize {
			return
		}
		f, err := s.create()
		if err != nil {
			return
		}
		f.reserve = true
		s.mu.Lock()
		s.spares = append(s.spares, f)
		s.mu.Unlock()
		have++
	}
}

// begin writes a file's header, not yet synced: the checkpoint that follows is.
func (s *Store) begin(f *logFile, generation uint32, first uint64) error {
	h := layout.FileHeader{Format: layout.Format, Store: s.identity.store, Generation: generation, First: first, Boot: s.identity.boot}
	if _, err := f.f.WriteAt(h.Encode(), 0); err != nil {
		return fmt.Errorf("journal %s: %w", f.name, err)
	}
	s.metrics.bytesWritten.Add(layout.HeaderSize)
	f.unwritten.Store(layout.HeaderSize)
	f.generation, f.size, f.footed, f.footerAt, f.owners = generation, layout.HeaderSize, false, 0, nil
	return nil
}

// roll ends the current file with its index and begins the next one with a checkpoint.
func (w *writer) roll() error {
	s := w.s
	next, err := s.allocate()
	if err != nil {
		if Classify(err) == Full {
			s.setHealth(func(h *Health) { h.Class, h.Reason, h.Blocked = Full, err.Error(), true })
			w.park()
			return nil
		}
		return err
	}
	if !w.cur.footed {
		if err := w.writeFooter(); err != nil {
			return err
		}
	}
	s.metrics.rolls.Add(1)
	s.r.wantReclaim()
	return w.enter(next)
}

// enter begins a file with a checkpoint and makes it the current one.
func (w *writer) enter(next *logFile) error {
	s := w.s
	if err := s.begin(next, s.generation+1, w.sequence); err != nil {
		return err
	}
	s.generation++
	s.mu.Lock()
	s.files = append(s.files, next)
	s.mu.Unlock()
	w.cur, w.footer = next, 0
	if err := w.writeFrames(s.encodeCheckpoint(), layout.FrameCheckpoint, layout.FrameCheckEnd); err != nil {
		return err
	}
	s.metrics.checkpoints.Add(1)
	s.identity.newest = next.generation
	return writeIdentity(s.env.FS, s.dir, &s.identity, false)
}

// writeFrames writes a long body as parts, the last one marked, and syncs.
func (w *writer) writeFrames(body []byte, part, last layout.FrameType) error {
	w.buf = w.buf[:0]
	from := w.sequence
	for first := true; first || len(body) > 0; first = false {
		n := min(len(body), footerPart)
		typ := part
		if n == len(body) {
			typ = last
		}
		f := layout.Frame{Typ: typ, Generation: w.cur.generation, Sequence: w.sequence, SyncedBelow: w.synced}
		w.buf = layout.AppendFrame(w.buf, f, body[:n])
		w.sequence++
		body = body[n:]
	}
	w.groupFrom = from
	w.group = w.group[:0]
	return w.commit()
}

// A footer is, for each copy with batches in the file, in order of partition:
//
//	partition | uvarint batches | for each: uvarint position, offset, time, epoch, place, size, count, records; 16 B link
func (w *writer) writeFooter() error {
	owners := slices.Clone(w.cur.owners)
	slices.SortFunc(owners, func(a, b *Copy) int { return a.part.Compare(b.part) })
	owners = slices.Compact(owners)
	var body []byte
	for _, c := range owners {
		c.mu.Lock()
		for i := range c.spans {
			if sp := &c.spans[i]; sp.file == w.cur {
				body = appendSection(body, c.part, sp.entries)
			}
		}
		c.mu.Unlock()
	}
	at := w.cur.size
	if err := w.writeFrames(body, layout.FrameFooter, layout.FrameFooterEnd); err != nil {
		return err
	}
	w.cur.footed, w.cur.footerAt = true, at
	w.cur.unwritten.Store(0)
	for _, c := range owners {
		c.mu.Lock()
		for i := range c.spans {
			if sp := &c.spans[i]; sp.file == w.cur {
				sp.entries = nil
			}
		}
		c.mu.Unlock()
	}
	w.cur.owners = nil
	return nil
}

func appendSection(p []byte, part ident.Partition, es []entry) []byte {
	p = layout.AppendPart(p, part)
	p = binary.AppendUvarint(p, uint64(len(es)))
	for _, e := range es {
		for _, v := range []uint64{
			e.position, e.offset, uint64(e.time), e.epoch, uint64(e.at), uint64(e.size), uint64(e.count), uint64(e.records),
		} {
			p = binary.AppendUvarint(p, v)
		}
		p = append(p, e.link[:]...)
	}
	return p
}

// footer is the index of a full file, in memory.
type footer struct {
	sections map[ident.Partition][]entry
	bytes    int64
	used     uint64 // when it was last asked for, in asks
	rebuilt  bool   // from what could be read of the batches, which need not be all
}

func parseFooter(body []byte) (*footer, error) {
	d := layout.Decoder{P: body}
	ft := &footer{sections: map[ident.Partition][]entry{}}
	for len(d.P) > 0 && !d.Bad {
		p := d.Part()
		n := d.Uvarint()
		if n > uint64(len(d.P)) {
			return nil, layout.ErrBody
		}
		es := ft.sections[p]
		for range n {
			e := entry{
				position: d.Uvarint(), offset: d.Uvarint(), time: int64(d.Uvarint()), epoch: d.Uvarint(), at: int64(d.Uvarint()),
				size: uint32(d.Uvarint()), count: uint32(d.Uvarint()), records: uint32(d.Uvarint()), link: d.Link(),
			}
			es = append(es, e)
		}
		ft.sections[p] = es
		ft.bytes += sectionBytes + int64(n)*entryBytes
	}
	return ft, d.Err()
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
