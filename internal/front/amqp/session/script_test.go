package session_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/front/amqp/amqptest"
	"github.com/tanist/tanist/internal/front/amqp/session"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// TestScripts runs testdata/scripts: what a client sends, and what comes back. A line is a frame: the channel, the method, its arguments. Fields
// that are zero are left out. "message" stands for a content header and a body.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		w := &world{t: t, b: amqptest.New()}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			return w.run(d)
		})
	})
}

type world struct {
	t    *testing.T
	b    *amqptest.Broker
	c    *session.Conn
	at   session.Instant
	cfg  session.Config
	said string           // what a test has to say besides frames
	dead *broker.Envelope // a message that died
	rest []byte           // held input
}

func (w *world) run(d *datadriven.TestData) string {
	w.said = ""
	switch d.Cmd {
	case "connect": // a new connection that has sent nothing
		w.connect()
	case "open": // a new connection with channel 1 open
		w.connect()
		w.feed([]byte(wire.ProtocolHeader))
		caps := "authentication_failure_close=true,consumer_cancel_notify=true,connection.blocked=true"
		if d.HasArg("plain") {
			caps = ""
		}
		w.client("0 connection.start-ok mechanism=PLAIN response=\\0guest\\0guest client-properties={capabilities={"+caps+"}}", false)
		w.client("0 connection.tune-ok heartbeat=10\n0 connection.open virtual-host=/\n1 channel.open", false)
		w.b.Run()
		w.drain()
		return ""
	case "client":
		w.client(d.Input, d.HasArg("split"))
	case "bytes":
		p, err := hex.DecodeString(strings.ReplaceAll(strings.ReplaceAll(d.Input, " ", ""), "\n", ""))
		if err != nil {
			d.Fatalf(w.t, "%v", err)
		}
		w.feed(p)
	default:
		w.broker(d)
	}
	return w.drain() + w.said
}

// ask declares or consumes with arguments, each time on a new connection, and says what the broker was asked.
func (w *world) ask(d *datadriven.TestData) {
	w.b = amqptest.New()
	w.run(&datadriven.TestData{Cmd: "open"})
	if d.Cmd == "declare" {
		durable := !d.HasArg("transient")
		w.client(fmt.Sprintf("1 queue.declare queue=q durable=%v arguments={%s}", durable, d.Input), false)
		for _, s := range w.b.Specs {
			w.said = fmt.Sprintf("%s %s args %s", s.Kind, asJSON(w.t, s.Queue), asJSON(w.t, s.Args))
			if s.Kind == catalog.Stream {
				w.said = fmt.Sprintf("%s %s args %s", s.Kind, asJSON(w.t, s.Stream), asJSON(w.t, s.Args))
			}
			if s.Copies > 0 || s.Policy != "" {
				w.said += fmt.Sprintf(" copies %d policy %q", s.Copies, s.Policy)
			}
		}
	} else {
		w.client("1 queue.declare queue=q\n1 basic.consume queue=q arguments={"+d.Input+"}", false)
		for _, s := range w.b.Consumes {
			w.said = fmt.Sprintf("priority %d cursor %q start %s", s.Priority, s.Cursor, asJSON(w.t, s.Start))
		}
	}
	if w.said != "" {
		w.said += "\n"
	}
}

