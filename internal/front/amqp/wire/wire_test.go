package wire_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tanist/tanist/internal/core/value"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

var rewrite = flag.Bool("rewrite", false, "write the goldens anew")

// everything is a table with a field of every type.
func everything() wire.Table {
	return wire.Table{
		{Name: "t", Value: wire.Bool(true)},
		{Name: "b", Value: wire.Value{Type: wire.TypeInt8, Int: -7}},
		{Name: "B", Value: wire.Value{Type: wire.TypeUint8, Int: 200}},
		{Name: "s", Value: wire.Value{Type: wire.TypeInt16, Int: -300}},
		{Name: "u", Value: wire.Value{Type: wire.TypeUint16, Int: 60000}},
		{Name: "I", Value: wire.Value{Type: wire.TypeInt32, Int: -70000}},
		{Name: "i", Value: wire.Value{Type: wire.TypeUint32, Int: 4_000_000_000}},
		{Name: "l", Value: wire.Int64(math.MinInt64)},
		{Name: "f", Value: wire.Value{Type: wire.TypeFloat32, Float: 0.5}},
		{Name: "d", Value: wire.Value{Type: wire.TypeFloat64, Float: math.Pi}},
		{Name: "D", Value: wire.Value{Type: wire.TypeDecimal, Scale: 2, Int: -314}},
		{Name: "S", Value: wire.String("text")},
		{Name: "A", Value: wire.Array(wire.String("a"), wire.Int64(1), wire.Array())},
		{Name: "T", Value: wire.Time(1_700_000_000)},
		{Name: "F", Value: wire.Nested(wire.Table{{Name: "in", Value: wire.String("side")}})},
		{Name: "V", Value: wire.Value{Type: wire.TypeVoid}},
		{Name: "x", Value: wire.Value{Type: wire.TypeBytes, Str: "\x00\xff"}},
	}
}

// filled is a method with every field set.
func filled(id wire.MethodID) wire.Method {
	m := wire.NewMethod(id)
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(fmt.Sprintf("string%d", i))
		case reflect.Bool:
			f.SetBool(i%2 == 1)
		case reflect.Slice:
			f.Set(reflect.ValueOf(everything()))
		default:
			f.SetUint(uint64(100 + i))
		}
	}
	return m
}

func eachMethod(f func(id wire.MethodID)) {
	for class := uint32(10); class <= 90; class++ {
		for n := uint32(10); n <= 120; n++ {
			if id := wire.MethodID(class<<16 | n); wire.NewMethod(id) != nil {
				f(id)
			}
		}
	}
}

// TestGoldenFrames holds the bytes of every method and of a message.
func TestGoldenFrames(t *testing.T) {
	var b strings.Builder
	eachMethod(func(id wire.MethodID) {
		fmt.Fprintf(&b, "%s\n%s\n", id, hex.EncodeToString(wire.AppendMethod(nil, 7, filled(id))))
	})
	p := allProperties()
	content := wire.Content{Properties: p.Append(nil), Size: 5, Name: "x-stream-offset", Int: 9}
	delivery := wire.AppendDeliver(nil, 7, 4096, "tag", 1, true, []byte("x"), []byte("k"), content, nil)
	fmt.Fprintf(&b, "delivery\n%s\n", hex.EncodeToString(wire.AppendBody(delivery, 7, 12, []byte("hello"))))
	fmt.Fprintf(&b, "heartbeat\n%s\n", hex.EncodeToString(wire.AppendHeartbeat(nil)))
	const file = "testdata/frames.golden"
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("frames have changed (-want +got):\n%s", diff)
	}
}

