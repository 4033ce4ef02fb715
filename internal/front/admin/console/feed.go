package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/front/admin"
)

const (
	// fresh is how old a sample may be: pages that are read at the same time share one.
	fresh = 900 * time.Millisecond
	// share bounds the part of the time that is spent in taking samples to one in so many.
	share = 10
	// patient is how old a sample may be where a node was waited for, which takes time and costs nothing.
	patient = 2 * time.Second
	// Rates are means over about smooth, and remembered for history.
	smooth  = 5 * time.Second
	history = 2 * time.Minute
	// least is the shortest time that a rate is taken over.
	least = 500 * time.Millisecond
	// maxRemembered is how many resources there may be for the rates of each to be remembered; of more only the sums are.
	maxRemembered = 300
	recent        = 8 // transitions in a sample
)

// key names a resource.
type key struct{ vhost, name string }

// count is what is counted of a resource at one time.
type count struct {
	incarnation uint64
	in          uint64 // messages that were ever confirmed
	held        uint64 // messages in a queue, ready or unsettled
	queue       bool   // what is taken off it is gone
	known       bool   // its owners answered
}

// rate is of messages a second.
type rate struct {
	In    float64 // written to logs
	Left  float64 // taken off queues: settled, expired or dropped
	Known bool
}

// clients is what the clients of this node do, in messages a second.
type clients struct {
	Published, Confirmed, Delivered, Settled, Refused, Unknown float64
	Known                                                      bool
}

// sample is what the backend said at one time. It is not changed once it is made.
type sample struct {
	Picture
	at          time.Time
	transitions []*evidence.Evidence // the last

	rates  map[key]rate
	total  rate
	served clients
	points []point // up to this one
}

// point is what is remembered of a sample.
type point struct {
	at       time.Time
	counts   map[key]count // nil: not remembered
	rates    map[key]rate
	total    rate
	counters admin.GatewayMetrics
}

// feed takes samples when somebody looks, and remembers rates for a while.
type feed struct {
	backend Backend
	now     func() time.Time
	turn    chan struct{} // one at a time takes a sample

	mu     sync.Mutex
	last   *sample
	took   time.Duration
	forget *time.Timer // of last, once nobody looks any more
}

func newFeed(b Backend, now func() time.Time) *feed {
	return &feed{backend: b, now: now, turn: make(chan struct{}, 1)}
}

// get is the last sample, or a new one. The error is the backend's, or that of ctx.
func (f *feed) get(ctx context.Context) (*sample, error) {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.mu.Lock()
	last, took := f.last, f.took
	f.mu.Unlock()
	began := f.now()
	if last != nil {
		pace := max(fresh, share*took)
		if len(last.Attention.Silent) > 0 {
			pace = min(pace, patient)
		}
		if age := began.Sub(last.at); age >= 0 && age < pace {
			return last, nil
		}
	}
	s, err := f.take(ctx)
	if err != nil {
		return nil, err
	}
	s.at = began
	s.remember(last)
	f.mu.Lock()
	f.last, f.took = s, f.now().Sub(began)
	if f.forget == nil {
		f.forget = time.AfterFunc(history, f.clear)
	} else {
		f.forget.Reset(history)
	}
	f.mu.Unlock()
	return s, nil
}

// clear forgets: nothing that is remembered would be shown any more.
func (f *feed) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = nil
}

// take asks the backend for what pages show in common, all at one time.
func (f *feed) take(ctx context.Context) (s *sample, err error) {
	s = &sample{}
	if s.Picture, err = f.backend.Picture(ctx); err != nil {
		return nil, err
	}
	s.transitions, err = f.backend.Transitions(ctx, admin.Which{}, recent)
	return s, err
}

// remember adds the sample to the points of the one before, and takes its rates.
func (s *sample) remember(last *sample) {
	here := point{at: s.at, counts: s.counts(), counters: s.Clients}
	if last != nil {
		s.points = slices.DeleteFunc(slices.Clone(last.points), func(p point) bool { return s.at.Sub(p.at) > history || s.at.Before(p.at) })
	}
	if from := s.before(); from != nil {
		d := s.at.Sub(from.at).Seconds()
		s.rates = map[key]rate{}
		s.total.Known = true
		for k, now := range here.counts {
			r := between(from.counts[k], now, d)
			if r.Known {
				s.rates[k] = r
				s.total.In += r.In
				s.total.Left += r.Left
			}
		}
		s.served = clientsBetween(from.counters, here.counters, d)
	}
	here.rates, here.total = s.rates, s.total
	s.points = append(s.points, here)
	for i := range s.points {
		if len(s.Resources) > maxRemembered {
			s.points[i].rates = nil
		}
		if i+1 < len(s.points) && s.at.Sub(s.points[i+1].at) > 2*smooth { // the next one serves as well
			s.points[i].counts = nil
		}
	}
}

// before is the point that rates are taken from: the newest that is old enough, else the oldest there is; nil if there is none.
func (s *sample) before() *point {
	var out *point
	for i := range s.points {
		age := s.at.Sub(s.points[i].at)
		if age >= smooth || out == nil && age >= least && s.points[i].counts != nil {
			out = &s.points[i]
		}
	}
	if out == nil || out.counts == nil {
		return nil
	}
	return out
}

// counts counts what the owners said of each resource.
func (s *sample) counts() map[key]count {
	out := make(map[key]count, len(s.Resources))
	for i := range s.Resources {
		r := &s.Resources[i]
		c := count{incarnation: r.Incarnation, held: r.Ready + r.Unsettled, queue: r.Kind == string(ident.Queue), known: true}
		out[key{r.VHost, r.Name}] = c
	}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		k := key{p.VHost, p.Resource}
		c, ok := out[k]
		if !ok {
			continue
		}
		own := slices.IndexFunc(p.Copies, func(x admin.Copy) bool { return x.Node == p.Owner })
		if own < 0 || silent(p.Copies[own]) {
			c.known = false
		} else {
			c.in += p.Messages
		}
		out[k] = c
	}
	return out
}

// silent reports whether nothing is known of a copy: its node did not answer, or has none.
func silent(c admin.Copy) bool { return c.Health == "unreachable" || c.Health == "missing" }

// between is the rate between two counts; seconds lie between them.
func between(a, b count, seconds float64) rate {
	if !a.known || !b.known || a.incarnation != b.incarnation || b.in < a.in {
		return rate{}
	}
	in := float64(b.in - a.in)
	r := rate{In: in / seconds, Known: true}
	if b.queue {
		r.Left = max(0, in+float64(a.held)-float64(b.held)) / seconds
	}
	return r
}

func clientsBetween(a, b admin.GatewayMetrics, seconds float64) clients {
	per := func(a, b uint64) float64 { return float64(b-min(a, b)) / seconds }
	return clients{
		Published: per(a.Published, b.Published), Confirmed: per(a.Confirmed, b.Confirmed), Delivered: per(a.Delivered, b.Delivered),
		Settled: per(a.Settled, b.Settled), Refused: per(a.Refused, b.Refused), Unknown: per(a.Unknown, b.Unknown), Known: true,
	}
}
