package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/front/admin"
)

func someEvidence() *evidence.Evidence {
	run := func(node string, boot uint64) ident.Instance {
		return ident.Instance{Node: node, Store: ident.StoreID{node[1]}, Boot: boot}
	}
	e := &evidence.Evidence{}
	e.ID, e.Workflow, e.Partition, e.VHost, e.Resource, e.Kind = "3/0@2", evidence.Failover, ident.Partition{Incarnation: 3}, "/", "orders", ident.Queue
	e.Cause, e.SeenBy = "n1/31/4 is suspected: connection refused, seen by n2, n3", []string{"n2", "n3"}
	e.Before, e.After = evidence.Reign{Owner: run("n1", 4), Epoch: 1}, evidence.Reign{Owner: run("n2", 2), Epoch: 2}
	e.Version, e.Policy, e.E, e.W, e.R = 7, "majority_durable", 3, 2, 2
	e.Floor = evidence.Floor{Position: 120, By: "n3"}
	e.Start = evidence.Place{Epoch: 2, Position: 130, Offset: 110, Link: evidence.Link{1, 2}}
	e.Answers = []evidence.Answer{
		{From: run("n2", 2), End: evidence.Place{Epoch: 1, Position: 130, Offset: 110, Link: evidence.Link{1, 2}}, Clipped: 130, Confirmed: 118},
		{From: run("n3", 1), End: evidence.Place{Epoch: 1, Position: 120, Offset: 100}, Clipped: 120, Confirmed: 120, Health: "checksum at 3"},
	}
	e.Exclusions = []evidence.Exclusion{{Node: "n1", Store: ident.StoreID{'1'}, Reason: "did not answer"}}
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local).UnixMicro()
	e.LastConfirm, e.Suspected, e.Recorded, e.Sealed, e.Chosen = at-900, at, at+4100, at+9000, at+29_500
	e.Outcome, e.Committed, e.Serving, e.FirstConfirm = evidence.Committed, at+33_000, at+41_250, at+44_000
	e.Cuts = []evidence.Cut{{Node: "n1", From: 130, To: 137, Quarantined: true}}
	return e
}

func TestATransitionIsTold(t *testing.T) {
	e := someEvidence()
	under := &evidence.Evidence{}
	under.ID, under.Workflow, under.VHost, under.Resource, under.Recorded = "9/1@5", evidence.Failover, "v", "log", e.Suspected+1_000_000
	under.Partition.Index, under.Before.Owner.Node = 1, "n3"
	var out bytes.Buffer
	if err := printTimeline(&out, []*evidence.Evidence{under, e}, ""); err != nil {
		t.Fatal(err)
	}
	const timeline = `
SUSPECTED                RESOURCE            WORKFLOW  OWNER    RECORDED  SEALED  CHOSEN  COMMITTED  SERVING  CONFIRMED  OUTCOME    ID
2026-11-30 12:00:00.000  orders              failover  n1 → n2  4.1       9.0     29.5    33.0       41.2     44.0       committed  3/0@2
2026-11-30 12:00:01.000  v:log, partition 1  failover  n3 → -   0.0       -       -       -          -        -          under way  9/1@5

Milliseconds after SUSPECTED. What one was decided on: tanist evidence 9/1@5
`
	if got := "\n" + out.String(); got != timeline {
		t.Errorf("timeline:%s\nwant%s", got, timeline)
	}
	out.Reset()
	if err := printEvidence(&out, e); err != nil {
		t.Fatal(err)
	}
	const told = `
failover 3/0@2 of queue orders: committed
  cause     n1/31/4 is suspected: connection refused, seen by n2, n3
  owner     n1 (store 31000000, boot 4) in epoch 1 → n2 (store 32000000, boot 2) in epoch 2
  policy    majority_durable: 2 of 3 copies confirm, so 2 had to answer; catalog version 7 of the assignment
  floor     120 was confirmed, as n3 reported: no copy that ends before it could be chosen
  start     position 130, offset 110, epoch 2, link 01020000
  digest    DIGEST

COPY  BOOT  EPOCH  POSITION  OFFSET  COUNTS  CONFIRMED  LINK      ANSWER
n2    2     1      130       110     130     118        01020000  counted
n3    1     1      120       100     120     120        00000000  did not count: checksum at 3
n1    -     -      -         -       -       -          -         did not answer
cut on n1: entries 130 to 137, which were never confirmed, kept in quarantine on that node

TIME                        MILLISECONDS  WHAT
2026-11-30 11:59:59.999100  -0.9          the old owner confirmed for the last time that anyone knows of
2026-11-30 12:00:00.000000  0.0           the first sign that the old owner was gone
2026-11-30 12:00:00.004100  4.1           the catalog recorded the change
2026-11-30 12:00:00.009000  9.0           enough copies had answered
2026-11-30 12:00:00.029500  29.5          the new owner was chosen
2026-11-30 12:00:00.033000  33.0          the catalog took the choice
2026-11-30 12:00:00.041250  41.2          the new owner served
2026-11-30 12:00:00.044000  44.0          the new owner confirmed its first message
`
	if got := strings.Replace("\n"+out.String(), e.Digest().String(), "DIGEST", 1); got != told {
		t.Errorf("evidence:%s\nwant%s", got, told)
	}
}

