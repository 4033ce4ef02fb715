package control

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/ident"
)

// happening is one input of a detector. Exactly one of the calls is meant.
type happening struct {
	at   time.Duration
	call string // register, up, down, unreachable, beat, report
	run  ident.Instance
	end  Ending
	beat Beat
	of   Reach
}

func (h happening) String() string {
	return fmt.Sprintf("\n%d %s %s/%d %s beat %v %d of %s/%d %v %s", h.at, h.call, h.run.Node, h.run.Boot, h.end, h.beat.Closed,
		h.beat.Stalled, h.of.Node.Node, h.of.Node.Boot, h.of.Up, h.of.Ending)
}

func (h happening) tell(d *Detector) {
	switch h.call {
	case "register":
		d.Register(h.run, h.at)
	case "up":
		d.Up(h.run, h.at)
	case "down":
		d.Down(h.run, h.end, h.at)
	case "unreachable":
		d.Unreachable(h.run.Node, h.end, h.at)
	case "beat":
		d.Beat(h.beat, h.at)
	case "report":
		d.Report(h.run, []Reach{h.of}, h.at)
	}
}

// dumb knows the rules and nothing else: it remembers all that ever happened, and looks through all of it for every question.
type dumb struct {
	l       Limits
	begun   int // how many happened before the controller began: registrations
	history []happening
}

func (m *dumb) registered(node string) (run ident.Instance, index int) {
	for i, h := range m.history {
		if h.call == "register" && h.run.Node == node && h.run != run {
			run, index = h.run, i
		}
	}
	return run, index
}

// session is the run that the controller has a session with, and where in the history it began; false if there is none.
func (m *dumb) session(node string) (run ident.Instance, index int, ok bool) {
	for i, h := range m.history {
		switch {
		case h.run.Node != node:
		case h.call == "up":
			run, index, ok = h.run, i, true
		case h.call == "down":
			ok = false
		}
	}
	return run, index, ok
}

// heard is when a run last spoke.
func (m *dumb) heard(run ident.Instance) (at time.Duration, ever bool) {
	for _, h := range m.history {
		if h.run == run && (h.call == "up" || h.call == "beat" || h.call == "report") {
			at, ever = h.at, true
		}
	}
	return at, ever
}

// word is what an observer knows of a run: whether it reaches it, how it ended, since when, and when it last reached it.
type word struct {
	reaches    bool
	ending     Ending
	since      time.Duration
	ever       bool
	lastReach  time.Duration
	wasReached bool
}

// says is the word of an observer, the controller's where by is "".
func (m *dumb) says(by string, of ident.Instance) word {
	_, registered := m.registered(of.Node)
	from := 0
	if by != "" {
		run, index, ok := m.session(by)
		reg, _ := m.registered(by)
		heard, _ := m.heard(reg)
		if !ok || run != reg || m.now() >= heard+m.l.LivenessTTL {
			return word{}
		}
		from = index
	}
	var w word
	up := false
	for i, h := range m.history[from:] {
		early := from+i < registered // then it is of the run only if it reached it
		var begins, ends bool
		var run ident.Instance
		ending := h.end
		switch {
		case by == "" && h.run.Node == of.Node:
			begins, ends, run = h.call == "up", h.call == "down" || h.call == "unreachable", h.run
		case h.call == "report" && h.run.Node == by && h.of.Node.Node == of.Node:
			begins, ends, run, ending = h.of.Up, !h.of.Up, h.of.Node, h.of.Ending
			if ends && run != of && run.Boot != 0 {
				ending = NoEnding
			}
		}
		switch {
		case begins && early && run != of:
			w, up = word{}, false
		case begins:
			w = word{reaches: run == of, lastReach: w.lastReach, wasReached: w.wasReached}
			if early {
				w.wasReached = false
			}
			up = true
		case ends && early:
			w, up = word{}, false
		case ends:
			if up {
				w.lastReach, w.wasReached = h.at, true
			}
			if up || ending == Denied && w.ending != Denied || ending > w.ending {
				w.ending, w.since = ending, h.at
			}
			w.reaches, up = false, false
		}
	}
	w.ever = true
	return w
}

func (m *dumb) story() (out []happening) {
	for _, h := range m.history {
		if h.call != "" {
			out = append(out, h)
		}
	}
	return out
}

