package route

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/value"
)

// house is a catalog with a router that follows it.
type house struct {
	t testing.TB
	s *catalog.State
	r *Router
}

var here = ident.Instance{Node: "n", Store: ident.StoreID{1}, Boot: 1}

func newHouse(t testing.TB) *house {
	h := &house{t, catalog.New(), New()}
	h.do(catalog.CreateVHost("/"), catalog.RegisterBoot(catalog.Node{Name: "n", Store: here.Store, Boot: 1}))
	return h
}

func (h *house) do(items ...catalog.Item) {
	h.t.Helper()
	cmds, err := catalog.Chunks(items)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, cmd := range cmds {
		res, changes, err := h.s.Apply(h.s.Index()+1, cmd)
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			h.t.Fatal(err)
		}
		h.r.Apply(changes)
	}
}

func queueItem(name string) catalog.Item {
	return catalog.DeclareResource(catalog.Resource{
		VHost: "/", Name: name, Kind: catalog.Queue, Durable: true, Queue: &queue.Settings{},
	}, here, nil, 1)
}

func exchangeItem(name, kind, alternate string) catalog.Item {
	return catalog.DeclareExchange(catalog.Exchange{VHost: "/", Name: name, Type: kind, Durable: true, Alternate: alternate})
}

func bindItem(source, dest, key string, args ...value.Field) catalog.Item {
	return catalog.Bind(binding(source, dest, key, args...))
}

// binding leads to an exchange if dest begins with ">".
func binding(source, dest, key string, args ...value.Field) catalog.Binding {
	name, toExchange := strings.CutPrefix(dest, ">")
	return catalog.Binding{VHost: "/", Source: source, Destination: name, ToExchange: toExchange, Key: key, Args: args}
}

func field(name string, v any) value.Field { return value.Field{Name: name, Value: value.Of(v)} }

func (h *house) route(exchange, key string, cc ...string) string {
	return h.routeHeaders(exchange, key, nil, cc...)
}

func (h *house) routeHeaders(exchange, key string, headers value.Table, cc ...string) string {
	h.t.Helper()
	rs, err := h.r.Route("/", exchange, key, cc, func() value.Table { return headers })
	if err != nil {
		h.t.Fatal(err)
	}
	return names(rs)
}

func names(rs []*catalog.Resource) string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Name)
	}
	return strings.Join(out, " ")
}

func (h *house) want(what, got, want string) {
	h.t.Helper()
	if got != want {
		h.t.Errorf("%s: went to %q, want %q", what, got, want)
	}
}

func TestKindsOfExchange(t *testing.T) {
	h := newHouse(t)
	h.do(queueItem("a"), queueItem("b"), queueItem("c"))
	h.do(bindItem("amq.direct", "b", "k"), bindItem("amq.direct", "a", "k"), bindItem("amq.direct", "c", "l"),
		bindItem("amq.fanout", "c", "x"), bindItem("amq.fanout", "c", "y"), bindItem("amq.fanout", "a", ""),
		bindItem("amq.topic", "a", "*.orange.*"), bindItem("amq.topic", "b", "*.*.rabbit"), bindItem("amq.topic", "b", "lazy.#"),
		bindItem("amq.topic", "c", "#"))
	h.want("default", h.route("", "b"), "b")
	h.want("default, nothing", h.route("", "z"), "")
	h.want("default, cc", h.route("", "b", "a", "b", "z"), "b a")
	h.want("direct, in order of name", h.route("amq.direct", "k"), "a b")
	h.want("direct, cc", h.route("amq.direct", "l", "k"), "c a b")
	h.want("direct, nothing", h.route("amq.direct", "m"), "")
	h.want("fanout, none twice", h.route("amq.fanout", "whatever"), "a c")
	h.want("topic", h.route("amq.topic", "quick.orange.rabbit"), "a b c")
	h.want("topic", h.route("amq.topic", "lazy"), "b c")
	h.want("topic, no words", h.route("amq.topic", ""), "c")
	h.do(catalog.Unbind(binding("amq.topic", "c", "#")), catalog.DeleteResource("/", "b", 0, 0))
	h.want("topic, unbound", h.route("amq.topic", "quick.orange.rabbit"), "a")
	h.want("direct, deleted", h.route("amq.direct", "k"), "a")
	if _, err := h.r.Route("/", "none", "", nil, nil); catalog.CodeOf(err) != catalog.NotFound {
		t.Errorf("no exchange: %v", err)
	}
	if _, err := h.r.Route("none", "", "", nil, nil); catalog.CodeOf(err) != catalog.NotFound {
		t.Errorf("no virtual host: %v", err)
	}
	h.do(catalog.DeleteVHost("/"))
	if _, err := h.r.Route("/", "", "a", nil, nil); catalog.CodeOf(err) != catalog.NotFound {
		t.Errorf("a deleted virtual host: %v", err)
	}
}

