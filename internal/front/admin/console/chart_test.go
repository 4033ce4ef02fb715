package console

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/front/admin"
	"pgregory.net/rapid"
)

func TestVisible(t *testing.T) {
	for name, want := range map[string]string{
		"": "(no name)", "orders": "orders", "große Bestellung 注文": "große Bestellung 注文", "a\x00b\n": `a\x00b\x0a`, "\xff\xfe": `\xff\xfe`,
		"x\u202ey\u00a0z\u200b": `x\u202ey\u00a0z\u200b`, "<b>": "<b>", "\u2028": `\u2028`,
	} {
		if got := visible(name); got != want {
			t.Errorf("visible(%q) = %s, want %s", name, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		number(0): "0", number(uint64(999)): "999", number(1000): "1 000", number(uint64(math.MaxUint64)): "18 446 744 073 709 551 615", number(-1): "0",
		perSecond(false, 7): "–", perSecond(true, 0.01): "0", perSecond(true, 0.25): "0.2", perSecond(true, 3): "3", perSecond(true, 12345.6): "12 346",
		bytesText(0): "0 B", bytesText(1023): "1023 B", bytesText(1 << 20): "1.0 MiB", bytesText(math.MaxUint64): "16.0 EiB",
		took(0): "0 µs", took(999): "999 µs", took(1500): "1.5 ms", took(43_000): "43 ms", took(2_340_000): "2.34 s", took(200_000_000): "200 s", took(-1500): "−1.5 ms",
	} {
		if strings.ReplaceAll(got, thin, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestWindow: whatever the positions, all lie inside in their order, and the ends of copies that differ can be told apart.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ends := rapid.SliceOfN(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 50), rapid.Uint64Range(math.MaxUint64-50, math.MaxUint64)), 1, 6).Draw(t, "ends")
		w := windowOf(ends...)
		for _, a := range ends {
			if x := w.at(a); math.IsNaN(x) || x < 0 || x > full {
				t.Fatalf("%d is at %v of %+v", a, x, w)
			}
			for _, b := range ends {
				if a < b && w.at(a) > w.at(b) {
					t.Fatalf("%d is right of %d in %+v", a, b, w)
				}
			}
		}
		if low, high := w.at(slicesMin(ends)), w.at(slicesMax(ends)); high != full && w.High != 1 || slicesMin(ends) != slicesMax(ends) && high-low < full/20 {
			t.Fatalf("from %v to %v of %+v", low, high, w)
		}
	})
	if w := windowOf(); w.at(0) != 0 || w.at(9) != full {
		t.Errorf("of nothing: %+v", w)
	}
}

func slicesMin(all []uint64) uint64 {
	m := all[0]
	for _, x := range all {
		m = min(m, x)
	}
	return m
}

func slicesMax(all []uint64) uint64 {
	m := all[0]
	for _, x := range all {
		m = max(m, x)
	}
	return m
}