func (m *dumb) now() time.Duration { return m.history[len(m.history)-1].at }

// judge says what a node is suspected for.
func (m *dumb) judge(node string, nodes []string) (Suspicion, bool) {
	if s, ok := m.rebooted(node, nodes[0]); ok {
		return s, true
	}
	if s, ok := m.sick(node); ok || node == nodes[0] {
		return s, ok
	}
	run, index := m.registered(node)
	words, reached := map[string]word{nodes[0]: m.says("", run)}, false
	for _, by := range nodes[1:] {
		if by != node {
			words[by] = m.says(by, run)
		}
	}
	for _, by := range nodes {
		reached = reached || words[by].reaches
	}
	if s, ok := m.eager(words, nodes); ok && !reached {
		s.Node = run
		return s, true
	}
	s := Suspicion{Node: run, By: nodes[:1]}
	heard, ever := m.heard(run)
	if ever {
		s.Symptom, s.Since = Expired, heard
		return s, m.now() >= heard+m.l.LivenessTTL
	}
	patience := m.l.LivenessTTL
	if index < m.begun && !reached {
		patience = m.l.TakeoverGrace
	}
	s.Symptom, s.Since = Unheard, m.history[index].at
	return s, m.now() >= s.Since+patience
}

func (m *dumb) rebooted(node, self string) (Suspicion, bool) {
	run, _ := m.registered(node)
	s := Suspicion{Node: run}
	for _, h := range m.history {
		later, by := h.run, self
		if h.call == "report" && h.of.Up && h.of.Node.Node == node && h.run.Node != node {
			later, by = h.of.Node, h.run.Node
		} else if h.call != "up" && h.call != "beat" && h.call != "report" {
			continue
		}
		if later.Node == node && later.Boot > run.Boot {
			if len(s.By) == 0 {
				s.Since = h.at
			}
			s.By = append(s.By, by)
		}
	}
	slices.Sort(s.By)
	s.By = slices.Compact(s.By)
	return s, len(s.By) > 0
}

func (m *dumb) sick(node string) (s Suspicion, sick bool) {
	run, index := m.registered(node)
	s = Suspicion{Node: run, By: []string{node}}
	for _, h := range m.history[index:] {
		if h.call != "beat" || h.run != run {
			continue
		}
		was := sick
		s.Symptom, sick = m.l.storageFault(h.beat)
		if s.Detail = h.beat.Health; sick && !was {
			s.Since = h.at - h.beat.Stalled
		}
	}
	return s, sick
}

// eager is what follows from how sessions ended, if nobody reaches the run.
func (m *dumb) eager(words map[string]word, nodes []string) (s Suspicion, ok bool) {
	for _, e := range []Ending{Refused, Reset} {
		s = Suspicion{Symptom: Gone}
		for _, by := range nodes {
			if w := words[by]; w.ever && !w.reaches && w.ending == e {
				if len(s.By) == 0 || w.since < s.Since {
					s.Since = w.since
				}
				s.By = append(s.By, by)
			}
		}
		for _, by := range nodes {
			if w := words[by]; w.wasReached {
				s.Since = max(s.Since, w.lastReach)
			}
		}
		if len(s.By) == 0 {
			continue
		}
		if e == Refused {
			return s, true
		}
		s.Symptom = Broken
		return s, m.now() >= s.Since+m.l.EagerGrace
	}
	return s, false
}

// cluster makes inputs as a mesh would: what a run says comes within its session, and a session ends before the next begins.
type cluster struct {
	nodes   []string
	runs    map[string]ident.Instance // registered
	session map[string]ident.Instance // of the controller
}

