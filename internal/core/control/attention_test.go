package control

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
)

// healthy is three nodes with a queue q of three copies, and nothing that needs a person.
func healthy(t *testing.T) Known {
	w := newWorld(t, "a", "b", "c")
	w.declare("q", 3, "a", "b", "c")
	k := Known{Now: 1_000_000_000, View: w.s.View()}
	for _, n := range []string{"a", "b", "c"} {
		k.Nodes = append(k.Nodes, NodeState{Node: n, Live: true, Free: 1 << 30})
		k.Copies = append(k.Copies, CopyState{Partition: ident.Partition{Incarnation: 1}, Node: n})
	}
	return k
}

func said(conditions []Condition) (out []string) {
	for _, c := range conditions {
		out = append(out, fmt.Sprintf("%s | %s | %s | %s | %s | %s", c.Code, c.Subject, c.What, c.Limit, c.Ends, c.Next))
	}
	return out
}

type need struct {
	change func(k *Known)
	want   []string
}

func TestWhatNeedsAPerson(t *testing.T) {
	q := ident.Partition{Incarnation: 1}
	needs(t, map[string]need{
		"nothing": {func(*Known) {}, nil},
		"the catalog has no quorum": {func(k *Known) { k.NoQuorum = "1 of 3 voters can be reached" }, []string{
			"catalog-quorum-lost | catalog | 1 of 3 voters can be reached; what serves goes on, nothing can be declared or moved | missing quorum | a majority of the voters can be reached | tanist node list",
		}},
		"too few answers": {func(k *Known) {
			k.Waits = []Waiting{{Partition: q, Kind: WaitAnswers, Answers: 1, Needed: 2, Missing: []string{"a", "b"}}}
			k.Nodes[0].Live, k.Nodes[1].Live = false, false // said already
		}, []string{
			"waiting-for-copies | q | 1 of 2 answers needed; missing: a, b | missing quorum | copies that are missing answer: a, b; start a, b again, each over its data directory | tanist status q",
		}},
		"too few answers, and why": {func(k *Known) {
			k.Waits = []Waiting{{
				Partition: q, Kind: WaitAnswers, Answers: 1, Needed: 2, Missing: []string{"a", "b"},
				Reason: "1 of 2 answers needed; b: damaged: a checksum; a cannot be reached",
			}}
		}, []string{
			"waiting-for-copies | q | 1 of 2 answers needed; missing: a, b; b: damaged: a checksum; a cannot be reached | missing quorum | copies that are missing answer: a, b | tanist status q",
		}},
		"it could not be recorded": {func(k *Known) { k.Waits = []Waiting{{Partition: q, Reason: "the catalog did not answer"}} }, []string{
			"waiting-for-copies | q | the catalog did not answer | missing quorum | the catalog takes the record of it | tanist status q",
		}},
		"a clock is ahead": {func(k *Known) { k.Nodes[1].Ahead = skewed }, []string{
			"clock-skew | b | its clock is 2.0 s ahead of this node's: delays and times to live are wrong by as much, and evidence misleads |  | the clocks agree to within 2 s | chronyc tracking, or what keeps the time there",
		}},
		"a clock is behind": {func(k *Known) { k.Nodes[1].Ahead = -90_500 }, []string{
			"clock-skew | b | its clock is 90.5 s behind this node's: delays and times to live are wrong by as much, and evidence misleads |  | the clocks agree to within 2 s | chronyc tracking, or what keeps the time there",
		}},
		"clocks differ a little": {func(k *Known) { k.Nodes[1].Ahead, k.Nodes[2].Ahead = skewed-1, 1-skewed }, nil},
		"below what was confirmed": {func(k *Known) {
			k.Waits = []Waiting{{Partition: q, Kind: WaitFloor, Floor: 70, FloorBy: "c", Missing: []string{"a"}}}
		}, []string{
			"below-history-start | q | no copy that answered reaches 70, which was confirmed, as c reported; missing: a | missing quorum | a copy that holds it answers: a | tanist status q",
		}},
		"a contradiction": {func(k *Known) {
			k.Waits = []Waiting{{Partition: q, Kind: WaitTruth, Reason: "copies on a and b differ below position 9"}}
		}, []string{
			"contradictory-evidence | q | copies contradict each other; copies on a and b differ below position 9 | invalid evidence | a person decides which copy is right | tanist status q",
		}},
		"a wait of a queue that was deleted": {func(k *Known) { k.Waits = []Waiting{{Partition: ident.Partition{Incarnation: 9}}} }, nil},
		"one of three is away": {func(k *Known) { k.Nodes[1].Live = false }, []string{
			"quorum-critical | without b | if one more copy goes, nothing can be confirmed: q | missing quorum | b is back | tanist status q",
		}},
		"two of three are away": {func(k *Known) { k.Nodes[1].Live, k.Nodes[2].Live = false, false }, []string{
			"under-replicated | too few without b, c | too few copies are left to confirm anything: q | missing quorum | b is back; c is back; start b, c again, each over its data directory | tanist status q",
		}},
		"a store has closed": {func(k *Known) { k.Nodes[2].Closed, k.Nodes[2].Reason = true, "input/output error" }, []string{
			"store-closed | c | its store takes no more writes: input/output error | storage fault | the node is started again over a sound disk, or replaced | tanist node list",
			"quorum-critical | without c | if one more copy goes, nothing can be confirmed: q | missing quorum | c is back | tanist status q",
		}},
		"a disk is low": {func(k *Known) { k.Nodes[0].Blocked, k.Nodes[0].Free = true, 5<<20 }, []string{
			"disk-low | a | publishers wait: 5 MiB can still be written | resource pressure | there is space again, by consuming, retention or a larger disk | tanist status",
		}},
		"a copy is damaged": {func(k *Known) { k.Copies[1].Damaged = "checksum at 17" }, []string{
			"copy-damaged | q on b | checksum at 17 | storage fault | it is made anew from its owner's by itself; where it says why it is not, another takes its place: tanist node drain b, or tanist node replace where no other node can | tanist status q",
			"quorum-critical | without b | if one more copy goes, nothing can be confirmed: q | missing quorum | b is back | tanist status q",
		}},
		"a learner comes no further": {func(k *Known) { k.Copies[2].Learns, k.Copies[2].Moved = true, k.Now-60_000 }, []string{
			"learner-stuck | q on c | it has caught up nothing more for a minute | resource pressure | it comes further, or another node learns in its place | tanist status q",
		}},
		"a learner is on its way": {func(k *Known) { k.Copies[2].Learns, k.Copies[2].Moved = true, k.Now-59_999 }, nil},
		"a dead letter is stuck": {func(k *Known) { k.Copies[0].DeadLetters, k.Copies[0].Stuck = 3, "no exchange dlx" }, []string{
			"dead-letter-stuck | q | 3 dead letters are kept: no exchange dlx |  | the exchange that the queue names for them is there and takes them | tanist status q",
		}},
	})
}

