package protocol

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/stream"
)

var update = flag.Bool("update", false, "write the golden file anew")

func someBatch(body string) batch.Batch {
	var b batch.Builder
	b.Add(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: 3, First: 4}, batch.AppendRecord(nil, batch.RecordHeader{Priority: 2}, []byte(body)))
	return b.Finish(ident.Partition{Incarnation: 7}, 2, batch.Tail{Position: 5, Offset: 5}, 9)
}

// everyMessage is one of each, by kind; fill has set every field.
func everyMessage() map[kind]any {
	msgs := map[kind]any{
		kindAttach: &Attach{}, kindPublish: &Publish{}, kindSubscribe: &Subscribe{}, kindUnsubscribe: &Unsubscribe{}, kindCredit: &Credit{},
		kindSettle: &Settle{}, kindCursor: &Cursor{}, kindGet: &Get{}, kindPurge: &Purge{}, kindStats: &Stats{}, kindClose: &Close{},
		kindReopen: &Reopen{}, kindDetach: &Detach{}, kindUnclaimed: &Unclaimed{},
		kindAttached: &Attached{}, kindNotServing: &NotServing{}, kindPublished: &Published{}, kindPublishRefused: &PublishRefused{},
		kindPublishExpected: &PublishExpected{}, kindPublishUnknown: &PublishUnknown{}, kindSubscribed: &Subscribed{},
		kindUnsubscribed: &Unsubscribed{}, kindConsumerEnded: &ConsumerEnded{}, kindDeliver: &Deliver{}, kindStreamData: &StreamData{},
		kindSettled: &Settled{}, kindGetDone: &GetDone{}, kindCounted: &Counted{}, kindDenied: &Denied{},
		kindProbe: &Probe{}, kindStanding: &Standing{}, kindExtend: &Extend{}, kindHeld: &Held{}, kindImageChunk: &ImageChunk{},
		kindImageTaken: &ImageTaken{}, kindMakeAnew: &MakeAnew{},
		kindHeartbeat: &Heartbeat{}, kindSealRequests: &SealRequests{}, kindSealAnswers: &SealAnswers{}, kindLinksAsk: &LinksAsk{},
		kindLinksAnswer: &LinksAnswer{}, kindStatusAsk: &StatusAsk{}, kindStatusAnswer: &StatusAnswer{}, kindRunReport: &RunReport{},
		kindPromises: &Promises{}, kindConfirms: &Confirms{}, kindDamages: &Damages{},
		kindEvidence: &Evidence{}, kindEvidenceHeld: &EvidenceHeld{}, kindLossAsk: &LossAsk{}, kindLossAnswer: &LossAnswer{}, kindLease: &Lease{},
		kindDeletionAsk: &DeletionAsk{}, kindDeletionAnswer: &DeletionAnswer{},
		kindClientsAsk: &ClientsAsk{}, kindClientsAnswer: &ClientsAnswer{}, kindCursorsAsk: &CursorsAsk{}, kindCursorsAnswer: &CursorsAnswer{},
	}
	for k, m := range msgs {
		v := reflect.ValueOf(m).Elem()
		n := uint64(k)
		fill(v, &n)
		msgs[k] = v.Interface()
	}
	return msgs
}

// fill sets every field to a value of its own.
func fill(v reflect.Value, n *uint64) {
	*n += 61
	switch p := v.Addr().Interface().(type) {
	case *batch.Batch:
		*p = someBatch(fmt.Sprint("body ", *n))
		return
	case *Item:
		body := []byte(fmt.Sprint("body ", *n))
		*p = Item{Offset: *n, Count: 300, Again: true, Body: body, Record: batch.RecordHeader{
			Size: uint32(len(body)), TTL: 1, Delay: 2, KeyHash: 3, Flags: batch.FlagTTL | batch.FlagPersistent, Priority: 4,
		}}
		return
	case *Publish:
		fill(v.FieldByName("To"), n)
		p.First, p.Count = *n, 3
		p.Runs = []batch.Run{{Kind: batch.KindRecord, Count: 2, Producer: 1 << 63, First: 9}, {Kind: batch.KindRecord, Count: 1, Producer: 5, First: 2}}
		for i := range 3 {
			p.Records = batch.AppendRecord(p.Records, batch.RecordHeader{Priority: uint8(i)}, []byte("record"), []byte("s"))
		}
		return
	case *Outcome:
		*p = Release
		return
	case *Cause:
		*p = CauseCopies
		return
	case *stream.StartKind:
		*p = stream.StartTimestamp
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(*n % 251)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(-int64(*n))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(*n % (1 << min(v.Type().Bits(), 62)))
	case reflect.Interface: // Reply does not travel
	default:
		panic(v.Type().String())
	}
}

