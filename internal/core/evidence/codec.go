package evidence

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tanist/tanist/internal/core/codec"
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
	c := writer([]byte{Format})
	c.decided(&n.Decided)
	return sha256.Sum256(c.Buf)
}

// Append appends the canonical encoding of a record (see MaxText and MaxCopies) and returns the longer slice:
//
//	u8 format, Decided, Became, their fields in order, each as in coder
func Append(b []byte, e *Evidence) []byte {
	n := e.canonical()
	c := writer(append(b, Format))
	c.decided(&n.Decided)
	c.became(&n.Became)
	return c.Buf
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
	c := reader(b[1:])
	c.decided(&e.Decided)
	c.became(&e.Became)
	if err := c.End(); err != nil {
		return nil, err
	}
	if again := Append(make([]byte, 0, len(b)), e); !slices.Equal(again, b) {
		return nil, fmt.Errorf("%w: its lists are not sorted", ErrMalformed)
	}
	return e, nil
}

// coder writes or reads records (core/codec). A text is at most MaxText long, and a list has at most MaxCopies items.
type coder struct{ codec.Coder }

func writer(b []byte) coder { return coder{codec.Coder{Buf: b, Malformed: ErrMalformed}} }

func reader(b []byte) coder {
	return coder{codec.Coder{Reading: true, Buf: b, Malformed: ErrMalformed}}
}

func text[S ~string](c *coder, v *S) {
	n := len(*v)
	c.Small(&n, MaxText)
	switch {
	case !c.Reading:
		c.Buf = append(c.Buf, *v...)
	case n > len(c.Buf):
		c.Fail("length of a text")
	case c.Err == nil:
		*v = S(c.Raw(n))
	}
}

func list[T any](c *coder, s *[]T, each func(*coder, *T)) {
	codec.List(c, s, each)
	if len(*s) > MaxCopies {
		c.Fail("%d items in a list, at most %d", len(*s), MaxCopies)
	}
}

func (c *coder) decided(d *Decided) {
	text(c, &d.ID)
	text(c, &d.Workflow)
	c.Partition(&d.Partition)
	text(c, &d.VHost)
	text(c, &d.Resource)
	text(c, &d.Kind)
	text(c, &d.Cause)
	list(c, &d.SeenBy, text[string])
	c.reign(&d.Before)
	c.reign(&d.After)
	c.U64(&d.Version)
	text(c, &d.Policy)
	for _, n := range []*int{&d.E, &d.W, &d.R} {
		c.Small(n, math.MaxInt32)
	}
	list(c, &d.Answers, (*coder).answer)
	list(c, &d.Exclusions, (*coder).exclusion)
	c.place(&d.Start)
	c.U64(&d.Floor.Position)
	text(c, &d.Floor.By)
	c.place(&d.Watermark)
	for _, t := range []*int64{&d.LastConfirm, &d.Suspected, &d.Recorded, &d.Sealed, &d.Chosen} {
		c.I64(t)
	}
}

func (c *coder) became(b *Became) {
	text(c, &b.Outcome)
	text(c, &b.Reason)
	list(c, &b.Cuts, (*coder).cut)
	for _, t := range []*int64{&b.Committed, &b.Serving, &b.FirstConfirm} {
		c.I64(t)
	}
}

func (c *coder) instance(i *ident.Instance) {
	text(c, &i.Node)
	c.Fixed(i.Store[:])
	c.U64(&i.Boot)
}

func (c *coder) reign(r *Reign) {
	c.instance(&r.Owner)
	c.U64(&r.Epoch)
}

func (c *coder) place(p *Place) {
	c.U64(&p.Epoch)
	c.U64(&p.Position)
	c.U64(&p.Offset)
	c.Fixed(p.Link[:])
}

func (c *coder) answer(a *Answer) {
	c.instance(&a.From)
	c.place(&a.End)
	c.U64(&a.Clipped)
	c.U64(&a.Confirmed)
	text(c, &a.Health)
}

func (c *coder) exclusion(x *Exclusion) {
	text(c, &x.Node)
	c.Fixed(x.Store[:])
	text(c, &x.Reason)
}

func (c *coder) cut(x *Cut) {
	text(c, &x.Node)
	c.Fixed(x.Store[:])
	c.U64(&x.From)
	c.U64(&x.To)
	c.Bool(&x.Quarantined)
}
