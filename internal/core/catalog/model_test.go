package catalog

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
)

// model is a dumb catalog: flat maps of text, everything looked for by going through all of it.
type model struct {
	vhosts    map[string]bool
	exchanges map[string]modelExchange // by vhost:name
	queues    map[string]modelQueue    // by vhost:name
	bindings  map[[4]string]bool       // vhost, source, destination (">" before an exchange's), key
	boot      uint64
	next      uint64
}

type modelExchange struct {
	kind       string
	autoDelete bool
	builtin    bool
	boot       uint64 // 0: durable
}

type modelQueue struct {
	incarnation, epoch, version, boot uint64
	pending                           string
	pendingEpoch                      uint64
	starts                            int
}

func (m *model) clean() {
	for again := true; again; {
		again = false
		for b := range m.bindings {
			_, source := m.exchanges[b[0]+":"+b[1]]
			var dest bool
			if name := b[2]; name[0] == '>' {
				_, dest = m.exchanges[b[0]+":"+name[1:]]
			} else {
				_, dest = m.queues[b[0]+":"+name]
			}
			if !source || !dest {
				delete(m.bindings, b)
				again = true
				if e, ok := m.exchanges[b[0]+":"+b[1]]; ok && e.autoDelete && m.from(b[0], b[1]) == 0 {
					delete(m.exchanges, b[0]+":"+b[1])
				}
			}
		}
	}
}

func (m *model) from(vhost, source string) (n int) {
	for b := range m.bindings {
		if b[0] == vhost && b[1] == source {
			n++
		}
	}
	return n
}

