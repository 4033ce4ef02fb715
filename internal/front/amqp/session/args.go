package session

import (
	"cmp"
	"fmt"
	"math"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/core/stream"
	"github.com/tanist/tanist/internal/core/value"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// maxReplicas is the greatest number of copies that a client may ask for.
const maxReplicas = 5

// arguments reads the arguments of one declaration. The first that is wrong is kept.
type arguments struct {
	table wire.Table
	spec  *broker.QueueSpec
	where string
	known value.Table // what is remembered for later declarations to match
	err   *fault
}

// queueArguments turns the arguments of queue.declare into settings. Unknown ones are ignored; known ones with an impossible value, or that
// make no sense for the kind of queue, are refused.
func queueArguments(spec *broker.QueueSpec, t wire.Table, vhost string) *fault {
	a := arguments{table: t, spec: spec, where: fmt.Sprintf("queue '%s' in vhost '%s'", spec.Name, vhost)}
	a.kind()
	if spec.Kind == catalog.Stream {
		a.stream()
	} else {
		a.queue()
	}
	a.copies()
	a.policy()
	a.later()
	spec.Args = a.known
	return a.err
}

// fail notes that an argument is wrong.
func (a *arguments) fail(name, format string, args ...any) {
	if a.err == nil {
		a.err = faultf(wire.PreconditionFailed, "invalid arg '%s' for %s: %s", name, a.where, fmt.Sprintf(format, args...))
	}
}

// kind reads what is to be declared.
func (a *arguments) kind() {
	v, given := a.table.Get("x-queue-type")
	if !given || v.Type == wire.TypeVoid {
		return
	}
	switch s := a.spec; v.Str {
	case "classic":
	case "quorum":
		if !s.Durable || s.Exclusive {
			a.fail("x-queue-type", "a quorum queue is durable and not exclusive")
		}
	case "stream":
		s.Kind = catalog.Stream
		if !s.Durable || s.Exclusive || s.AutoDelete {
			a.fail("x-queue-type", "a stream is durable, not exclusive and not auto-delete")
		}
		a.known = append(a.known, value.Field{Name: "x-queue-type", Value: v.Core()})
	default:
		a.fail("x-queue-type", "want \"quorum\", \"classic\" or \"stream\", not %s", v.Core().Text())
	}
}

// whole reads a whole number.
func (a *arguments) whole(name string, least int64) *int64 {
	v, ok := a.table.Get(name)
	if !ok || v.Type == wire.TypeVoid {
		return nil
	}
	x := v.Core()
	if x.Kind != value.Int || x.Int < least {
		a.fail(name, "want a whole number from %d, not %s", least, x.Text())
		return nil
	}
	a.known = append(a.known, value.Field{Name: name, Value: x})
	return &x.Int
}

func (a *arguments) text(name string) *string {
	v, ok := a.table.Get(name)
	if !ok || v.Type == wire.TypeVoid {
		return nil
	}
	if v.Type != wire.TypeString || len(v.Str) > 255 {
		a.fail(name, "want a string of up to 255 bytes, not %s", v.Core().Text())
		return nil
	}
	a.known = append(a.known, value.Field{Name: name, Value: v.Core()})
	return &v.Str
}

// millis reads a time that must fit a timer.
func (a *arguments) millis(name string, least int64) *int64 {
	n := a.whole(name, least)
	if n != nil && *n > math.MaxUint32 {
		a.fail(name, "want milliseconds up to %d, not %d", uint32(math.MaxUint32), *n)
	}
	return n
}

func (a *arguments) queue() {
	s := &a.spec.Queue
	s.TTL = a.millis("x-message-ttl", 0)
	if n := a.millis("x-expires", 1); n != nil {
		s.Expires = *n
	}
	s.MaxLength, s.MaxBytes = a.whole("x-max-length", 0), a.whole("x-max-length-bytes", 0)
	if o := a.text("x-overflow"); o != nil {
		switch *o {
		case "drop-head":
			s.Overflow = queue.DropHead
		case "reject-publish":
			s.Overflow = queue.RejectPublish
		default:
			a.fail("x-overflow", "want \"drop-head\" or \"reject-publish\", not %q", *o)
		}
	}
	s.DeliveryLimit = a.limit()
	s.DeadLetterExchange = a.text("x-dead-letter-exchange")
	if s.DeadLetterRoutingKey = a.text("x-dead-letter-routing-key"); s.DeadLetterRoutingKey != nil && s.DeadLetterExchange == nil {
		a.fail("x-dead-letter-routing-key", "it needs x-dead-letter-exchange")
	}
	if v, ok := a.table.Get("x-single-active-consumer"); ok && v.Type != wire.TypeVoid {
		if v.Type != wire.TypeBool {
			a.fail("x-single-active-consumer", "want true or false, not %s", v.Core().Text())
		}
		s.SingleActive = v.Int != 0
		a.known = append(a.known, value.Field{Name: "x-single-active-consumer", Value: v.Core()})
	}
	if n := a.millis("x-consumer-timeout", 1); n != nil {
		s.ConsumerTimeout = *n
	}
	a.misplaced("a stream", "x-max-age")
}

// limit reads x-delivery-limit, where -1 stands for none.
func (a *arguments) limit() *int64 {
	n := a.whole("x-delivery-limit", -1)
	if n != nil && *n < 0 {
		return nil
	}
	return n
}

func (a *arguments) stream() {
	s := &a.spec.Stream
	if n := a.whole("x-max-length-bytes", 0); n != nil {
		s.MaxBytes = *n
	}
	if n := a.whole("x-max-length", 0); n != nil {
		s.MaxRecords = *n
	}
	if age := a.text("x-max-age"); age != nil {
		n, ok := parseAge(*age)
		if !ok {
			a.fail("x-max-age", "want a whole number and one of the units Y M D h m s, such as \"7D\", not %q", *age)
		}
		s.MaxAge = n
	}
	a.misplaced("a queue", "x-message-ttl", "x-expires", "x-overflow", "x-delivery-limit", "x-dead-letter-exchange",
		"x-dead-letter-routing-key", "x-single-active-consumer", "x-consumer-timeout")
}

func (a *arguments) misplaced(of string, names ...string) {
	for _, n := range names {
		if v, ok := a.table.Get(n); ok && v.Type != wire.TypeVoid {
			a.fail(n, "it is for %s", of)
		}
	}
}

// copies reads how many copies of the log are wanted: x-replicas, or one of the arguments by which other brokers are told how many to
// begin with, which is a hint and need not match later.
func (a *arguments) copies() {
	memory := !a.spec.Durable || a.spec.Exclusive
	for _, name := range []string{"x-quorum-initial-group-size", "x-initial-cluster-size"} {
		v, ok := a.table.Get(name)
		if !ok || v.Type == wire.TypeVoid {
			continue
		}
		if x := v.Core(); x.Kind != value.Int || x.Int < 1 {
			a.fail(name, "want a whole number from 1, not %s", x.Text())
		} else if !memory {
			a.spec.Copies = uint32(min(x.Int, maxReplicas))
		}
	}
	n := a.whole("x-replicas", 1)
	switch {
	case n == nil:
	case *n > maxReplicas:
		a.fail("x-replicas", "want a whole number from 1 to %d, not %d", maxReplicas, *n)
	case memory && *n > 1:
		a.fail("x-replicas", "a queue that is not durable, or is exclusive, lives in memory and has one copy")
	case !memory:
		a.spec.Copies = uint32(*n)
	}
}

// policy reads how many copies must hold a message before it is confirmed.
func (a *arguments) policy() {
	text := a.text("x-policy")
	if text == nil {
		return
	}
	p, err := quorum.Parse(*text)
	switch {
	case err != nil:
		a.fail("x-policy", "%v", err)
	case !a.spec.Durable || a.spec.Exclusive:
		a.fail("x-policy", "a queue that is not durable, or is exclusive, lives in memory and has one copy")
	case p.Rule == quorum.Replica && p.N > int(cmp.Or(a.spec.Copies, catalog.DefaultCopies)):
		a.fail("x-policy", "%d copies must hold a message, and there are to be %d", p.N, cmp.Or(a.spec.Copies, catalog.DefaultCopies))
	default:
		a.spec.Policy = p.String()
	}
}

// later refuses what this version cannot do yet, so that nobody believes to have it.
func (a *arguments) later() {
	if v, ok := a.table.Get("x-max-priority"); ok && v.Type != wire.TypeVoid {
		a.fail("x-max-priority", "priorities of messages are not available in this version")
	}
	if v, ok := a.table.Get("x-partitions"); ok && v.Type != wire.TypeVoid {
		if x := v.Core(); x.Kind != value.Int || x.Int < 1 {
			a.fail("x-partitions", "want a whole number from 1, not %s", x.Text())
		} else if x.Int > 1 {
			a.fail("x-partitions", "more than one partition is not available in this version")
		}
	}
}

const second = 1000

var ages = map[byte]int64{
	'Y': 365 * 86400 * second, 'M': 30 * 86400 * second, 'D': 86400 * second, 'h': 3600 * second, 'm': 60 * second, 's': second,
}

// parseAge reads a time such as 7D or 12h, in milliseconds.
func parseAge(s string) (int64, bool) {
	if len(s) < 2 {
		return 0, false
	}
	unit := ages[s[len(s)-1]]
	n, ok := wire.ParseDigits([]byte(s[:len(s)-1]))
	if !ok || unit == 0 || n > math.MaxInt64/unit {
		return 0, false
	}
	return n * unit, true
}

// consumeArguments reads the arguments of basic.consume. now is the time in milliseconds since 1970.
func consumeArguments(spec *broker.ConsumeSpec, t wire.Table, now int64) *fault {
	bad := func(name, want string, v wire.Value) *fault {
		return faultf(wire.PreconditionFailed, "invalid arg '%s' for consumer '%s': want %s, not %s", name, spec.Label, want, v.Core().Text())
	}
	if v, ok := t.Get("x-priority"); ok && v.Type != wire.TypeVoid {
		x := v.Core()
		if x.Kind != value.Int || x.Int < math.MinInt32 || x.Int > math.MaxInt32 {
			return bad("x-priority", "a whole number of 32 bits", v)
		}
		spec.Priority = int32(x.Int)
	}
	if v, ok := t.Get("x-cursor"); ok && v.Type != wire.TypeVoid {
		if v.Type != wire.TypeString || v.Str == "" || len(v.Str) > 255 {
			return bad("x-cursor", "a string of 1 to 255 bytes", v)
		}
		spec.Cursor = v.Str
	}
	if v, ok := t.Get("x-stream-offset"); ok && v.Type != wire.TypeVoid {
		start, ok := streamStart(v, now)
		if !ok {
			return bad("x-stream-offset",
				`"first", "last", "next", an offset, a timestamp, or an interval such as "1h"`, v)
		}
		spec.Start = start
	}
	return nil
}

func streamStart(v wire.Value, now int64) (stream.Start, bool) {
	x := v.Core()
	switch x.Kind {
	case value.Int:
		return stream.Start{Kind: stream.StartOffset, Offset: uint64(max(x.Int, 0))}, x.Int >= 0
	case value.Time:
		return stream.Start{Kind: stream.StartTimestamp, Time: x.Int * second}, x.Int <= math.MaxInt64/second
	case value.String:
	default:
		return stream.Start{}, false
	}
	switch x.Str {
	case "first":
		return stream.Start{Kind: stream.StartFirst}, true
	case "last":
		return stream.Start{Kind: stream.StartLast}, true
	case "next":
		return stream.Start{Kind: stream.StartNext}, true
	}
	if n, ok := wire.ParseDigits([]byte(x.Str)); ok {
		return stream.Start{Kind: stream.StartOffset, Offset: uint64(n)}, true
	}
	age, ok := parseAge(x.Str)
	return stream.Start{Kind: stream.StartTimestamp, Time: now - age}, ok
}