func asJSON(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// die lets a message die once more.
func (w *world) die(d *datadriven.TestData) {
	args := map[string]string{}
	for _, m := range word.FindAllStringSubmatch(d.Input, -1) {
		args[m[1]] = m[2]
	}
	if w.dead == nil {
		p := wire.Properties{Flags: wire.HasExpiration | wire.HasHeaders, Expiration: "1000"}
		p.Headers = wire.Table{{Name: "mine", Value: wire.Int64(1)}, {Name: "CC", Value: wire.Array(wire.String("copy"))}}
		w.dead = &broker.Envelope{Exchange: "x", RoutingKey: "k", Properties: p.Append(nil), Body: []byte("body")}
	}
	m, cycle, err := session.Undertaker{}.Bury(*w.dead, batch.RecordHeader{TTL: 1000, Flags: batch.FlagTTL, Priority: 3}, broker.Death{
		Queue: args["queue"], Reason: args["reason"], Time: 1_700_000_000_000, Exchange: args["exchange"], Key: args["key"],
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if cycle {
		w.said = "a circle: dropped\n"
		return
	}
	x, err := wire.DecodeProperties(m.Properties)
	if err != nil {
		w.t.Fatal(err)
	}
	w.said = fmt.Sprintf("to %q with key %q and copies to %q, priority %d, ttl %v\n", m.Exchange, m.RoutingKey, m.CC, m.Record.Priority,
		m.Record.Flags&batch.FlagTTL != 0)
	for _, f := range x.Headers {
		w.said += "  " + f.Name + "=" + valueText(f.Value) + "\n"
	}
	w.dead = &broker.Envelope{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Properties: m.Properties, Body: m.Body[0]}
}

// broker does what the broker does by itself.
func (w *world) broker(d *datadriven.TestData) {
	l := broker.Listener(w.c)
	number := func() uint64 {
		n, err := strconv.ParseUint(strings.TrimSpace(d.Input), 10, 64)
		if err != nil {
			d.Fatalf(w.t, "%v", err)
		}
		return n
	}
	switch d.Cmd {
	case "answers":
		w.b.Later = d.HasArg("later")
	case "confirms":
		w.b.Hold, w.b.Refuse = d.HasArg("held"), d.HasArg("refused")
	case "run":
		w.b.Run()
	case "resolve", "refuse": // the publishes of these numbers
		o := broker.Confirmed
		if d.Cmd == "refuse" {
			o = broker.Refused
		}
		var tags []broker.Tag
		for _, n := range strings.Fields(d.Input) {
			for _, t := range w.b.Last().Waits {
				if fmt.Sprint(t.Seq&(1<<40-1)) == n {
					tags = append(tags, t)
				}
			}
		}
		l.Resolved(tags, o, "")
	case "flow":
		l.Flow(d.HasArg("stop"))
	case "blocked":
		l.Blocked(d.Input)
	case "gone":
		l.ConsumerGone(number(), "deleted")
	case "gets-gone": // of the first queue, from an offset on
		l.GetsGone(ident.Partition{Incarnation: 1}, number(), "given up")
	case "close":
		l.Close(broker.Errorf(broker.Unavailable, "%s", d.Input))
	case "declare", "consume":
		w.ask(d)
	case "death":
		w.die(d)
	case "after":
		w.at.Mono += time.Duration(number()) * time.Second
		w.c.Tick(w.at, d.HasArg("held"))
	default:
		d.Fatalf(w.t, "unknown command %s", d.Cmd)
	}
}

func (w *world) connect() {
	w.cfg = session.Config{
		Broker: w.b, ID: 1, Product: "Tanist", Version: "1",
		Limits: session.Limits{Channels: 3, FrameMax: 4096, MessageMax: 10000, Heartbeat: 60 * time.Second},
	}
	w.at = session.Instant{Mono: time.Hour, Wall: 1_700_000_000_000}
	w.c = session.New(w.cfg, w.at)
}

func (w *world) feed(p []byte) {
	for len(p) > 0 || w.c.Stuck() {
		n := w.c.Feed(p, w.at)
		p = p[n:]
		if n == 0 || w.c.Stuck() {
			break
		}
	}
	w.rest = append([]byte(nil), p...)
}

// client sends frames; split sends them one byte at a time.
func (w *world) client(lines string, split bool) {
	p := w.rest
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		p = append(p, frameOf(w.t, line)...)
	}
	if !split {
		w.feed(p)
		return
	}
	for i := range p {
		w.feed(p[i : i+1])
	}
}

// drain lets held input go on and says what was written.
func (w *world) drain() string {
	if w.c.Stuck() || len(w.rest) > 0 {
		w.feed(w.rest)
	}
	w.c.Flush(w.at)
	var o session.Output
	w.c.Take(&o)
	text := describe(w.t, o.Bytes)
	w.c.Written(&o)
	if w.c.Stuck() {
		text += "-- input is held\n"
	}
	if w.c.Done() {
		text += "-- the end\n"
	}
	return text
}

var word = regexp.MustCompile(`([\w-]+)=("[^"]*"|\{.*\}|\S*)`)

func frameOf(t *testing.T, line string) []byte {
	head := strings.Fields(line)
	if len(head) == 0 {
		t.Fatalf("empty line")
	}
	if head[0] == "heartbeat" {
		return wire.AppendHeartbeat(nil)
	}
	n, err := strconv.ParseUint(head[0], 10, 16)
	if err != nil || len(head) < 2 {
		t.Fatalf("cannot read %q", line)
	}
	ch := uint16(n)
	args := map[string]string{}
	for _, m := range word.FindAllStringSubmatch(line, -1) {
		args[m[1]] = strings.Trim(m[2], `"`)
	}
	switch head[1] {
	case "message":
		body := []byte(args["body"])
		out := wire.AppendContentHeader(nil, ch, wire.Content{Properties: properties(t, args), Size: len(body)})
		return wire.AppendBody(out, ch, 4096, body)
	case "header":
		size, err := strconv.Atoi(args["size"])
		if err != nil {
			t.Fatal(err)
		}
		return wire.AppendContentHeader(nil, ch, wire.Content{Properties: properties(t, args), Size: size})
	case "body":
		return wire.AppendFrame(nil, wire.FrameBody, ch, []byte(args["body"]))
	}
	m := methodNamed(head[1])
	if m == nil {
		t.Fatalf("no method %q", head[1])
	}
	set(t, m, args)
	return wire.AppendMethod(nil, ch, m)
}

func methodNamed(name string) wire.Method {
	for class := uint32(10); class <= 90; class++ {
		for n := uint32(10); n <= 120; n++ {
			if id := wire.MethodID(class<<16 | n); id.String() == name {
				return wire.NewMethod(id)
			}
		}
	}
	return nil
}

var upper = regexp.MustCompile(`([a-z])([A-Z])`)

func kebab(s string) string { return strings.ToLower(upper.ReplaceAllString(s, "$1-$2")) }

func set(t *testing.T, m any, args map[string]string) {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		text, ok := args[kebab(v.Type().Field(i).Name)]
		if !ok {
			continue
		}
		switch f := v.Field(i); {
		case f.Kind() == reflect.String:
			f.SetString(strings.ReplaceAll(text, `\0`, "\x00"))
		case f.Kind() == reflect.Bool:
			f.SetBool(text == "true")
		case f.Type() == reflect.TypeFor[wire.Table]():
			p := parser{t: t, s: text}
			f.Set(reflect.ValueOf(p.table()))
		default:
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			f.SetUint(n)
		}
	}
}

var flags = []struct {
	name string
	flag uint16
}{
	{"content-type", wire.HasContentType},
	{"headers", wire.HasHeaders},
	{"delivery-mode", wire.HasDeliveryMode},
	{"priority", wire.HasPriority},
	{"correlation-id", wire.HasCorrelationID},
	{"reply-to", wire.HasReplyTo},
	{"expiration", wire.HasExpiration},
	{"user-id", wire.HasUserID},
}

func properties(t *testing.T, args map[string]string) []byte {
	var p wire.Properties
	set(t, &p, args)
	for _, f := range flags {
		if _, ok := args[f.name]; ok {
			p.Flags |= f.flag
		}
	}
	return p.Append(nil)
}

// describe says what frames are.
func describe(t *testing.T, p []byte) string {
	var b strings.Builder
	if strings.HasPrefix(string(p), "AMQP") {
		fmt.Fprintf(&b, "%q\n", p)
		return b.String()
	}
	for len(p) > 0 {
		f, n, err := wire.ParseFrame(p, 1<<20)
		if err != nil || n == 0 {
			t.Fatalf("the server's frames are broken: %v", err)
		}
		p = p[n:]
		switch f.Type {
		case wire.FrameHeartbeat:
			b.WriteString("heartbeat\n")
		case wire.FrameBody:
			fmt.Fprintf(&b, "%d body %s\n", f.Channel, short(f.Payload))
		case wire.FrameHeader:
			h, err := wire.ParseContentHeader(f.Payload)
			if err != nil {
				t.Fatal(err)
			}
			x, err := wire.DecodeProperties(h.Properties)
			if err != nil {
				t.Fatal(err)
			}
			x.Flags = 0
			fmt.Fprintf(&b, "%d header size=%d%s\n", f.Channel, h.Size, fields(&x))
		default:
			m, err := wire.DecodeMethod(f.Payload)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%d %s%s\n", f.Channel, m.ID(), fields(m))
		}
	}
	return b.String()
}

func short(p []byte) string {
	if len(p) > 60 {
		return fmt.Sprintf("%s… (%d bytes)", p[:20], len(p))
	}
	return string(p)
}

func fields(m any) string {
	var b strings.Builder
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		fmt.Fprintf(&b, " %s=", kebab(v.Type().Field(i).Name))
		switch x := f.Interface().(type) {
		case wire.Table:
			b.WriteString(tableText(x))
		case string:
			if strings.ContainsAny(x, " =") {
				x = strconv.Quote(x)
			}
			b.WriteString(x)
		default:
			fmt.Fprint(&b, x)
		}
	}
	return b.String()
}