func TestEveryMessageComesBack(t *testing.T) {
	var p Parser
	for k, m := range everyMessage() {
		b := Append([]byte("before"), m)
		if !bytes.HasPrefix(b, []byte("before")) || kind(b[6]) != k {
			t.Fatalf("%T: begins with % x", m, b[:8])
		}
		b = b[6:]
		for range 2 { // the second time with the names known
			got, err := p.Parse(b)
			if err != nil || !reflect.DeepEqual(got, m) {
				t.Fatalf("%T: %v\nsent %+v\ngot  %+v", m, err, m, got)
			}
		}
		zero := reflect.Zero(reflect.TypeOf(m)).Interface()
		if got, err := Parse(Append(nil, zero)); err != nil || !reflect.DeepEqual(got, zero) {
			t.Fatalf("zero %T: %v\ngot %+v", m, err, got)
		}
		for n := range b {
			if _, err := Parse(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%T cut to %d of %d bytes: %v", m, n, len(b), err)
			}
		}
		if _, err := Parse(append(bytes.Clone(b), 0)); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%T with a byte behind: %v", m, err)
		}
		b[1]++
		if _, err := Parse(b); !errors.Is(err, ErrUnknown) {
			t.Fatalf("%T of a later version: %v", m, err)
		}
	}
}

// The smallest items of a list are the most that a message of its size can hold.
func TestListsOfTheSmallestItems(t *testing.T) {
	for k, m := range everyMessage() {
		v := reflect.New(reflect.TypeOf(m)).Elem()
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Slice && f.Type().Elem() != reflect.TypeFor[batch.Batch]() && k != kindPublish {
				f.Set(reflect.MakeSlice(f.Type(), 50, 50))
				if f.Type().Elem().Kind() == reflect.Uint8 {
					f.SetBytes(make([]byte, 50))
				}
			}
		}
		if got, err := Parse(Append(nil, v.Interface())); err != nil || !reflect.DeepEqual(got, v.Interface()) {
			t.Errorf("%T of zeros: %v", m, err)
		}
	}
	found := LinksAnswer{Items: []LinksFound{{Links: make([]LinkAt, 50)}}}
	if got, err := Parse(Append(nil, found)); err != nil || !reflect.DeepEqual(got, found) {
		t.Errorf("links of zeros: %v", err)
	}
}