func TestHeaders(t *testing.T) {
	h := newHouse(t)
	for _, q := range []string{"all", "any", "allx", "anyx", "none", "anynone", "there"} {
		h.do(queueItem(q))
	}
	a, b, x := field("a", 1), field("b", "two"), field("x-c", true)
	h.do(
		bindItem("amq.headers", "all", "", a, b, x),
		bindItem("amq.headers", "any", "", field("x-match", "any"), a, b, x),
		bindItem("amq.headers", "allx", "", field("x-match", "all-with-x"), a, b, x),
		bindItem("amq.headers", "anyx", "", field("x-match", "any-with-x"), a, b, x),
		bindItem("amq.headers", "none", ""),
		bindItem("amq.headers", "anynone", "", field("x-match", "any")),
		bindItem("amq.headers", "there", "", field("a", nil)),
	)
	h.want("all, but x", h.routeHeaders("amq.headers", "", value.Table{a, b}), "all any anyx none there")
	h.want("all with x", h.routeHeaders("amq.headers", "", value.Table{b, x, a}), "all allx any anyx none there")
	h.want("x only", h.routeHeaders("amq.headers", "", value.Table{x}), "anyx none")
	h.want("one other value", h.routeHeaders("amq.headers", "", value.Table{field("a", 2), b}), "any anyx none there")
	h.want("no headers", h.route("amq.headers", ""), "none")
	h.want("a number of another width", h.routeHeaders("amq.headers", "", value.Table{field("a", 1.0)}), "any anyx none there")
	asked := 0
	h.do(exchangeItem("two", "fanout", ""), bindItem("two", ">amq.headers", ""), bindItem("two", ">amq.match", ""), bindItem("amq.match", "all", ""))
	if _, err := h.r.Route("/", "two", "", nil, func() value.Table { asked++; return nil }); err != nil || asked != 1 {
		t.Errorf("asked %d times for headers, %v", asked, err)
	}
	if _, err := h.r.Route("/", "amq.headers", "", nil, nil); err != nil {
		t.Errorf("without headers: %v", err)
	}
}

func TestExchangeToExchange(t *testing.T) {
	h := newHouse(t)
	h.do(queueItem("a"), queueItem("b"), queueItem("dead"),
		exchangeItem("e1", "fanout", ""), exchangeItem("e2", "direct", ""), exchangeItem("e3", "topic", "lost"),
		bindItem("e1", ">e2", ""), bindItem("e2", ">e1", "k"), bindItem("e1", "a", ""), bindItem("e2", "b", "k"), bindItem("e1", ">e1", ""),
		bindItem("e3", ">e2", "k.#"))
	h.want("a cycle", h.route("e1", "k"), "a b")
	h.want("a cycle that is not closed", h.route("e1", "l"), "a")
	h.want("bindings that lead nowhere", h.route("e3", "k.l"), "")
	h.want("an alternate that does not exist", h.route("e3", "z"), "")
	h.do(exchangeItem("lost", "fanout", "e3"), bindItem("lost", "dead", ""))
	h.want("an alternate", h.route("e3", "z"), "dead")
	h.want("no alternate where a binding matches", h.route("e3", "k.l"), "")
	h.do(exchangeItem("p", "direct", "q"), exchangeItem("q", "direct", "p"))
	h.want("alternates in a ring", h.route("p", "k"), "")
	h.do(exchangeItem("r", "fanout", ""), bindItem("r", ">p", ""))
	h.want("alternate of an exchange on the way", h.route("r", "k"), "")
	h.do(exchangeItem("s", "direct", ""), catalog.DeleteExchange("/", "lost", false))
	h.want("an alternate that is gone", h.route("e3", "z"), "")
}

