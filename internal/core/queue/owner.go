package queue

import (
	"math/bits"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
)

// owner is the volatile side.
type owner struct {
	// What every batch has looked at, so that it lies together:
	groups     []group // of consumers that can take something, highest priority first
	heap       []wake
	staged     *staged
	audience   *audience // nil: there is no consumer
	subscribed uint32    // consumers
	abandoned  bool
	expiring   bool // Tick has more to do: nothing may be delivered
	claiming   bool // not every gateway has said what it holds

	order     uint64 // subscriptions so far
	active    uint32 // slot of the single active consumer
	exclusive uint32 // slot of the exclusive consumer
	held      uint64
	early     *early // while claiming, where there is anything
	unused    int64  // since when; counts while nobody is subscribed

	inherited uint64 // offsets below may have been delivered by an earlier owner
	offered   uint64 // offsets below have had their chance of being delivered before they expire
	hint      uint64 // nothing is ready below
	ttlHint   uint64 // nothing that expires by the queue's time to live is ready below

	length      int64 // ready messages once all that is staged has come; kept if limited
	lengthBytes int64
	ahead       []ahead // staged records, from m.next on; kept if limited
	aheadHead   int
	number      uint64 // last dead letter's, staged ones included

	stale  int // places in heap of messages that are gone
	lanes  *[DeadLanes]lane
	blocks []*block // spare
}

// early is what is kept of gateways until all claims are in.
type early struct {
	claimants map[uint64]LastStream // of the gateways that claim
	released  []uint64              // those that have ended, and still hold what they claimed
	denied    []Denied
}

// gathers is what is kept of gateways, made if there is nothing yet.
func (o *owner) gathers() *early {
	if o.early == nil {
		o.early = &early{claimants: map[uint64]LastStream{}}
	}
	return o.early
}

// ahead is a record that is staged and not confirmed.
type ahead struct {
	size    uint32
	delayed bool
	gone    bool // an event that ends it is staged as well
}

// staged gathers decisions until TakeEvents.
type staged struct {
	gone    [reasonsBehind][]run
	dead    [reasonsBehind][]run
	returns []run
	due     []run
	any     bool
}

// Promote begins the owner's side, empty of consumers: gateways may attach. now begins the time that the queue is unused.
func (m *Machine) Promote(now int64) {
	m.Demote()
	o := &owner{inherited: m.next, offered: m.next, number: m.number, length: int64(m.ready), unused: now, claiming: true}
	m.o = o
	if m.limited {
		for _, p := range m.pages {
			for w, set := range p.ready {
				o.lengthBytes += p.sizes.sum(w, set)
			}
		}
	}
	for _, p := range m.pages {
		for at := range p.extras {
			o.schedule(p, &p.extras[at])
		}
	}
}

// Demote ends the owner's side: holders, consumers, all that was staged. What was staged and is confirmed all the same is applied
// when it comes, as on any copy.
func (m *Machine) Demote() {
	if m.o == nil {
		return
	}
	m.o = nil
	m.ready = 0
	for _, p := range m.pages {
		p.ready, p.held, p.nheld, p.blocks = p.live, [words]uint64{}, 0, nil
		for at := range p.extras {
			x := &p.extras[at]
			if x.flags&flagGone != 0 {
				continue
			}
			if x.flags&(flagDelayed|flagDead) != 0 {
				cut(&p.ready, int(x.index))
			}
			x.flags &= replicatedFlags
		}
		for _, set := range p.ready {
			m.ready += uint64(bits.OnesCount64(set))
		}
	}
}

func (o *owner) longer(size uint32) {
	o.length++
	o.lengthBytes += int64(size)
}

func (o *owner) shorter(size uint32) {
	o.length--
	o.lengthBytes -= int64(size)
}

// Claimed says that every gateway that may hold something of an earlier owner's has attached, or had its time to. Until then all that
// is not claimed looks ready, and may be in a client's hands. It returns which claims were denied, in the order that they were.
func (m *Machine) Claimed() (denied []Denied) {
	e := m.o.early
	m.o.claiming, m.o.early = false, nil
	if e != nil {
		denied = e.denied
		for _, gateway := range e.released {
			m.giveBack(gateway)
		}
	}
	if a := m.o.audience; a != nil {
		a.awaited = nil
	}
	m.succeed()
	return denied
}

// Attaching reports whether the owner's side is on: claims and settles are taken.
func (m *Machine) Attaching() bool { return m.o != nil }

// Serving reports whether, besides, all claims are in. Until then nothing is assigned, purged, dropped or timed.
func (m *Machine) Serving() bool { return m.Attaching() && !m.o.claiming }

// Limited reports whether Admit must be asked for every record.
func (m *Machine) Limited() bool { return m.limited }

// Admit decides on one record about to be staged, and counts it if it is taken: it must then be appended, in the order of the
// calls. False: refused, the queue is full.
func (m *Machine) Admit(h batch.RecordHeader) bool {
	if !m.limited {
		return true
	}
	o := m.o
	if m.settings.Overflow == RejectPublish {
		if n := m.settings.MaxLength; n != nil && o.length+1 > *n {
			return false
		}
		if n := m.settings.MaxBytes; n != nil && o.lengthBytes+int64(h.Size) > *n {
			return false
		}
	}
	o.stageRecord(h)
	return true
}

func (o *owner) stageRecord(h batch.RecordHeader) {
	o.ahead = append(o.ahead, ahead{size: h.Size, delayed: h.Delay > 0})
	if h.Delay == 0 {
		o.longer(h.Size)
	}
}

