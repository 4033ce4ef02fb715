package batch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/ident"
)

var part = ident.Partition{Incarnation: 7, Index: 2}

func small() Batch {
	var b Builder
	records := AppendRecord(nil, RecordHeader{TTL: 5, Flags: FlagTTL, Priority: 3}, []byte("he"), []byte("llo"))
	records = AppendRecord(records, RecordHeader{KeyHash: 9}, nil)
	b.Add(Run{Kind: KindMark, Count: 1}, AppendEvent(nil, 1, []byte{1}))
	b.Add(Run{Kind: KindRecord, Count: 2, Producer: 11, First: 4}, records)
	b.Add(Run{Kind: KindEvent, Count: 1}, AppendEvent(nil, 8, []byte("settle")))
	return b.Finish(part, 3, Tail{Position: 100, Offset: 60, Events: 40, Epoch: 2, Time: 5000, Link: Link{1, 2}}, 4000)
}

func TestABatchIsReadBackAsItWasMade(t *testing.T) {
	made := small()
	got, err := Parse(append(bytes.Clone(made.Bytes()), "what follows"...))
	if err != nil {
		t.Fatal(err)
	}
	if got.Partition != part || got.Epoch != 3 || got.Position != 100 || got.Offset != 60 || got.Count != 4 || got.Records != 2 ||
		got.Time != 5000 || got.PrevLink != (Link{1, 2}) || got.Runs() != 3 || got.Size() != made.Size() {
		t.Fatalf("header: %+v", got)
	}
	var said []string
	got.Each(func(e Entry) bool {
		said = append(said, hex.EncodeToString([]byte{byte(e.Kind), e.Type, byte(e.Position), byte(e.Offset), byte(e.Producer), byte(e.Sequence)})+" "+string(e.Body))
		return true
	})
	want := "030164 3c0000 \x01|01006 53c0b04 hello|010066 3d0b05 |020867 3e0000 settle"
	if g := strings.Join(said, "|"); strings.ReplaceAll(g, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("entries: %q", g)
	}
	e, ok := got.Find(60)
	if !ok || e.Record.TTL != 5 || e.Record.Priority != 3 || e.Record.Size != 5 || string(e.Body) != "hello" {
		t.Errorf("Find(60): %+v %v", e, ok)
	}
	if _, ok := got.Find(62); ok {
		t.Error("found an offset after the last record")
	}
}

func TestTheEncodingStaysWhatItWas(t *testing.T) {
	got := hex.EncodeToString(small().Bytes()) + "\n" + small().Link().String() + "\n"
	want, err := os.ReadFile("testdata/small.golden")
	if err != nil || string(want) != got {
		t.Fatalf("testdata/small.golden (%v) is not what is encoded now; a changed layout needs a new version:\n%s", err, got)
	}
}

func TestTailAndFollows(t *testing.T) {
	before := Tail{Position: 100, Offset: 60, Events: 40, Epoch: 2, Time: 5000, Link: Link{1, 2}}
	b := small()
	if !b.Follows(before) {
		t.Fatal("a batch does not follow the tail it was made on")
	}
	after := before.After(b, b.Link())
	if after.Position != 104 || after.Offset != 62 || after.Events != 42 || after.Epoch != 3 || after.Link == before.Link {
		t.Fatalf("tail after: %+v", after)
	}
	for name, change := range map[string]func(*Tail){
		"position": func(t *Tail) { t.Position++ }, "offset": func(t *Tail) { t.Offset++ }, "link": func(t *Tail) { t.Link[3]++ },
		"epoch": func(t *Tail) { t.Epoch = 4 }, "time": func(t *Tail) { t.Time = 5001 },
	} {
		x := before
		change(&x)
		if b.Follows(x) {
			t.Errorf("follows a tail of another %s", name)
		}
	}
}

func TestEveryFlippedBitIsSeen(t *testing.T) {
	good := small().Bytes()
	for i := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := Parse(bad); err == nil {
			t.Fatalf("bit %d of byte %d was flipped and not seen", i%8, i/8)
		}
	}
	for n := range len(good) {
		if _, err := Parse(good[:n]); err == nil {
			t.Fatalf("the first %d bytes of %d pass for a batch", n, len(good))
		}
	}
}

