package storage

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

const lockName = "LOCK"

// Store is one data directory, open.
type Store struct {
	env      Env
	opt      Options
	dir      string
	lock     io.Closer
	identity identity
	w        *writer
	r        *reader
	cache    cache
	metrics  counters

	mu     sync.RWMutex // copies, files and spares; taken before a copy's lock
	copies map[ident.Partition]*Copy
	files  []*logFile // in use, ascending generations; the last is written to
	spares []*logFile // may be overwritten; a reserve among them is only taken when nothing else is to be had
	meta   metaLog

	generation    uint32 // of the newest file
	lastGroupFrom uint64

	footerMu sync.Mutex // the reader's footers; taken after a copy's lock

	healthMu sync.Mutex
	health   Health
	onHealth func(Health)

	opened time.Duration // monotonic
	cools  atomic.Bool   // an earlier run closed itself, and this one has not gone on for long enough yet

	syncing atomic.Int64 // monotonic start of the write under way, in nanoseconds plus one; 0: none
}

type counters struct {
	groups, syncs, frames, batches, bytesWritten, batchBytes, bytesMoved atomic.Uint64
	recycled, created, rolls, checkpoints, diskReads, syncNanos          atomic.Uint64
}

// Open opens the data directory dir, making it if it is not there, and reads what it holds. It blocks. It returns ErrInUse where
// another process has it, ErrNewer where a newer version wrote it, and otherwise errors of the file system; bad files are no error,
// but damage to the copies that they held.
func Open(env Env, dir string, opt Options) (*Store, error) {
	if env.Trace == nil {
		env.Trace = trace.Discard
	}
	if err := env.FS.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	lock, err := takeLock(env, dir)
	if err != nil {
		return nil, err
	}
	s := &Store{env: env, opt: opt.withDefaults(), dir: dir, lock: lock, copies: map[ident.Partition]*Copy{}}
	s.cache.limit = s.opt.CacheBytes
	s.w = &writer{s: s}
	s.r = newReader(s)
	if err := s.recover(); err != nil {
		s.closeFiles()
		return nil, errors.Join(err, lock.Close())
	}
	s.opened = env.Clock.Mono()
	s.w.mb = env.Exec.Dedicated("journal").Spawn("journal writer", s.w)
	s.r.mb = env.Exec.Dedicated("reader").Spawn("journal reader", s.r)
	s.w.mb.After(time.Second, msgSpace{})
	s.r.start()
	return s, nil
}

func takeLock(env Env, dir string) (io.Closer, error) {
	l, err := env.FS.Lock(path.Join(dir, lockName))
	if err != nil {
		if errors.Is(err, vfs.ErrLocked) {
			return nil, fmt.Errorf("%w: %s", ErrInUse, dir)
		}
		return nil, err
	}
	return l, nil
}

// ID is the store's, made once with the data directory.
func (s *Store) ID() ident.StoreID { return s.identity.store }

// Boot rises by at least one at every Open, durably.
func (s *Store) Boot() uint64 { return s.identity.boot }

// Create makes the copy of a partition. It is durable no later than what is written to it first. It returns ErrExists where there
// is one, or one whose Delete is not done.
func (s *Store) Create(p ident.Partition) (*Copy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.copies[p] != nil {
		return nil, fmt.Errorf("%w: %s", ErrExists, p)
	}
	c := &Copy{s: s, part: p}
	s.copies[p] = c
	s.w.enqueue(op{typ: layout.FrameCreate, c: c}, false)
	return c, nil
}

// Copies are all that exist, in order of partition.
func (s *Store) Copies() []*Copy {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.DeleteFunc(s.sorted(), (*Copy).isDeleted)
}

// sorted are all copies whose deletion has not been logged, in order of partition.
func (s *Store) sorted() []*Copy {
	all := make([]*Copy, 0, len(s.copies))
	for _, c := range s.copies {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Copy) int { return a.part.Compare(b.part) })
	return all
}

