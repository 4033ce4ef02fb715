package control

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// A script is a story of one controller's term. "begin" names its node and the registered runs; "at N" tells what happens at N ms, a line
// each; "until N" lets time pass, with some runs beating every 100 ms, and wakes the detector when it asked for it. What follows ----
// is what the detector found, and when it wants to be woken. A run is NODE/BOOT; its store is called as the node is, or NODE:STORE/BOOT.
func TestDetection(t *testing.T) {
	datadriven.Walk(t, "testdata/detect", func(t *testing.T, path string) {
		var w watch
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			w.t, w.out = t, nil
			switch td.Cmd {
			case "begin":
				w.begin(td)
			case "at":
				w.now = ms(t, td.CmdArgs[0].Key)
				for line := range strings.Lines(td.Input) {
					w.happens(strings.Fields(line))
				}
				w.tick()
			case "until":
				w.pass(td)
			case "standings":
				for _, s := range w.d.Standings(w.now) {
					w.say("%s live=%v draining=%v health=%q", called(s.Run), s.Live, s.Draining, s.Health)
				}
			default:
				t.Fatalf("%s: unknown directive %s", td.Pos, td.Cmd)
			}
			if w.waits {
				w.say("wake at %d", w.wake.Milliseconds())
			}
			return strings.Join(w.out, "\n") + "\n"
		})
	})
}

type watch struct {
	t     *testing.T
	d     *Detector
	now   time.Duration
	wake  time.Duration
	waits bool
	out   []string
}

func (w *watch) say(format string, a ...any) { w.out = append(w.out, fmt.Sprintf(format, a...)) }

func ms(t *testing.T, s string) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Millisecond
}

func (w *watch) run(s string) ident.Instance {
	w.t.Helper()
	name, boot, ok := strings.Cut(s, "/")
	n, err := strconv.ParseUint(boot, 10, 64)
	if !ok || err != nil {
		w.t.Fatalf("run %q", s)
	}
	name, store, other := strings.Cut(name, ":")
	if !other {
		store = name
	}
	i := ident.Instance{Node: name, Boot: n}
	copy(i.Store[:], store)
	return i
}

func called(i ident.Instance) string {
	store := strings.TrimRight(string(i.Store[:]), "\x00")
	if store == i.Node {
		return fmt.Sprintf("%s/%d", i.Node, i.Boot)
	}
	return fmt.Sprintf("%s:%s/%d", i.Node, store, i.Boot)
}

func (w *watch) begin(td *datadriven.TestData) {
	var runs []ident.Instance
	for _, a := range td.CmdArgs[1:] {
		runs = append(runs, w.run(a.Key))
	}
	w.now = 0
	w.d = NewDetector(DefaultLimits(), td.CmdArgs[0].Key, runs, 0)
	w.tick()
}

func (w *watch) happens(f []string) {
	if len(f) < 2 {
		w.t.Fatalf("line %q", f)
	}
	switch verb := f[1]; verb {
	case "up":
		w.d.Up(w.run(f[0]), w.now)
	case "down":
		w.d.Down(w.run(f[0]), ParseEnding(f[2]), w.now)
	case "unreachable":
		w.d.Unreachable(f[0], ParseEnding(f[2]), w.now)
	case "registers":
		w.d.Register(w.run(f[0]), w.now)
	case "removed":
		w.d.Remove(f[0])
	case "beats":
		b := Beat{From: w.run(f[0])}
		for _, x := range f[2:] {
			switch key, value, _ := strings.Cut(x, "="); key {
			case "closed":
				b.Closed = true
			case "draining":
				b.Draining = true
			case "health":
				b.Health = value
			case "stalled":
				b.Stalled = ms(w.t, value)
			default:
				w.t.Fatalf("beat with %q", x)
			}
		}
		w.d.Beat(b, w.now)
	case "says": // n3/1 says n2/1 up | n3/1 says n2/1 refused
		r := Reach{Node: w.run(f[2]), Up: f[3] == "up"}
		if !r.Up {
			r.Ending = ParseEnding(f[3])
		}
		w.d.Report(w.run(f[0]), []Reach{r}, w.now)
	default:
		w.t.Fatalf("what is %q?", verb)
	}
}

