package console

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/front/admin"
)

// full is the width of every drawing, in units of its own: it is stretched over the room that there is.
const full = 1000

// bar is one copy in a drawing of where copies end.
type bar struct {
	admin.Copy
	Known bool
	Firm  float64 // width of what is durable
	Soft  float64 // width of all
	Here  bool    // its node owns the partition
}

// window is the stretch of positions that a drawing shows: logs are long, and their ends lie close together.
type window struct{ Low, High uint64 }

// windowOf is a window that shows all ends apart: a quarter of it is what all have.
func windowOf(ends ...uint64) window {
	if len(ends) == 0 {
		return window{0, 1}
	}
	low, high := ends[0], ends[0]
	for _, e := range ends {
		low, high = min(low, e), max(high, e)
	}
	span := max((high-low)/3, 16)
	return window{low - min(low, span), max(high, 1)}
}

// at is where a position lies in the window, from 0 to full.
func (w window) at(position uint64) float64 {
	switch {
	case position >= w.High:
		return full
	case position <= w.Low:
		return 0
	}
	return math.Round(full * (float64(position-w.Low) / float64(w.High-w.Low)))
}

// lines are two rates over time, as paths of SVG. They end and begin anew where nothing was known.
type lines struct {
	In, Left string // Left is "" of a stream
	Max      float64
	Seconds  int
	Known    bool
}

const lineHeight = 100

// linesOf draws what pick gives of the points, over the time that they cover.
func linesOf(points []point, both bool, pick func(point) rate) lines {
	out, known := lines{}, 0
	for _, p := range points {
		if r := pick(p); r.Known {
			known++
			out.Max = max(out.Max, r.In)
			if both {
				out.Max = max(out.Max, r.Left)
			}
		}
	}
	if known < 2 {
		return lines{}
	}
	for !pick(points[0]).Known && !pick(points[1]).Known {
		points = points[1:] // before anything was known
	}
	first, last := points[0].at, points[len(points)-1].at
	out.Seconds, out.Known, out.Max = int(last.Sub(first).Round(time.Second).Seconds()), true, nice(out.Max)
	var in, left strings.Builder
	move := "M"
	for _, p := range points {
		r := pick(p)
		if !r.Known {
			move = "M"
			continue
		}
		x := full * float64(p.at.Sub(first)) / float64(last.Sub(first))
		fmt.Fprintf(&in, "%s%.0f %.1f", move, x, lineHeight*(1-r.In/out.Max))
		if both {
			fmt.Fprintf(&left, "%s%.0f %.1f", move, x, lineHeight*(1-r.Left/out.Max))
		}
		move = "L"
	}
	out.In, out.Left = in.String(), left.String()
	return out
}

// nice is the next number that a scale may end with.
func nice(v float64) float64 {
	if v <= 1 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*unit {
			return m * unit
		}
	}
	return 10 * unit
}

// step is one moment of a transition, and the stretch of time that led to it.
type step struct {
	Name, Meaning string
	Phase         string // for its colour
	At            int64  // microseconds since 1970; 0: not known
	From, Width   float64
	Took          int64 // microseconds since the moment before that is known
	After         int64 // microseconds since the transition began; below 0: before
	First         bool
	Backwards     bool // it is earlier than one that led to it: the clocks of two nodes
}

// timeline is a transition's moments, drawn.
type timeline struct {
	Steps []step
	Total int64 // microseconds, from the first sign to serving, as far as they are known
	Mixed bool  // some moments are out of order
	Far   bool  // some lie so far from the others that they are outside the drawing
}

// near is how many times the length of a transition the last confirm before it, or the first after it, may be away to be drawn to scale.
const near = 9

