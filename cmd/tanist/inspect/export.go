package inspect

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/value"
	"github.com/tanist/tanist/internal/engine/archive"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/front/amqp/wire"
	"github.com/tanist/tanist/internal/port/vfs"
)

// exported is one message outside of a broker, a line of JSON: what inspect --export writes and publish --from reads (docs/FORMATS.md).
type exported struct {
	Partition  string            `json:"partition"`
	Epoch      uint64            `json:"epoch"`
	Position   uint64            `json:"position"`
	Offset     uint64            `json:"offset"`
	Settled    bool              `json:"settled,omitempty"` // the same log goes on to say that the message is gone: settled, expired or dropped
	Exchange   string            `json:"exchange"`
	RoutingKey string            `json:"routing_key"`
	Headers    map[string]string `json:"headers,omitempty"` // for people: properties has them exactly
	Properties []byte            `json:"properties"`        // as in a content header of AMQP, flags first
	Body       []byte            `json:"body"`
}

// span is a range of offsets, to not included.
type span struct{ from, to uint64 }

// exporter writes the messages of a log that is read twice: first for what is gone, then for what is there.
type exporter struct {
	p       ident.Partition
	to      *json.Encoder
	gone    []span
	written int
	settled int
	err     error
}

func (x *exporter) learn(e batch.Entry) bool {
	if e.Kind == batch.KindEvent {
		x.err = queue.Gone(e.Type, e.Body, e.Offset, func(from, to uint64) { x.gone = append(x.gone, span{from, to}) })
	}
	return x.err == nil
}

