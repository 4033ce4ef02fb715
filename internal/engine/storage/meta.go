package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/vfs"
)

// metaLog is the consensus log: small, since it is replaced by a snapshot again and again, and so kept in memory and written whole into
// every checkpoint. Only the files since the newest checkpoint hold frames of it.
type metaLog struct {
	state   catalog.LogState
	partial []byte // of a snapshot that is being written
	bad     string // not empty: synced entries are broken or missing
}

// entryPart bounds the entries of one frame.
const entryPart = 512 << 10

// Consensus is the part of the store that keeps the consensus log.
func (s *Store) Consensus() *Consensus { return &Consensus{s} }

// Consensus keeps the consensus log. Its methods may be called from any loop and never wait for the disk. Every done is called once, on a loop of storage's own:
// with nil when the thing is durable; else with ErrClosed, or the error that closed the store, and then the outcome is unknown until the store is opened
// again.
type Consensus struct{ s *Store }

// Load gives what was durable when the store was opened. It returns ErrDamaged where what was synced is broken.
func (m *Consensus) Load() (catalog.LogState, error) {
	m.s.mu.RLock()
	defer m.s.mu.RUnlock()
	if m.s.meta.bad != "" {
		return catalog.LogState{}, fmt.Errorf("%w: consensus log: %s", ErrDamaged, m.s.meta.bad)
	}
	st := m.s.meta.state
	st.Entries = slices.Clone(st.Entries)
	return st, nil
}

// The body of a frame of entries is a sequence of items, each with a first byte that says which:
//
//	1 hard state: uvarint length, bytes
//	2 entry: uvarint index, term, length; bytes      (replaces from its index on)
//	3 part of a snapshot: uvarint length, bytes
//	4 end of a snapshot: uvarint index, term
//	5 first part of a snapshot: as 3; what was gathered of an earlier one, which a crash cut short, is dropped
//	6 the log is empty from here on: nothing that came before counts
const (
	metaHard  = 1
	metaEntry = 2
	metaPart  = 3
	metaEnd   = 4
	metaFirst = 5
	metaEmpty = 6
)

// Append writes the hard state (nil: unchanged) and entries, which replace what was logged from their first index on. A write of more
// than half a MiB goes in several frames; done is called once all are durable.
func (m *Consensus) Append(hard []byte, entries []catalog.LogEntry, done func(error)) {
	var body []byte
	if hard != nil {
		body = layout.AppendBytes(append(body, metaHard), hard)
	}
	for _, e := range entries {
		if len(body) > 0 && len(body)+len(e.Data) > entryPart {
			m.write(body, nil)
			body = nil
		}
		body = appendEntry(body, e)
	}
	m.write(body, done)
}

func appendEntry(p []byte, e catalog.LogEntry) []byte {
	p = append(p, metaEntry)
	p = binary.AppendUvarint(p, e.Index)
	p = binary.AppendUvarint(p, e.Term)
	return layout.AppendBytes(p, e.Data)
}

// SaveSnapshot replaces everything up to its index, and what follows it unless the log holds the very entry that the snapshot ends with:
// what follows another one contradicts the snapshot.
func (m *Consensus) SaveSnapshot(sn catalog.LogSnapshot, done func(error)) {
	data, part := sn.Data, byte(metaFirst)
	for len(data) > entryPart {
		m.write(layout.AppendBytes([]byte{part}, data[:entryPart]), nil)
		data, part = data[entryPart:], metaPart
	}
	body := layout.AppendBytes([]byte{part}, data)
	body = binary.AppendUvarint(append(body, metaEnd), sn.Index)
	m.write(binary.AppendUvarint(body, sn.Term), done)
}

// Empty makes the log as it is in a new store, in one piece: after a crash it is either whole or empty. What it held is for the caller to
// keep (SetLogAside).
func (m *Consensus) Empty(done func(error)) { m.write([]byte{metaEmpty}, done) }

func (m *Consensus) write(body []byte, done func(error)) {
	m.s.w.enqueue(op{typ: layout.FrameEntries, body: body, done: done}, true)
}