func TestMalformedIsRefusedEvenWithAGoodChecksum(t *testing.T) {
	for name, change := range map[string]func([]byte){
		"count":   func(p []byte) { p[12]++ },
		"records": func(p []byte) { p[28]-- },
		"runs":    func(p []byte) { p[10] = 200 },
		"kind":    func(p []byte) { p[FixedSize] = 9 },
		"entry":   func(p []byte) { p[FixedSize+3*RunSize] = 0xff },
	} {
		p := bytes.Clone(small().Bytes())
		change(p)
		if _, err := ParseTrusted(p); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := bytes.Clone(small().Bytes())
	p[8] = 2
	if _, err := ParseTrusted(p); !errors.Is(err, ErrVersion) {
		t.Errorf("version: %v", err)
	}
}

func TestAnyBatchRoundTripsAndLinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Builder
		var want []Entry
		tail := Tail{Position: rapid.Uint64Range(0, 1<<40).Draw(t, "position"), Offset: rapid.Uint64Range(0, 1<<40).Draw(t, "offset")}
		pos, off := tail.Position, tail.Offset
		for range rapid.IntRange(1, 20).Draw(t, "entries") {
			k := Kind(rapid.IntRange(1, 3).Draw(t, "kind"))
			e := Entry{Kind: k, Position: pos, Offset: off, Body: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body")}
			pos++
			run := Run{Kind: k, Count: 1}
			if k == KindRecord {
				e.Record = RecordHeader{Size: uint32(len(e.Body)), TTL: rapid.Uint32().Draw(t, "ttl"), Flags: rapid.Uint16().Draw(t, "flags")}
				e.Producer, e.Sequence = rapid.Uint64Range(0, 2).Draw(t, "producer"), off
				run.Producer, run.First = e.Producer, off
				off++
				b.Add(run, AppendRecord(nil, e.Record, e.Body))
			} else {
				e.Type = rapid.Uint8().Draw(t, "type")
				b.Add(run, AppendEvent(nil, e.Type, e.Body))
			}
			want = append(want, e)
		}
		size := b.Size()
		made := b.Finish(part, 1, tail, 1)
		if made.Size() != size {
			t.Fatalf("Size said %d, the batch has %d", size, made.Size())
		}
		got, err := Parse(made.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		got.Each(func(e Entry) bool {
			w := want[i]
			if w.Kind != KindRecord || w.Producer == 0 {
				e.Sequence = w.Sequence // nobody's numbers are not kept
			}
			if e.Kind != w.Kind || e.Position != w.Position || e.Offset != w.Offset || e.Type != w.Type || e.Record != w.Record ||
				e.Producer != w.Producer || e.Sequence != w.Sequence || !bytes.Equal(e.Body, w.Body) {
				t.Fatalf("entry %d: %+v, want %+v", i, e, w)
			}
			i++
			return true
		})
		if i != len(want) || !got.Follows(tail) || got.EndOffset() != off {
			t.Fatalf("%d of %d entries; follows %v; end offset %d, want %d", i, len(want), got.Follows(tail), got.EndOffset(), off)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(small().Bytes())
	f.Fuzz(func(t *testing.T, p []byte) {
		b, err := ParseTrusted(p)
		if err != nil {
			return
		}
		n := uint32(0)
		b.Each(func(e Entry) bool { n++; return true })
		if n != b.Count || binary.LittleEndian.Uint32(p) != uint32(b.Size()) {
			t.Fatalf("walked %d entries of %d", n, b.Count)
		}
	})
}

func BenchmarkBuildParseLink(b *testing.B) {
	const messages = 900
	body := make([]byte, 1024)
	records := make([]byte, 0, messages*(len(body)+RecordHeaderSize))
	for range messages {
		records = AppendRecord(records, RecordHeader{}, body)
	}
	var builder Builder
	tail := Tail{}
	b.ReportAllocs()
	for b.Loop() {
		builder.Add(Run{Kind: KindRecord, Count: messages, Producer: 1, First: tail.Position + 1}, records)
		x := builder.Finish(part, 1, tail, 1)
		tail = tail.After(x, x.Link())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/messages, "ns/message")
}
