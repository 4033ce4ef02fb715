package storage

import (
	"errors"
	"io/fs"
	"log/slog"
	"syscall"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/trace"
)

// Errors of a store. Those of a write say nothing about what reached the disk: the outcome is unknown.
var (
	// ErrClosed is returned when the store has been closed, or has closed itself after an error of a write or sync. A retry
	// cannot help before the store has been opened again.
	ErrClosed = errors.New("storage: closed")
	// ErrExists is returned by Create when there is a copy of that partition already. Not worth a retry.
	ErrExists = errors.New("storage: the copy exists")
	// ErrDamaged is returned when what was asked for is broken on disk, or missing from it. A retry cannot help: the copy
	// must be fetched anew from a healthy one.
	ErrDamaged = errors.New("storage: damaged")
	// ErrGone is returned when the copy was deleted. Not worth a retry.
	ErrGone = errors.New("storage: the copy was deleted")
	// ErrNotNext is returned by Append when a batch does not continue the log. Nothing was written.
	ErrNotNext = errors.New("storage: the batch does not continue the log")
	// ErrBadCut is returned by Cut when the position is no batch boundary of the log, or its link differs. Nothing was written.
	ErrBadCut = errors.New("storage: no batch of the log ends there")
	// ErrInUse is returned by Open when another process has the data directory. Worth a retry once that has ended.
	ErrInUse = errors.New("storage: the data directory is in use by another process")
	// ErrNewer is returned by Open when a newer version of the program wrote the data directory. Not worth a retry.
	ErrNewer = layout.ErrNewer
)

// Class of a storage fault (design 2 §10).
type Class string

// The classes of fault. The empty class is health.
const (
	Healthy    Class = ""
	Transient  Class = "transient"
	Pressure   Class = "pressure"
	Full       Class = "full"
	Permission Class = "permission"
	Uncertain  Class = "uncertain"
	Corruption Class = "corruption"
)

// Health is what the store says of itself. It is given to the listener at every change.
type Health struct {
	Class   Class           `json:"class"`
	Reason  string          `json:"reason,omitempty"`
	Closed  bool            `json:"closed"`  // to writes, until the store is opened again
	Blocked bool            `json:"blocked"` // publishers must wait: space is low; settles go on
	Copy    ident.Partition `json:"copy"`    // of a corruption: the copy that is damaged
	Free    uint64          `json:"free"`    // bytes that may still be written, spare files included

	// LastSync is the monotonic time of the last success and Failures how many writes or syncs failed since.
	LastSync time.Duration `json:"last_sync"`
	Failures int           `json:"failures"`
}

// Classify gives the class of an error of a write or sync.
func Classify(err error) Class {
	switch {
	case err == nil:
		return Healthy
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return Full
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return Permission
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return Pressure
	case errors.Is(err, ErrDamaged):
		return Corruption
	}
	return Uncertain
}

func (s *Store) setHealth(change func(*Health)) {
	s.healthMu.Lock()
	before := s.health
	change(&s.health)
	now, listen := s.health, s.onHealth
	s.healthMu.Unlock()
	if before == now {
		return
	}
	if listen != nil {
		defer listen(now)
	}
	// What changes with every look and needs nobody's attention is not logged.
	before.Free, before.LastSync = now.Free, now.LastSync
	if before == now {
		return
	}
	level := slog.LevelWarn
	if now.Closed && !before.Closed {
		level = slog.LevelError
	} else if now.Class == Healthy {
		level = slog.LevelInfo
	}
	s.env.Trace.Emit(trace.Event{Level: level, Name: "storage.health", Attrs: []slog.Attr{
		slog.String("class", string(now.Class)), slog.String("reason", now.Reason), slog.Bool("closed", now.Closed),
		slog.Bool("blocked", now.Blocked), slog.Uint64("free", now.Free),
	}})
}

// Health is the present state.
func (s *Store) Health() Health {
	s.healthMu.Lock()
	defer s.healthMu.Unlock()
	return s.health
}

// OnHealth names the listener, which is called at once with the present state if that is not healthy, and then at every
// change, on a loop of storage's own. It must not block.
func (s *Store) OnHealth(listen func(Health)) {
	s.healthMu.Lock()
	s.onHealth = listen
	now := s.health
	s.healthMu.Unlock()
	if now.Class != Healthy || now.Blocked {
		listen(now)
	}
}

// spaceEvery is how many bytes are written between two looks at the free space.
const spaceEvery = 16 << 20

// spaceAfterGroup looks at the free space now and then, on the writer's loop.
func (s *Store) spaceAfterGroup() {
	if s.w.sinceSpace += int64(len(s.w.buf)); s.w.sinceSpace >= spaceEvery {
		s.w.sinceSpace = 0
		s.checkSpace()
	}
}

// checkSpace blocks publishers below the low-water mark, before the disk is full, and lets them go on above the high one.
func (s *Store) checkSpace() {
	free, err := s.env.FS.Free(s.dir)
	if err != nil {
		return
	}
	s.mu.RLock()
	for _, f := range s.spares {
		if !f.reserve {
			free += uint64(s.opt.FileSize)
		}
	}
	s.mu.RUnlock()
	if s.w.cur != nil {
		free += uint64(max(0, s.opt.FileSize-s.w.cur.size))
	}
	s.setHealth(func(h *Health) {
		switch {
		case int64(free) < s.opt.LowWater && !h.Closed:
			if h.Blocked = true; h.Class != Full { // else it is known already, and perhaps how: the two reasons must not take turns
				h.Class, h.Reason = Full, "the free space is below the low-water mark"
			}
		case int64(free) >= s.opt.HighWater && h.Blocked && !s.w.parked:
			h.Blocked = false
			if h.Class == Full {
				h.Class, h.Reason = Healthy, ""
			}
		}
		h.Free = free >> 20 << 20 // whole MiB, so that a listener is not told of every file
	})
	if int64(free) >= s.opt.HighWater {
		s.fillReserve()
	}
}