// applyMeta takes the items of a frame. The bytes are kept.
func (s *Store) applyMeta(body []byte) error {
	d := layout.Decoder{P: body}
	m := &s.meta
	for len(d.P) > 0 && !d.Bad {
		switch d.U8() {
		case metaHard:
			m.state.Hard = d.Bytes()
		case metaEntry:
			e := catalog.LogEntry{Index: d.Uvarint(), Term: d.Uvarint(), Data: d.Bytes()}
			if !d.Bad {
				m.put(e)
			}
		case metaFirst:
			m.partial = append([]byte(nil), d.Bytes()...)
		case metaPart:
			m.partial = append(m.partial, d.Bytes()...)
		case metaEnd:
			sn := catalog.LogSnapshot{Index: d.Uvarint(), Term: d.Uvarint(), Data: slices.Clone(m.partial)} // it grew with room to spare
			m.partial = nil
			if !d.Bad {
				m.replace(sn)
			}
		case metaEmpty:
			*m = metaLog{}
		default:
			return layout.ErrBody
		}
	}
	return d.Err()
}

func (m *metaLog) put(e catalog.LogEntry) {
	es := m.state.Entries
	switch next := m.state.Snapshot.Index + uint64(len(es)) + 1; {
	case e.Index <= m.state.Snapshot.Index:
		return // older than the snapshot
	case e.Index > next:
		m.bad = fmt.Sprintf("entry %d follows %d", e.Index, next-1)
	default:
		m.state.Entries = append(es[:e.Index-m.state.Snapshot.Index-1], e)
	}
}

func (m *metaLog) replace(sn catalog.LogSnapshot) {
	old := m.state.Snapshot.Index
	if sn.Index < old {
		return
	}
	after := sn.Index - old // how many entries the snapshot takes the place of
	term := m.state.Snapshot.Term
	if es := m.state.Entries; 0 < after && after <= uint64(len(es)) {
		term = es[after-1].Term
	}
	if after > uint64(len(m.state.Entries)) || term != sn.Term {
		m.state.Entries = nil
	} else {
		m.state.Entries = slices.Clone(m.state.Entries[after:])
	}
	m.state.Snapshot = sn
}

func (m *metaLog) encode() []byte {
	var p []byte
	if m.state.Hard != nil {
		p = layout.AppendBytes(append(p, metaHard), m.state.Hard)
	}
	if m.state.Snapshot.Index > 0 {
		p = layout.AppendBytes(append(p, metaPart), m.state.Snapshot.Data)
		p = binary.AppendUvarint(append(p, metaEnd), m.state.Snapshot.Index)
		p = binary.AppendUvarint(p, m.state.Snapshot.Term)
	}
	for _, e := range m.state.Entries {
		p = appendEntry(p, e)
	}
	if len(m.partial) > 0 {
		p = layout.AppendBytes(append(p, metaPart), m.partial)
	}
	return p
}

// A consensus log that was set aside is a file:
//
//	0   8 B "TANISTCL"
//	8   u32 format version
//	12  u32 checksum, CRC-32C of all that follows
//	16  items as in a frame of entries
const (
	asideMagic  = "TANISTCL"
	asideHeader = 16
	asideLimit  = 1 << 30 // bytes
)

// SetLogAside writes a consensus log to a file of its own, durably, for people to keep: nothing reads it by itself. The folder is made if
// missing; a file of that name is replaced in one piece. The error is the file system's; repeating it is safe.
func SetLogAside(fsys vfs.FS, name string, st catalog.LogState) error {
	m := metaLog{state: st}
	body := m.encode()
	p := append(make([]byte, 0, asideHeader+len(body)), asideMagic...)
	p = binary.LittleEndian.AppendUint32(p, layout.Format)
	p = binary.LittleEndian.AppendUint32(p, crc32.Checksum(body, layout.Castagnoli))
	p = append(p, body...)
	folder := path.Dir(name)
	if err := fsys.MkdirAll(folder); err != nil {
		return err
	}
	if err := vfs.Replace(fsys, name, p); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(folder))
}

// ReadLogAside reads what SetLogAside wrote. It returns ErrDamaged where that is not whole, and errors of the file system.
func ReadLogAside(fsys vfs.FS, name string) (st catalog.LogState, err error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, err := io.ReadAll(io.NewSectionReader(f, 0, asideLimit))
	if err != nil {
		return st, err
	}
	if len(p) < asideHeader || string(p[:8]) != asideMagic || binary.LittleEndian.Uint32(p[12:]) != crc32.Checksum(p[asideHeader:], layout.Castagnoli) {
		return st, fmt.Errorf("%w: %s", ErrDamaged, name)
	}
	s := &Store{}
	if err := s.applyMeta(p[asideHeader:]); err != nil {
		return st, fmt.Errorf("%w: %s", ErrDamaged, name)
	}
	return s.meta.state, nil
}