// TestAHungOwnerIsTold: what is earlier stands before, a hung owner was last heard and not missed, and where nobody published for long there
// was no pause.
func TestAHungOwnerIsTold(t *testing.T) {
	e := someEvidence()
	e.Cause, e.LastConfirm, e.FirstConfirm = "n1/31/4 is suspected: no heartbeat, seen by n2", e.Suspected+40_000, e.Serving+7_000_000
	var out bytes.Buffer
	if err := printEvidence(&out, e); err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(out.String(), "WHAT\n")
	var what []string
	for _, line := range strings.Split(strings.TrimSpace(rows), "\n") {
		what = append(what, strings.Join(strings.Fields(line)[2:], " "))
	}
	for i, want := range map[int]string{
		0: "0.0 the old owner was last heard", 5: "40.0 the old owner confirmed for the last time that anyone knows of",
		7: "7041.2 the new owner confirmed its first message, which nobody waited for: it was published after the new owner served",
	} {
		if what[i] != want {
			t.Errorf("row %d is %q, want %q in\n%s", i, what[i], want, rows)
		}
	}
	out.Reset()
	if err := printTimeline(&out, []*evidence.Evidence{e}, ""); err != nil || !strings.Contains(out.String(), "  later  ") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestNamesAreShownAsTheyAre: a client's name of a queue neither moves what stands beside it nor colours a terminal.
func TestNamesAreShownAsTheyAre(t *testing.T) {
	const name = "a\x1b[31m\nb\u202e\xff"
	e := someEvidence()
	e.Resource = name
	r := report{
		Resources:  []admin.Resource{{Name: name, VHost: name, Arguments: map[string]string{"x-dead-letter-exchange": name}}},
		Partitions: []admin.Partition{{Resource: name, Reason: name, Copies: []admin.Copy{{WhyNot: name}}}},
		Attention:  admin.Attention{Total: 1, Needing: 1, Conditions: []control.Condition{{Subject: name, What: name, Ends: name, Next: name}}},
	}
	var out bytes.Buffer
	for _, err := range []error{
		r.print(&out), r.printResources(&out), printAttention(&out, r.Attention, time.Now()), printEvidence(&out, e),
		printTimeline(&out, []*evidence.Evidence{e}, name), printTimeline(&out, nil, name),
		printCritical(&out, "n1", admin.Check{Total: 1, Obstacles: []control.Obstacle{{Subject: name, What: name, Next: name}}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if bytes.ContainsRune(out.Bytes(), '\x1b') || bytes.ContainsRune(out.Bytes(), '\u202e') || bytes.IndexByte(out.Bytes(), 0xff) >= 0 || strings.Count(out.String(), `a\x1b[31m\x0ab\u202e\xff`) < 15 {
		t.Error(out.String())
	}
}

// TestPlacesAreTold: what becomes of a follower that is away, how far a learner is, and what is wished and not so yet.
func TestPlacesAreTold(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	p := admin.Partition{
		Owner: "n1", Changing: []string{"n4 is learning what the others hold", "the copy on n3 is to leave"},
		Held: []admin.Held{
			{Node: "n2", Why: "its place is kept", Since: ago(time.Minute), Until: ago(-4 * time.Minute)},
			{Node: "n3", Why: "its hold is over", Since: ago(10 * time.Minute), Learner: "n4"},
			{Node: "n5", Why: "its node was removed"},
		},
		Copies: []admin.Copy{
			{Node: "n1", Role: "owner", Position: 400, Bytes: 8 << 20, Health: "ok"},
			{Node: "n4", Role: "learner", Position: 100, Bytes: 3 << 19, Reason: "it takes an image", Moved: ago(2 * time.Second), Health: "ok"},
			{Node: "n6", Role: "learner", Moved: ago(2 * time.Second), Health: "unreachable"},
			{Node: "n7", Role: "former", Position: 300, Bytes: 6 << 20, Kept: ago(-90 * time.Second), Health: "ok"},
			{Node: "n8", Role: "former", Position: 300, Bytes: 6 << 20, Health: "damaged"},
		},
	}
	want := []string{
		"n2 is away since 2026-11-30 11:59:00: its place is kept for another 4m0s, until 12:04:00",
		"n3 is away since 2026-11-30 11:50:00: its hold is over; n4 learns in its stead",
		"n5: its node was removed; no node learns in its stead yet",
		"n4: it takes an image",
		"n4 has caught up 100 of 400 entries (25 %), 1.5 MiB of 8.0 MiB kept in logs, and came further 2s ago",
		"n7 has no place any more: its copy (6.0 MiB) is kept for another 1m30s, until 12:01:30",
		"yet to do: n4 is learning what the others hold; the copy on n3 is to leave",
	}
	if got := placesOf(p, now); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestARefusalIsTold(t *testing.T) {
	e := &evidence.Evidence{}
	e.ID, e.Workflow, e.Resource, e.VHost, e.Kind, e.Outcome, e.Reason = "3/0@2", evidence.Failover, "q", "/", ident.Queue, evidence.Refused, "the copies contradict each other"
	e.Cause, e.SeenBy = "a test", []string{"n2"}
	var out bytes.Buffer
	if err := printEvidence(&out, e); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{": refused\n", "because   the copies contradict each other\n", "a test, seen by n2\n", "nobody in epoch 0 → nobody in epoch 0\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "start ") || strings.Contains(out.String(), "TIME") {
		t.Errorf("of what never was:\n%s", out.String())
	}
}

func TestAttentionIsTold(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	a := admin.Attention{Total: 3, Needing: 3, Silent: []string{"n3"}, Conditions: []control.Condition{
		{Code: control.StoreClosed, Subject: "n1", What: "its store takes no more writes", Since: now.Add(-90 * time.Second).UnixMilli(), Limit: control.StorageFault, Ends: "it is started again", Next: "tanist node list"},
		{Code: control.CertificateExpiring, Subject: "n2", What: "its certificate ends", Since: now.UnixMilli(), Ends: "it has renewed it", Next: "tanist node list"},
	}}
	var out bytes.Buffer
	if err := printAttention(&out, a, now); err != nil {
		t.Fatal(err)
	}
	const want = `
store-closed: n1: its store takes no more writes
  since 2026-11-30 11:58:30 (1m30s), limited by storage fault
  ends when it is started again
  next: tanist node list

certificate-expiring: n2: its certificate ends
  since 2026-11-30 12:00:00 (0s)
  ends when it has renewed it
  next: tanist node list

… and 1 more

Not heard, so that what only they know is missing: n3
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("got%s\nwant%s", got, want)
	}
}
