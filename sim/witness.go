package sim

import (
	"fmt"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/replica"
)

// witness remembers, over all runs, what storage has reported as done of each copy, and holds what it finds at the next start against
// it: storage's word must outlive a crash (design 2 §3, §10).
type witness struct {
	w      *world
	site   *site
	copies map[ident.Partition]*testimony
	last   time.Duration // when the last group was reported as done
	torn   []ident.Partition
	deaf   bool // it holds nothing against anybody
}

// testimony is what storage said of one copy.
type testimony struct {
	tail    batch.Tail // of appends that were done
	before  batch.Tail // the same before the last group that had some
	at      time.Duration
	promise uint64
	deleted bool
}

func newWitness(s *site) *witness {
	return &witness{w: s.w, site: s, copies: map[ident.Partition]*testimony{}}
}

func (n *witness) of(p ident.Partition) *testimony {
	t := n.copies[p]
	if t == nil {
		t = &testimony{}
		n.copies[p] = t
	}
	return t
}

// store is what a node's replicas see of its storage.
func (n *witness) store(s replica.Store) replica.Store {
	found := map[ident.Partition]bool{}
	for _, l := range s.Copies() {
		im := l.Image()
		found[im.Partition] = true
		n.hold(im)
		c := n.w.historyOf(im.Partition).in(n)
		if im.Damaged != "" {
			c.broke()
		}
		c.reopened(im.Tail, n.w.sim.Now())
		c.remade = im.Importing
	}
	for p, t := range n.copies {
		if !n.deaf && !n.site.flipped && !found[p] && !t.deleted && t.tail.Position > 0 {
			n.w.lost(fmt.Sprintf("the store had confirmed entries of %v up to position %d and has no such copy", p, t.tail.Position))
		}
	}
	return &witnessedStore{Store: s, n: n}
}

// hold compares a copy as it was found with what was said of it.
func (n *witness) hold(im partition.Image) {
	t := n.of(im.Partition)
	if im.Damaged != "" || n.deaf {
		return
	}
	switch {
	case im.Tail.Position < t.tail.Position && n.site.flipped && t.at == n.last && im.Tail.Position >= t.before.Position:
		// No later frame says of the last group that it was synced. A bit that turned there looks like a torn end (design 3, "Start"),
		// and with one copy nobody knows better.
		n.torn = append(n.torn, im.Partition)
	case im.Tail.Position < t.tail.Position:
		n.w.lost(fmt.Sprintf("%v: the log was durable up to position %d and ends at %d", im.Partition, t.tail.Position, im.Tail.Position))
	case im.Tail.Position == t.tail.Position && im.Tail.Link != t.tail.Link:
		n.w.lost(fmt.Sprintf("%v: the log ends at position %d as before, with another link", im.Partition, im.Tail.Position))
	case im.Promise < t.promise:
		n.w.lost(fmt.Sprintf("%v: epoch %d was promised, and %d is remembered", im.Partition, t.promise, im.Promise))
	}
	t.tail, t.before, t.promise = im.Tail, im.Tail, im.Promise
}

type witnessedStore struct {
	replica.Store
	n *witness
}

func (s *witnessedStore) Create(p ident.Partition) (replica.Log, error) {
	l, err := s.Store.Create(p)
	if err != nil {
		return nil, err
	}
	delete(s.n.w.historyOf(p).copies, s.n)
	delete(s.n.copies, p) // one that was here before has been dropped, durably
	return s.n.log(l), nil
}

func (s *witnessedStore) Copies() []replica.Log {
	ls := s.Store.Copies()
	for i, l := range ls {
		ls[i] = s.n.log(l)
	}
	return ls
}

func (n *witness) log(l replica.Log) replica.Log {
	p := l.Image().Partition
	images, _ := l.(replica.Images)
	return &witnessedLog{images: images, p: p, Log: n.w.opt.plant.log(n.site, l), n: n, run: n.site.runs, t: n.of(p)}
}

// witnessedLog notes what is reported as done.
type witnessedLog struct {
	replica.Log
	images replica.Images
	n      *witness
	p      ident.Partition
	run    uint64
	t      *testimony
}

func (l *witnessedLog) Append(b batch.Batch, link batch.Link, urgent bool, done func(error)) {
	if w := l.n.w; w.opt.Verbose != nil {
		w.say("%s appends to %v: %d to %d of epoch %d, link %x", l.n.site.name, l.p, b.Position, b.End(), b.Epoch, link[:4])
	}
	copy := l.n.w.historyOf(l.p).in(l.n)
	copy.appended(b, link)
	l.Log.Append(b, link, urgent, func(err error) {
		if err == nil && l.n.site.runs == l.run {
			if now := l.n.w.sim.Now(); l.t.at != now {
				l.t.at, l.t.before, l.n.last = now, l.t.tail, now
			}
			l.t.tail = l.t.tail.After(b, link)
			copy.synced(b.End(), l.n.w.sim.Now())
		}
		done(err)
	})
}

func (l *witnessedLog) SetPromise(epoch uint64, done func(error)) {
	l.n.w.sealed = true
	l.Log.SetPromise(epoch, func(err error) {
		if err == nil && l.n.site.runs == l.run {
			l.t.promise = max(l.t.promise, epoch)
		}
		done(err)
	})
}

func (l *witnessedLog) Cut(to batch.Tail, done func(error)) {
	l.n.w.historyOf(l.p).cuts(l.n.site, to.Position)
	l.t.tail = to // what is cut may be gone before that is reported
	l.Log.Cut(to, done)
}

func (l *witnessedLog) Delete(done func(error)) {
	l.t.deleted = true // what was confirmed with its help stays confirmed
	l.Log.Delete(done)
}

// Export implements replica.Images.
func (l *witnessedLog) Export(want []byte, done func(replica.Export, error)) {
	l.images.Export(want, done)
}

// Importing implements replica.Images.
func (l *witnessedLog) Importing() []byte { return l.images.Importing() }

// Salvage implements replica.Images.
func (l *witnessedLog) Salvage(max int, done func([]batch.Batch)) { l.images.Salvage(max, done) }

// Anew implements replica.Images.
func (l *witnessedLog) Anew(done func(error)) {
	l.t.tail, l.t.before, l.t.promise = batch.Tail{}, batch.Tail{}, l.Image().Promise // what broke may have held a promise
	c := l.n.w.historyOf(l.p).in(l.n)
	c.broke()
	c.imported(batch.Tail{})
	c.remade = true
	l.images.Anew(done)
}

// Import implements replica.Images. With the last chunk the copy is what the image was of.
func (l *witnessedLog) Import(chunk []byte, over uint64, done func(error)) {
	if over > 0 { // what the copy held may be gone before that is reported
		l.n.site.gaveUp(l.p)
		l.t.tail, l.t.before = batch.Tail{}, batch.Tail{}
		c := l.n.w.historyOf(l.p).in(l.n)
		c.imported(batch.Tail{})
		c.remade = true
	}
	l.images.Import(chunk, over, func(err error) {
		if l.n.site.runs == l.run {
			c := l.n.w.historyOf(l.p).in(l.n)
			c.remade = c.remade && l.Image().Importing
			if err == nil && l.images.Importing() == nil {
				tail := l.Image().Tail
				l.t.tail, l.t.before = tail, tail
				c.imported(tail)
			}
		}
		done(err)
	})
}