// timelineOf draws the times of a record. Moments that are not known are listed and not drawn. The transition is from the first sign to
// serving: when messages were last confirmed before and first after depends on when clients sent any.
func timelineOf(e *evidence.Evidence) timeline {
	t := timeline{Steps: []step{
		{Name: "Last confirm", Phase: "before", At: e.LastConfirm, Meaning: "by the old owner, as far as anyone knows"},
		{Name: "Suspected", Phase: "notice", At: e.Suspected, Meaning: "the first sign that the owner was gone"},
		{Name: "Recorded", Phase: "record", At: e.Recorded, Meaning: "the catalog holds that a change is under way"},
		{Name: "Sealed", Phase: "seal", At: e.Sealed, Meaning: "enough copies have promised, and grow no more"},
		{Name: "Chosen", Phase: "choose", At: e.Chosen, Meaning: "who owns next, and where its history starts"},
		{Name: "Committed", Phase: "commit", At: e.Committed, Meaning: "the catalog names the new owner"},
		{Name: "Serving", Phase: "apply", At: e.Serving, Meaning: "the new owner's first entry is confirmed"},
		{Name: "First confirm", Phase: "confirm", At: e.FirstConfirm, Meaning: "of a message, by the new owner"},
	}}
	if e.NobodyWaited() {
		t.Steps[len(t.Steps)-1].Meaning = "of a message that was published after the new owner served: nobody waited for it"
	}
	if control.CauseWord(e.Cause) == control.Expired.String() {
		t.Steps[1].Meaning = "when the owner was last heard"
	}
	begin, end := reach(t.Steps[1 : len(t.Steps)-1])
	if begin == 0 {
		begin, end = reach(t.Steps)
	}
	// A suspected owner may confirm until it is sealed: its last confirm stands where it belongs.
	for i := 1; i < len(t.Steps) && t.Steps[i].At != 0 && t.Steps[i].At < e.LastConfirm; i++ {
		t.Steps[i-1], t.Steps[i] = t.Steps[i], t.Steps[i-1]
	}
	t.Total = end - begin
	low, high := begin, end
	for _, s := range t.Steps {
		switch {
		case s.At == 0:
		case begin-s.At > near*t.Total || s.At-end > near*t.Total:
			t.Far = true
		default:
			low, high = min(low, s.At), max(high, s.At)
		}
	}
	before := int64(0)
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.At == 0 {
			continue
		}
		s.After = s.At - begin
		if s.First = before == 0; !s.First {
			s.Took, s.Backwards = s.At-before, s.At < before
			t.Mixed = t.Mixed || s.Backwards
			s.draw(min(before, s.At), max(before, s.At), low, high)
		}
		before = s.At
	}
	return t
}

// reach is from the earliest to the latest of the moments that are known.
func reach(steps []step) (first, last int64) {
	for _, s := range steps {
		if s.At != 0 {
			first, last = cmp.Or(min(first, s.At), s.At), max(last, s.At)
		}
	}
	return first, last
}

// draw gives the step its place between low and high, wide enough to be seen.
func (s *step) draw(from, to, low, high int64) {
	if low >= high {
		return
	}
	at := func(v int64) float64 { return full * float64(min(max(v, low), high)-low) / float64(high-low) }
	s.Width = max(at(to)-at(from), 4)
	s.From = math.Round(min(at(from), full-s.Width))
	s.Width = math.Round(s.Width)
}

// dot is a node in the picture of the cluster.
type dot struct {
	admin.Node
	X, Y float64
	Owns int
}

// edge is between two nodes, of which one owns partitions that the other follows.
type edge struct {
	X1, Y1, X2, Y2, Width float64
	Broken                bool
	One, Other            string
	Partitions            int
}

// picture is the cluster as dots and edges, in a field of pictureWidth by Height.
type picture struct {
	Dots   []dot
	Edges  []edge
	Height float64
}

const (
	pictureWidth = 480
	dotRoom      = 50 // around the middle of a dot
	maxDots      = 9  // of more nodes the cards below say enough
)

// pictureOf places nodes on an ellipse.
func pictureOf(nodes []admin.Node, partitions []admin.Partition) picture {
	if len(nodes) < 2 || len(nodes) > maxDots {
		return picture{}
	}
	var out picture
	at := map[string]int{}
	low, height := 0.0, 95.0
	if len(nodes) > 4 {
		height = 150
	}
	for i, n := range nodes {
		angle := 2*math.Pi*float64(i)/float64(len(nodes)) - math.Pi/2
		if len(nodes) == 2 {
			angle += math.Pi / 2
		}
		at[n.Name] = i
		d := dot{
			Node: n, X: math.Round(pictureWidth/2 + 170*math.Cos(angle)), Y: math.Round(height * math.Sin(angle)),
		}
		low, out.Height = min(low, d.Y), max(out.Height, d.Y)
		out.Dots = append(out.Dots, d)
	}
	for i := range out.Dots {
		out.Dots[i].Y += dotRoom - low
	}
	out.Height += 2*dotRoom - low
	flows := map[[2]int]int{}
	for _, p := range partitions {
		o, ok := at[p.Owner]
		if !ok {
			continue
		}
		out.Dots[o].Owns++
		for _, f := range p.Followers {
			if x, ok := at[f]; ok && x != o {
				flows[[2]int{min(o, x), max(o, x)}]++
			}
		}
	}
	for a := range out.Dots {
		for b := a + 1; b < len(out.Dots); b++ {
			x, y := out.Dots[a], out.Dots[b]
			n := flows[[2]int{a, b}]
			out.Edges = append(out.Edges, edge{
				X1: x.X, Y1: x.Y, X2: y.X, Y2: y.Y, Broken: !x.Live || !y.Live, One: x.Name, Other: y.Name, Partitions: n,
				Width: 1 + min(5, math.Log2(1+float64(n))),
			})
		}
	}
	return out
}
