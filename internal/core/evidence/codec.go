package evidence

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
)

// Format is the version of the encoding that Append writes. Parse reads it and all before it.
const Format = 1

// Errors of Parse. Neither is worth a retry.
var (
	// ErrUnknown is returned for a record in a format that this program does not know.
	ErrUnknown = errors.New("evidence: unknown format")
	// ErrMalformed is returned when the bytes are not what Append writes.
	ErrMalformed = errors.New("evidence: malformed record")
)

// Digest names what a transition was decided on.
type Digest [sha256.Size]byte

// String is the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText encodes the digest in hexadecimal.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Digest is the SHA-256 of the canonical encoding of what was decided, format number included. What became of it changes nothing, and
// neither does the order of its lists.
func (e *Evidence) Digest() Digest {
	n := e.canonical()
	c := coder{buf: []byte{Format}}
	c.decided(&n.Decided)
	return sha256.Sum256(c.buf)
}

// Append appends the canonical encoding of a record (see MaxText and MaxCopies) and returns the longer slice:
//
//	u8 format, Decided, Became, their fields in order, each as in coder
func Append(b []byte, e *Evidence) []byte {
	n := e.canonical()
	c := coder{buf: append(b, Format)}
	c.decided(&n.Decided)
	c.became(&n.Became)
	return c.buf
}

// Parse reads what Append wrote, and nothing else: no record has two encodings. An error is ErrUnknown or ErrMalformed.
func Parse(b []byte) (*Evidence, error) {
	switch {
	case len(b) == 0:
		return nil, fmt.Errorf("%w: it is empty", ErrMalformed)
	case b[0] != Format:
		return nil, fmt.Errorf("%w: %d, known up to %d", ErrUnknown, b[0], Format)
	}
	e := new(Evidence)
	c := coder{reading: true, buf: b[1:]}
	c.decided(&e.Decided)
	c.became(&e.Became)
	if c.err == nil && len(c.buf) > 0 {
		c.fail("bytes left")
	}
	if c.err != nil {
		return nil, c.err
	}
	if again := Append(make([]byte, 0, len(b)), e); !slices.Equal(again, b) {
		return nil, fmt.Errorf("%w: its lists are not sorted", ErrMalformed)
	}
	return e, nil
}

// coder writes or reads one value after another. The same function describes both directions, so that they cannot differ:
//
//	number: uvarint, shortest form | time: zigzag uvarint | bool: one byte, 0 or 1 | link, store: 16 bytes
//	text: uvarint length, at most MaxText, bytes | list: uvarint count, at most MaxCopies, items
type coder struct {
	reading bool
	buf     []byte // written so far, or left to read
	err     error
}

func (c *coder) fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	c.buf = nil
}

func (c *coder) u64(v *uint64) {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, *v)
		return
	}
	x, n := batch.Uvarint(c.buf)
	if n == 0 {
		c.fail("number")
		return
	}
	*v, c.buf = x, c.buf[n:]
}

// small is a number below a limit that fits an int of any machine; others are written as 0 or the limit.
func (c *coder) small(v *int, limit int) {
	x := uint64(min(max(*v, 0), limit))
	c.u64(&x)
	if x > uint64(limit) {
		c.fail("number too large")
		return
	}
	*v = int(x)
}

func (c *coder) i64(v *int64) {
	x := uint64(*v)<<1 ^ uint64(*v>>63)
	c.u64(&x)
	*v = int64(x>>1) ^ -int64(x&1)
}

func (c *coder) bool(v *bool) {
	x := 0
	if *v {
		x = 1
	}
	c.small(&x, 1)
	*v = x == 1
}

func (c *coder) fixed(v []byte) {
	switch {
	case !c.reading:
		c.buf = append(c.buf, v...)
	case len(c.buf) < len(v):
		c.fail("end of data")
	default:
		c.buf = c.buf[copy(v, c.buf):]
	}
}

func text[S ~string](c *coder, v *S) {
	n := len(*v)
	c.small(&n, MaxText)
	switch {
	case !c.reading:
		c.buf = append(c.buf, *v...)
	case n > len(c.buf):
		c.fail("length of a text")
	default:
		*v, c.buf = S(c.buf[:n]), c.buf[n:]
	}
}

func list[T any](c *coder, s *[]T, each func(*coder, *T)) {
	n := len(*s)
	c.small(&n, MaxCopies)
	if c.reading && n > 0 && c.err == nil {
		*s = make([]T, n)
	}
	for i := range *s {
		if c.err != nil {
			return
		}
		each(c, &(*s)[i])
	}
}

func (c *coder) decided(d *Decided) {
	text(c, &d.ID)
	text(c, &d.Workflow)
	c.partition(&d.Partition)
	text(c, &d.VHost)
	text(c, &d.Resource)
	text(c, &d.Kind)
	text(c, &d.Cause)
	list(c, &d.SeenBy, text[string])
	c.reign(&d.Before)
	c.reign(&d.After)
	c.u64(&d.Version)
	text(c, &d.Policy)
	for _, n := range []*int{&d.E, &d.W, &d.R} {
		c.small(n, math.MaxInt32)
	}
	list(c, &d.Answers, (*coder).answer)
	list(c, &d.Exclusions, (*coder).exclusion)
	c.place(&d.Start)
	c.u64(&d.Floor.Position)
	text(c, &d.Floor.By)
	c.place(&d.Watermark)
	for _, t := range []*int64{&d.LastConfirm, &d.Suspected, &d.Recorded, &d.Sealed, &d.Chosen} {
		c.i64(t)
	}
}

func (c *coder) became(b *Became) {
	text(c, &b.Outcome)
	text(c, &b.Reason)
	list(c, &b.Cuts, (*coder).cut)
	for _, t := range []*int64{&b.Committed, &b.Serving, &b.FirstConfirm} {
		c.i64(t)
	}
}

func (c *coder) partition(p *ident.Partition) {
	c.u64(&p.Incarnation)
	x := uint64(p.Index)
	c.u64(&x)
	if x > math.MaxUint32 {
		c.fail("index of a partition")
		return
	}
	p.Index = uint32(x)
}

func (c *coder) instance(i *ident.Instance) {
	text(c, &i.Node)
	c.fixed(i.Store[:])
	c.u64(&i.Boot)
}

func (c *coder) reign(r *Reign) {
	c.instance(&r.Owner)
	c.u64(&r.Epoch)
}

func (c *coder) place(p *Place) {
	c.u64(&p.Epoch)
	c.u64(&p.Position)
	c.u64(&p.Offset)
	c.fixed(p.Link[:])
}

func (c *coder) answer(a *Answer) {
	c.instance(&a.From)
	c.place(&a.End)
	c.u64(&a.Clipped)
	c.u64(&a.Confirmed)
	text(c, &a.Health)
}

func (c *coder) exclusion(x *Exclusion) {
	text(c, &x.Node)
	c.fixed(x.Store[:])
	text(c, &x.Reason)
}

func (c *coder) cut(x *Cut) {
	text(c, &x.Node)
	c.fixed(x.Store[:])
	c.u64(&x.From)
	c.u64(&x.To)
	c.bool(&x.Quarantined)
}
