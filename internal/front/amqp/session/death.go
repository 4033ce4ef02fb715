package session

import (
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/value"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// Undertaker writes deaths into messages that came by AMQP. It implements broker.Undertaker.
type Undertaker struct{}

// Bury implements broker.Undertaker. Header x-death is an array with a table for each (queue, reason), the latest first.
func (Undertaker) Bury(e broker.Envelope, h batch.RecordHeader, d broker.Death) (*broker.Message, bool, error) {
	p, err := wire.DecodeProperties(e.Properties)
	if err != nil {
		return nil, false, err
	}
	var deaths []wire.Value
	if v, ok := p.Headers.Get("x-death"); ok && v.Type == wire.TypeArray {
		deaths = v.Array
	}
	if cycle(deaths, d) {
		return nil, true, nil
	}
	deaths = died(deaths, e, p, d)
	headers := without(p.Headers, "x-death", "x-last-death-queue", "x-last-death-reason", "x-last-death-exchange")
	if d.Key != "" {
		headers = without(headers, "CC")
	}
	if _, ok := headers.Get("x-first-death-queue"); !ok {
		headers = append(headers, place("x-first-death-", e, d)...)
	}
	headers = append(headers, place("x-last-death-", e, d)...)
	p.Headers = append(headers, wire.Field{Name: "x-death", Value: wire.Array(deaths...)})
	p.Flags = p.Flags&^wire.HasExpiration | wire.HasHeaders
	key := d.Key
	if key == "" {
		key = e.RoutingKey
	}
	m := &broker.Message{
		Exchange: d.Exchange, RoutingKey: key, Properties: p.Append(nil), Body: [][]byte{e.Body},
		Record:  batch.RecordHeader{KeyHash: h.KeyHash, Flags: h.Flags &^ batch.FlagTTL, Priority: h.Priority},
		Headers: func() value.Table { return p.Headers.Core() },
	}
	if d.Key == "" {
		m.CC = copies(p.Headers)
	}
	return m, false, nil
}

func place(prefix string, e broker.Envelope, d broker.Death) wire.Table {
	return wire.Table{
		{Name: prefix + "queue", Value: wire.String(d.Queue)},
		{Name: prefix + "reason", Value: wire.String(d.Reason)},
		{Name: prefix + "exchange", Value: wire.String(e.Exchange)},
	}
}

func copies(headers wire.Table) []string {
	var keys []string
	v, _ := headers.Get("CC")
	for _, k := range v.Array {
		keys = append(keys, k.Str)
	}
	return keys
}

// find is the place of (queue, reason) among deaths, -1 if it is not there.
func find(deaths []wire.Value, d broker.Death) int {
	for i, x := range deaths {
		q, _ := x.Table.Get("queue")
		r, _ := x.Table.Get("reason")
		if q.Str == d.Queue && r.Str == d.Reason {
			return i
		}
	}
	return -1
}

// cycle reports whether the message came round by itself: it died here for the same reason before, and since then no consumer rejected
// it.
func cycle(deaths []wire.Value, d broker.Death) bool {
	at := find(deaths, d)
	if at < 0 || d.Reason == "rejected" {
		return false
	}
	for _, x := range deaths[:at] {
		if r, _ := x.Table.Get("reason"); r.Str == "rejected" {
			return false
		}
	}
	return true
}

// died adds a death in front, or moves the one that is there to the front and counts it.
func died(deaths []wire.Value, e broker.Envelope, p wire.Properties, d broker.Death) []wire.Value {
	at := find(deaths, d)
	if at < 0 {
		keys := []wire.Value{wire.String(e.RoutingKey)}
		for _, k := range copies(p.Headers) {
			keys = append(keys, wire.String(k))
		}
		t := wire.Table{
			{Name: "count", Value: wire.Int64(1)},
			{Name: "reason", Value: wire.String(d.Reason)},
			{Name: "queue", Value: wire.String(d.Queue)},
			{Name: "time", Value: wire.Time(d.Time / second)},
			{Name: "exchange", Value: wire.String(e.Exchange)},
			{Name: "routing-keys", Value: wire.Array(keys...)},
		}
		if p.Flags&wire.HasExpiration != 0 {
			t = append(t, wire.Field{Name: "original-expiration", Value: wire.String(p.Expiration)})
		}
		return append([]wire.Value{wire.Nested(t)}, deaths...)
	}
	var t wire.Table
	for _, f := range deaths[at].Table {
		if f.Name == "count" {
			f.Value = wire.Int64(f.Value.Int + 1)
		}
		t = append(t, f)
	}
	out := append([]wire.Value{wire.Nested(t)}, deaths[:at]...)
	return append(out, deaths[at+1:]...)
}
