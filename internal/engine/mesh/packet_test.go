package mesh

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/tanist/tanist/internal/engine/mesh/wire"
)

// split cuts bytes into buffers of n.
func split(b []byte, n int) mem.BufferSlice {
	var out mem.BufferSlice
	for len(b) > n {
		out, b = append(out, mem.SliceBuffer(b[:n])), b[n:]
	}
	return append(out, mem.SliceBuffer(b))
}

// What the mesh encodes by itself is what protobuf makes of mesh.proto, in both directions.
func TestPacketIsProtobuf(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789"), 2000)
	parts := []part{
		{key: 1, data: []byte("one")},
		{key: 1<<63 + 5, data: nil},
		{key: 7, data: large, total: 2 * len(large), more: true},
		{key: 2, data: large},
		{key: 7, data: large},
	}
	b := (&outgoing{parts}).encode(mem.DefaultBufferPool())
	encoded := b.Materialize()
	var packet wire.Packet
	if err := proto.Unmarshal(encoded, &packet); err != nil {
		t.Fatal(err)
	}
	if len(packet.GetFrames()) != len(parts) {
		t.Fatalf("%d frames of %d", len(packet.GetFrames()), len(parts))
	}
	for i, f := range packet.GetFrames() {
		p := parts[i]
		if f.GetKey() != p.key || !bytes.Equal(f.GetData(), p.data) || f.GetMore() != p.more || f.GetTotal() != uint64(p.total) {
			t.Errorf("frame %d: key %d, total %d, more %v, %d bytes", i, f.GetKey(), f.GetTotal(), f.GetMore(), len(f.GetData()))
		}
	}
	packet.Begin, packet.Refusal = true, "is passed over" // fields that frames do not know
	again, err := proto.Marshal(&packet)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]byte{[]byte("one"), {}, large, append(bytes.Clone(large), large...)}
	for _, n := range []int{1, 2, 3, 16, 1000, len(again)} {
		in := &incoming{limit: 1 << 20}
		if err := in.decode(split(again, n)); err != nil {
			t.Fatalf("pieces of %d: %v", n, err)
		}
		if len(in.out) != len(want) {
			t.Fatalf("pieces of %d: %d messages", n, len(in.out))
		}
		for i := range want {
			if !bytes.Equal(in.out[i], want[i]) {
				t.Errorf("pieces of %d: message %d has %d bytes, want %d", n, i, len(in.out[i]), len(want[i]))
			}
		}
	}
}

func TestPartsThatDoNotFit(t *testing.T) {
	for name, frames := range map[string][]*wire.Frame{
		"more, but no total":         {{Key: 1, More: true, Data: []byte("x")}},
		"a total above the limit":    {{Key: 1, Total: 101, More: true, Data: []byte("x")}},
		"two totals above the limit": {{Key: 1, Total: 60, More: true}, {Key: 2, Total: 60, More: true}},
		"a message within another":   {{Key: 1, Total: 9, More: true}, {Key: 1, Total: 9, More: true}},
		"more bytes than the total":  {{Key: 1, Total: 2, More: true}, {Key: 1, Data: []byte("xyz")}},
		"fewer bytes than the total": {{Key: 1, Total: 4, More: true}, {Key: 1, Data: []byte("xyz")}},
		"all bytes, and more":        {{Key: 1, Total: 3, More: true, Data: []byte("xyz")}},
		"a total, and no more":       {{Key: 1, Total: 3, Data: []byte("xyz")}},
	} {
		b, err := proto.Marshal(&wire.Packet{Frames: frames})
		if err != nil {
			t.Fatal(err)
		}
		if err := (&incoming{limit: 100}).decode(split(b, 7)); !errors.Is(err, errOrder) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A peer may begin a message for each key there is, of a byte or two each.
func TestMessagesThatAreNotCompleteAreBounded(t *testing.T) {
	in := &incoming{limit: 1 << 30}
	for key := range uint64(maxPending) {
		if err := in.add(key, 2, true, cursor{}); err != nil {
			t.Fatalf("message %d: %v", key, err)
		}
	}
	if err := in.add(maxPending, 2, true, cursor{}); !errors.Is(err, errOrder) {
		t.Errorf("one more: %v", err)
	}
}

// Any bytes are read as protobuf reads them, or refused; nothing panics, and memory stays within the limit.
func FuzzPacket(f *testing.F) {
	seed := (&outgoing{[]part{{key: 1, data: []byte("abc"), total: 6, more: true}, {key: 2, data: []byte("x")}, {key: 1, data: []byte("def")}}}).encode(mem.NopBufferPool{})
	f.Add(seed.Materialize(), 3)
	f.Add([]byte{tagFrames, 2, tagTotal, 1}, 1)
	f.Add([]byte{0x1b, 0x1c, 0x22, 0xff, 0xff, 0xff, 0xff, 0x0f}, 2)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		in := &incoming{limit: 1 << 16}
		err := in.decode(split(b, max(1, n%64)))
		whole := &incoming{limit: 1 << 16}
		if e := whole.decode(split(b, len(b)+1)); (e == nil) != (err == nil) {
			t.Fatalf("in pieces %v, whole %v", err, e)
		}
		if in.held > in.limit {
			t.Fatalf("%d bytes held", in.held)
		}
		if err != nil {
			return
		}
		var packet wire.Packet
		if e := proto.Unmarshal(b, &packet); e != nil {
			return // invalid text in a field that frames do not know, or the like
		}
		var bytesIn, bytesOut int
		for _, fr := range packet.GetFrames() {
			bytesIn += len(fr.GetData())
		}
		for _, m := range in.out {
			bytesOut += len(m)
		}
		for _, a := range in.pending {
			bytesOut += a.at
		}
		if bytesIn != bytesOut {
			t.Fatalf("%d bytes of data went in, %d came out", bytesIn, bytesOut)
		}
	})
}

// Lanes take turns, and small messages are not kept waiting by them.
func TestQueueTakesTurns(t *testing.T) {
	q := newQueue()
	q.push(1, make([]byte, 10))
	q.push(1, make([]byte, 1<<20))
	q.push(1, make([]byte, 20))
	q.push(2, make([]byte, 1<<20))
	sent := map[uint64]int{}
	for round := range 100 {
		q.push(3, make([]byte, 30))
		parts := q.take(nil)
		size, small := 0, false
		for _, p := range parts {
			size += len(p.data)
			sent[p.key] += len(p.data)
			small = small || p.key == 3
		}
		if !small {
			t.Fatalf("round %d: the small message waits", round)
		}
		if size > packetBytes+laneBytes {
			t.Fatalf("round %d: a packet of %d bytes", round, size)
		}
		if d := sent[1] - sent[2]; sent[1] < 1<<20 && sent[2] < 1<<20 && (d > packetBytes || d < -packetBytes) {
			t.Fatalf("round %d: %d bytes of one, %d of the other", round, sent[1], sent[2])
		}
	}
	if sent[1] != 10+1<<20+20 && sent[1] != (10+20+1<<20) || sent[2] != 1<<20 || len(q.lanes) != 0 || q.bytes.Load() != 0 {
		t.Errorf("sent %v, %d lanes and %d bytes are left", sent, len(q.lanes), q.bytes.Load())
	}
}