func TestEveryRouterAgrees(t *testing.T) {
	// Whatever the order in which things were made, routers that know the same give the same order.
	h := newHouse(t)
	for _, q := range []string{"c", "a", "b"} {
		h.do(queueItem(q), bindItem("amq.fanout", q, ""), bindItem("amq.topic", q, "#"), bindItem("amq.headers", q, ""), bindItem("amq.direct", q, "k"))
	}
	whole := New()
	whole.Apply(h.s.Changes())
	for _, x := range []string{"amq.fanout", "amq.topic", "amq.headers", "amq.direct"} {
		rs, err := whole.Route("/", x, "k", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		h.want(x, names(rs), "a b c")
		h.want(x, h.route(x, "k"), "a b c")
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	h := newHouse(t)
	h.do(queueItem("q"), exchangeItem("e", "topic", ""), bindItem("e", "q", "a.*.#"), bindItem("e", "q", "a.*"), bindItem("e", ">amq.fanout", "#"))
	h.do(catalog.Unbind(binding("e", "q", "a.*.#")), catalog.Unbind(binding("e", "q", "a.*")), catalog.Unbind(binding("e", ">amq.fanout", "#")))
	s := h.r.spaces["/"]
	if root := s.exchanges["e"].exchange.topics; !root.empty() {
		t.Errorf("the trie has %v left", root)
	}
	h.do(bindItem("e", "q", "a.b"), catalog.DeleteResource("/", "q", 0, 0), catalog.DeleteExchange("/", "e", false))
	if len(s.resources) != 0 || len(s.exchanges) != 6 {
		t.Errorf("%d resources and %d exchanges left", len(s.resources), len(s.exchanges))
	}
	for name, x := range s.exchanges {
		if x.bound != 0 {
			t.Errorf("%q thinks it has %d bindings", name, x.bound)
		}
	}
}

// topicPattern is a dumb matcher: a binding key as a regular expression over words that each end in a dot.
func topicPattern(key string) *regexp.Regexp {
	var b strings.Builder
	if key != "" {
		for _, word := range strings.Split(key, ".") {
			switch word {
			case "*":
				b.WriteString(`[^.]*\.`)
			case "#":
				b.WriteString(`([^.]*\.)*`)
			default:
				b.WriteString(regexp.QuoteMeta(word) + `\.`)
			}
		}
	}
	return regexp.MustCompile("^" + b.String() + "$")
}

func topicMatches(binding, key string) bool {
	if key != "" {
		key += "."
	}
	return topicPattern(binding).MatchString(key)
}

func TestTopicAgainstRegexp(t *testing.T) {
	word := rapid.SampledFrom([]string{"a", "b", "", "*", "#", "#"})
	key := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(word, 0, 5).Draw(t, "words"), ".") })
	rapid.Check(t, func(t *rapid.T) {
		root, r := &topic{}, New()
		keys := rapid.SliceOfN(key, 1, 12).Draw(t, "bindings")
		bound := map[string]bool{}
		entries := map[string]entry{}
		for i, k := range keys {
			if e, ok := entries[k]; ok && rapid.Bool().Draw(t, "unbind") {
				root.bind(e, true)
				delete(bound, k)
				delete(entries, k)
				continue
			}
			if bound[k] {
				continue
			}
			e := entry{&catalog.Binding{Key: k, Destination: fmt.Sprint(i)}, &target{resource: &catalog.Resource{Name: k}}}
			root.bind(e, false)
			bound[k], entries[k] = true, e
		}
		for range 5 {
			k := key.Draw(t, "key")
			r.mark++
			r.out = r.out[:0]
			r.topic(root, k)
			var want []string
			for b := range bound {
				if topicMatches(b, k) {
					want = append(want, b)
				}
			}
			var have []string
			for _, res := range r.out {
				have = append(have, res.Name)
			}
			slices.Sort(want)
			slices.Sort(have)
			if !slices.Equal(have, want) {
				t.Fatalf("key %q of %q: got %q, want %q", k, keys, have, want)
			}
		}
	})
}

