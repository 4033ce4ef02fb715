package codec

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/tanist/tanist/internal/core/ident"
)

var errTest = errors.New("malformed")

// everything has a field of each form.
type everything struct {
	u64       uint64
	u32       uint32
	i64       int64
	i32       int32
	small     int
	f64       float64
	u8        uint8
	bool      bool
	fixed     [5]byte
	bytes     []byte
	text      string
	name      string
	partition ident.Partition
	instance  ident.Instance
	items     []uint64
	list      []everything
	optional  *everything
}

type coder struct {
	Coder
	depth int
}

func (c *coder) everything(e *everything) {
	c.U64(&e.u64)
	c.U32(&e.u32)
	c.I64(&e.i64)
	c.I32(&e.i32)
	c.Small(&e.small, 300)
	c.F64(&e.f64)
	c.U8(&e.u8, 200)
	c.Bool(&e.bool)
	c.Fixed(e.fixed[:])
	c.Bytes(&e.bytes)
	c.Text(&e.text)
	c.Name(&e.name)
	c.Partition(&e.partition)
	c.Instance(&e.instance)
	for i := range Items(&c.Coder, &e.items, 1) {
		c.U64(&e.items[i])
	}
	if c.depth++; c.depth > 8 {
		c.Fail("nested deeper than %d", 8)
		return
	}
	List(c, &e.list, (*coder).everything)
	Optional(c, &e.optional, (*coder).everything)
	c.depth--
}

func encode(e *everything) []byte {
	c := coder{Coder: Coder{Malformed: errTest}}
	c.everything(e)
	return c.Buf
}

func decode(b []byte) (*everything, error) {
	c := coder{Coder: Coder{Reading: true, Buf: b, Malformed: errTest, Names: map[string]string{}}}
	e := new(everything)
	c.everything(e)
	return e, c.End()
}

func some() *everything {
	leaf := everything{i64: math.MinInt64, i32: math.MinInt32, f64: math.Inf(-1), text: "\xff", items: []uint64{math.MaxUint64}}
	return &everything{
		u64: math.MaxUint64, u32: math.MaxUint32, i64: math.MaxInt64, i32: -1, small: 300, f64: 1.5, u8: 200, bool: true, fixed: [5]byte{1, 2, 3, 4, 5},
		bytes: []byte("bytes"), text: "text", name: "n1", partition: ident.Partition{Incarnation: 300, Index: 7},
		instance: ident.Instance{Node: "n1", Store: ident.StoreID{9}, Boot: 3}, items: []uint64{0, 1, 1 << 40}, list: []everything{leaf, {}}, optional: &leaf,
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	for _, e := range []*everything{some(), {}} {
		got, err := decode(encode(e))
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%v\ngot  %+v\nwant %+v", err, got, e)
		}
	}
}

// Every prefix is refused, with the error of the room, and so are numbers that are not in their shortest form or out of bounds.
func TestWhatIsNotWrittenIsRefused(t *testing.T) {
	whole := encode(some())
	for n := range whole {
		if _, err := decode(whole[:n]); !errors.Is(err, errTest) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	if _, err := decode(append(whole, 0)); !errors.Is(err, errTest) {
		t.Errorf("a byte too many: %v", err)
	}
	read := func(b []byte, what func(c *Coder)) error {
		c := Coder{Reading: true, Buf: b, Malformed: errTest}
		what(&c)
		return c.End()
	}
	for name, wrong := range map[string]struct {
		bytes []byte
		what  func(c *Coder)
	}{
		"not the shortest form":  {[]byte{0x80, 0}, func(c *Coder) { c.U64(new(uint64)) }},
		"more than 32 bits":      {[]byte{0xff, 0xff, 0xff, 0xff, 0x1f}, func(c *Coder) { c.U32(new(uint32)) }},
		"more than 32 with sign": {[]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, func(c *Coder) { c.I32(new(int32)) }},
		"more than small":        {[]byte{8}, func(c *Coder) { c.Small(new(int), 7) }},
		"byte above its limit":   {[]byte{8}, func(c *Coder) { c.U8(new(uint8), 7) }},
		"bool of 2":              {[]byte{2}, func(c *Coder) { c.Bool(new(bool)) }},
		"count beyond the input": {[]byte{2, 0, 0}, func(c *Coder) { Items(c, new([]uint64), 2) }},
	} {
		if err := read(wrong.bytes, wrong.what); !errors.Is(err, errTest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNamesAreKeptOnce(t *testing.T) {
	c := Coder{Reading: true, Malformed: errTest, Names: map[string]string{}}
	input := []byte("\x02n1")
	var name string
	read := func() {
		c.Buf = input
		c.Name(&name)
	}
	read()
	if n := testing.AllocsPerRun(10, read); n != 0 || name != "n1" {
		t.Errorf("%q takes %v allocations", name, n)
	}
	for i := range 2 * mostNames {
		c.Buf = []byte{2, byte(i), byte(i >> 8)}
		c.Name(&name)
	}
	if len(c.Names) != mostNames || c.Err != nil {
		t.Errorf("%d names are kept, %v", len(c.Names), c.Err)
	}
}

// What can be read is exactly what is written: no value has two encodings.
func FuzzCoder(f *testing.F) {
	f.Add(encode(some()))
	f.Add(encode(&everything{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decode(b)
		if err != nil {
			if !errors.Is(err, errTest) {
				t.Fatalf("%v", err)
			}
			return
		}
		if again := encode(e); !bytes.Equal(again, b) {
			t.Fatalf("%x is read, and written as %x", b, again)
		}
	})
}