// Metrics are the counters at this moment.
func (s *Store) Metrics() Metrics {
	c := &s.metrics
	m := Metrics{
		Groups: c.groups.Load(), Syncs: c.syncs.Load(), Frames: c.frames.Load(), Batches: c.batches.Load(),
		BytesWritten: c.bytesWritten.Load(), BatchBytes: c.batchBytes.Load(), BytesMoved: c.bytesMoved.Load(),
		FilesRecycled: c.recycled.Load(), FilesCreated: c.created.Load(), Rolls: c.rolls.Load(), Checkpoints: c.checkpoints.Load(),
		ReadsFromDisk: c.diskReads.Load(), SyncNanos: c.syncNanos.Load(),
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	m.Files = len(s.files)
	for _, c := range s.copies {
		c.mu.Lock()
		m.LiveBytes += c.bytes
		c.mu.Unlock()
	}
	m.Free = s.Health().Free
	return m
}

// Stalled is how long the write and sync under way have taken, 0 if none is (design 2 §4, "stall").
func (s *Store) Stalled() time.Duration {
	start := s.syncing.Load()
	if start == 0 {
		return 0
	}
	return s.env.Clock.Mono() - time.Duration(start-1)
}

// Ending says that Close will follow once those who write have come to an end. They wait for what they have appended, so from now on what finds
// no space fails at once, and so does all after it: an end must not wait for space. Where there is space nothing changes.
func (s *Store) Ending() { s.w.mb.Post(msgEnding{}) }

// Close writes what waits, syncs, and gives the directory up. done is called once, on a loop of storage's own, with what closing the files or the lock
// failed with; whether each write became durable its own done has said. A store is closed once.
func (s *Store) Close(done func(error)) { s.w.mb.Post(msgClose{done}) }

// finish ends the store on the writer's loop, after the queue has run dry.
func (w *writer) finish() {
	done := w.closing
	w.closing, w.finished = nil, true
	w.close(ErrClosed)
	w.s.r.stop(func() {
		err := w.s.closeFiles()
		call(done, errors.Join(err, w.s.lock.Close()))
	})
}

func (s *Store) closeFiles() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, f := range slices.Concat(s.files, s.spares) {
		if f.f != nil {
			err = errors.Join(err, f.f.Close())
			f.f = nil
		}
	}
	return err
}

func (s *Store) beginSync(at time.Duration) { s.syncing.Store(int64(at) + 1) }

func (s *Store) endSync(at time.Duration, err error) {
	s.syncing.Store(0)
	if err == nil {
		s.healthMu.Lock()
		s.health.LastSync = at
		s.healthMu.Unlock()
	}
}

// fail calls done with an outcome on a loop of storage's own, as every done is.
func (s *Store) fail(done func(error), err error) {
	if done != nil {
		s.w.mb.Post(msgDone{done, err})
	}
}

// Cools reports whether the store is one that closed itself after an error, in this run or an earlier one, and has not gone on without another
// for Options.Readmit since it was opened: nothing should be owned on it while another can (design 2 §10). It survives restarts, each of which
// begins the time anew.
func (s *Store) Cools() bool { return s.cools.Load() }

// cool ends that, on the writer's loop, and writes it down. Where that fails the next run cools once more.
func (s *Store) cool() {
	if !s.cools.Load() || s.Health().Closed || s.env.Clock.Mono()-s.opened < s.opt.Readmit {
		return
	}
	s.identity.flags |= flagCooled
	if err := writeIdentity(s.env.FS, s.dir, &s.identity, false); err != nil {
		trace.Warn(s.env.Trace, "storage.cooled.unmarked", slog.String("error", err.Error()))
	}
	s.cools.Store(false)
	trace.Info(s.env.Trace, "storage.cooled")
}

// markFault makes the next start rewrite what may never have reached the disk. It is best effort: the disk is failing.
func (s *Store) markFault() {
	s.cools.Store(true)
	s.identity.flags |= flagFault
	if err := writeIdentity(s.env.FS, s.dir, &s.identity, false); err != nil {
		trace.Warn(s.env.Trace, "storage.fault.unmarked")
	}
}

// corrupt takes a copy out of service: what it holds cannot be trusted, and is not deleted.
func (s *Store) corrupt(c *Copy, err error) {
	if c == nil {
		return
	}
	c.mu.Lock()
	found := c.damaged == "" && !c.deleted
	if found {
		c.damaged = err.Error()
		s.w.enqueue(op{typ: layout.FrameDamage, c: c, body: []byte(c.damaged)}, true)
	}
	c.mu.Unlock()
	if found {
		s.setHealth(func(h *Health) { h.Class, h.Reason, h.Copy = Corruption, err.Error(), c.part })
	}
}

// healed ends the corruption that the store's health speaks of, once no copy is damaged any more.
func (s *Store) healed() {
	s.mu.RLock()
	all := s.sorted()
	s.mu.RUnlock()
	for _, c := range all {
		c.mu.Lock()
		damaged := c.damaged != "" && !c.deleted
		c.mu.Unlock()
		if damaged {
			return
		}
	}
	s.setHealth(func(h *Health) {
		if h.Class == Corruption {
			h.Class, h.Reason, h.Copy = Healthy, "", ident.Partition{}
		}
	})
}

func (c *Copy) isDeleted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deleted
}

var _ exec.Actor = (*writer)(nil)