// dumb routes by going through all bindings of the catalog again and again.
func dumb(s *catalog.State, exchange string, keys []string, headers value.Table) []string {
	found, seen, work := map[string]bool{}, map[string]bool{exchange: true}, []string{exchange}
	visit := func(name string) {
		if !seen[name] && s.View().Exchange("/", name) != nil {
			seen[name] = true
			work = append(work, name)
		}
	}
	for ; len(work) > 0; work = work[1:] {
		x, any := s.View().Exchange("/", work[0]), false
		for _, b := range s.View().Bindings("/") {
			match := false
			for _, k := range keys {
				switch x.Type {
				case "fanout":
					match = true
				case "direct":
					match = match || k == b.Key
				case "topic":
					match = match || topicMatches(b.Key, k)
				case "headers":
					match = dumbHeaders(b.Args, headers)
				}
			}
			if b.Source != x.Name || !match {
				continue
			}
			any = true
			if b.ToExchange {
				visit(b.Destination)
			} else {
				found[b.Destination] = true
			}
		}
		if !any && x.Alternate != "" {
			visit(x.Alternate)
		}
	}
	var out []string
	for q := range found {
		out = append(out, q)
	}
	slices.Sort(out)
	return out
}

func dumbHeaders(want, have value.Table) bool {
	match, _ := want.Get("x-match")
	n, of := 0, 0
	for _, f := range want {
		if f.Name == "x-match" || (strings.HasPrefix(f.Name, "x-") && !strings.HasSuffix(match.Str, "-with-x")) {
			continue
		}
		of++
		if v, ok := have.Get(f.Name); ok && (f.Value.Kind == value.Null || v.Equal(f.Value)) {
			n++
		}
	}
	if strings.HasPrefix(match.Str, "any") {
		return n > 0
	}
	return n == of
}

func TestAgainstDumbRouter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHouse(t)
		exchanges := []string{"e0", "e1", "e2", "e3"}
		for i, e := range exchanges {
			kind := rapid.SampledFrom([]string{"direct", "fanout", "topic", "headers"}).Draw(rt, "type")
			alternate := rapid.SampledFrom(append([]string{"", ""}, exchanges...)).Draw(rt, "alternate")
			h.do(exchangeItem(e, kind, alternate), queueItem(fmt.Sprint("q", i)))
		}
		dest := rapid.SampledFrom([]string{"q0", "q1", "q2", "q3", ">e0", ">e1", ">e2", ">e3"})
		key := rapid.SampledFrom([]string{"", "a", "a.b", "a.*", "#", "#.b"})
		table := rapid.Custom(func(t *rapid.T) value.Table {
			var out value.Table
			for _, n := range []string{"x-match", "h", "i", "x-j"} {
				switch {
				case n == "x-match":
					if m := rapid.SampledFrom([]string{"", "all", "any", "all-with-x", "any-with-x"}).Draw(t, n); m != "" {
						out = append(out, field(n, m))
					}
				case rapid.Bool().Draw(t, n):
					out = append(out, field(n, rapid.SampledFrom([]any{1, 2, nil}).Draw(t, n)))
				}
			}
			return out
		})
		var made []catalog.Binding
		for range rapid.IntRange(0, 14).Draw(rt, "changes") {
			if len(made) > 0 && rapid.IntRange(0, 3).Draw(rt, "unbind") == 0 {
				h.do(catalog.Unbind(rapid.SampledFrom(made).Draw(rt, "which")))
				continue
			}
			b := binding(rapid.SampledFrom(exchanges).Draw(rt, "source"), dest.Draw(rt, "dest"), key.Draw(rt, "key"), table.Draw(rt, "args")...)
			made = append(made, b)
			h.do(catalog.Bind(b))
		}
		whole := New()
		whole.Apply(h.s.Changes())
		for range 4 {
			exchange := rapid.SampledFrom(exchanges).Draw(rt, "exchange")
			keys := rapid.SliceOfN(key, 1, 3).Draw(rt, "keys")
			headers := table.Draw(rt, "headers")
			got := strings.Fields(h.routeHeaders(exchange, keys[0], headers, keys[1:]...))
			again, _ := whole.Route("/", exchange, keys[0], keys[1:], func() value.Table { return headers })
			if !slices.Equal(got, strings.Fields(names(again))) {
				rt.Fatalf("two routers: %v, %v", got, names(again))
			}
			slices.Sort(got)
			if want := dumb(h.s, exchange, keys, headers); !slices.Equal(got, want) {
				rt.Fatalf("%s %q %v: got %v, want %v", exchange, keys, headers, got, want)
			}
		}
	})
}