// What is put aside is told, and needs nobody.
func TestDataAsideIsTold(t *testing.T) {
	needs(t, map[string]need{
		"cut ends and an old catalog": {func(k *Known) {
			k.Nodes[1].Aside = []Aside{{CutEnds, 3, 5 << 19}, {OldCatalogs, 1, 1 << 20}}
		}, []string{
			"data-aside | cut ends on b | 3 cut ends (2.5 MiB) of copies that had owned or were damaged, or of an accepted loss: messages that a client may miss |  | nobody misses them, and the files are removed from quarantine/ of its data directory | tanist inspect DIRECTORY, with the node stopped, lists them; with --cut and --export it gives their messages",
			"data-aside | old catalogs on b | 1 old catalog (1.0 MiB) from before it followed a recovered one |  | nobody will look into them, and the files are removed from aside/ of its data directory | tanist node list",
		}},
		"copies of what was deleted": {func(k *Known) { k.Nodes[0].Aside = []Aside{{DeletedCopies, 2, 0}} }, []string{
			"data-aside | deleted copies on a | 2 deleted copies (0.0 MiB) of what was deleted by force |  | nobody needs them, and tanist deleted forget NUMBER drops them | tanist deleted",
		}},
		"of a later version": {func(k *Known) { k.Nodes[0].Aside = []Aside{{"tapes", 2, 0}} }, []string{
			"data-aside | tapes on a | 2 tapes (0.0 MiB) put aside there |  | nobody needs them any more | tanist node list",
		}},
	})
	k := healthy(t)
	k.Nodes[1].Aside, k.Nodes[2].Blocked = []Aside{{CutEnds, 1, 1}}, true
	all, total, needing := Attention(k, nil)
	if total != 2 || needing != 1 || all[1].Code != DataAside || !all[1].Notice {
		t.Errorf("%d, of which %d need somebody: %+v", total, needing, all)
	}
}

