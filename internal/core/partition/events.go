package partition

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
)

// The types of event that a partition's protocol reads itself. Those below FirstEvent belong to the state machines.
const (
	FirstEvent = batch.FirstPartitionEvent
	// EventForget drops producers from the table: {u64 id, u64 last} each.
	EventForget = batch.FirstPartitionEvent
	// EventRefused says which numbers of named producers admission refused: {u64 id, u64 number} each.
	EventRefused = batch.FirstPartitionEvent + 1
)

// The types of mark.
const (
	// MarkEpoch begins an epoch: {u64 epoch, u32 version of the state machine, u32 0}.
	MarkEpoch uint8 = 1
	// MarkHandoff ends one by agreement. Empty.
	MarkHandoff uint8 = 2
)

// ErrMalformed is returned when a mark, an event or a page of this package cannot be read. It is not worth a retry.
var ErrMalformed = errors.New("partition: malformed mark, event or page")

// AppendEpochMark appends the body of an epoch's mark.
func AppendEpochMark(dst []byte, epoch uint64, version uint32) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, epoch)
	dst = binary.LittleEndian.AppendUint32(dst, version)
	return binary.LittleEndian.AppendUint32(dst, 0)
}

// ReadEpochMark reads the body of an epoch's mark: the epoch that it begins, and the version of the state machine that applies what follows (design 2 §12). It
// returns ErrMalformed where it is none.
func ReadEpochMark(body []byte) (epoch uint64, version uint32, err error) {
	if len(body) != 16 {
		return 0, 0, ErrMalformed
	}
	return binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint32(body[8:]), nil
}

// AppendPairs appends the body of EventForget or EventRefused.
func AppendPairs(dst []byte, pairs []Forgotten) []byte {
	for _, p := range pairs {
		dst = binary.LittleEndian.AppendUint64(dst, p.ID)
		dst = binary.LittleEndian.AppendUint64(dst, p.Last)
	}
	return dst
}

func readPairs(body []byte) ([]Forgotten, error) {
	if len(body)%16 != 0 {
		return nil, ErrMalformed
	}
	var out []Forgotten
	for ; len(body) > 0; body = body[16:] {
		out = append(out, Forgotten{binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[8:])})
	}
	return out, nil
}

// Apply applies a confirmed event of this package to the table. It returns ErrMalformed where it is none, and has changed nothing then.
func (t *Producers) Apply(typ uint8, body []byte) error {
	pairs, err := readPairs(body)
	if err != nil {
		return err
	}
	switch typ {
	case EventForget:
		t.Forget(pairs)
	case EventRefused:
		for _, p := range pairs {
			t.Refuse(p.ID, p.Last)
		}
	default:
		return ErrMalformed
	}
	return nil
}

// ProducersPage is the number of the first snapshot page that holds the table; a state machine's own pages have lower ones.
const ProducersPage uint32 = 1 << 31

// pageTarget is about how large a page gets, in bytes.
const pageTarget = 64 << 10

// Pages encodes the confirmed part of the table.
//
//	u32 producers, each {u64 id, u64 last, u64 at, i64 time, u64 vague, u32 gaps, each {u64 first, u64 last}}
//	u32 forgotten, each {u64 id, u64 last}
func (t *Producers) Pages() []Page {
	var pages []Page
	var body []byte
	var known, gone uint32
	end := func() {
		data := binary.LittleEndian.AppendUint32(nil, known)
		data = binary.LittleEndian.AppendUint32(append(data, body...), 0)
		pages = append(pages, Page{Number: ProducersPage + uint32(len(pages)), Data: data})
		body, known = body[:0], 0
	}
	for i := range t.list {
		p := &t.list[i]
		if p.confirmedLast == 0 && len(p.gaps) == 0 {
			continue
		}
		body = p.encode(body)
		if known++; len(body) >= pageTarget {
			end()
		}
	}
	if known > 0 {
		end()
	}
	if past := t.forgotten(); len(past) > 0 {
		data := binary.LittleEndian.AppendUint32(nil, 0)
		gone = uint32(len(past))
		data = binary.LittleEndian.AppendUint32(data, gone)
		pages = append(pages, Page{Number: ProducersPage + uint32(len(pages)), Data: AppendPairs(data, past)})
	}
	return pages
}

func (p *producer) encode(dst []byte) []byte {
	for _, v := range [...]uint64{p.id, p.confirmedLast, p.confirmedAt, uint64(p.time), p.vague} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	gaps := p.gaps
	if !Named(p.id) { // a gateway's gaps above the confirmed number follow from the log
		gaps = slices.DeleteFunc(slices.Clone(gaps), func(g Gap) bool { return g.First > p.confirmedLast })
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(gaps)))
	for _, g := range gaps {
		dst = binary.LittleEndian.AppendUint64(dst, g.First)
		dst = binary.LittleEndian.AppendUint64(dst, g.Last)
	}
	return dst
}

// reader reads little-endian numbers and remembers that it ran out.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) u64() uint64 {
	if len(r.b) < 8 {
		r.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) u32() int {
	if len(r.b) < 4 {
		r.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return int(v)
}

// RestoreProducers reads what Pages wrote, from the pages at or above ProducersPage; others are left alone. It returns ErrMalformed where they are broken.
func RestoreProducers(pages []Page) (Producers, error) {
	var t Producers
	var gone []Forgotten
	for _, page := range pages {
		if page.Number < ProducersPage {
			continue
		}
		r := reader{b: page.Data}
		for n := r.u32(); n > 0 && !r.bad; n-- {
			p := producer{
				id: r.u64(), confirmedLast: r.u64(), confirmedAt: r.u64(), time: int64(r.u64()), vague: r.u64(),
			}
			p.last, p.at = p.confirmedLast, p.confirmedAt
			for g := r.u32(); g > 0 && !r.bad; g-- {
				p.gaps = append(p.gaps, Gap{r.u64(), r.u64()})
			}
			t.list = append(t.list, p)
			if Named(p.id) {
				t.named++
			}
		}
		for n := r.u32(); n > 0 && !r.bad; n-- {
			gone = append(gone, Forgotten{r.u64(), r.u64()})
		}
		if r.bad || len(r.b) > 0 {
			return Producers{}, ErrMalformed
		}
	}
	if len(gone) > 0 {
		t.past = &past{gone}
	}
	if !slices.IsSortedFunc(t.list, func(a, b producer) int { return cmp.Compare(a.id, b.id) }) {
		return Producers{}, ErrMalformed
	}
	return t, nil
}
