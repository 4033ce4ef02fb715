package inspect

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/engine/archive"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// cutOff is an end with the given messages at offsets from 38, and then a settle of the ranges given as gaps and lengths.
func cutOff(p ident.Partition, epoch uint64, properties []byte, bodies []string, settled ...byte) archive.End {
	var b batch.Builder
	for i, body := range bodies {
		envelope := append(broker.AppendEnvelopeHead(nil, "orders", "new", properties), body...)
		b.Add(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: 3, First: uint64(4 + i)}, batch.AppendRecord(nil, batch.RecordHeader{}, envelope))
	}
	if len(settled) > 0 {
		b.Add(batch.Run{Kind: batch.KindEvent, Count: 1}, batch.AppendEvent(nil, queue.EventGone, append([]byte{0}, settled...)))
	}
	return archive.End{Partition: p, Epoch: epoch, From: 40, To: 40 + uint64(len(bodies)+len(settled)/2), Batches: []batch.Batch{b.Finish(p, 2, batch.Tail{Position: 40, Offset: 38}, 9)}}
}

// What was cut is published again as it was, but for what was settled there and for what bound it to its first publisher.
func TestWhatWasCutIsPublishedAgain(t *testing.T) {
	p := ident.Partition{Incarnation: 7}
	at := time.Unix(1_700_000_000, 0)
	props := wire.Properties{
		Flags: wire.HasContentType | wire.HasContentEncoding | wire.HasHeaders | wire.HasDeliveryMode | wire.HasPriority | wire.HasCorrelationID |
			wire.HasReplyTo | wire.HasExpiration | wire.HasMessageID | wire.HasTimestamp | wire.HasType | wire.HasUserID | wire.HasAppID,
		ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 7, CorrelationID: "c", ReplyTo: "r", Expiration: "60000", MessageID: "m",
		Timestamp: uint64(at.Unix()), Type: "t", UserID: "somebody", AppID: "a",
		Headers: wire.Table{
			{Name: "x-producer", Value: wire.String("first")},
			{Name: "x-sequence", Value: wire.Int64(9)},
			{Name: "s", Value: wire.String("blue")},
			{Name: "b", Value: wire.Bool(true)},
			{Name: "i8", Value: wire.Value{Type: wire.TypeInt8, Int: -8}},
			{Name: "u8", Value: wire.Value{Type: wire.TypeUint8, Int: 200}},
			{Name: "i16", Value: wire.Value{Type: wire.TypeInt16, Int: -16}},
			{Name: "u16", Value: wire.Value{Type: wire.TypeUint16, Int: 65535}},
			{Name: "i32", Value: wire.Value{Type: wire.TypeInt32, Int: -32}},
			{Name: "u32", Value: wire.Value{Type: wire.TypeUint32, Int: 1 << 31}},
			{Name: "i64", Value: wire.Int64(-64)},
			{Name: "f32", Value: wire.Value{Type: wire.TypeFloat32, Float: 0.5}},
			{Name: "f64", Value: wire.Value{Type: wire.TypeFloat64, Float: 0.25}},
			{Name: "d", Value: wire.Value{Type: wire.TypeDecimal, Scale: 2, Int: 314}},
			{Name: "t", Value: wire.Time(at.Unix())},
			{Name: "x", Value: wire.Value{Type: wire.TypeBytes, Str: "\x00"}},
			{Name: "v", Value: wire.Value{Type: wire.TypeVoid}},
			{Name: "l", Value: wire.Array(wire.Int64(1), wire.Nested(wire.Table{{Name: "in", Value: wire.String("it")}}))},
		},
	}
	encoded := props.Append(nil)
	dir := keepCut(t, cutOff(p, 3, encoded, []string{"one", "two", "three", "four"}, 38, 0, 1, 0), cutOff(ident.Partition{Incarnation: 8}, 3, encoded, []string{"other"}),
		cutOff(p, 4, encoded, []string{"later"}))
	var out, said bytes.Buffer
	if err := inspectExport(&out, &said, dir, "7/0", "-", true); err != nil || said.String() != "5 messages of 7/0 written, 2 of them settled or gone by the same log\n" {
		t.Fatalf("%v: %s", err, &said)
	}
	for _, word := range []string{`"exchange":"orders","routing_key":"new"`, `"s":"blue"`, `"position":43`, `"offset":41`} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("no %s in %s", word, &out)
		}
	}
	next := Messages(&out)
	for _, body := range []string{"two", "four", "later"} {
		m, err := next()
		if err != nil || m == nil {
			t.Fatalf("%s: %v, %v", body, m, err)
		}
		want := amqp.Publishing{
			ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 7, CorrelationId: "c", ReplyTo: "r", Expiration: "60000", MessageId: "m",
			Timestamp: at, Type: "t", AppId: "a", Body: []byte(body),
			Headers: amqp.Table{
				"s": "blue", "b": true, "i8": int8(-8), "u8": uint8(200), "i16": int16(-16), "u16": uint16(65535), "i32": int32(-32), "u32": uint32(1 << 31), "i64": int64(-64),
				"f32": float32(0.5), "f64": 0.25, "d": amqp.Decimal{Scale: 2, Value: 314}, "t": at, "x": []byte{0}, "v": nil, "l": []any{int64(1), amqp.Table{"in": "it"}},
			},
		}
		if diff := cmp.Diff(want, *m); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
		if err := m.Headers.Validate(); err != nil {
			t.Errorf("the client library does not take it: %v", err)
		}
	}
	if m, err := next(); m != nil || err != nil {
		t.Errorf("and then %v, %v", m, err)
	}
}
