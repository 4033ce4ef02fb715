package queue

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
)

// Restore sets a new machine's replicated state from all pages of a snapshot. It returns ErrPage, and the machine is then unusable.
func (m *Machine) Restore(pages []batch.Page) error {
	head := false
	for _, pg := range pages {
		if pg.Number == 0 {
			head = true
			r := reader{rest: pg.Data}
			r.layout()
			m.next, m.number = r.varint(math.MaxUint64), r.varint(math.MaxUint64)
			if !r.end() {
				return fmt.Errorf("%w: head", ErrPage)
			}
			continue
		}
		p, err := m.decodePage(pg)
		if err != nil {
			return err
		}
		m.pages = append(m.pages, p)
	}
	slices.SortFunc(m.pages, func(a, b *page) int {
		if a.index < b.index {
			return -1
		}
		return 1
	})
	for at, p := range m.pages {
		if at > 0 && m.pages[at-1].index == p.index {
			return fmt.Errorf("%w: page %d twice", ErrPage, p.index)
		}
	}
	if n := len(m.pages); n > 0 && (m.pages[n-1].index > math.MaxUint64>>pageBits || m.pages[n-1].top() > m.next) || !head {
		return fmt.Errorf("%w: no head, or messages beyond it", ErrPage)
	}
	return m.restoreDead()
}

// top is the offset after the last that lives.
func (p *page) top() uint64 {
	for w := words - 1; w >= 0; w-- {
		if p.live[w] != 0 {
			return p.base() + uint64(w<<6+64-bits.LeadingZeros64(p.live[w]))
		}
	}
	return p.base()
}

// restoreDead lists the dead letters that the pages have.
func (m *Machine) restoreDead() error {
	for _, p := range m.pages {
		for at := range p.extras {
			if x := &p.extras[at]; x.flags&flagDead != 0 {
				if x.number > m.number {
					return fmt.Errorf("%w: dead letter %d of %d", ErrPage, x.number, m.number)
				}
				m.bury(x.number, p.base()+uint64(x.index))
			}
		}
	}
	if m.dead == nil {
		return nil
	}
	for _, list := range m.dead {
		slices.SortFunc(list, func(a, b dead) int {
			if a.number < b.number {
				return -1
			}
			return 1
		})
		for at := 1; at < len(list); at++ {
			if list[at-1].number == list[at].number {
				return fmt.Errorf("%w: dead letter %d twice", ErrPage, list[at].number)
			}
		}
	}
	return nil
}

// reader reads a page. After something wrong it gives zeros, and end is false.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) varint(most uint64) uint64 {
	v, n := batch.Uvarint(r.rest)
	if n == 0 || v > most {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) layout() {
	if r.byte() != layout {
		r.bad, r.rest = true, nil
	}
}

func (r *reader) end() bool { return !r.bad && len(r.rest) == 0 }

func (m *Machine) decodePage(pg batch.Page) (*page, error) {
	r := &reader{rest: pg.Data}
	r.layout()
	p := &page{index: r.varint(math.MaxUint64 >> pageBits), saved: true}
	end := uint64(0)
	for n := r.varint(PageSize); n > 0 && !r.bad; n-- {
		from := end + r.varint(PageSize)
		end = from + r.varint(PageSize) + 1
		if end > PageSize {
			r.bad = true
			break
		}
		for i := from; i < end; i++ {
			put(&p.live, int(i))
			p.n++
		}
	}
	p.ready = p.live
	runs := liveRuns(&p.live)
	r.runs(runs, p.n, false, func(i int, v uint64) {
		if v > math.MaxUint32 {
			r.bad = true
			return
		}
		p.sizes.set(i, uint32(v))
		m.bytes += int64(uint32(v))
	})
	if timed := r.byte(); timed > 1 || (timed == 1) != (m.settings.TTL != nil) {
		r.bad = true
	} else if timed == 1 {
		r.runs(runs, p.n, true, func(i int, v uint64) {
			if v > math.MaxInt64 {
				r.bad = true
			}
			p.setTime(i, int64(v))
		})
	}
	m.decodeExtras(r, p)
	if !r.end() || p.n == 0 || pageNumber(p.index) != pg.Number {
		return nil, fmt.Errorf("%w: number %d", ErrPage, pg.Number)
	}
	m.messages += uint64(p.n)
	for _, set := range p.ready {
		m.ready += uint64(bits.OnesCount64(set))
	}
	return p, nil
}

// runs reads what appendRuns wrote, for total live messages.
func (r *reader) runs(live [][2]int, total int, rising bool, f func(i int, v uint64)) {
	var left, v uint64
	for _, span := range live {
		for i := span[0]; i < span[1] && !r.bad; i++ {
			if left == 0 {
				left = r.varint(uint64(total))
				got := r.varint(math.MaxUint64)
				if rising {
					got += v
				}
				if v = got; left == 0 {
					r.bad = true
					return
				}
			}
			f(i, v)
			left--
			total--
		}
	}
	r.bad = r.bad || left != 0
}

func (m *Machine) decodeExtras(r *reader, p *page) {
	end := uint64(0)
	for n := r.varint(PageSize); n > 0 && !r.bad; n-- {
		i := end + r.varint(PageSize)
		end = i + 1
		if i >= PageSize || !has(&p.live, int(i)) {
			r.bad = true
			return
		}
		flags := r.byte()
		x := extra{index: uint16(i), flags: flags & replicatedFlags}
		if flags == 0 || flags&^(replicatedFlags|flagCounted) != 0 || flags&(flagDelayed|flagDead) == flagDelayed|flagDead {
			r.bad = true
		}
		if flags&flagDelayed != 0 {
			x.due = int64(r.varint(math.MaxInt64))
			m.delayed++
		}
		if flags&flagExpires != 0 {
			x.expires = int64(r.varint(math.MaxInt64))
		}
		if flags&flagDead != 0 {
			x.reason, x.number = Reason(r.byte()), r.varint(math.MaxUint64)
			if x.reason >= reasonsBehind || x.number == 0 {
				r.bad = true
			}
		}
		if flags&flagCounted != 0 {
			if x.count = uint32(r.varint(math.MaxUint32)); x.count == 0 {
				r.bad = true
			}
		}
		if flags&(flagDelayed|flagDead) != 0 {
			cut(&p.ready, int(i))
		}
		p.extras = append(p.extras, x)
	}
}