// A loss is the last way out: it is named once what loses nothing has had its time, and only while the catalog could take it.
func TestALossIsNamedLast(t *testing.T) {
	waiting := func(since int64) func(k *Known) {
		return func(k *Known) {
			k.Waits = []Waiting{{Partition: ident.Partition{Incarnation: 1}, Kind: WaitAnswers, Answers: 1, Needed: 2, Missing: []string{"a"}, Since: k.Now - since}}
		}
	}
	const last = "tanist status q; the last way, if no missing copy can come back: tanist plan accept-loss q"
	const all = last + ", or for all that wait: tanist plan accept-loss --all-waiting"
	for name, x := range map[string]struct {
		change func(k *Known)
		want   string
	}{
		"at once":                         {waiting(lossAfter - 1), "tanist status q"},
		"after a while":                   {waiting(lossAfter), last},
		"and the catalog has no majority": {func(k *Known) { waiting(lossAfter)(k); k.NoQuorum = "nobody leads" }, "tanist status q"},
		"and so does another": {func(k *Known) {
			more := newWorld(t, "a", "b", "c")
			more.declare("q", 3, "a", "b", "c")
			more.declare("r", 3, "a", "b", "c")
			k.View = more.s.View()
			waiting(lossAfter)(k)
			k.Waits = append(k.Waits, Waiting{Partition: ident.Partition{Incarnation: 2}, Kind: WaitAnswers, Answers: 1, Needed: 2, Since: k.Now})
		}, all},
		"the owner alone is left": {func(k *Known) {
			for i := range k.Nodes[1:] {
				k.Nodes[1+i].Live, k.Nodes[1+i].Since = false, k.Now-lossAfter
			}
		}, last},
	} {
		k := healthy(t)
		x.change(&k)
		all, _, _ := Attention(k, nil)
		if i := slices.IndexFunc(all, func(c Condition) bool { return c.Code == WaitingForCopies || c.Code == UnderReplicated }); i < 0 || all[i].Next != x.want {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

// So is the recovery of the catalog, where it has no majority.
func TestARecoveryOfTheCatalogIsNamedLast(t *testing.T) {
	k := healthy(t)
	k.NoQuorum = "1 of 3 voters can be reached"
	first, _, _ := Attention(k, nil)
	k.Now += lossAfter
	later, _, _ := Attention(k, first)
	if first[0].Next != "tanist node list" || later[0].Next != "tanist node list; the last way, if no missing voter can come back: tanist recover catalog" {
		t.Errorf("%q, then %q", first[0].Next, later[0].Next)
	}
}

// TestOneVoterMore: the catalog has a majority of its own, whatever queues there are.
func TestOneVoterMore(t *testing.T) {
	needs(t, map[string]need{
		"the catalog is one voter from its quorum": {func(k *Known) {
			k.Voters = []string{"a", "x", "y"}
			k.Nodes = append(k.Nodes, NodeState{Node: "x", Live: true}, NodeState{Node: "y", Reason: "refused"})
		}, []string{
			"quorum-critical | catalog | 2 of 3 voters can be reached: if one more goes, nothing can be declared, changed or taken over | missing quorum | they are back or replaced: y | tanist node list",
		}},
		"a voter's disk failed, and one has gone": {func(k *Known) {
			k.Voters = []string{"a", "b", "c", "", "y"}
			k.Nodes = append(k.Nodes, NodeState{Node: "y", Live: true, Closed: true})
		}, []string{
			"store-closed | y | its store takes no more writes | storage fault | the node is started again over a sound disk, or replaced | tanist node list",
			"quorum-critical | catalog | 3 of 5 voters can be reached: if one more goes, nothing can be declared, changed or taken over | missing quorum | they are back or replaced: one that was removed, y | tanist node list",
		}},
		"voters to spare": {func(k *Known) {
			k.Voters = []string{"a", "b", "c", "x"}
			k.Nodes = append(k.Nodes, NodeState{Node: "x", Live: true})
		}, nil},
		"one of five": {func(k *Known) {
			k.Voters = []string{"a", "b", "c", "x", "y"}
			k.Nodes = append(k.Nodes, NodeState{Node: "x", Live: true}, NodeState{Node: "y"})
		}, nil},
	})
}

func TestCertificatesThatEnd(t *testing.T) {
	needs(t, map[string]need{
		"a certificate ends in two weeks": {func(k *Known) { k.Nodes[0].CertificateEnds = k.Now + expiringAfter }, []string{
			"certificate-expiring | a | its certificate ends in 336 hours |  | it has renewed it, or an operator's own is put in its place | tanist node list",
		}},
		"a certificate has ended": {func(k *Known) { k.Nodes[0].CertificateEnds = k.Now }, []string{
			"certificate-expiring | a | its certificate has ended: no node makes a new session with it |  | it has renewed it, or an operator's own is put in its place | tanist node list",
		}},
		"a certificate ends later": {func(k *Known) { k.Nodes[0].CertificateEnds = k.Now + expiringAfter + 1 }, nil},
	})
}

func needs(t *testing.T, table map[string]need) {
	t.Helper()
	for name, c := range table {
		k := healthy(t)
		c.change(&k)
		got, total, _ := Attention(k, nil)
		if !slices.Equal(said(got), c.want) || total != len(c.want) {
			t.Errorf("%s: got %d\n%s\nwant\n%s", name, total, strings.Join(said(got), "\n"), strings.Join(c.want, "\n"))
		}
		for _, x := range got {
			if x.Since != k.Now && x.Since != k.Copies[2].Moved {
				t.Errorf("%s: %s since %d", name, x.Code, x.Since)
			}
		}
	}
}

func TestCopiesThatAreWanted(t *testing.T) {
	for _, c := range []struct {
		name      string
		nodes     []string
		copies    uint32
		followers []string
		policy    string
		dead      string
		want      string // code and subject, empty for none
	}{
		{"never more copies than nodes", []string{"a"}, 3, nil, "", "", ""},
		{"as many as asked for", []string{"a", "b", "c"}, 1, nil, "", "", ""},
		{"fewer than asked for", []string{"a", "b", "c"}, 0, []string{"b"}, "", "", "under-replicated 2 of 3 copies"},
		{"all of two are needed", []string{"a", "b"}, 2, []string{"b"}, "", "", ""},
		{"all are needed by policy", []string{"a", "b", "c"}, 3, []string{"b", "c"}, "all_durable", "", ""},
		{"and one is away", []string{"a", "b", "c"}, 3, []string{"b", "c"}, "all_durable", "c", "under-replicated too few without c"},
		{"the owner alone confirms", []string{"a", "b", "c"}, 3, []string{"b", "c"}, "local_durable", "c", "under-replicated without c"},
		{"one of five is away", []string{"a", "b", "c", "d", "e"}, 5, []string{"b", "c", "d", "e"}, "", "c", "under-replicated without c"},
	} {
		w := newWorld(t, c.nodes...)
		var members []catalog.Member
		for _, f := range c.followers {
			members = append(members, catalog.Member{Node: f, Store: ident.StoreID{f[0]}})
		}
		w.do(catalog.DeclareResource(catalog.Resource{
			VHost: "/", Name: "q", Kind: catalog.Queue, Durable: true, Copies: c.copies, Queue: &queue.Settings{}, Policy: c.policy,
		}, instance("a", 1), members, 1))
		k := Known{Now: 5, View: w.s.View()}
		for _, n := range c.nodes {
			k.Nodes = append(k.Nodes, NodeState{Node: n, Live: n != c.dead})
		}
		got := ""
		conditions, _, _ := Attention(k, nil)
		for _, x := range conditions {
			got += string(x.Code) + " " + x.Subject
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestACopyThatIsMadeAnewNeedsNobody(t *testing.T) {
	needs(t, map[string]need{
		"a copy is made anew": {func(k *Known) { k.Copies[1].Anew, k.Copies[1].Reason = true, "it was damaged" }, []string{
			"copy-anew | q on b | it was damaged; until it is whole it counts for nothing |  | it has the image, by itself | tanist status q",
		}},
	})
}

func TestALearnerOnItsWayNeedsNobody(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.declare("q", 3, "a", "b")
	k := Known{Now: 5, View: w.s.View(), Nodes: []NodeState{{Node: "a", Live: true}, {Node: "b", Live: true}, {Node: "c", Live: true}}}
	if got, _, _ := Attention(k, nil); len(got) != 1 || got[0].Code != UnderReplicated {
		t.Errorf("a copy is missing: %+v", got)
	}
	p := ident.Partition{Incarnation: 1}
	w.do(catalog.AddLearner(p, 1, catalog.Member{Node: "c", Store: ident.StoreID{'c'}}))
	if got, _, _ := Attention(k, nil); len(got) != 0 {
		t.Errorf("it learns: %+v", got)
	}
	// b comes back with another store: its place is kept, and nobody is there.
	w.do(catalog.ReplaceNode(ident.StoreID{'b'}, catalog.Node{Name: "b", Store: ident.StoreID{'x'}, Boot: 1}))
	if got, _, _ := Attention(k, nil); len(got) != 1 || got[0].Subject != "too few without b" {
		t.Errorf("a store was replaced: %+v", got)
	}
}

// What misses the same nodes stands together; what goes on keeps its beginning; the list is bounded and in one order.
func TestAttentionIsShortAndRemembers(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	const n = 2 * MaxConditions
	for i := range n {
		w.declare(fmt.Sprintf("q%04d", i), 3, "a", "b", "c")
	}
	k := Known{Now: 100, View: w.s.View(), Nodes: []NodeState{{Node: "a", Live: true}, {Node: "b", Live: true}, {Node: "c"}}}
	first, total, _ := Attention(k, nil)
	if total != 1 || first[0].Partitions != n || !strings.HasSuffix(first[0].What, ": q0000; q0001; q0002; q0003; q0004; …") {
		t.Fatalf("%d conditions: %+v", total, first)
	}
	k.Now, k.Nodes[0].Blocked = 200, true
	second, _, _ := Attention(k, first)
	if len(second) != 2 || second[0].Since != 100 || second[1].Code != DiskLow || second[1].Since != 200 {
		t.Errorf("later: %+v", second)
	}
	k.Nodes[2].Live, k.Nodes[0].Blocked = true, false
	if third, _, _ := Attention(k, second); len(third) != 0 {
		t.Errorf("what is over is said: %+v", third)
	}
	for i := range n {
		k.Waits = append(k.Waits, Waiting{Partition: ident.Partition{Incarnation: uint64(n - i)}, Since: 7})
	}
	waits, total, _ := Attention(k, nil)
	slices.Reverse(k.Waits)
	slices.Reverse(k.Nodes)
	if again, _, _ := Attention(k, nil); total != n || len(waits) != MaxConditions || waits[0].Subject != "q0000" || waits[0].Since != 7 || !reflect.DeepEqual(waits, again) {
		t.Errorf("%d of %d: %+v", len(waits), total, waits[0])
	}
}

func TestNamesAreQuotedForAShell(t *testing.T) {
	for name, want := range map[string]string{"orders-1": "orders-1", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "a\x1b'\n": `$'a\x1b\'\x0a'`, "é": "'é'"} {
		if got := Quoted(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// What is away, closed or low is so since its node was lost or its store changed, where that is known.
func TestConditionsBeginWhenTheirCauseDid(t *testing.T) {
	k := healthy(t)
	k.Nodes[0].Blocked, k.Nodes[0].Since = true, 300
	k.Nodes[1].Live, k.Nodes[1].Since = false, 500
	k.Nodes[2].Closed, k.Nodes[2].Since = true, 700
	got, _, _ := Attention(k, nil)
	since := map[Code]int64{}
	for _, c := range got {
		since[c.Code] = c.Since
	}
	if since[DiskLow] != 300 || since[StoreClosed] != 700 || since[UnderReplicated] != 700 {
		t.Errorf("since %v", since)
	}
	k.Nodes[2].Closed = false
	got, _, _ = Attention(k, nil)
	if i := slices.IndexFunc(got, func(c Condition) bool { return c.Code == QuorumCritical }); i < 0 || got[i].Since != 500 {
		t.Errorf("%+v", got)
	}
}
