package control

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
)

// A script is a story of a cluster's copies. Each line of "do" changes the catalog: what happens to nodes and what operators wish; "plan"
// says what becomes of the places of followers that are not simply there, and does what is to be done; with "look" it only looks. "owners"
// has owners carry out what they can; "plan dead=(n1,n2)" plans while nodes cannot be reached that the catalog does not miss yet. Times are
// in seconds. A node's store is its number, unless it is said: n4/9.
func TestArrangement(t *testing.T) {
	datadriven.Walk(t, "testdata/arrange", func(t *testing.T, path string) {
		w := newWorld(t)
		w.now = 1000
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			w.t = t
			switch td.Cmd {
			case "do":
				for line := range strings.Lines(td.Input) {
					w.happens(strings.Fields(line))
				}
				return w.text()
			case "at":
				w.now = 1000 * atoi(t, td.CmdArgs[0].Key)
				return w.carry(t, td)
			case "plan":
				return w.carry(t, td)
			case "owners":
				for w.carryOut() {
				}
				return w.text()
			}
			t.Fatalf("%s: unknown directive %s", td.Pos, td.Cmd)
			return ""
		})
	})
}

func atoi(t testing.TB, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// member reads n4 or n4/9.
func (w *world) member(s string) catalog.Member {
	node, store, said := strings.Cut(s, "/")
	if !said {
		store = strings.TrimPrefix(node, "n")
	}
	return catalog.Member{Node: node, Store: ident.StoreID{byte(atoi(w.t, store))}}
}

func (w *world) happens(f []string) {
	if len(f) < 2 {
		w.t.Fatalf("line %q", f)
	}
	arg := map[string]string{}
	for _, x := range f[2:] {
		k, v, _ := strings.Cut(x, "=")
		arg[k] = v
	}
	var m catalog.Member
	if f[1][0] == 'n' {
		m = w.member(f[1])
	}
	switch f[0] {
	case "join": // or another run of it
		boot := uint64(1)
		if n := w.s.View().Node(m.Node); n != nil {
			boot = n.Boot + 1
		}
		w.do(catalog.RegisterBoot(catalog.Node{Name: m.Node, Store: m.Store, Boot: boot, Zone: arg["zone"]}))
	case "replace":
		w.do(catalog.ReplaceNode(w.s.View().Node(m.Node).Store, catalog.Node{Name: m.Node, Store: m.Store, Boot: 1}))
	case "remove":
		w.do(catalog.RemoveNode(m.Node, m.Store))
	case "away", "back":
		since := int64(0)
		if f[0] == "away" {
			since = w.now
		}
		n := w.s.View().Node(m.Node)
		w.do(catalog.NoteAbsent(n.Name, n.Store, n.Boot, since))
	case "drain", "undrain":
		w.do(catalog.DrainNode(m.Node, m.Store, f[0] == "drain"))
	case "set":
		version := uint64(0)
		if have := w.s.View().Setting(f[1]); have != nil {
			version = have.Version
		}
		w.do(catalog.PutSetting(f[1], arg["to"], version))
	case "declare": // declare q owner=n1 followers=n2,n3 copies=3 policy=all_durable
		var followers []catalog.Member
		for x := range strings.SplitSeq(arg["followers"], ",") {
			followers = append(followers, w.member(x))
		}
		owner := w.s.View().Node(arg["owner"])
		copies := int64(3)
		if arg["copies"] != "" {
			copies = atoi(w.t, arg["copies"])
		}
		w.do(catalog.DeclareResource(catalog.Resource{
			VHost: "/", Name: f[1], Kind: catalog.Queue, Durable: true, Copies: uint32(copies), Policy: arg["policy"], Queue: &queue.Settings{},
		}, ident.Instance{Node: owner.Name, Store: owner.Store, Boot: owner.Boot}, followers, 1))
	case "wish":
		w.do(catalog.SetWishes("/", f[1], 0, arg["policy"], uint32(atoi(w.t, arg["copies"]))))
	case "pending", "over":
		a := w.s.View().Resource("/", f[1]).Partitions[0]
		if f[0] == "pending" {
			w.do(catalog.RecordPending(a.Partition, a.Version, catalog.Pending{ID: "t", Epoch: a.Epoch + 1}))
		} else {
			w.do(catalog.CancelPending(a.Partition, a.Version, "t"))
		}
	default:
		w.t.Fatalf("what is %q?", f[0])
	}
}

// carry plans, does what is planned unless it is only to look, and says all of it.
func (w *world) carry(t *testing.T, td *datadriven.TestData) string {
	var out strings.Builder
	var dead []string
	limit := 16
	for _, a := range td.CmdArgs {
		switch a.Key {
		case "dead":
			dead = a.Vals
		case "limit":
			limit = int(atoi(t, a.Vals[0]))
		}
	}
	x := w.plan(limit, dead...)
	for _, h := range x.Held {
		_, r := w.s.View().Assignment(h.Partition)
		fmt.Fprintf(&out, "%s on %s: %s", r.Name, h.Member.Node, h.Fate)
		if h.Since > 0 {
			fmt.Fprintf(&out, ", away since %d", h.Since/1000)
		}
		if h.Until > 0 {
			fmt.Fprintf(&out, ", kept until %d", h.Until/1000)
		}
		if h.Learner != "" {
			fmt.Fprintf(&out, ", %s learns in its stead", h.Learner)
		}
		out.WriteByte('\n')
	}
	for _, s := range x.Steps {
		_, r := w.s.View().Assignment(s.Partition)
		fmt.Fprintf(&out, "%s: %s\n", r.Name, s)
		if !td.HasArg("look") {
			w.do(s.Item())
		}
	}
	if x.Next > 0 {
		fmt.Fprintf(&out, "again at %d\n", x.Next/1000)
	}
	if out.Len() == 0 {
		return "nothing to do\n"
	}
	return out.String()
}

func nodesOf(ms []catalog.Member) string {
	if len(ms) == 0 {
		return "none"
	}
	var out []string
	for _, m := range ms {
		out = append(out, m.Node)
	}
	return strings.Join(out, ",")
}

func (w *world) text() string {
	var out strings.Builder
	for _, r := range w.s.View().AllResources() {
		a := r.Partitions[0]
		fmt.Fprintf(&out, "%s: owner %s followers %s", r.Name, a.Owner.Node, nodesOf(a.Followers))
		for _, m := range a.Followers {
			if n := w.s.View().Node(m.Node); n == nil || n.Store != m.Store {
				fmt.Fprintf(&out, " (%s on its old store)", m.Node)
			}
		}
		if len(a.Learners) > 0 {
			out.WriteString(" learners " + nodesOf(a.Learners))
		}
		if len(a.Leaving) > 0 {
			out.WriteString(" leaving " + nodesOf(a.Leaving))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// Each condition of a hold alone, true and false: the same follower away, and one thing more that is so or not.
func TestEachConditionOfAHold(t *testing.T) {
	for _, c := range []struct {
		name      string
		policy    string
		followers string
		also      string
		now       int64 // seconds; it is away since 100, and the hold is 300 s
		fate      Fate
		until     int64
	}{
		{"the hold runs", "majority_durable", "n2,n3", "", 399, Kept, 400},
		{"the hold is over", "majority_durable", "n2,n3", "", 400, HoldOver, 0},
		{"none is set", "majority_durable", "n2,n3", "set follower_loss_hold to=0", 100, HoldOver, 0},
		{"a short one is set", "majority_durable", "n2,n3", "set follower_loss_hold to=5s", 104, Kept, 105},
		{"W - 1 of W - 1 are left", "replica_durable(2)", "n2,n3", "", 100, Kept, 400},
		{"too few are left: all must hold it", "all_durable", "n2,n3", "", 100, TooFewLeft, 0},
		{"too few are left: n must hold it", "replica_durable(3)", "n2,n3", "", 100, TooFewLeft, 0},
		{"too few are left: another is away", "majority_durable", "n2,n3", "away n2", 100, TooFewLeft, 0},
		{"one confirms, and nobody is left", "local_durable", "n3", "", 100, Kept, 400},
		{"two confirm, and nobody is left", "majority_durable", "n3", "", 100, TooFewLeft, 0},
		{"four of five are left", "majority_durable", "n2,n3,n4,n5", "", 100, Kept, 400},
		{"two of five are away", "majority_durable", "n2,n3,n4,n5", "away n4", 100, Kept, 400},
		{"three of five are away", "majority_durable", "n2,n3,n4,n5", "away n4;away n5", 100, TooFewLeft, 0},
		{"a draining one counts while it is there", "majority_durable", "n2,n3", "drain n2", 100, Kept, 400},
		{"its node is draining", "majority_durable", "n2,n3", "drain n3", 100, Drained, 0},
		{"its node has another store", "majority_durable", "n2,n3", "replace n3/9", 100, StoreReplaced, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			for n := 1; n <= 5; n++ {
				w.happens([]string{"join", fmt.Sprint("n", n)})
			}
			w.happens([]string{"declare", "q", "owner=n1", "followers=" + c.followers, "policy=" + c.policy})
			if held := Holds(w.s.View(), 100_000); len(held) != 0 {
				t.Fatalf("nobody is away, and held is %+v", held)
			}
			w.now = 100_000
			w.happens([]string{"away", "n3"})
			for also := range strings.SplitSeq(c.also, ";") {
				if f := strings.Fields(also); len(f) > 0 {
					w.happens(f)
				}
			}
			held := Holds(w.s.View(), c.now*1000)
			i := slices.IndexFunc(held, func(h Held) bool { return h.Member.Node == "n3" })
			if i < 0 {
				t.Fatalf("held %+v", held)
			}
			if h := held[i]; h.Fate != c.fate || h.Until != c.until*1000 {
				t.Errorf("%s, until %d; want %s, until %d", h.Fate, h.Until/1000, c.fate, c.until)
			}
		})
	}
}