func TestTimeline(t *testing.T) {
	at := func(ms ...int64) *evidence.Evidence {
		e := &evidence.Evidence{}
		for i, to := range []*int64{&e.LastConfirm, &e.Suspected, &e.Recorded, &e.Sealed, &e.Chosen, &e.Committed, &e.Serving, &e.FirstConfirm} {
			if i < len(ms) && ms[i] >= 0 {
				*to = (1_000_000 + ms[i]) * 1000
			}
		}
		return e
	}
	for _, c := range []struct {
		name string
		of   *evidence.Evidence
		want string // from+width of each, - where nothing is drawn
		ms   int64
		mix  bool
	}{
		{"whole", at(0, 10, 20, 40, 40, 60, 80, 100), "first 0+100 100+100 200+200 400+4 400+200 600+200 800+200", 70, false},
		{"nothing was sent for a while", at(0, 100_000, 100_010, 100_020, 100_020, 100_030, 100_040, 200_000), "first 0+4 0+250 250+250 500+4 500+250 750+250 996+4", 40, false},
		{"the outer ones alone", at(0, -1, -1, -1, -1, -1, -1, 10), "first - - - - - - 0+1000", 10, false},
		{"some are not known", at(-1, 0, -1, 50, -1, 100), "- first - 0+500 - 500+500 - -", 100, false},
		{"clocks differ", at(0, 50, 40, 100), "first 0+500 400+100 400+600 - - - -", 60, true},
		{"confirmed until it was sealed", at(60, 0, 50, 100), "first 0+500 500+100 600+400 - - - -", 100, false},
		{"confirmed after it was suspected", at(10, 0, -1, 100), "first 0+100 - 100+900 - - - -", 100, false},
		{"one", at(-1, 0), "- first - - - - - -", 0, false},
		{"nothing", at(), "- - - - - - - -", 0, false},
		{"all at once", at(5, 5, 5), "first 0+0 0+0 - - - - -", 0, false},
		{"one long step", at(0, 0, 10_000, 10_000, 10_000, 10_000, 10_000, 10_001), "first 0+4 0+1000 996+4 996+4 996+4 996+4 996+4", 10_000, false},
	} {
		line := timelineOf(c.of)
		var got []string
		for _, s := range line.Steps {
			switch {
			case s.At == 0:
				got = append(got, "-")
			case s.First:
				got = append(got, "first")
			default:
				got = append(got, fmt.Sprintf("%.0f+%.0f", s.From, s.Width))
			}
			if s.From < 0 || s.From+s.Width > full {
				t.Errorf("%s: %s is outside: %v+%v", c.name, s.Name, s.From, s.Width)
			}
		}
		if text := strings.Join(got, " "); text != c.want || line.Total != c.ms*1000 || line.Mixed != c.mix || line.Far != strings.HasPrefix(c.name, "nothing was") {
			t.Errorf("%s: %s in %d µs, mixed %t; want %s in %d ms", c.name, text, line.Total, line.Mixed, c.want, c.ms)
		}
	}
}

func TestPicture(t *testing.T) {
	for n, drawn := range map[int]bool{1: false, 2: true, 3: true, 5: true, maxDots: true, maxDots + 1: false} {
		var nodes []admin.Node
		for i := range n {
			nodes = append(nodes, admin.Node{Name: fmt.Sprint("n", i), Live: i != 1})
		}
		p := pictureOf(nodes, []admin.Partition{{Owner: "n0", Followers: []string{"n1", "gone"}}, {Owner: "n1", Followers: []string{"n0"}}, {Owner: "gone"}})
		if (len(p.Dots) > 0) != drawn {
			t.Fatalf("%d nodes: %d are drawn", n, len(p.Dots))
		}
		if !drawn {
			continue
		}
		for i, d := range p.Dots {
			if d.X < dotRoom || d.X > pictureWidth-dotRoom || d.Y < dotRoom || d.Y > p.Height-dotRoom {
				t.Errorf("%d nodes: %s is outside, at %v, %v of %v", n, d.Name, d.X, d.Y, p.Height)
			}
			for _, o := range p.Dots[:i] {
				if math.Hypot(d.X-o.X, d.Y-o.Y) < 80 {
					t.Errorf("%d nodes: %s and %s overlap", n, d.Name, o.Name)
				}
			}
		}
		if len(p.Edges) != n*(n-1)/2 || p.Edges[0].Partitions != 2 || !p.Edges[0].Broken || p.Dots[0].Owns != 1 {
			t.Errorf("%d nodes: %d edges, %+v, %+v", n, len(p.Edges), p.Edges[0], p.Dots[0])
		}
	}
}