// learned has the ranges that were learned in order, and apart.
func (x *exporter) learned() {
	slices.SortFunc(x.gone, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	apart := x.gone[:0]
	for _, s := range x.gone {
		if n := len(apart); n > 0 && s.from <= apart[n-1].to {
			apart[n-1].to = max(apart[n-1].to, s.to)
		} else {
			apart = append(apart, s)
		}
	}
	x.gone = apart
}

func (x *exporter) isGone(offset uint64) bool {
	i, begins := slices.BinarySearchFunc(x.gone, offset, func(s span, o uint64) int { return cmp.Compare(s.from, o) })
	return begins || i > 0 && offset < x.gone[i-1].to
}

func (x *exporter) write(b batch.Batch, e batch.Entry) bool {
	if e.Kind != batch.KindRecord {
		return true
	}
	m, err := broker.DecodeEnvelope(e.Body)
	if err != nil {
		x.err = fmt.Errorf("position %d: %w", e.Position, err)
		return false
	}
	one := exported{
		Partition: x.p.String(), Epoch: b.Epoch, Position: e.Position, Offset: e.Offset, Exchange: m.Exchange, RoutingKey: m.RoutingKey,
		Properties: m.Properties, Body: m.Body,
	}
	if props, err := wire.DecodeProperties(m.Properties); err == nil {
		for _, f := range props.Headers.Core() {
			if one.Headers == nil {
				one.Headers = map[string]string{}
			}
			one.Headers[f.Name] = f.Value.Text()
			if f.Value.Kind == value.String {
				one.Headers[f.Name] = f.Value.Str
			}
		}
	}
	x.written++
	if one.Settled = x.isGone(e.Offset); one.Settled {
		x.settled++
	}
	x.err = x.to.Encode(one)
	return x.err == nil
}

// inspectExport writes the messages of a partition's log, or those that were cut from it, to a new file, or to out if that is -. It says on
// said how many.
func inspectExport(out, said io.Writer, dir, name, file string, cut bool) (err error) {
	p, err := ident.ParsePartition(name)
	if err != nil {
		return err
	}
	if file != "-" {
		f, made := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if made != nil {
			return made
		}
		defer func() {
			if err = errors.Join(err, f.Sync(), f.Close()); err != nil { // half of it is not to be taken for all
				err = errors.Join(err, os.Remove(file))
			}
		}()
		out = f
	}
	buffer := bufio.NewWriter(out)
	x := &exporter{p: p, to: json.NewEncoder(buffer)}
	x.to.SetEscapeHTML(false)
	if cut {
		err = x.cutEnds(dir)
	} else {
		err = x.log(dir)
	}
	if err == nil {
		err = buffer.Flush()
	}
	if err == nil {
		_, err = fmt.Fprintf(said, "%s of %s written, %d of them settled or gone by the same log\n", show.Plural(x.written, "message"), p, x.settled)
	}
	return err
}

func (x *exporter) log(dir string) error {
	if err := storage.InspectEntries(vfs.OS(), dir, x.p, func(_ batch.Batch, e batch.Entry) bool { return x.learn(e) }); err != nil || x.err != nil {
		return errors.Join(err, x.err)
	}
	x.learned()
	err := storage.InspectEntries(vfs.OS(), dir, x.p, x.write)
	return errors.Join(err, x.err)
}

// cutEnds writes what was cut, the end that was cut first before the others. Each is of a history of its own: what one settled tells nothing of
// another.
func (x *exporter) cutEnds(dir string) error {
	ends, broken, err := archive.Ends(vfs.OS(), dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range ends {
		if e.Partition != x.p {
			continue
		}
		found, x.gone = true, nil
		for _, b := range e.Batches {
			b.Each(x.learn)
		}
		x.learned()
		for _, b := range e.Batches {
			b.Each(func(e batch.Entry) bool { return x.write(b, e) })
		}
		if x.err != nil {
			return x.err
		}
	}
	if !found {
		return nothingCut(x.p, dir, broken)
	}
	return nil
}

func nothingCut(p ident.Partition, dir string, broken int) error {
	unread := ""
	if broken > 0 {
		unread = fmt.Sprintf("; %s cannot be read", show.Plural(broken, "end"))
	}
	return fmt.Errorf("nothing that was cut from %s is kept in %s%s", p, dir, unread)
}

// Messages gives the messages of an export that are not settled, one after another; nil ends them.
func Messages(r io.Reader) func() (*amqp.Publishing, error) {
	d := json.NewDecoder(bufio.NewReaderSize(r, 64<<10))
	n := 0
	return func() (*amqp.Publishing, error) {
		for {
			var x exported
			n++
			switch err := d.Decode(&x); {
			case errors.Is(err, io.EOF):
				return nil, nil
			case err != nil:
				return nil, fmt.Errorf("message %d is not as `tanist inspect --export` writes it: %w", n, err)
			case x.Settled:
				continue
			}
			m, err := x.publishing()
			if err != nil {
				err = fmt.Errorf("message %d: its properties: %w", n, err)
			}
			return m, err
		}
	}
}

// publishing is the message as it was published, but for what bound it to its first publisher: the user's id, which the broker would hold against
// who publishes now, and the number of the producer, by which a later message of the same may have been stored already.
func (x *exported) publishing() (*amqp.Publishing, error) {
	p, err := wire.DecodeProperties(x.Properties)
	if err != nil {
		return nil, err
	}
	m := &amqp.Publishing{
		ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, DeliveryMode: p.DeliveryMode, Priority: p.Priority,
		CorrelationId: p.CorrelationID, ReplyTo: p.ReplyTo, Expiration: p.Expiration, MessageId: p.MessageID, Type: p.Type, AppId: p.AppID, Body: x.Body,
	}
	if p.Flags&wire.HasTimestamp != 0 {
		m.Timestamp = time.Unix(int64(p.Timestamp), 0)
	}
	for _, f := range p.Headers {
		if f.Name == "x-producer" || f.Name == "x-sequence" {
			continue
		}
		if m.Headers == nil {
			m.Headers = amqp.Table{}
		}
		m.Headers[f.Name] = goValue(f.Value)
	}
	return m, nil
}

// goValue is a value of a table as the client library takes it.
func goValue(v wire.Value) any {
	switch v.Type {
	case wire.TypeBool:
		return v.Int != 0
	case wire.TypeInt8:
		return int8(v.Int)
	case wire.TypeUint8:
		return uint8(v.Int)
	case wire.TypeInt16:
		return int16(v.Int)
	case wire.TypeUint16:
		return uint16(v.Int)
	case wire.TypeInt32:
		return int32(v.Int)
	case wire.TypeUint32:
		return uint32(v.Int)
	case wire.TypeFloat32:
		return float32(v.Float)
	case wire.TypeFloat64:
		return v.Float
	case wire.TypeDecimal:
		return amqp.Decimal{Scale: v.Scale, Value: int32(v.Int)}
	case wire.TypeTimestamp:
		return time.Unix(v.Int, 0)
	case wire.TypeString:
		return v.Str
	case wire.TypeBytes:
		return []byte(v.Str)
	case wire.TypeArray:
		list := make([]any, 0, len(v.Array))
		for _, x := range v.Array {
			list = append(list, goValue(x))
		}
		return list
	case wire.TypeTable:
		t := amqp.Table{}
		for _, f := range v.Table {
			t[f.Name] = goValue(f.Value)
		}
		return t
	case wire.TypeVoid:
		return nil
	}
	return v.Int
}
