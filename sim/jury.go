package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/engine/mesh"
)

// history is one partition over all its copies: what the storage of each has reported as durable, and what owners have acted on as
// confirmed. It holds the owners against design 2 §11: 1 (nothing confirmed moves), 2 (one instance confirms in an epoch), 3 (copies are the
// same below the confirmed position, and nothing there is cut) and 4 (W copies hold durably what is confirmed).
type history struct {
	w         *world
	p         ident.Partition
	copies    map[*witness]*holding
	confirmed uint64
	// confirmedAs is the end of a batch at or below it.
	confirmedAs batch.Tail
	links       map[uint64]batch.Link // at the ends of batches, up to confirmed
	owners      map[uint64]string     // who confirmed something, by epoch
	latest      uint64                // the last of these epochs
	given       map[uint64]uint64     // offsets of a queue that were handed out, and the last epoch that they were in
	newest      *catalog.Assignment   // that any node knows of
	needs       int                   // copies that must hold what is confirmed, by it
	fencedAs    fencing               // the last that a lease was asked for
	accepted    uint64                // epoch of the last accepted loss that is known
	from        uint64                // offset that it begins at
}

// holding is one copy's log.
type holding struct {
	base    batch.Tail // what an image began with; what is below is not known batch by batch
	marks   []mark     // durable batches, in order
	pending []mark     // appended and not reported as durable
	remade  bool       // an image takes its place and is not whole: it answers for nothing
	was     *holding   // what it held before it broke; nil: it did not
}

// mark is one batch.
type mark struct {
	from uint64
	tail batch.Tail
	runs []batch.Run
	at   time.Duration // when it was reported as durable
}

func (w *world) historyOf(p ident.Partition) *history {
	h := w.histories[p]
	if h == nil {
		h = &history{w: w, p: p, copies: map[*witness]*holding{}, given: map[uint64]uint64{}, links: map[uint64]batch.Link{}, owners: map[uint64]string{}}
		w.histories[p] = h
	}
	return h
}

// in is the copy in a store.
func (h *history) in(n *witness) *holding {
	c := h.copies[n]
	if c == nil {
		c = &holding{}
		h.copies[n] = c
	}
	return c
}

// of is the copy in a store that the catalog names; nil if there is none.
func (h *history) of(store ident.StoreID) *holding { return h.copies[h.w.stores[store]] }

func (c *holding) appended(b batch.Batch, link batch.Link) {
	before := c.base
	if n := len(c.pending); n > 0 {
		before = c.pending[n-1].tail
	} else if n := len(c.marks); n > 0 {
		before = c.marks[n-1].tail
	}
	if before.Position != b.Position { // an image was to take the place of its log, and it crashed before that was durable
		before = batch.Tail{Position: b.Position, Offset: b.Offset, Events: b.Position - b.Offset, Link: b.PrevLink}
	}
	var runs []batch.Run
	for i := range b.Runs() {
		runs = append(runs, b.Run(i))
	}
	c.pending = append(c.pending, mark{from: b.Position, tail: before.After(b, link), runs: runs})
}

// synced moves what ends at or below a position to what is durable.
func (c *holding) synced(position uint64, now time.Duration) {
	n := 0
	for n < len(c.pending) && c.pending[n].tail.Position <= position {
		c.pending[n].at = now
		n++
	}
	c.marks = append(c.marks, c.pending[:n]...)
	c.pending = slices.Delete(c.pending, 0, n)
}

// cut drops what lies beyond a position.
func (c *holding) cut(position uint64) (dropped []mark) {
	for _, list := range []*[]mark{&c.marks, &c.pending} {
		i := slices.IndexFunc(*list, func(m mark) bool { return m.tail.Position > position })
		if i >= 0 {
			dropped = append(dropped, (*list)[i:]...)
			*list = (*list)[:i]
		}
	}
	return dropped
}

// reopened brings a copy in line with what a start has found of it: of what was not reported as durable some may be.
func (c *holding) reopened(tail batch.Tail, now time.Duration) {
	c.synced(tail.Position, now)
	c.cut(tail.Position)
	c.pending = nil
	if c.end() != tail.Position {
		c.base, c.marks = tail, nil
	}
}