// TestLines: a rate that is not known leaves a gap, and the drawing ends now, not when something was last known.
func TestLines(t *testing.T) {
	var points []point
	for i, in := range []float64{-1, -1, 10, 20, -1, -1, 40, 30, -1} {
		points = append(points, point{at: noon.Add(time.Duration(i) * time.Second), total: rate{In: in, Left: in / 2, Known: in >= 0}})
	}
	total := func(p point) rate { return p.total }
	if l := linesOf(points, false, total); l.In != "M143 80.0L286 60.0M714 20.0L857 40.0" || l.Left != "" || l.Max != 50 || l.Seconds != 7 || !l.Known {
		t.Errorf("%+v", l)
	}
	if l := linesOf(points, true, total); l.Left != "M143 90.0L286 80.0M714 60.0L857 70.0" {
		t.Errorf("%+v", l)
	}
	for n := range 4 {
		if l := linesOf(points[:n], true, total); l.Known {
			t.Errorf("%d points, of which one is known: %+v", n, l)
		}
	}
}

// TestRates: what is not known is not shown as nothing, and a count that fell is no rate.
func TestRates(t *testing.T) {
	a := count{incarnation: 1, in: 1000, held: 50, queue: true, known: true}
	for _, c := range []struct {
		name string
		to   count
		want rate
	}{
		{"in and out", count{1, 1100, 30, true, true}, rate{10, 12, true}},
		{"nothing", a, rate{0, 0, true}},
		{"more is held than came: released from elsewhere", count{1, 1100, 500, true, true}, rate{10, 0, true}},
		{"a stream", count{1, 1100, 0, false, true}, rate{10, 0, true}},
		{"the owner does not answer", count{1, 0, 0, true, false}, rate{}},
		{"deleted and made anew", count{2, 1100, 0, true, true}, rate{}},
		{"cut", count{1, 900, 0, true, true}, rate{}},
	} {
		if got := between(a, c.to, 10); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestHistory: rates are means over a while, and what is remembered is bounded in time and size.
func TestHistory(t *testing.T) {
	f := whole()
	f.picture.Partitions[0].Messages = 0
	now := noon
	feed := newFeed(f, func() time.Time { return now })
	var s *sample
	for i := range 400 {
		var err error
		if s, err = feed.get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i == 0 && (s.total.Known || s.served.Known) {
			t.Errorf("a rate from one look: %+v", s.total)
		}
		now = now.Add(time.Second)
		f.picture.Partitions[0].Messages += 100
		f.picture.Clients.Published += 7
	}
	if s.total.In != 100 || s.rates[key{"/", "orders"}].In != 100 || s.rates[key{"/", "events"}].Known || s.served.Published != 7 {
		t.Errorf("rates %+v, %+v, %+v", s.total, s.rates, s.served)
	}
	if n := len(s.points); n > int(history/time.Second)+1 || n < int(history/time.Second)-1 {
		t.Errorf("%d points", n)
	}
	if l := linesOf(s.points, true, func(p point) rate { return p.total }); !l.Known || l.Seconds != 120 || l.Max != 100 || strings.Contains(l.In, "NaN") {
		t.Errorf("lines %+v", l)
	}
	now = now.Add(-time.Hour) // the clock is set back
	if s, err := feed.get(t.Context()); err != nil || len(s.points) != 1 || s.total.Known {
		t.Errorf("after the clock was set back: %d points, %+v, %v", len(s.points), s.total, err)
	}
	for i := range maxRemembered {
		f.picture.Resources = append(f.picture.Resources, admin.Resource{Name: fmt.Sprint("q", i), Kind: "queue"})
	}
	for range 60 {
		now = now.Add(time.Second)
		if s, _ = feed.get(t.Context()); s == nil {
			t.Fatal("no sample")
		}
	}
	remembered := 0
	for _, p := range s.points {
		if p.counts != nil {
			remembered++
		}
		if p.rates != nil {
			t.Fatal("the rates of each of many are remembered")
		}
	}
	if remembered > 12 || !s.total.Known || len(s.rates) < maxRemembered {
		t.Errorf("%d counts of many are remembered, rates of %d", remembered, len(s.rates))
	}
}