func (w *watch) tick() {
	var found []Finding
	found, w.wake, w.waits = w.d.Tick(w.now)
	for _, f := range found {
		text := called(f.Node) + " " + [...]string{"suspected: ", "cleared, was suspected: ", "replaced, was suspected: "}[f.Change] + f.Symptom.String()
		if f.Detail != "" {
			text += " (" + f.Detail + ")"
		}
		w.say("%d: %s; seen by %s since %d", w.now.Milliseconds(), text, strings.Join(f.By, ", "), f.Since.Milliseconds())
		if _, ok := w.d.Suspect(f.Node); ok != (f.Change == Suspected) {
			w.t.Fatalf("%+v, and it is suspected: %v", f, ok)
		}
	}
}

// pass lets time pass to "until"'s argument; the runs of "beating" beat every 100 ms.
func (w *watch) pass(td *datadriven.TestData) {
	end := ms(w.t, td.CmdArgs[0].Key)
	var beating []ident.Instance
	if td.HasArg("beating") {
		for _, a := range td.CmdArgs[1:] {
			for _, v := range a.Vals {
				beating = append(beating, w.run(v))
			}
		}
	}
	const every = 100 * time.Millisecond
	for w.now < end {
		next := min(end, (w.now/every+1)*every)
		if w.waits {
			next = min(next, max(w.wake, w.now+1))
		}
		w.now = next
		if w.now%every == 0 {
			for _, r := range beating {
				w.d.Beat(Beat{From: r}, w.now)
			}
		}
		w.tick()
	}
}

func TestEndingsAsText(t *testing.T) {
	for e := NoEnding; e <= Refused; e++ {
		if ParseEnding(e.String()) != e {
			t.Errorf("%q is read as %q", e, ParseEnding(e.String()))
		}
	}
	if e := ParseEnding("exploded"); e != NoEnding {
		t.Errorf("an unknown word is read as %q", e)
	}
}

// What is said of nodes that nobody registered takes no room.
func TestADetectorIsBounded(t *testing.T) {
	d := NewDetector(DefaultLimits(), "n0", []ident.Instance{instance("n0", 1), instance("n1", 1), instance("n2", 1)}, 0)
	for i := range 1000 {
		now, boot := time.Duration(i)*time.Millisecond, uint64(i+1)
		stranger := instance(fmt.Sprint("x", i), 1)
		d.Up(stranger, now)
		d.Beat(Beat{From: stranger}, now)
		d.Up(instance("n1", boot), now)
		d.Report(instance("n1", boot), []Reach{{Node: stranger, Up: true}, {Node: instance("n2", boot), Up: i%2 == 0, Ending: Reset}}, now)
		d.Report(stranger, []Reach{{Node: instance("n2", 1), Ending: Refused}}, now)
		d.Tick(now)
	}
	if len(d.nodes) != 3 {
		t.Fatalf("%d nodes", len(d.nodes))
	}
	for _, n := range d.nodes {
		if len(n.reports) > 2 || len(n.seenBy) > 3 || len(n.ended) > 0 {
			t.Errorf("%s: %d reports, %d witnesses, %d findings", n.run.Node, len(n.reports), len(n.seenBy), len(n.ended))
		}
	}
	if !slices.IsSortedFunc(d.nodes, func(a, b *watched) int { return strings.Compare(a.run.Node, b.run.Node) }) {
		t.Error("not sorted")
	}
}

// Where there is no other copy, a disk that stalls is no reason to seal the only one, for however long it does.
func TestTheOnlyCopysOwnerMayStall(t *testing.T) {
	a := instance("a", 1)
	d := NewDetector(DefaultLimits(), "b", []ident.Instance{a, instance("b", 1)}, 0)
	d.Up(a, 0)
	as := &catalog.Assignment{Owner: a}
	for now := time.Duration(0); now < time.Minute; now += 100 * time.Millisecond {
		d.Beat(Beat{From: a, Stalled: now}, now)
		d.Tick(now)
		_, suspected := d.Suspect(a)
		if suspected != (now >= 2*time.Second) || suspected != d.PutOff(as, now) {
			t.Fatalf("at %v: suspected %v, put off %v", now, suspected, d.PutOff(as, now))
		}
	}
	d.Beat(Beat{From: a, Health: "uncertain"}, time.Minute)
	d.Tick(time.Minute)
	if d.PutOff(as, time.Minute) {
		t.Error("a journal that cannot sync is put off")
	}
}
