package queue_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	. "github.com/tanist/tanist/internal/core/queue"
)

// filled is an owner with n messages of 100 bytes applied, all held by one consumer without bounds.
func filled(t testing.TB, s Settings, n int) (*Machine, Holder) {
	t.Helper()
	m, h := New(s), Holder{1, 1}
	m.Promote(1)
	m.Claimed()
	for i := range n {
		m.ApplyRecord(uint64(i), batch.RecordHeader{Size: 100}, 1000)
	}
	if err := m.Subscribe(h, Options{Credit: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < n; {
		as := m.Assign(n, nil)
		if size := 100 * len(as); len(as) == 0 || size > AssignBytes+100 {
			t.Fatalf("%d bytes assigned at once after %d of %d messages", size, got, n)
		}
		got += len(as)
	}
	return m, h
}

// apply applies what TakeEvents gave.
func apply(t testing.TB, m *Machine, payload []byte, count uint32) {
	t.Helper()
	for range count {
		size := uint32(payload[0]) | uint32(payload[1])<<8 | uint32(payload[2])<<16 | uint32(payload[3])<<24
		if err := m.ApplyEvent(payload[4], payload[8:8+size]); err != nil {
			t.Fatal(err)
		}
		payload = payload[8+size:]
	}
	if len(payload) != 0 {
		t.Fatalf("%d bytes after the events", len(payload))
	}
}

// TestEventGoldens pins the bytes of every event and of a snapshot: they are on disks. A change needs a new Version.
func TestEventGoldens(t *testing.T) {
	var b strings.Builder
	take := func(name string, m *Machine) {
		payload, count := m.TakeEvents()
		fmt.Fprintf(&b, "%s: %d\n%s", name, count, hex.Dump(payload))
		apply(t, m, payload, count)
	}
	limit, dlx, ttl := int64(1), "dlx", int64(60_000)
	m, h := filled(t, Settings{DeliveryLimit: &limit, DeadLetterExchange: &dlx, TTL: &ttl}, 300)
	m.Settle(h, 0, 9, Accept)
	m.Settle(h, 12, 12, Accept)
	m.Settle(h, 200, 299, Accept)
	take("accepted 0-9, 12, 200-299", m)
	m.Settle(h, 20, 21, Requeue)
	m.Settle(h, 25, 25, Release)
	take("returned 20, 21, 25", m)
	m.Settle(h, 30, 30, Reject)
	m.Settle(h, 32, 33, Reject)
	take("rejected 30, 32, 33", m)
	m.Assign(100, nil)
	m.Settle(h, 20, 20, Requeue)
	take("returned 20 too often", m)
	m.ApplyRecord(300, batch.RecordHeader{Size: 7, Delay: 500}, 2000)
	m.ApplyRecord(301, batch.RecordHeader{Size: 7, Delay: 900, Flags: batch.FlagTTL, TTL: 5}, 2000)
	m.Tick(2500)
	take("due 300", m)
	for _, d := range m.NextDead(0, nil) {
		m.DeadSettled(d.Number)
		break
	}
	take("dead letter 1 published", m)
	m.Purge()
	take("purged 300", m)
	pages, _ := m.Snapshot(true)
	for _, p := range pages {
		fmt.Fprintf(&b, "page %d\n%s", p.Number, hex.Dump(p.Data))
	}
	name := filepath.Join("testdata", "events.golden")
	if os.Getenv("UPDATE") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the encoding changed; got\n%s", b.String())
	}
}

func TestMalformedEvents(t *testing.T) {
	for name, e := range map[string]struct {
		typ  uint8
		body []byte
	}{
		"unknown type":      {9, []byte{0, 0}},
		"empty":             {EventGone, nil},
		"no ranges":         {EventGone, []byte{0}},
		"unknown reason":    {EventGone, []byte{7, 0, 0}},
		"half a range":      {EventDue, []byte{1}},
		"long varint":       {EventDue, []byte{0x80, 0x00, 0}},
		"beyond the log":    {EventDue, []byte{9, 1}},
		"begins beyond":     {EventDue, []byte{10, 0}},
		"touching ranges":   {EventGone, []byte{0, 0, 1, 0, 1}},
		"huge gap":          {EventDue, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0}},
		"huge length":       {EventDue, []byte{0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}},
		"count 0":           {EventReturn, []byte{0, 0, 0}},
		"no count":          {EventReturn, []byte{0, 0}},
		"number 0":          {EventDead, []byte{1, 0, 0, 0}},
		"number out of use": {EventDead, []byte{1, 2, 0, 0}},
	} {
		m, _ := filled(t, Settings{}, 10)
		if err := m.ApplyEvent(e.typ, e.body); !errors.Is(err, ErrEvent) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzApplyEvent: whatever the bytes, an event is applied or refused, and the state can still be saved, restored and used.
func FuzzApplyEvent(f *testing.F) {
	f.Add(EventGone, []byte{0, 0, 9, 2, 0})
	f.Add(EventReturn, []byte{3, 1, 1, 0, 0, 2})
	f.Add(EventDead, []byte{1, 1, 5, 3})
	f.Add(EventDue, []byte{10, 1})
	f.Fuzz(func(t *testing.T, typ uint8, body []byte) {
		m, h := filled(t, Settings{}, 40)
		m.ApplyRecord(40, batch.RecordHeader{Size: 1, Delay: 10}, 1000)
		m.ApplyRecord(41, batch.RecordHeader{Size: 1, Flags: batch.FlagTTL, TTL: 10}, 1000)
		if err := m.ApplyEvent(typ, body); err != nil {
			if !errors.Is(err, ErrEvent) {
				t.Fatal(err)
			}
			return
		}
		m.Settle(h, 0, 100, Requeue)
		m.Tick(5000)
		payload, count := m.TakeEvents()
		apply(t, m, payload, count)
		m.Purge()
		m.Settle(h, 0, 100, Accept)
		payload, count = m.TakeEvents()
		apply(t, m, payload, count)
		pages, _ := m.Snapshot(true)
		back := New(Settings{})
		if err := back.Restore(pages); err != nil {
			t.Fatal(err)
		}
		if c := m.Counts(); c.Ready+c.Unsettled+c.Delayed+c.Dead != c.Messages {
			t.Fatalf("counts do not add up: %+v", c)
		}
	})
}

// FuzzRestore: whatever the bytes, pages are restored or refused; what is restored gives pages that say the same.
func FuzzRestore(f *testing.F) {
	dlx, ttl := "dlx", int64(5000)
	for _, s := range []Settings{{}, {DeadLetterExchange: &dlx, TTL: &ttl}} {
		m, h := filled(f, s, 100)
		m.ApplyRecord(100, batch.RecordHeader{Size: 5, Delay: 100}, 2000)
		m.Settle(h, 3, 5, Accept)
		m.Settle(h, 9, 10, Reject)
		m.Settle(h, 20, 30, Requeue)
		payload, count := m.TakeEvents()
		apply(f, m, payload, count)
		pages, _ := m.Snapshot(true)
		f.Add(pages[0].Data, pages[1].Data, s.TTL != nil)
	}
	f.Fuzz(func(t *testing.T, head, page []byte, timed bool) {
		var s Settings
		if timed {
			s.TTL = &ttl
		}
		m := New(s)
		if err := m.Restore([]batch.Page{{Data: head}, {Number: 1, Data: page}}); err != nil {
			if !errors.Is(err, ErrPage) {
				t.Fatal(err)
			}
			return
		}
		pages, _ := m.Snapshot(true)
		again := New(s)
		if err := again.Restore(pages); err != nil {
			t.Fatalf("refused its own pages: %v", err)
		}
		if m.Counts() != again.Counts() {
			t.Fatalf("%+v became %+v", m.Counts(), again.Counts())
		}
		m.Promote(1)
		m.Claimed()
		m.NextDead(0, nil)
		for range 3 { // what is delayed is due, then ready, then gone
			m.Tick(1 << 40)
			m.Purge()
			payload, count := m.TakeEvents()
			apply(t, m, payload, count)
		}
		if c := m.Counts(); c.Ready != 0 {
			t.Fatalf("after a purge: %+v", c)
		}
	})
}
