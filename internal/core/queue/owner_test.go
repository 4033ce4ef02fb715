package queue_test

import (
	"slices"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	. "github.com/tanist/tanist/internal/core/queue"
)

// TestAttachCountsAsUse: the consumers of a gateway's older stream were there until now. A queue that goes when it is unused must not
// go between the gateway's new stream and its consumers' return.
func TestAttachCountsAsUse(t *testing.T) {
	m := New(Settings{Expires: 1000})
	m.Promote(1)
	m.Claimed()
	if err := m.Subscribe(Holder{1, 1}, Options{Credit: 1}); err != nil {
		t.Fatal(err)
	}
	m.Attach(1, LastStream{Epoch: 0}, nil, nil, 5000)
	if m.Unused(5000) || m.Unused(5999) {
		t.Fatal("unused, though it had a consumer until now")
	}
	if !m.Unused(6000) {
		t.Fatal("nobody came back, and it is not unused")
	}
}

// TestTimesOfWhatWentTakeNoMemory: messages with a long time to live that are consumed at once leave nothing behind.
func TestTimesOfWhatWentTakeNoMemory(t *testing.T) {
	m := New(Settings{})
	m.Promote(1)
	m.Claimed()
	h := Holder{1, 1}
	if err := m.Subscribe(h, Options{Credit: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	const n = 100_000
	for at := range uint64(n) {
		m.ApplyRecord(at, batch.RecordHeader{Size: 1, TTL: 86_400_000, Flags: batch.FlagTTL}, 1)
		m.Assign(1, nil)
		m.Settle(h, at, at, Accept)
		payload, count := m.TakeEvents()
		if count != 1 {
			t.Fatalf("%d events", count)
		}
		if err := m.ApplyEvent(payload[4], payload[batch.EventHeaderSize:]); err != nil {
			t.Fatal(err)
		}
	}
	if c := m.Counts(); c.Messages != 0 {
		t.Fatalf("counts %+v", c)
	}
	if times := m.Times(); times > n/10 {
		t.Fatalf("%d times of %d messages that are gone", times, n)
	}
	// What lives is not forgotten.
	m.ApplyRecord(n, batch.RecordHeader{Size: 1, TTL: 100, Flags: batch.FlagTTL}, 1)
	if at := m.NextWake(); at != 101 {
		t.Fatalf("next wake at %d", at)
	}
}

// A gateway that was away while what it held was handed to another claims it, and may come first: of two that claim the same the one has it which
// had the later stream, to a later owner, or to the same one for longer. The other is told.
func TestTheLaterDeliveryIsClaimed(t *testing.T) {
	for name, last := range map[string][2]LastStream{ // of gateway 1, which was away, and of gateway 2
		"an owner in between": {{Epoch: 1, Until: 90}, {Epoch: 2, Until: 80}},
		"the same owner":      {{Epoch: 2, Until: 10}, {Epoch: 2, Until: 80}},
	} {
		for _, first := range []uint64{1, 2} {
			m := New(Settings{})
			m.ApplyRecord(0, batch.RecordHeader{Size: 1}, 1)
			m.Promote(1)
			for _, gateway := range []uint64{first, 3 - first} {
				if d := m.Attach(gateway, last[gateway-1], []Claim{{1, 0}}, nil, 1); len(d) > 0 {
					t.Errorf("%s, %d first: denied %+v before all claims are in", name, first, d)
				}
			}
			if d := m.Claimed(); len(d) != 1 || d[0] != (Denied{1, Claim{1, 0}}) {
				t.Errorf("%s, %d first: denied %+v", name, first, d)
			}
			if n := m.Settle(Holder{Gateway: 1, Consumer: 1}, 0, 0, Release); n != 0 {
				t.Errorf("%s, %d first: a message was let go of by who held it before another", name, first)
			}
			if n := m.Settle(Holder{Gateway: 2, Consumer: 1}, 0, 0, Accept); n != 1 {
				t.Errorf("%s, %d first: who was given the message last does not hold it", name, first)
			}
		}
	}
}

// What a gateway claims too late it has lost, whether another holds it or it is gone by now; and is told so at once. What it holds it keeps.
func TestLateClaimsAreDenied(t *testing.T) {
	m := New(Settings{})
	for at := range uint64(4) {
		m.ApplyRecord(at, batch.RecordHeader{Size: 1}, 1)
	}
	m.Promote(1)
	m.Claimed()
	m.Get(2, false, 1)
	m.Get(2, true, 1)
	m.Get(1, false, 1)
	d := m.Attach(1, LastStream{Epoch: 1}, []Claim{{3, 0}, {3, 1}, {0, 2}, {3, 3}, {3, 9}}, nil, 1)
	if want := []Denied{{1, Claim{3, 0}}, {1, Claim{3, 1}}, {1, Claim{3, 9}}}; !slices.Equal(d, want) {
		t.Errorf("denied %+v, want %+v", d, want)
	}
	if c := m.Counts(); c.Unsettled != 3 || c.Ready != 0 {
		t.Errorf("%+v", c)
	}
}

// A gateway that is lost before all claims are in has not given back what another may have the better right to.
func TestWhoLeavesBeforeTheClaimsAreInGivesBackWhatIsStillIts(t *testing.T) {
	m := New(Settings{})
	for at := range uint64(2) {
		m.ApplyRecord(at, batch.RecordHeader{Size: 1}, 1)
	}
	m.Promote(1)
	m.Attach(1, LastStream{Epoch: 1}, []Claim{{1, 0}, {1, 1}}, nil, 1)
	m.ReleaseGateway(1, 1)
	m.Attach(2, LastStream{Epoch: 2}, []Claim{{1, 0}}, nil, 1)
	m.Claimed()
	if n := m.Settle(Holder{Gateway: 2, Consumer: 1}, 0, 0, Accept); n != 1 {
		t.Error("who was given the message last does not hold it")
	}
	var b batch.Builder
	payload, count := m.TakeEvents()
	b.Add(batch.Run{Kind: batch.KindEvent, Count: count}, payload)
	if err := m.ApplyBatch(b.Finish(ident.Partition{}, 1, batch.Tail{}, 1)); err != nil {
		t.Fatal(err)
	}
	if c := m.Counts(); c.Ready != 1 || c.Messages != 1 || c.Unsettled != 0 {
		t.Errorf("%+v", c)
	}
	if a, _, ok := m.Get(3, true, 1); !ok || a.Offset != 1 || a.Count != 1 {
		t.Errorf("the other one is %+v", a)
	}
}

// TestNothingEndsBeforeTheClaimsAreIn: what an earlier owner had handed out looks ready to a new one until the gateways have said what
// they hold. Neither a length limit nor a purge may take it from them.
func TestNothingEndsBeforeTheClaimsAreIn(t *testing.T) {
	one := int64(1)
	m := New(Settings{MaxLength: &one})
	for at := range uint64(3) {
		m.ApplyRecord(at, batch.RecordHeader{Size: 1}, 1)
	}
	m.Promote(1)
	if n := m.Purge(); n != 0 {
		t.Fatalf("purged %d", n)
	}
	if _, count := m.TakeEvents(); count != 0 {
		t.Fatalf("%d events: dropped what a client may hold", count)
	}
	m.Attach(1, LastStream{Epoch: 0}, []Claim{{1, 0}, {1, 1}}, nil, 1)
	m.Claimed()
	if _, count := m.TakeEvents(); count != 0 {
		t.Fatalf("%d events: one message is ready, and two are held", count)
	}
	if n := m.Purge(); n != 1 {
		t.Fatalf("purged %d", n)
	}
}
