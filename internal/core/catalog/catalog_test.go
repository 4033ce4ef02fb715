package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/value"
)

var one = ident.Instance{Node: "n1", Store: ident.StoreID{1}, Boot: 1}

func mustEncode(t testing.TB, items ...Item) []byte {
	t.Helper()
	b, err := Encode(items...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustApply(t testing.TB, s *State, items ...Item) (Result, []Change) {
	t.Helper()
	res, changes, err := s.Apply(s.Index()+1, mustEncode(t, items...))
	if err != nil {
		t.Fatal(err)
	}
	return res, changes
}

// fresh is a catalog with a virtual host and a node.
func fresh(t testing.TB) *State {
	t.Helper()
	s := New()
	res, _ := mustApply(t, s, append(Bootstrap(ident.StoreID{9}, "hash"), RegisterBoot(Node{Name: "n1", Store: one.Store, Boot: 1}))...)
	if err := res.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

func durableQueue(name string) Item {
	return DeclareResource(Resource{
		VHost: "/", Name: name, Kind: Queue, Durable: true, Queue: &queue.Settings{}, Policy: "majority_durable",
	}, one, nil, 1)
}

func TestUnknownStops(t *testing.T) {
	for name, c := range map[string]struct {
		cmd  []byte
		want error
	}{
		"a later format":            {[]byte{Format + 1, 0}, ErrUnknownCommand},
		"format 0":                  {[]byte{0, 0}, ErrUnknownCommand},
		"an operation unknown":      {[]byte{Format, 1, 200, 0}, ErrUnknownCommand},
		"a format raised":           {mustEncode(t, RaiseFormat(Format, Format+1)), ErrUnknownCommand},
		"nothing":                   {nil, ErrMalformed},
		"an item cut":               {mustEncode(t, CreateVHost("x"))[:4], ErrMalformed},
		"a field more":              {[]byte{Format, 1, byte(opCreateVHost), 3, 1, 'x', 0}, ErrMalformed},
		"bytes behind":              {append(mustEncode(t, CreateVHost("x")), 0), ErrMalformed},
		"a number not the shortest": {[]byte{Format, 0x81, 0x00}, ErrMalformed},
		"items that are not there":  {[]byte{Format, 0xff, 0xff, 0xff, 0xff, 0x0f}, ErrMalformed},
	} {
		s := fresh(t)
		if _, _, err := s.Apply(s.Index()+1, c.cmd); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if _, err := Restore([]byte{Format + 1}); !errors.Is(err, ErrUnknownCommand) {
		t.Errorf("snapshot of a later format: %v", err)
	}
	s := fresh(t)
	if _, _, err := s.Apply(s.Index(), mustEncode(t)); !errors.Is(err, ErrMalformed) {
		t.Errorf("an index that does not rise: %v", err)
	}
}

func TestEveryOperationIsKnown(t *testing.T) {
	for o := opInitCluster; o <= opForgetDeletion; o++ {
		if operations[o] == nil {
			t.Errorf("operation %d cannot be applied", o)
		}
	}
	if len(operations) != int(opForgetDeletion) {
		t.Errorf("%d operations, the last is %d", len(operations), opForgetDeletion)
	}
}

func TestNamesKeepTheirBytes(t *testing.T) {
	name := "\xff\x00q\xfe" // AMQP's names and keys are bytes
	s := fresh(t)
	mustApply(t, s, durableQueue(name), Bind(Binding{VHost: "/", Source: "amq.direct", Destination: name, Key: "\x80", Args: value.Table{
		{Name: "n", Value: value.Of(math.NaN())}, {Name: "t", Value: value.Of(value.Table{{Name: "\xc0", Value: value.Of([]value.Value{value.Of(true), {}})}})},
	}}))
	s, err := Restore(s.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	b := s.View().BindingsTo("/", name, false)
	if s.View().Resource("/", name) == nil || len(b) != 1 || b[0].Key != "\x80" || !math.IsNaN(b[0].Args[0].Value.Float) {
		t.Fatalf("came back as %v", b)
	}
}

func TestChunks(t *testing.T) {
	var items []Item
	for i := range 20000 {
		items = append(items, CreateVHost(fmt.Sprintf("%0200d", i)))
	}
	cmds, err := Chunks(items)
	if err != nil {
		t.Fatal(err)
	}
	s, made := New(), 0
	for i, c := range cmds {
		if len(c) > MaxCommand {
			t.Fatalf("chunk %d has %d bytes", i, len(c))
		}
		res, _, err := s.Apply(uint64(i+1), c)
		if err != nil {
			t.Fatal(err)
		}
		made += len(res.Items)
	}
	if made != len(items) || len(cmds) > 20 {
		t.Fatalf("%d items in %d chunks", made, len(cmds))
	}
	big := strings.Repeat("x", MaxCommand)
	if _, err := Chunks([]Item{CreateVHost("a"), CreateVHost(big)}); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("an item too large: %v", err)
	}
	deep := value.Of(1)
	for range 40 {
		deep = value.Of([]value.Value{deep})
	}
	if _, err := Encode(Bind(Binding{Args: value.Table{{Name: "d", Value: deep}}})); !errors.Is(err, ErrMalformed) {
		t.Fatalf("a table too deep: %v", err)
	}
}

func TestHistoryStartsAreBounded(t *testing.T) {
	s := fresh(t)
	mustApply(t, s, durableQueue("q"))
	for i := range uint64(50) {
		p := ident.Partition{Incarnation: 1}
		a, _ := s.View().Assignment(p)
		res, _ := mustApply(t, s,
			RecordPending(p, a.Version, Pending{ID: "t", Epoch: a.Epoch + 1}),
			CommitTransition(Commit{Partition: p, Version: a.Version + 1, Transition: "t", Owner: one, Start: HistoryStart{Epoch: a.Epoch + 1, Position: i}}))
		if err := res.Err(); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := s.View().Assignment(ident.Partition{Incarnation: 1})
	if len(a.Starts) != keepStarts || a.Starts[0].Epoch != 20 || a.Starts[31].Epoch != 51 || a.Epoch != 51 || a.Version != 101 {
		t.Fatalf("epoch %d version %d, %d starts from %d", a.Epoch, a.Version, len(a.Starts), a.Starts[0].Epoch)
	}
}

// Tokens that nobody uses are bounded, and end by themselves: whoever asks for another is told so.
func TestTokensThatWaitAreBounded(t *testing.T) {
	s := fresh(t)
	put := func(i int, now int64) *Refusal {
		r, _ := mustApply(t, s, PutToken(Token{ID: number(uint64(i)), Expires: 100}, now))
		return r.Items[0].Refused
	}
	for i := range maxTokens {
		if r := put(i, 1); r != nil {
			t.Fatal(r)
		}
	}
	if r := put(maxTokens, 99); r == nil || r.Code != Invalid || !strings.Contains(r.Error(), "256 wait to be used already") {
		t.Errorf("one more: %v", r)
	}
	r, _ := mustApply(t, s, PutToken(Token{ID: "later", Expires: 200}, 100))
	if r.Items[0].Refused != nil || len(s.view.Tokens()) != 1 {
		t.Errorf("once the others have ended: %v, %d tokens", r.Items[0].Refused, len(s.view.Tokens()))
	}
}

func TestObjectsDoNotChangeUnderTheirHolders(t *testing.T) {
	s := fresh(t)
	mustApply(t, s, durableQueue("q"))
	before := s.View().Resource("/", "q")
	kept := *before.Partitions[0]
	mustApply(t, s, RecordPending(ident.Partition{Incarnation: 1}, 1, Pending{ID: "t", Epoch: 2}))
	if before.Partitions[0].Pending != nil || before.Partitions[0].Version != kept.Version {
		t.Fatal("an object that was handed out has changed")
	}
	if s.View().Resource("/", "q").Partitions[0].Pending == nil {
		t.Fatal("the pending transition is missing")
	}
}

func TestViewFollowsChanges(t *testing.T) {
	s := fresh(t)
	v := NewView()
	v.Apply(s.Changes())
	_, ch := mustApply(t, s, durableQueue("b"), durableQueue("a"), Bind(Binding{VHost: "/", Source: "amq.topic", Destination: "a", Key: "k"}))
	v.Apply(ch)
	names := func(rs []*Resource) (out []string) {
		for _, r := range rs {
			out = append(out, r.Name)
		}
		return out
	}
	if got := names(v.Resources("/")); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("by name: %v", got)
	}
	if got := names(v.AllResources()); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("by incarnation: %v", got)
	}
	if v.Incarnation(2).Name != "a" || len(v.BindingsFrom("/", "amq.topic")) != 1 || v.Index() != s.Index() {
		t.Error("lookups do not match")
	}
	for _, missing := range []any{v.Exchanges("none"), v.Resources("none"), v.Bindings("none"), v.BindingsFrom("none", ""), v.BindingsTo("none", "", false)} {
		if fmt.Sprint(missing) != "[]" {
			t.Errorf("something lies in a virtual host that does not exist: %v", missing)
		}
	}
	if v.VHost("none") != nil || v.Exchange("none", "") != nil || v.Resource("none", "") != nil {
		t.Error("found what does not exist")
	}
	if a, r := v.Assignment(ident.Partition{Incarnation: 2, Index: 1}); a != nil || r != nil {
		t.Error("found a partition that does not exist")
	}
}

func many(t testing.TB, n int) *State {
	s := fresh(t)
	var items []Item
	for i := range n {
		items = append(items, durableQueue(fmt.Sprintf("queue-%05d", i)))
	}
	cmds, err := Chunks(items)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cmds {
		if _, _, err := s.Apply(s.Index()+1, c); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestBudgets(t *testing.T) {
	const n = 10000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s, err := Restore(many(t, n).Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	v := NewView()
	v.Apply(s.Changes())
	each := float64(heap()-before) / n
	t.Logf("%.0f bytes a resource with one view", each)
	if each > 1024 {
		t.Errorf("%.0f bytes a resource, budget 1024", each)
	}
	start := time.Now()
	data := s.Snapshot()
	took := time.Since(start)
	start = time.Now()
	again, err := Restore(data)
	restored := time.Since(start)
	if err != nil || !bytes.Equal(again.Snapshot(), data) {
		t.Fatalf("snapshot does not round-trip: %v", err)
	}
	t.Logf("snapshot of %d: %d bytes in %v, restored in %v", n, len(data), took, restored)
	if took > 2*time.Second || restored > 2*time.Second { // ten times the budget: this machine is shared
		t.Errorf("snapshot took %v, restoring %v", took, restored)
	}
	runtime.KeepAlive(v)
}

func FuzzApply(f *testing.F) {
	f.Add(mustEncode(f, Bootstrap(ident.StoreID{9}, "hash")...))
	f.Add(mustEncode(f, durableQueue("q"), Bind(Binding{VHost: "/", Source: "amq.topic", Destination: "q", Args: value.Table{{Name: "a", Value: value.Of("b")}}})))
	f.Add(mustEncode(f, everyOperation()...))
	f.Add(mustEncode(f, RecordPending(ident.Partition{Incarnation: 1}, 1, Pending{ID: "t", Epoch: 2}), DeleteVHost("/")))
	f.Fuzz(func(t *testing.T, cmd []byte) {
		s := fresh(t)
		mustApply(t, s, durableQueue("q"))
		v := NewView()
		v.Apply(s.Changes())
		_, changes, err := s.Apply(s.Index()+1, cmd)
		if err != nil {
			return
		}
		v.Apply(changes)
		snap := s.Snapshot()
		again, err := Restore(snap)
		if err != nil || !bytes.Equal(again.Snapshot(), snap) {
			t.Fatalf("what a command led to cannot be restored: %v", err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	s := fresh(f)
	mustApply(f, s, durableQueue("q"))
	f.Add(s.Snapshot())
	full := New()
	mustApply(f, full, everyOperation()...)
	f.Add(full.Snapshot())
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Restore(data)
		if err != nil {
			return
		}
		snap := s.Snapshot()
		if again, err := Restore(snap); err != nil || !bytes.Equal(again.Snapshot(), snap) {
			t.Fatalf("a snapshot that was read cannot be written and read again: %v", err)
		}
	})
}

func BenchmarkDeclare(b *testing.B) {
	s := many(b, 10000)
	i := 0
	for b.Loop() {
		i++
		if _, _, err := s.Apply(s.Index()+1, mustEncode(b, durableQueue(fmt.Sprint(i)))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s := many(b, 10000)
	for b.Loop() {
		s.Snapshot()
	}
}

func BenchmarkRestore(b *testing.B) {
	data := many(b, 10000).Snapshot()
	for b.Loop() {
		if _, err := Restore(data); err != nil {
			b.Fatal(err)
		}
	}
}