func TestWorkIsBounded(t *testing.T) {
	// A key of many # and * would take a matcher that tries one way after the other longer than anyone waits.
	h := newHouse(t)
	h.do(queueItem("q"), bindItem("amq.topic", "q", strings.Repeat("#.*.", 40)+"z"))
	h.want("a hard key", h.route("amq.topic", strings.Repeat("a.", 120)+"y"), "")
	h.want("a hard key that matches", h.route("amq.topic", strings.Repeat("a.", 120)+"z"), "q")
	// Looking each field of a binding up among a message's headers would.
	var many value.Table
	for i := range 400_000 {
		many = append(many, field(fmt.Sprint("header ", i), i))
	}
	h.do(bindItem("amq.headers", "q", "", field("header 7", 7)))
	h.want("many headers", h.routeHeaders("amq.headers", "", many), "q")
	r := newRule(entry{binding: &catalog.Binding{Args: many}})
	sortByName(many)
	if !r.matches(many) || r.matches(many[1:]) {
		t.Error("a binding of many fields does not match as it should")
	}
}

func TestFastPathDoesNotAllocate(t *testing.T) {
	h := newHouse(t)
	h.do(queueItem("q"), bindItem("amq.direct", "q", "k"), bindItem("amq.fanout", "q", ""), bindItem("amq.topic", "q", "a.*"))
	for x, key := range map[string]string{"": "q", "amq.direct": "k", "amq.fanout": "", "amq.topic": "a.b"} {
		n := testing.AllocsPerRun(100, func() {
			if rs, err := h.r.Route("/", x, key, nil, nil); err != nil || len(rs) != 1 {
				t.Fatal(rs, err)
			}
		})
		if n != 0 {
			t.Errorf("%q: %v allocations", x, n)
		}
	}
}

func TestSlots(t *testing.T) {
	if got := Slot("123456789"); got != 0xe3069283%Slots {
		t.Errorf("slot of a key has changed: %d", got)
	}
	for n := uint32(1); n <= 64; n++ {
		last := uint32(0)
		for slot := range uint32(Slots) {
			p := Partition(slot, n)
			if p >= n || p < last || slot < p*Slots/n || slot >= (p+1)*Slots/n {
				t.Fatalf("slot %d of %d partitions is in %d", slot, n, p)
			}
			last = p
		}
		if last != n-1 {
			t.Fatalf("%d partitions, the last slot is in %d", n, last)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	h := newHouse(b)
	var items []catalog.Item
	for i := range 10000 {
		q := fmt.Sprint("q", i)
		items = append(items, queueItem(q), bindItem("amq.direct", q, q), bindItem("amq.topic", q, "a."+q+".*"))
	}
	h.do(items...)
	for _, c := range [][2]string{{"", "q77"}, {"amq.direct", "q77"}, {"amq.topic", "a.q77.c"}} {
		b.Run("exchange="+c[0], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if rs, err := h.r.Route("/", c[0], c[1], nil, nil); err != nil || len(rs) != 1 {
					b.Fatal(rs, err)
				}
			}
		})
	}
}