func tableText(t wire.Table) string {
	var parts []string
	for _, f := range t {
		parts = append(parts, f.Name+"="+valueText(f.Value))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func valueText(v wire.Value) string {
	switch v.Type {
	case wire.TypeTable:
		return tableText(v.Table)
	case wire.TypeArray:
		var parts []string
		for _, e := range v.Array {
			parts = append(parts, valueText(e))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case wire.TypeString:
		return v.Str
	case wire.TypeBool:
		return strconv.FormatBool(v.Int != 0)
	case wire.TypeTimestamp:
		return fmt.Sprintf("T%d", v.Int)
	default:
		return strconv.FormatInt(v.Int, 10)
	}
}

// parser reads {name=value,…}. A value is {…}, […], true, false, a number, T and a number for a time, or a string.
type parser struct {
	t *testing.T
	s string
}

func (p *parser) eat(c byte) bool {
	if len(p.s) > 0 && p.s[0] == c {
		p.s = p.s[1:]
		return true
	}
	return false
}

func (p *parser) until(set string) string {
	i := strings.IndexAny(p.s, set)
	if i < 0 {
		p.t.Fatalf("table ends too early: %q", p.s)
	}
	out := p.s[:i]
	p.s = p.s[i:]
	return out
}

func (p *parser) table() wire.Table {
	t := wire.Table{}
	if !p.eat('{') {
		p.t.Fatalf("not a table: %q", p.s)
	}
	for !p.eat('}') {
		name := p.until("=")
		p.eat('=')
		t = append(t, wire.Field{Name: name, Value: p.value()})
		p.eat(',')
	}
	return t
}

func (p *parser) value() wire.Value {
	switch {
	case p.s[0] == '{':
		return wire.Nested(p.table())
	case p.eat('['):
		v := wire.Array()
		for !p.eat(']') {
			v.Array = append(v.Array, p.value())
			p.eat(',')
		}
		return v
	}
	text := p.until(",}]")
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return wire.Value{Type: wire.TypeInt32, Int: n}
	}
	if n, err := strconv.ParseInt(strings.TrimPrefix(text, "T"), 10, 64); err == nil && text[0] == 'T' {
		return wire.Time(n)
	}
	switch text {
	case "true", "false":
		return wire.Bool(text == "true")
	}
	return wire.String(text)
}
