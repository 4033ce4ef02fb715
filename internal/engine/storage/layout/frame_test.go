package layout

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/ident"
)

func someFrame() Frame {
	return Frame{
		Typ: FrameBatch, Generation: 7, Part: ident.Partition{Incarnation: 1 << 60, Index: 3}, Sequence: 9, SyncedBelow: 8,
	}
}

// A bit that is turned anywhere in a frame is found; in its body, the head still says whose it is and where the next frame begins.
func TestEveryBitIsCovered(t *testing.T) {
	whole := AppendFrame(nil, someFrame(), []byte("the "), []byte("body"))
	if len(whole) != SizeOf(8) || len(whole)%FrameAlign != 0 {
		t.Fatalf("%d bytes", len(whole))
	}
	for i := range 8 * len(whole) {
		broken := bytes.Clone(whole)
		broken[i/8] ^= 1 << (i % 8)
		f, err := ParseFrame(broken)
		switch {
		case i/8 >= FrameHead:
			if !errors.Is(err, ErrFrameBody) || f.Part != someFrame().Part || f.Size != len(whole) {
				t.Errorf("bit %d of the body: %v, %+v", i, err, f)
			}
		case err == nil:
			t.Errorf("bit %d of the head is not noticed", i)
		}
	}
	for n := range whole {
		if _, err := ParseFrame(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken for a frame", n, len(whole))
		}
	}
}

func TestHeaderIsCovered(t *testing.T) {
	h := FileHeader{Format: Format, Store: ident.StoreID{1, 2}, Generation: 3, First: 4, Boot: 5}
	whole := h.Encode()
	if got, err := ParseFileHeader(whole); err != nil || got != h {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range 8 * HeaderUsed {
		broken := bytes.Clone(whole)
		broken[i/8] ^= 1 << (i % 8)
		if _, err := ParseFileHeader(broken); err == nil {
			t.Errorf("bit %d is not noticed", i)
		}
	}
	h.Format = Format + 1
	if _, err := ParseFileHeader(h.Encode()); !errors.Is(err, ErrNewer) {
		t.Errorf("a later format: %v", err)
	}
}

// docs/FORMATS.md has a row for every type of frame, with its number and name.
func TestTypesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/FORMATS.md")
	if err != nil {
		t.Fatal(err)
	}
	for typ := FrameBatch; typ < FrameTypeEnd; typ++ {
		name := typ.String()
		switch typ {
		case 18: // never used
			continue
		case FrameCheckpoint, FrameFooter: // share a row with the type that ends them
			name = fmt.Sprintf("| %d, %d | %s, last part |", typ, typ+1, name)
		case FrameCheckEnd, FrameFooterEnd:
			continue
		default:
			name = fmt.Sprintf("| %d | %s |", typ, name)
		}
		if !strings.Contains(string(text), "\n"+name) {
			t.Errorf("no row begins with %s", name)
		}
	}
}

// Whatever the bytes are, they are refused, or what AppendFrame writes.
func FuzzFrame(f *testing.F) {
	f.Add(AppendFrame(nil, someFrame(), []byte("body")))
	f.Add(AppendFrame(nil, Frame{Typ: FrameTypeEnd - 1}))
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := ParseFrame(p)
		if err != nil {
			return
		}
		again := AppendFrame(nil, got, got.Body)
		if len(again) != got.Size || !bytes.Equal(again[16:FrameHead+got.Length], p[16:FrameHead+got.Length]) {
			t.Fatalf("%x is read, and written as %x", p[:got.Size], again)
		}
	})
}