func (c *cluster) next(t *rapid.T, at time.Duration) happening {
	node := rapid.SampledFrom(c.nodes[1:]).Draw(t, "node")
	run, up := c.session[node]
	h := happening{at: at, run: run, end: rapid.SampledFrom([]Ending{Reset, Reset, Refused, Refused, Silent, Denied, Left}).Draw(t, "ending")}
	if !up {
		h.call, h.run = "unreachable", c.runs[node]
		if rapid.IntRange(0, 2).Draw(t, "up") == 0 {
			if rapid.IntRange(0, 3).Draw(t, "restarted") == 0 {
				h.run.Boot++
			}
			h.call, c.session[node] = "up", h.run
		}
		return h
	}
	what := rapid.SampledFrom([]string{"beat", "beat", "beat", "report", "report", "report", "down", "down"}).Draw(t, "what")
	if run != c.runs[node] && rapid.IntRange(0, 1).Draw(t, "registers") == 0 {
		c.runs[node] = run
		h.call = "register"
		return h
	}
	switch h.call = what; what {
	case "down":
		if run != c.runs[node] { // a run that registers before its session ends, for the model's sake
			h.call, c.runs[node] = "register", run
			return h
		}
		delete(c.session, node)
	case "beat":
		h.beat = Beat{From: run}
		switch rapid.IntRange(0, 9).Draw(t, "fault") {
		case 0:
			h.beat.Closed, h.beat.Health = true, "uncertain"
		case 1:
			h.beat.Stalled = time.Duration(rapid.IntRange(18, 22).Draw(t, "stalled"))
		}
	case "report":
		h.of.Node = c.runs[rapid.SampledFrom(c.nodes).Draw(t, "of")]
		if h.of.Up = rapid.Bool().Draw(t, "reaches"); !h.of.Up {
			h.of.Ending = h.end
		}
		if b := rapid.IntRange(0, 9).Draw(t, "another run"); b == 0 && h.of.Node.Node != c.nodes[0] {
			h.of.Node.Boot++
		} else if b == 1 {
			h.of.Node.Boot--
		}
	}
	return h
}

// What the detector finds is what the rules say of all that ever happened. And it need not be called but when something happens and
// when it asked for it: another that is called at every moment finds the same at the same time.
func TestDetectionAgainstTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{EagerGrace: 3, LivenessTTL: 15, StallLimit: 20, TakeoverGrace: 5}
		c := &cluster{runs: map[string]ident.Instance{}, session: map[string]ident.Instance{}}
		m := &dumb{l: l}
		var runs []ident.Instance
		for i := range rapid.IntRange(2, 4).Draw(t, "nodes") {
			r := ident.Instance{Node: fmt.Sprint("n", i), Store: ident.StoreID{byte(i)}, Boot: 3}
			c.nodes, runs = append(c.nodes, r.Node), append(runs, r)
			c.runs[r.Node] = r
			m.history = append(m.history, happening{call: "register", run: r})
		}
		m.begun = len(runs)
		d, every := NewDetector(l, "n0", runs, 0), NewDetector(l, "n0", runs, 0)
		found, wake, waits := d.Tick(0)
		var told, toldEvery []string
		note := func(to *[]string, at time.Duration, fs []Finding) {
			for _, f := range fs {
				*to = append(*to, fmt.Sprintf("%d %+v", at, f))
			}
		}
		note(&told, 0, found)
		found, _, _ = every.Tick(0)
		note(&toldEvery, 0, found)
		now := time.Duration(0)
		check := func() {
			m.history = append(m.history, happening{at: now}) // time passes
			for _, node := range c.nodes {
				want, suspect := m.judge(node, c.nodes)
				got, ok := d.Suspect(want.Node)
				if ok != suspect {
					t.Fatalf("at %d %s: suspected %v %+v; the rules say %v %+v\n%+v", now, node, ok, got, suspect, want, m.story())
				}
				fresh, _ := d.judge(d.find(node), now)
				if suspect && !reflect.DeepEqual(fresh, want) {
					t.Fatalf("at %d: %+v; the rules say %+v\n%+v", now, fresh, want, m.story())
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			for range rapid.IntRange(0, 6).Draw(t, "pause") {
				now++
				found, _, _ := every.Tick(now)
				note(&toldEvery, now, found)
				if waits && now == wake {
					found, wake, waits = d.Tick(now)
					note(&told, now, found)
				}
				check()
			}
			h := c.next(t, now)
			m.history = append(m.history, h)
			h.tell(d)
			h.tell(every)
			found, wake, waits = d.Tick(now)
			note(&told, now, found)
			found, _, _ = every.Tick(now)
			note(&toldEvery, now, found)
			check()
			if !slices.Equal(told, toldEvery) {
				t.Fatalf("woken when it asked: %v\nwoken always: %v", told, toldEvery)
			}
			if waits && wake <= now {
				t.Fatalf("at %d it wants to be woken at %d", now, wake)
			}
		}
	})
}