// imported begins anew with what an image was of.
func (c *holding) imported(tail batch.Tail) { c.base, c.marks, c.pending = tail, nil, nil }

func (c *holding) end() uint64 {
	if n := len(c.marks); n > 0 {
		return c.marks[n-1].tail.Position
	}
	return c.base.Position
}

// all is where a copy's log ends with what is not durable.
func (c *holding) all() uint64 {
	if n := len(c.pending); n > 0 {
		return c.pending[n-1].tail.Position
	}
	return c.end()
}

// at is the batch that ends first at or beyond a position; pending ones count if asked.
func (c *holding) at(position uint64, pending bool) (mark, bool) {
	lists := [][]mark{c.marks}
	if pending {
		lists = append(lists, c.pending)
	}
	for _, l := range lists {
		i, _ := slices.BinarySearchFunc(l, position, func(m mark, p uint64) int {
			switch {
			case m.tail.Position < p:
				return -1
			case m.tail.Position > p:
				return 1
			}
			return 0
		})
		if i < len(l) {
			return l[i], true
		}
	}
	return mark{}, false
}

// holds reports whether a copy holds durably what ends with a batch.
func (c *holding) holds(m mark) bool {
	if c == nil {
		return false
	}
	if m.tail.Position <= c.base.Position {
		return true // the image was of it
	}
	own, ok := c.at(m.tail.Position, false)
	return ok && own.tail.Position == m.tail.Position && own.tail.Link == m.tail.Link
}

// broke keeps what a copy held that is damaged, or gives up what was.
func (c *holding) broke() {
	if c.was == nil || c.end() > c.was.end() {
		c.was = &holding{base: c.base, marks: slices.Clone(c.marks)}
	}
}

// confirms judges that an owner acts on everything below a position as confirmed.
func (h *history) confirms(by *host, epoch uint64, position uint64) {
	if by.node == nil || h.w.failed() {
		return
	}
	h.looks(by)
	if who := h.owners[epoch]; who == "" {
		h.owners[epoch] = by.instance()
	} else if who != by.instance() {
		h.w.fail("%s: in epoch %d both %s and %s confirm", h.name(), epoch, who, by.instance())
		return
	}
	if by.again(h.p, epoch, position) {
		return
	}
	h.mayConfirm(by, epoch, position)
	if position <= h.confirmed {
		return
	}
	own := h.in(by.site.witness)
	if position <= own.base.Position {
		return // within what an image was of
	}
	m, ok := own.at(position, true)
	if !ok {
		h.w.fail("%s: %s confirms position %d and holds nothing there", h.name(), by.instance(), position)
		return
	}
	if !h.enough(by, m, position) {
		return
	}
	h.agree(by, own, position)
}

// enough reports whether W copies of the assignment hold a batch durably, the owner among them, and fails the simulation if not.
func (h *history) enough(by *host, m mark, position uint64) bool {
	var a *catalog.Assignment
	var kind ident.Kind
	by.node.View(func(v *catalog.View) {
		if r := v.Incarnation(h.p.Incarnation); r != nil && r.Home == nil {
			a, kind = r.Partitions[h.p.Index], r.Kind
		}
	})
	if a == nil {
		return false // deleted, or of memory only
	}
	policy, err := h.w.judged(a)
	if err != nil {
		h.w.fail("%s: %v", h.name(), err)
		return false
	}
	w := quorum.W(policy, a.Eligible(), kind)
	n := h.heldBy(a, m, false)
	own := h.in(by.site.witness).holds(m)
	if h.newest != nil && h.newest.Epoch == a.Epoch && h.newest.Version > a.Version {
		// The owner has not heard of a change yet that somebody knows of: it must confirm by both sets.
		if both := h.heldBy(h.newest, m, false); both < h.needs {
			h.w.fail("%s: %s confirms position %d, which %d copies of version %d hold durably and %d must", h.name(), by.instance(), position, both,
				h.newest.Version, h.needs)
			return false
		}
	}
	if n < w || !own {
		h.w.fail("%s: %s confirms position %d, which %d copies hold durably (itself: %v) and %d must", h.name(), by.instance(), position, n, own, w)
		return false
	}
	return true
}