func TestMethodsRoundTrip(t *testing.T) {
	n := 0
	eachMethod(func(id wire.MethodID) {
		n++
		m := filled(id)
		f, size, err := wire.ParseFrame(wire.AppendMethod(nil, 3, m), 4096)
		if err != nil || size == 0 || f.Channel != 3 {
			t.Fatalf("%s: %v", id, err)
		}
		got, err := wire.DecodeMethod(f.Payload)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
		for cut := 4; cut < len(f.Payload); cut++ { // every shorter one is refused, and nothing panics
			if _, err := wire.DecodeMethod(f.Payload[:cut]); err == nil {
				t.Errorf("%s: decodes though cut to %d of %d", id, cut, len(f.Payload))
			}
		}
		if _, err := wire.DecodeMethod(append(f.Payload[:len(f.Payload):len(f.Payload)], 0)); err == nil {
			t.Errorf("%s: decodes with a byte too many", id)
		}
	})
	if n != 64 {
		t.Errorf("%d methods", n)
	}
}

func allProperties() wire.Properties {
	return wire.Properties{
		Flags: 0xfffc, ContentType: "text/plain", ContentEncoding: "gzip", Headers: everything(), DeliveryMode: 2, Priority: 9,
		CorrelationID: "c", ReplyTo: "r", Expiration: "1000", MessageID: "m", Timestamp: 1_700_000_000, Type: "t", UserID: "guest",
		AppID: "a", ClusterID: "z",
	}
}