// applied takes a confirmed record off what is staged, and reports whether it is gone already.
func (o *owner) applied(m *Machine, h batch.RecordHeader) bool {
	if !m.limited {
		return false
	}
	if o.aheadHead == len(o.ahead) { // not admitted here; count it now
		o.stageRecord(h)
	}
	gone := o.ahead[o.aheadHead].gone
	o.aheadHead++
	switch {
	case o.aheadHead == len(o.ahead):
		o.ahead, o.aheadHead = o.ahead[:0], 0
	case o.aheadHead > 1024 && o.aheadHead > len(o.ahead)/2:
		o.ahead, o.aheadHead = slices.Delete(o.ahead, 0, o.aheadHead), 0
	}
	return gone
}

// rose takes note of a message that became ready.
func (o *owner) rose(p *page, i int) {
	offset := p.base() + uint64(i)
	o.hint = min(o.hint, offset)
	x := p.extra(i)
	if x == nil || x.flags&flagExpires == 0 {
		o.ttlHint = min(o.ttlHint, offset)
	}
	if x != nil {
		o.schedule(p, x)
	}
}

// overflow drops what is too much from the head.
func (m *Machine) overflow() {
	o := m.o
	if !m.limited || !m.Serving() || m.settings.Overflow == RejectPublish {
		return
	}
	at := o.aheadHead
	for m.tooLong() {
		p, i, ok := m.first()
		if ok {
			m.lower(p, i)
			m.die(Overflowed, o.hint)
			continue
		}
		for at < len(o.ahead) && (o.ahead[at].gone || o.ahead[at].delayed) {
			at++
		}
		if at == len(o.ahead) {
			return
		}
		o.ahead[at].gone = true
		o.shorter(o.ahead[at].size)
		m.die(Overflowed, m.next+uint64(at-o.aheadHead))
	}
}

func (m *Machine) tooLong() bool {
	return m.settings.MaxLength != nil && m.o.length > max(0, *m.settings.MaxLength) ||
		m.settings.MaxBytes != nil && m.o.lengthBytes > max(0, *m.settings.MaxBytes)
}

// first is the first ready message; hint is then its offset.
func (m *Machine) first() (*page, int, bool) {
	p, i, ok := m.firstReady(m.o.hint)
	m.o.hint = m.next
	if ok {
		m.o.hint = p.base() + uint64(i)
	}
	return p, i, ok
}

// lower takes a ready message out of the ready set, staged or to be held.
func (m *Machine) lower(p *page, i int) {
	cut(&p.ready, i)
	m.ready--
	if m.limited {
		m.o.shorter(p.sizes.get(i))
	}
}

// die stages the end of a message that nobody accepted.
func (m *Machine) die(reason Reason, offset uint64) {
	s := m.o.stage()
	if m.dies() {
		s.dead[reason] = extend(s.dead[reason], offset, 0)
	} else {
		s.gone[reason] = extend(s.gone[reason], offset, 0)
	}
}

func (o *owner) stage() *staged {
	if o.staged == nil {
		o.staged = new(staged)
	}
	o.staged.any = true
	return o.staged
}

func extend(runs []run, offset uint64, count uint32) []run {
	if n := len(runs); n > 0 && runs[n-1].to == offset && runs[n-1].count == count {
		runs[n-1].to++
		return runs
	}
	return append(runs, run{offset, offset + 1, count})
}

// tidy sorts and merges ranges that do not overlap.
func tidy(runs []run) []run {
	before := func(a, b run) int {
		if a.from < b.from {
			return -1
		}
		return 1
	}
	if !slices.IsSortedFunc(runs, before) {
		slices.SortFunc(runs, before)
	}
	kept := runs[:0]
	for _, r := range runs {
		if n := len(kept); n > 0 && kept[n-1].to == r.from && kept[n-1].count == r.count {
			kept[n-1].to = r.to
		} else {
			kept = append(kept, r)
		}
	}
	return kept
}

// maxTake bounds what one TakeEvents gives, in bytes.
const maxTake = 512 << 10

// TakeEvents gives staged decisions as count encoded events (batch.AppendEvent), to be appended after the records that were
// admitted, as one run of kind KindEvent. It gives at most about 512 KiB, in events of at most 32 KiB: ask until count is 0. The
// bytes are the caller's.
func (m *Machine) TakeEvents() (payload []byte, count uint32) {
	o := m.o
	if o == nil {
		return nil, 0
	}
	m.overflow()
	s := o.staged
	if s == nil || !s.any {
		return nil, 0
	}
	full := false
	take := func(typ uint8, reason Reason, runs *[]run) {
		if len(*runs) == 0 {
			return
		}
		if full = full || len(payload) >= maxTake; full {
			return
		}
		var n uint32
		var next uint64
		var rest []run
		payload, rest, n, next = appendEvents(payload, typ, reason, o.number+1, tidy(*runs))
		if typ == EventDead {
			o.number = next - 1
		}
		count += n
		full = len(rest) > 0
		*runs = (*runs)[:copy(*runs, rest)]
	}
	for r := range s.gone {
		take(EventGone, Reason(r), &s.gone[r])
	}
	take(EventReturn, 0, &s.returns)
	take(EventDue, 0, &s.due)
	for r := range s.dead {
		take(EventDead, Reason(r), &s.dead[r])
	}
	s.any = full
	return payload, count
}

func (o *owner) trim() {
	o.blocks = nil
	if o.staged != nil && !o.staged.any {
		o.staged = nil
	}
	if len(o.ahead) == 0 {
		o.ahead = nil
	}
	if len(o.heap) == 0 {
		o.heap = nil
	}
	if o.audience != nil && len(o.audience.slots) == 0 && len(o.audience.awaited) == 0 {
		o.audience, o.groups = nil, nil
	}
}