// heldBy is how many copies of an assignment hold a batch durably, or did: what a wiped disk held counts, it was held when that counted; and, asked
// of what was confirmed before, what a copy held that broke.
func (h *history) heldBy(a *catalog.Assignment, m mark, before bool) (n int) {
	for _, f := range append([]catalog.Member{{Node: a.Owner.Node, Store: a.Owner.Store}}, a.Followers...) {
		if c := h.of(f.Store); c.holds(m) || before && c != nil && c.was.holds(m) {
			n++
		}
	}
	return n
}

// assigned judges an assignment that a node has come to know of: W of its copies hold all that is confirmed (design 2 §5, joint rule).
func (h *history) assigned(r *catalog.Resource, a *catalog.Assignment) {
	if h.newest != nil && a.Version <= h.newest.Version {
		return
	}
	h.newest = a
	h.gaveUp(a, r.Name)
	policy, err := h.w.judged(a)
	if err != nil {
		h.w.fail("%s: %v", h.name(), err)
		return
	}
	h.needs = quorum.W(policy, a.Eligible(), r.Kind)
	if h.confirmed == 0 || h.confirmedAs == (mark{}).tail {
		return
	}
	if n := h.heldBy(a, mark{tail: h.confirmedAs}, true); n < h.needs {
		h.w.fail("%s: version %d of its assignment has %d copies that hold durably what is confirmed up to %d, and %d must", h.name(), a.Version, n,
			h.confirmed, h.needs)
	}
}

// agree remembers what is confirmed, and finds what was confirmed to be something else.
func (h *history) agree(by *host, own *holding, position uint64) {
	for _, list := range [][]mark{own.marks, own.pending} {
		i, _ := slices.BinarySearchFunc(list, h.confirmed, func(m mark, p uint64) int {
			if m.tail.Position <= p {
				return -1
			}
			return 1
		})
		if i > 0 && list[i-1].tail.Position > own.base.Position {
			m := list[i-1]
			if l, ok := h.links[m.tail.Position]; ok && l != m.tail.Link {
				h.w.fail("%s: at position %d %s has another history than what was confirmed", h.name(), m.tail.Position, by.instance())
				return
			}
		}
		for ; i < len(list) && list[i].tail.Position <= position; i++ {
			h.links[list[i].tail.Position] = list[i].tail.Link
			h.confirmedAs = list[i].tail
		}
	}
	h.confirmed = position
}

// cuts judges that a copy drops its end.
func (h *history) cuts(s *site, position uint64) {
	h.looks(s.host)
	if position == 0 && h.accepted > 0 && s.host != nil && !h.newest.Member(s.host.node.Local().Store) {
		h.in(s.witness).imported(batch.Tail{}) // its state lies beyond an accepted loss: it counts for nothing, and is made anew (design 2 §1)
		return
	}
	for _, m := range h.in(s.witness).cut(position) {
		if l, ok := h.links[m.tail.Position]; ok && l == m.tail.Link {
			h.w.fail("%s: %s cuts to position %d, and %d was confirmed", h.name(), s.name, position, m.tail.Position)
			return
		}
	}
}

func (h *history) name() string {
	if key := h.w.parts[h.p]; key != "" {
		return key
	}
	return h.p.String()
}

// published is the position after the highest number below upTo of a producer that a copy has, if it has one.
func (c *holding) published(producer, upTo uint64) (uint64, bool) {
	for _, list := range [][]mark{c.pending, c.marks} {
		for i := len(list) - 1; i >= 0; i-- {
			at := list[i].tail.Position
			for j := len(list[i].runs) - 1; j >= 0; j-- {
				r := list[i].runs[j]
				if r.Kind == batch.KindRecord && r.Producer == producer && r.First < upTo {
					return at - uint64(r.Count) + min(uint64(r.Count), upTo-r.First), true
				}
				at -= uint64(r.Count)
			}
		}
	}
	return 0, false
}

