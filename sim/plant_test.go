package sim

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/port/vfs"
)

// TestPlantedFaultsAreFound lies in one way after another and demands that simulations find it, and say what it is.
func TestPlantedFaultsAreFound(t *testing.T) {
	for _, p := range []struct {
		name   string
		plant  func() plant
		faults []Fault
		says   []string // one of them
	}{
		{"confirm before the sync", func() plant { return confirmEarly{} }, []Fault{FaultCrash}, []string{"was durable up to"}},
		{
			"confirm before the sync, and no witness", func() plant { return confirmEarly{deaf: true} },
			[]Fault{FaultCrash},
			[]string{string(check.RuleLost), string(check.RuleUnconfirmed), string(check.RuleSettled), string(check.RuleMoved), "another history than what was confirmed"},
		},
		{
			"a sync that does nothing", func() plant { return noSync{} },
			[]Fault{FaultCrash},
			[]string{"was durable up to", "has no such copy", string(check.RuleLost)},
		},
		{"seal without a durable promise", func() plant { return noPromise{} }, []Fault{FaultBoot, FaultCrash}, []string{"was promised"}},
		{
			// The catalog takes what the new run proposes for what the old one did, or the copies refuse a role in an epoch that they had
			// one in: nothing is served, which is found too.
			"a restarted owner keeps its epoch", func() plant { return sameBoot{} },
			[]Fault{FaultCrash},
			[]string{string(check.RuleEpoch), "partitions are being recovered", "partitions are being taken over", "no catalog yet"},
		},
		{"resend out of order", func() plant { return &swap{} }, []Fault{FaultStall}, []string{string(check.RuleOrder)}},
		{
			"a stale frame replayed", func() plant { return &stale{} },
			[]Fault{},
			[]string{string(check.RuleDuplicate), string(check.RuleLost), string(check.RuleReader)},
		},
		{"a settle that is lost", func() plant { return loseSettles{} }, []Fault{FaultCrash}, []string{string(check.RuleSettled), "is settled before that is durable"}},
		{"a cursor that is lost", func() plant { return loseCursors{} }, []Fault{FaultCrash}, []string{string(check.RuleCursor)}},
		{"stored and called refused", func() plant { return refuse{} }, []Fault{}, []string{string(check.RuleRefused)}},
		{"other bytes are read", func() plant { return &flipRead{} }, []Fault{FaultCrash}, []string{string(check.RuleBytes)}},
		{"delivered to two", func() plant { return twice{} }, []Fault{}, []string{string(check.RuleHeld), string(check.RuleFlag)}},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(300) {
				r := Run(Options{Seed: seed, Faults: p.faults, plant: p.plant()})
				if !r.Failed() {
					continue
				}
				if !slices.ContainsFunc(p.says, func(s string) bool { return strings.Contains(r.Failure, s) }) {
					t.Fatalf("seed %d finds something, and not what was planted: %s", seed, r.Failure)
				}
				t.Logf("found with seed %d: %.200s", seed, r.Failure)
				return
			}
			t.Fatal("300 seeds did not find it")
		})
	}
}

// confirmEarly says that an append is durable before it is.
type confirmEarly struct {
	honest
	deaf bool
}

func (p confirmEarly) log(s *site, l replica.Log) replica.Log {
	s.witness.deaf = p.deaf
	return earlyLog{l}
}

type earlyLog struct{ replica.Log }

func (l earlyLog) Append(b batch.Batch, link batch.Link, urgent bool, done func(error)) {
	l.Log.Append(b, link, urgent, func(error) {})
	done(nil)
}

// noSync makes a disk that lies about syncs of log files, as some do.
type noSync struct{ honest }

func (noSync) disk(_ *site, fs vfs.FS) vfs.FS { return lyingFS{fs} }

type lyingFS struct{ vfs.FS }

func (f lyingFS) wrap(file vfs.File, err error, name string) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, ".log") {
		return file, err
	}
	return lyingFile{file}, nil
}

func (f lyingFS) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return f.wrap(file, err, name)
}

func (f lyingFS) Open(name string) (vfs.File, error) {
	file, err := f.FS.Open(name)
	return f.wrap(file, err, name)
}

type lyingFile struct{ vfs.File }

func (lyingFile) Sync() error { return nil }

// noPromise answers a seal without having made its promise durable.
type noPromise struct{ honest }

func (noPromise) log(_ *site, l replica.Log) replica.Log { return promisingLog{l} }

type promisingLog struct{ replica.Log }

func (promisingLog) SetPromise(_ uint64, done func(error)) { done(nil) }

// sameBoot forgets that the node was started, so that a later run passes for the one before.
type sameBoot struct{ honest }

func (sameBoot) disk(s *site, fs vfs.FS) vfs.FS {
	if s.runs < 3 {
		return fs
	}
	return forgetfulFS{fs}
}

type forgetfulFS struct{ vfs.FS }