func (m *model) text() string {
	var out []string
	for v := range m.vhosts {
		out = append(out, "vhost "+v)
	}
	for n, e := range m.exchanges {
		out = append(out, fmt.Sprintf("exchange %s %s %v %d", n, e.kind, e.autoDelete, e.boot))
	}
	for n, q := range m.queues {
		out = append(out, fmt.Sprintf("queue %s %+v", n, q))
	}
	for b := range m.bindings {
		out = append(out, fmt.Sprintf("binding %q", b))
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

// viewText is the same of a view.
func viewText(v *View) string {
	var out []string
	bootOf := func(h *Home) uint64 {
		if h == nil {
			return 0
		}
		return h.Boot
	}
	for _, h := range v.VHosts() {
		out = append(out, "vhost "+h.Name)
		for _, e := range v.Exchanges(h.Name) {
			out = append(out, fmt.Sprintf("exchange %s:%s %s %v %d", e.VHost, e.Name, e.Type, e.AutoDelete, bootOf(e.Home)))
		}
		for _, b := range v.Bindings(h.Name) {
			to := b.Destination
			if b.ToExchange {
				to = ">" + to
			}
			out = append(out, fmt.Sprintf("binding %q", [4]string{b.VHost, b.Source, to, b.Key}))
		}
	}
	for _, r := range v.AllResources() {
		a := r.Partitions[0]
		q := modelQueue{
			incarnation: r.Incarnation &^ ident.TransientBit, epoch: a.Epoch, version: a.Version, boot: bootOf(r.Home), starts: len(a.Starts),
		}
		if a.Pending != nil {
			q.pending, q.pendingEpoch = a.Pending.ID, a.Pending.Epoch
		}
		out = append(out, fmt.Sprintf("queue %s:%s %+v", r.VHost, r.Name, q))
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

// draw makes an item and the outcome that the model expects of it.
func (m *model) draw(t *rapid.T) (Item, bool) {
	vhost := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "vhost")
	qname := rapid.SampledFrom([]string{"q1", "q2", "q3"}).Draw(t, "queue")
	ename := rapid.SampledFrom([]string{"e1", "e2", "amq.topic"}).Draw(t, "exchange")
	q, e := vhost+":"+qname, vhost+":"+ename
	have, ok := m.queues[q]
	op := rapid.SampledFrom([]string{
		"vhost", "vhost-", "exchange", "exchange", "exchange-", "bind", "bind", "bindx", "unbind", "queue", "queue", "queue-",
		"boot", "record", "commit", "cancel",
	}).Draw(t, "op")
	switch op {
	case "vhost":
		if !m.vhosts[vhost] {
			m.vhosts[vhost] = true
			for _, b := range builtin {
				m.exchanges[vhost+":"+b.Name] = modelExchange{kind: b.Type, builtin: true}
			}
		}
		return CreateVHost(vhost), true
	case "vhost-":
		known := m.vhosts[vhost]
		delete(m.vhosts, vhost)
		maps.DeleteFunc(m.exchanges, func(k string, _ modelExchange) bool { return k[0] == vhost[0] })
		maps.DeleteFunc(m.queues, func(k string, _ modelQueue) bool { return k[0] == vhost[0] })
		m.clean()
		return DeleteVHost(vhost), known
	case "exchange":
		return m.declareExchange(t, vhost, ename)
	case "exchange-":
		ifUnused := rapid.Bool().Draw(t, "ifUnused")
		x, known := m.exchanges[e]
		may := known && !x.builtin && (!ifUnused || m.from(vhost, ename) == 0)
		if may {
			delete(m.exchanges, e)
			m.clean()
		}
		return DeleteExchange(vhost, ename, ifUnused), may
	case "bind", "bindx", "unbind":
		return m.drawBinding(t, op, vhost, ename, qname)
	case "queue":
		return m.declareQueue(t, vhost, qname)
	case "queue-":
		delete(m.queues, q)
		m.clean()
		return DeleteResource(vhost, qname, 0, 0), ok
	case "boot":
		boot := m.boot + uint64(rapid.IntRange(0, 1).Draw(t, "later"))
		if boot > m.boot {
			m.boot = boot
			maps.DeleteFunc(m.queues, func(_ string, q modelQueue) bool { return q.boot != 0 && q.boot < boot })
			maps.DeleteFunc(m.exchanges, func(_ string, e modelExchange) bool { return e.boot != 0 && e.boot < boot })
			m.clean()
		}
		return RegisterBoot(Node{Name: "n", Store: ident.StoreID{1}, Boot: boot}), true
	}
	return m.transition(t, op, q, have, ok)
}

func (m *model) declareExchange(t *rapid.T, vhost, name string) (Item, bool) {
	x := Exchange{VHost: vhost, Name: name, Type: rapid.SampledFrom([]string{"fanout", "topic"}).Draw(t, "type")}
	x.AutoDelete = rapid.Bool().Draw(t, "autoDelete")
	want := modelExchange{kind: x.Type, autoDelete: x.AutoDelete}
	if x.Durable = rapid.Bool().Draw(t, "durable"); !x.Durable {
		x.Home, want.boot = &Home{Node: "n", Boot: m.boot}, m.boot
	}
	if !m.vhosts[vhost] {
		return DeclareExchange(x), false
	}
	if have, ok := m.exchanges[vhost+":"+name]; ok {
		return DeclareExchange(x), have.kind == want.kind && have.autoDelete == want.autoDelete && (have.boot == 0) == (want.boot == 0)
	}
	m.exchanges[vhost+":"+name] = want
	return DeclareExchange(x), true
}

func (m *model) declareQueue(t *rapid.T, vhost, name string) (Item, bool) {
	r := Resource{VHost: vhost, Name: name, Kind: Queue, Queue: &queue.Settings{}}
	m2 := modelQueue{epoch: 1, version: 1, starts: 1}
	if r.Durable = rapid.Bool().Draw(t, "durable"); !r.Durable {
		r.Home, m2.boot = &Home{Node: "n", Boot: m.boot}, m.boot
	}
	item := DeclareResource(r, ident.Instance{Node: "n", Store: ident.StoreID{1}, Boot: m.boot}, nil, 1)
	if !m.vhosts[vhost] {
		return item, false
	}
	if have, ok := m.queues[vhost+":"+name]; ok {
		return item, (have.boot == 0) == r.Durable
	}
	m.next++
	m2.incarnation = m.next
	m.queues[vhost+":"+name] = m2
	return item, true
}

func (m *model) drawBinding(t *rapid.T, op, vhost, ename, qname string) (Item, bool) {
	b := Binding{VHost: vhost, Source: ename, Destination: qname, Key: rapid.SampledFrom([]string{"", "k"}).Draw(t, "key")}
	key := [4]string{vhost, ename, qname, b.Key}
	_, source := m.exchanges[vhost+":"+ename]
	_, dest := m.queues[vhost+":"+qname]
	if op == "bindx" || (op == "unbind" && rapid.Bool().Draw(t, "toExchange")) {
		b.ToExchange = true
		b.Destination = rapid.SampledFrom([]string{"e1", "e2"}).Draw(t, "destination")
		key[2] = ">" + b.Destination
		_, dest = m.exchanges[vhost+":"+b.Destination]
	}
	switch {
	case op != "unbind":
		if source && dest {
			m.bindings[key] = true
		}
		return Bind(b), source && dest
	case source && dest && m.bindings[key]:
		delete(m.bindings, key)
		if x := m.exchanges[vhost+":"+ename]; x.autoDelete && m.from(vhost, ename) == 0 {
			delete(m.exchanges, vhost+":"+ename)
			m.clean()
		}
	}
	return Unbind(b), source && dest
}

func (m *model) transition(t *rapid.T, op, name string, q modelQueue, ok bool) (Item, bool) {
	version := q.version - uint64(rapid.IntRange(0, 1).Draw(t, "stale"))
	id := rapid.SampledFrom([]string{"t1", "t2"}).Draw(t, "transition")
	epoch := q.epoch + uint64(rapid.IntRange(0, 2).Draw(t, "epoch"))
	p := ident.Partition{Incarnation: q.incarnation}
	if q.boot != 0 {
		p.Incarnation |= ident.TransientBit
	}
	may := ok && version == q.version
	switch op {
	case "record":
		item := RecordPending(p, version, Pending{ID: id, Epoch: epoch})
		if ok && q.pending == id && q.pendingEpoch == epoch {
			return item, true
		}
		if may = may && epoch > q.epoch && epoch >= q.pendingEpoch && (q.pending == "" || q.pending == id); may {
			q.version, q.pending, q.pendingEpoch = q.version+1, id, epoch
			m.queues[name] = q
		}
		return item, may
	case "commit":
		if may = may && q.pending == id && epoch == q.pendingEpoch; may {
			q.version, q.epoch, q.pending, q.pendingEpoch, q.starts = q.version+1, epoch, "", 0, min(q.starts+1, keepStarts)
			m.queues[name] = q
		}
		return CommitTransition(Commit{
			Partition: p, Version: version, Transition: id, Start: HistoryStart{Epoch: epoch},
			Owner: ident.Instance{Node: "n", Store: ident.StoreID{1}, Boot: m.boot},
		}), may
	}
	if may = may && q.pending == id; may {
		q.version, q.pending, q.pendingEpoch = q.version+1, "", 0
		m.queues[name] = q
	}
	return CancelPending(p, version, id), may
}

// leaper follows the catalog as a listener does whose node is sent a snapshot now and then, and nothing else.
type leaper struct {
	state *State
	view  *View
}

func (l *leaper) leap(t *rapid.T, after *State) {
	restored, err := Restore(after.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if ch := Diff(after, restored); len(ch) > 0 {
		t.Fatalf("a state differs from itself by %+v", ch)
	}
	for _, c := range Diff(l.state, restored) {
		if c.Before != nil && viewHas(l.view, c.Before) == nil || c.Before == nil && viewHas(l.view, c.After) != nil {
			t.Fatalf("%+v does not fit what is there", c)
		}
		l.view.Apply([]Change{c})
	}
	l.state = restored
}

func (l *leaper) end(t *rapid.T, s *State, m *model) {
	l.leap(t, s)
	if got, want := viewText(l.view), m.text(); got != want {
		t.Fatalf("a view that followed the differences has\n%s\nmodel\n%s", got, want)
	}
}

// viewHas is the object in the place of another.
func viewHas(v *View, object any) any {
	probe := &State{view: v}
	for _, c := range probe.Changes() {
		if objectKey(c.After) == objectKey(object) {
			return c.After
		}
	}
	return nil
}

func TestAgainstDumbModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			vhosts: map[string]bool{}, exchanges: map[string]modelExchange{}, queues: map[string]modelQueue{}, bindings: map[[4]string]bool{},
			boot: 1,
		}
		s, follower := New(), NewView()
		var commands [][]byte
		lag := leaper{New(), NewView()}
		apply := func(items ...Item) Result {
			cmd, err := Encode(items...)
			if err != nil {
				t.Fatal(err)
			}
			commands = append(commands, cmd)
			res, changes, err := s.Apply(uint64(len(commands)), cmd)
			if err != nil {
				t.Fatal(err)
			}
			follower.Apply(changes)
			return res
		}
		apply(RegisterBoot(Node{Name: "n", Store: ident.StoreID{1}, Boot: 1}))
		for range rapid.IntRange(1, 40).Draw(t, "commands") {
			var items []Item
			var want []bool
			for range rapid.IntRange(1, 4).Draw(t, "items") {
				item, ok := m.draw(t)
				items, want = append(items, item), append(want, ok)
			}
			res := apply(items...)
			for i, r := range res.Items {
				if (r.Refused == nil) != want[i] {
					t.Fatalf("item %d: refused %v, the model says %v", i, r.Refused, want[i])
				}
			}
			if got, want := viewText(s.View()), m.text(); got != want {
				t.Fatalf("state\n%s\nmodel\n%s", got, want)
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				restored, err := Restore(s.Snapshot())
				if err != nil {
					t.Fatal(err)
				}
				s = restored
			}
			if rapid.IntRange(0, 9).Draw(t, "leap") == 0 {
				lag.leap(t, s)
			}
		}
		lag.end(t, s, m)
		if got, want := viewText(follower), m.text(); got != want {
			t.Fatalf("a view that followed the changes has\n%s\nmodel\n%s", got, want)
		}
		replay := New()
		for i, cmd := range commands {
			if _, _, err := replay.Apply(uint64(i+1), cmd); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(replay.Snapshot(), s.Snapshot()) {
			t.Fatal("replaying all commands and restoring snapshots on the way give different states")
		}
		whole := NewView()
		whole.Apply(s.Changes())
		if viewText(whole) != m.text() {
			t.Fatal("a view built from the whole differs")
		}
	})
}