// heard judges what an owner says to a gateway.
func (m *mouth) heard(msg any) {
	h := m.e.w.historyOf(m.e.p)
	h.looks(m.e.h)
	own := h.copies[m.e.h.site.witness]
	if own == nil {
		return // of memory
	}
	switch x := msg.(type) {
	case protocol.Attached:
		m.epoch = x.Epoch
	case protocol.Published:
		if at, ok := own.published(m.producer, x.UpTo); ok && x.UpTo > m.upTo {
			m.upTo = x.UpTo
			h.confirms(m.e.h, m.epoch, at)
		}
	case protocol.PublishRefused:
		m.fenced(x)
		m.short(x)
	case protocol.Deliver:
		for _, it := range x.Items {
			m.handsOut(h, own, it)
		}
	case protocol.GetDone:
		if x.OK {
			m.handsOut(h, own, x.Item)
		}
	case protocol.StreamData:
		if n := len(x.Batches); n > 0 {
			h.confirms(m.e.h, m.epoch, x.Batches[n-1].End())
		}
	}
}

// extended judges what an owner tells another copy.
func (s *site) extended(node string, msg []byte) {
	h := s.host
	x, err := protocol.Parse(msg)
	if err != nil {
		s.w.fail("%s sends what cannot be read: %v", s.name, err)
		return
	}
	if s.w.opt.Verbose != nil {
		switch m := x.(type) {
		case protocol.Extend:
			s.w.say("%s → %s %v: epoch %d, %d batches, confirmed %d", s.name, node, m.Partition, m.Epoch, len(m.Batches), m.Confirmed)
		case protocol.Held:
			s.w.say("%s → %s %v: epoch %d, holds %d", s.name, node, m.Partition, m.Epoch, m.Durable)
		case protocol.Standing:
			s.w.say("%s → %s %v: epoch %d, stands at %d, durable %d %s", s.name, node, m.Partition, m.Epoch, m.Tail.Position, m.Durable, m.Damaged)
		}
	}
	if m, ok := x.(protocol.Extend); ok && h != nil {
		s.w.historyOf(m.Partition).confirms(h, m.Epoch, m.Confirmed)
	}
}

// alike says which copies differ from what their owner holds; empty if none do.
func (w *world) alike() (text string) {
	h := w.anyHost()
	if h == nil {
		return "no node serves"
	}
	h.node.View(func(v *catalog.View) {
		for _, r := range v.AllResources() {
			for _, a := range r.Partitions {
				if r.Home != nil {
					continue
				}
				x := w.historyOf(a.Partition)
				own := x.of(a.Owner.Store)
				for _, m := range a.Followers {
					if c := x.of(m.Store); own == nil || c == nil {
						text += fmt.Sprintf("%s: %s or its owner %s has no copy; ", r.Name, m.Node, a.Owner.Node)
					} else if c.end() != own.end() || !c.holdsEnd(own) {
						text += fmt.Sprintf("%s: %s ends at %d, its owner %s at %d; ", r.Name, m.Node, c.end(), a.Owner.Node, own.end())
					}
				}
				text += w.unfinished(r, a)
			}
		}
	})
	return text
}

func (c *holding) holdsEnd(o *holding) bool {
	n := len(o.marks)
	return n == 0 || c.holds(o.marks[n-1])
}

// end is a node's end of the network, which hears what its copies are told.
type end struct {
	mesh.Mesh
	s *site
}

// Start implements mesh.Mesh.
func (e end) Start(h mesh.Handler) {
	e.Mesh.Start(heedful{h, e.s, map[string]ident.Instance{}})
}

// Send implements mesh.Mesh.
func (e end) Send(node string, p mesh.Purpose, key uint64, msg []byte) {
	if p == mesh.Copies {
		e.s.extended(node, msg)
	}
	e.s.w.opt.plant.toPeer(e.s, node, p, key, msg, func(msg []byte) { e.Mesh.Send(node, p, key, msg) })
}