func TestEveryKindIsKnownOrRefused(t *testing.T) {
	all := everyMessage()
	for k := range 256 {
		_, err := Parse([]byte{byte(k), Encoding})
		if _, known := all[kind(k)]; known == errors.Is(err, ErrUnknown) || err == nil {
			t.Errorf("kind %d, known %v: %v", k, known, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a dead letter, which does not travel, was encoded")
		}
	}()
	Append(nil, DeadLetter{})
}

func TestWhatIsReadRefersToTheInput(t *testing.T) {
	msg := Append(nil, everyMessage()[kindPublish])
	got, err := Parse(msg)
	if err != nil {
		t.Fatal(err)
	}
	records := got.(Publish).Records
	if &records[len(records)-1] != &msg[len(msg)-1] {
		t.Error("the records were copied")
	}
}

// What a message says of itself must hold: an owner takes its records as they are.
func TestFalseClaimsAreMalformed(t *testing.T) {
	change := func(f func(*Publish)) []byte {
		p := everyMessage()[kindPublish].(Publish)
		f(&p)
		return Append(nil, p)
	}
	broken := someBatch("x").Bytes()
	broken = append(bytes.Clone(broken[:len(broken)-1]), 'y')
	extend := Append(nil, Extend{Batches: []batch.Batch{someBatch("x")}})
	for name, b := range map[string][]byte{
		"fewer records than counted":   change(func(p *Publish) { p.Count, p.Runs[0].Count = 4, 3 }),
		"more records than counted":    change(func(p *Publish) { p.Count, p.Runs[0].Count = 2, 1 }),
		"runs that do not add up":      change(func(p *Publish) { p.Runs[0].Count = 1 }),
		"runs that add up to too many": change(func(p *Publish) { p.Runs[0].Count = 1<<32 - 1 }),
		"an empty run":                 change(func(p *Publish) { p.Runs[1].Count = 0 }),
		"a run of events":              change(func(p *Publish) { p.Runs[0].Kind = batch.KindEvent }),
		"a record longer than there is": change(func(p *Publish) {
			p.Records = append([]byte{255, 255, 255, 255}, p.Records[4:]...)
		}),
		"a batch whose checksum fails": append(extend[:len(extend)-len(broken)], broken...),
		"a count that nothing backs":   {byte(kindStatusAsk), Encoding, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"a number not the shortest":    {byte(kindStatusAsk), Encoding, 0x81, 0, 0, 0},
	} {
		if _, err := Parse(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nodes of one encoding must understand each other across versions of the program: the bytes are pinned.
func TestEncodingIsPinned(t *testing.T) {
	var got strings.Builder
	all := everyMessage()
	for k := range 256 {
		if m, ok := all[kind(k)]; ok {
			fmt.Fprintf(&got, "%T %x\n", m, Append(nil, m))
		}
	}
	const golden = "testdata/encoding1.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Fatal("the encoding has changed; a new one needs a new number")
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range everyMessage() {
		f.Add(Append(nil, m))
	}
	var p Parser
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := p.Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnknown) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if again := Append(nil, m); !bytes.Equal(again, b) {
			t.Fatalf("%T has two encodings:\n%x\n%x", m, b, again)
		}
	})
}

func TestAllocations(t *testing.T) {
	for k, most := range map[kind]float64{
		kindPublish: 2, kindPublished: 1, kindDeliver: 2, kindSettle: 2, kindSettled: 1, kindExtend: 2, kindHeld: 1, kindHeartbeat: 1,
	} {
		m := everyMessage()[k]
		b := Append(nil, m)
		var p Parser
		if got := testing.AllocsPerRun(100, func() { b = Append(b[:0], m) }); got > 0 {
			t.Errorf("writing %T into room allocates %.0f times", m, got)
		}
		if got := testing.AllocsPerRun(100, func() { _, _ = p.Parse(b) }); got > most {
			t.Errorf("reading %T allocates %.0f times, budget %.0f", m, got, most)
		}
	}
}

func BenchmarkMessages(b *testing.B) {
	to := To{Partition: ident.Partition{Incarnation: 900}, Gateway: Gateway{Node: "node-1", Boot: 12, Shard: 1}, Stream: 4}
	publish := Publish{To: to, First: 1 << 20, Count: 16, Runs: []batch.Run{{Kind: batch.KindRecord, Count: 16, Producer: 1 << 40, First: 1 << 20}}}
	deliver := Deliver{Partition: to.Partition, Stream: 4, Consumer: 1}
	body := make([]byte, 1024)
	for i := range 16 {
		publish.Records = batch.AppendRecord(publish.Records, batch.RecordHeader{}, body)
		deliver.Items = append(deliver.Items, Item{Offset: uint64(i), Body: body})
	}
	var builder batch.Builder
	builder.Add(publish.Runs[0], publish.Records)
	made := builder.Finish(to.Partition, 1, batch.Tail{}, 1)
	from := ident.Instance{Node: "node-1", Store: ident.StoreID{1}, Boot: 12}
	for _, m := range []any{
		publish, deliver,
		Published{Partition: to.Partition, Stream: 4, UpTo: 1 << 20},
		Settle{To: to, Seq: 9, Items: []SettleItem{{Consumer: 1, First: 1 << 20, Last: 1 << 21}}},
		Extend{Partition: to.Partition, Epoch: 1, From: from, Confirmed: 1 << 20, Batches: []batch.Batch{made}},
		Held{Partition: to.Partition, Epoch: 1, From: from, Durable: 1 << 20},
	} {
		enc := Append(nil, m)
		b.Run(fmt.Sprintf("Append/%T", m), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				enc = Append(enc[:0], m)
			}
		})
		b.Run(fmt.Sprintf("Parse/%T", m), func(b *testing.B) {
			b.ReportAllocs()
			var p Parser
			for b.Loop() {
				if _, err := p.Parse(enc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