func (f forgetfulFS) Open(name string) (vfs.File, error) {
	file, err := f.FS.Open(name)
	if err == nil && strings.HasSuffix(name, "STORE") {
		return forgetfulFile{file}, nil
	}
	return file, err
}

type forgetfulFile struct{ vfs.File }

func (forgetfulFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// swap exchanges what two publishes after each other carry.
type swap struct {
	honest
	held *protocol.Publish
}

func (s *swap) toOwner(e *ear, msg any) {
	m, ok := msg.(protocol.Publish)
	switch {
	case ok && s.held == nil && m.Count == 1:
		m.Records = slices.Clone(m.Records)
		s.held = &m
	case ok && s.held != nil && m.To == s.held.To && m.Count == 1 && m.First == s.held.First+1:
		m.Records, s.held.Records = s.held.Records, slices.Clone(m.Records)
		e.to.Send(*s.held)
		e.to.Send(m)
		s.held = nil
	default:
		if s.held != nil && s.held.Partition == e.p {
			e.to.Send(*s.held)
			s.held = nil
		}
		e.to.Send(msg)
	}
}

// stale sends an old frame again in the place of a new one.
type stale struct {
	honest
	old []protocol.Publish
	n   int
}

func (s *stale) toOwner(e *ear, msg any) {
	if m, ok := msg.(protocol.Publish); ok {
		s.n++
		i := slices.IndexFunc(s.old, func(o protocol.Publish) bool {
			return o.Partition == m.Partition && o.Count == m.Count && o.First != m.First && len(m.Runs) == 1
		})
		if i >= 0 && s.n > 40 {
			m.Records, s.n = s.old[i].Records, 0
		} else {
			o := m
			o.Records = slices.Clone(m.Records)
			s.old = append(s.old, o)
		}
		msg = m
	}
	e.to.Send(msg)
}

// loseSettles drops settles and says that they are confirmed.
type loseSettles struct{ honest }

func (loseSettles) toOwner(e *ear, msg any) {
	if m, ok := msg.(protocol.Settle); ok && e.mouths[m.Gateway] != nil && m.Seq%3 == 0 {
		e.mouths[m.Gateway].Send(protocol.Settled{Partition: m.Partition, Stream: m.Stream, Seq: m.Seq})
		return
	}
	e.to.Send(msg)
}

// loseCursors does the same to cursors.
type loseCursors struct{ honest }

func (loseCursors) toOwner(e *ear, msg any) {
	if m, ok := msg.(protocol.Cursor); ok && e.mouths[m.Gateway] != nil {
		e.mouths[m.Gateway].Send(protocol.Settled{Partition: m.Partition, Stream: m.Stream, Seq: m.Seq})
		return
	}
	e.to.Send(msg)
}

// refuse says that a publish was refused when it was stored.
type refuse struct{ honest }

func (refuse) toGateway(m *mouth, msg any) {
	if p, ok := msg.(protocol.Published); ok && p.UpTo%7 == 0 {
		m.to.Send(protocol.PublishRefused{Partition: p.Partition, Stream: p.Stream, First: p.UpTo - 1, Count: 1, Reason: "planted"})
	}
	m.to.Send(msg)
}

// flipRead turns a bit of what is read, with a checksum to match.
type flipRead struct {
	honest
	reads int
}

func (p *flipRead) log(_ *site, l replica.Log) replica.Log { return turningLog{l, p} }

type turningLog struct {
	replica.Log
	p *flipRead
}

func (l turningLog) ReadOffset(offset uint64, most int, done func([]batch.Batch, error)) {
	l.Log.ReadOffset(offset, most, func(bs []batch.Batch, err error) {
		l.p.reads++
		if err == nil && l.p.reads%20 == 0 {
			bs = turned(bs)
		}
		done(bs, err)
	})
}

// turned gives batches with a bit turned in the first, if that has records, and a checksum to match.
func turned(bs []batch.Batch) []batch.Batch {
	if len(bs) == 0 || bs[0].Records == 0 {
		return bs
	}
	raw := slices.Clone(bs[0].Bytes())
	raw[len(raw)-1] ^= 1
	binary.LittleEndian.PutUint32(raw[4:], crc32.Checksum(raw[8:], crc32.MakeTable(crc32.Castagnoli)))
	b, err := batch.Parse(raw)
	if err != nil {
		return bs
	}
	bs = slices.Clone(bs)
	bs[0] = b
	return bs
}

// twice delivers a message of a queue to whoever else consumes it, or a stretch of a stream again.
type twice struct{ honest }

func (twice) toGateway(m *mouth, msg any) {
	m.to.Send(msg)
	d, ok := msg.(protocol.Deliver)
	if !ok {
		return
	}
	for _, g := range m.e.order {
		if other := m.e.mouths[g]; g != m.gateway && other.consumer != 0 {
			items := slices.Clone(d.Items[:1])
			other.to.Send(protocol.Deliver{Partition: d.Partition, Stream: other.stream, Consumer: other.consumer, Items: items})
		}
	}
}