// handsOut judges that an owner gives a message of a queue to a client: it is confirmed then (design 2 §2), and where this owner or an earlier one
// has given it before it says so, whatever disturbs the nodes. One that was replaced and has not heard of it knows of no later owner.
func (m *mouth) handsOut(h *history, own *holding, it protocol.Item) {
	offset := it.Offset
	if before, was := h.given[offset]; was && before <= m.epoch && !it.Again {
		h.w.fail("%s: %s hands out the message at offset %d in epoch %d and does not say that it was in epoch %d", h.name(), m.e.h.instance(), offset,
			m.epoch, before)
		return
	}
	h.given[offset] = max(h.given[offset], m.epoch)
	if c := h.w.holder(h.p, offset); it.Again && c != nil && h.w.hurting == 0 && m.e.h.site.well() && c.host.site.well() {
		h.w.fail("%s: %s hands out the message at offset %d, which session %d on %s holds: nothing has kept it from claiming that", h.name(),
			m.e.h.instance(), offset, c.id, c.host.site.name)
		return
	}
	if offset < own.base.Offset {
		return // within what an image was of
	}
	for _, list := range [][]mark{own.marks, own.pending} {
		i, _ := slices.BinarySearchFunc(list, offset, func(m mark, offset uint64) int {
			if m.tail.Offset <= offset {
				return -1
			}
			return 1
		})
		if i < len(list) {
			h.confirms(m.e.h, m.epoch, list[i].tail.Position)
			return
		}
	}
	h.w.fail("%s: %s hands out the message at offset %d, and holds none there", h.name(), m.e.h.instance(), offset)
}

// wellFor is how long nothing must have been done to a node before it counts as one that its peers reach.
const wellFor = 3 * time.Second

// well reports whether nothing has been done to a node, and to its run, for a while.
func (s *site) well() bool {
	return s.host != nil && s.host.serving && !s.host.hurt && !s.flipped && s.troubles == 0 && s.w.sim.Now()-s.ailed >= wellFor
}

// short judges that an owner refuses what is published because it reaches too few copies: not while as many are well as a confirm needs, whoever
// else is lost (design 2 §11, 8).
func (m *mouth) short(r protocol.PublishRefused) {
	h, by := m.e.w.historyOf(m.e.p), m.e.h
	a := h.newest
	if r.Cause != protocol.CauseCopies || a == nil || a.Epoch != m.epoch || a.Pending != nil || a.Owner != by.node.Local() || !by.site.well() {
		return
	}
	version := uint64(0)
	by.node.View(func(v *catalog.View) {
		if own, _ := v.Assignment(m.e.p); own != nil {
			version = own.Version
		}
	})
	if version != a.Version {
		return // it has not heard of a change yet
	}
	n := 1
	for _, f := range a.Followers {
		if c := h.of(f.Store); c != nil && !c.remade && h.w.siteOf(f.Node).enrolled == f.Store && h.w.siteOf(f.Node).well() {
			n++
		}
	}
	if n >= h.needs {
		h.w.fail("%s: %s refuses what is published though %d copies are well and %d must confirm: %s", h.name(), by.instance(), n, h.needs, r.Reason)
	}
}

// gaveUp judges that a copy gives its log up for an image: not a follower's, where nothing has cost it its place, nor what is kept for it. What it
// misses is in its owner's log then, whoever owns (design 2 §6).
func (s *site) gaveUp(p ident.Partition) {
	w, h := s.w, s.w.historyOf(p)
	follows := func(m catalog.Member) bool { return w.stores[m.Store] == s.witness }
	if w.cluster() && !w.operator.moves && !w.losses && !w.flipped() && h.newest != nil && slices.ContainsFunc(h.newest.Followers, follows) {
		w.fail("%s: the copy on %s is made anew, and nothing has kept it from going on with its log", h.name(), s.name)
	}
}

// holder is a client that has been handed what lies at an offset and has not settled it; nil if there is none.
func (w *world) holder(p ident.Partition, offset uint64) *client {
	for _, c := range w.clients {
		held := func(d delivery) bool { return d.ref.Partition == p && d.ref.Offset == offset && !w.stale(d) }
		if w.cluster() && c.open && !c.ended && slices.ContainsFunc(c.held, held) {
			return c
		}
	}
	return nil
}