func TestProperties(t *testing.T) {
	all := allProperties()
	for flags := uint32(0); flags <= 0xffff; flags += 4 {
		if flags&0x7 != 4 && flags%1021 != 0 { // a fair sample
			continue
		}
		x := wire.Properties{Flags: uint16(flags) &^ 3}
		from, to := reflect.ValueOf(all), reflect.ValueOf(&x).Elem()
		for i := 1; i < to.NumField(); i++ {
			if x.Flags&(1<<(16-i)) != 0 {
				to.Field(i).Set(from.Field(i))
			}
		}
		p := x.Append(nil)
		got, err := wire.DecodeProperties(p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(x, got); diff != "" {
			t.Fatal(diff)
		}
		v, err := wire.ViewProperties(p)
		if err != nil || v.DeliveryMode != x.DeliveryMode || string(v.Expiration) != x.Expiration || string(v.ReplyTo) != x.ReplyTo {
			t.Fatalf("%04x: view %+v, %v", flags, v, err)
		}
		more, err := wire.DecodeProperties(wire.AppendWithInt(nil, p, "S", 5))
		if err != nil {
			t.Fatal(err)
		}
		if s, _ := more.Headers.Get("S"); s.Int != 5 || s.Type != wire.TypeInt64 {
			t.Fatalf("%04x: %v", flags, more.Headers)
		}
		want := 1
		if x.Flags&wire.HasHeaders != 0 {
			want = len(everything())
		}
		if len(more.Headers) != want || more.AppID != x.AppID || more.ContentType != x.ContentType {
			t.Fatalf("%04x: %d headers", flags, len(more.Headers))
		}
	}
}

// A header that is added to a delivery must not make its frame larger than the client takes.
func TestWhatIsAddedFitsTheFrame(t *testing.T) {
	for size := range 200 {
		p := wire.Properties{Flags: wire.HasHeaders, Headers: wire.Table{{Name: "k", Value: wire.String(strings.Repeat("v", size))}}}
		c := wire.Content{Properties: p.Append(nil), Name: "x-stream-offset", Int: 7}
		const most = 128
		plain := len(wire.AppendContentHeader(nil, 1, wire.Content{Properties: c.Properties}))
		with := len(wire.AppendContentHeader(nil, 1, c))
		want := with
		if with > most {
			want = plain
		}
		c.FrameMax = most
		before := []byte("before")
		frame := wire.AppendContentHeader(before, 1, c)
		if got := len(frame) - len(before); got != want || string(frame[:len(before)]) != "before" {
			t.Errorf("value of %d bytes: frame of %d bytes, want %d (%d with the header, %d without)", size, got, want, with, plain)
		}
		if _, err := wire.ParseContentHeader(frame[len(before)+7 : len(frame)-1]); err != nil {
			t.Error(err)
		}
	}
}

func TestTableInTheBrokersTerms(t *testing.T) {
	got := append(everything(), wire.Field{Name: "t", Value: wire.Int64(5)}).Core()
	want := value.Table{
		{Name: "t", Value: value.Of(true)},
		{Name: "b", Value: value.Of(-7)},
		{Name: "B", Value: value.Of(200)},
		{Name: "s", Value: value.Of(-300)},
		{Name: "u", Value: value.Of(60000)},
		{Name: "I", Value: value.Of(-70000)},
		{Name: "i", Value: value.Of(4_000_000_000)},
		{Name: "l", Value: value.Of(math.MinInt64)},
		{Name: "f", Value: value.Of(0.5)},
		{Name: "d", Value: value.Of(math.Pi)},
		{Name: "D", Value: value.Of(-3.14)},
		{Name: "S", Value: value.Of("text")},
		{Name: "A", Value: value.Of([]value.Value{value.Of("a"), value.Of(1), value.Of([]value.Value{})})},
		{Name: "T", Value: value.Value{Kind: value.Time, Int: 1_700_000_000}},
		{Name: "F", Value: value.Of(value.Table{{Name: "in", Value: value.Of("side")}})},
		{Name: "V", Value: value.Value{}},
		{Name: "x", Value: value.Of("\x00\xff")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDeepTables checks that nesting is bounded, and by the same bound wherever tables are read.
func TestDeepTables(t *testing.T) {
	for depth := 1; depth < 80; depth++ {
		v := wire.String("bottom")
		for range depth {
			v = wire.Nested(wire.Table{{Name: "n", Value: v}})
		}
		p := wire.Table{{Name: "n", Value: v}}.Append(nil)[4:]
		_, err1 := wire.DecodeTable(p)
		err2 := wire.CheckTable(p)
		if (err1 == nil) != (depth <= 64) || (err2 == nil) != (err1 == nil) {
			t.Errorf("depth %d: %v, %v", depth, err1, err2)
		}
	}
}

func FuzzFrames(f *testing.F) {
	eachMethod(func(id wire.MethodID) { f.Add(wire.AppendMethod(nil, 1, filled(id))) })
	p := allProperties()
	f.Add(wire.AppendContentHeader(nil, 1, wire.Content{Properties: p.Append(nil), Size: 3}))
	f.Fuzz(func(t *testing.T, in []byte) {
		rest := in
		for {
			fr, n, err := wire.ParseFrame(rest, 4096)
			if err != nil {
				return
			}
			if n == 0 {
				if m := wire.Missing(rest); m <= 0 {
					t.Fatalf("an incomplete frame misses %d bytes", m)
				}
				return
			}
			again := wire.AppendFrame(nil, fr.Type, fr.Channel, fr.Payload)
			if !bytes.Equal(again, rest[:n]) {
				t.Fatal("a frame is not what it was read from")
			}
			if fr.Type == wire.FrameMethod {
				if m, err := wire.DecodeMethod(fr.Payload); err == nil {
					if _, err := wire.DecodeMethod(append(fr.Payload[:4:4], m.AppendArgs(nil)...)); err != nil {
						t.Fatalf("what was written cannot be read: %v", err)
					}
				}
			}
			rest = rest[n:]
		}
	})
}

func FuzzProperties(f *testing.F) {
	p := allProperties()
	f.Add(p.Append(nil))
	f.Add([]byte{0x20, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		x, err := wire.DecodeProperties(in)
		v, err2 := wire.ViewProperties(in)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("decoded: %v, viewed: %v", err, err2)
		}
		if err != nil {
			return
		}
		if v.Flags != x.Flags || string(v.UserID) != x.UserID {
			t.Fatal("they see different things")
		}
		n := 0
		for w := wire.Walk(v.Headers); ; n++ {
			r, ok := w.Next()
			if !ok {
				break
			}
			if string(r.Name) != x.Headers[n].Name || r.Type != x.Headers[n].Value.Type {
				t.Fatal("walking sees other fields")
			}
		}
		if n != len(x.Headers) {
			t.Fatalf("walked over %d of %d fields", n, len(x.Headers))
		}
		if _, err := wire.DecodeProperties(wire.AppendWithInt(nil, in, "x-delivery-count", 3)); err != nil {
			t.Fatal(err)
		}
		if x.Headers.Core() == nil && len(x.Headers) > 0 {
			t.Fatal("fields are lost")
		}
	})
}
