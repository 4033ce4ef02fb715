package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/stream"
)

func streamWorld(t *testing.T, seed uint64, s *stream.Settings) (*world, *fakeGateway) {
	t.Helper()
	w := newWorld(t, seed)
	w.declare(catalog.Stream, nil, s)
	g := w.gateway(0)
	g.attach(1)
	if a := take[protocol.Attached](g); len(a) != 1 {
		t.Fatalf("attached %+v", a)
	}
	return w, g
}

// read gives what a consumer was sent, as "offset:body", and what it costs.
func (g *fakeGateway) read(consumer uint64) (out []string, bytes int64) {
	var rest []any
	for _, m := range g.got {
		d, ok := m.(protocol.StreamData)
		if !ok || d.Consumer != consumer {
			rest = append(rest, m)
			continue
		}
		for _, b := range d.Batches {
			bytes += int64(b.Size())
			b.Each(func(e batch.Entry) bool {
				if e.Kind == batch.KindRecord && e.Offset >= d.First {
					out = append(out, fmt.Sprintf("%d:%s", e.Offset, e.Body))
				}
				return true
			})
		}
	}
	g.got = rest
	return out, bytes
}

func (g *fakeGateway) follow(consumer uint64, credit int64, start stream.Start, cursor string) {
	g.send(protocol.Subscribe{To: g.to(), Consumer: consumer, Credit: credit, Start: start, Cursor: cursor})
}

func TestStreamStarts(t *testing.T) {
	w, g := streamWorld(t, 1, nil)
	for i := range 3 {
		g.publish(fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i))
		w.settle()
		w.sim.RunFor(time.Second)
	}
	second := w.disk.copies[part].batches[2].b // after the mark
	for i, c := range []struct {
		start stream.Start
		next  uint64
	}{
		{stream.Start{Kind: stream.StartFirst}, 0},
		{stream.Start{Kind: stream.StartLast}, 4},
		{stream.Start{Kind: stream.StartNext}, 6},
		{stream.Start{Kind: stream.StartOffset, Offset: 3}, 3},
		{stream.Start{Kind: stream.StartOffset, Offset: 9}, 9},
		{stream.Start{Kind: stream.StartTimestamp, Time: second.Time}, 2},
		{stream.Start{Kind: stream.StartTimestamp, Time: second.Time + 1}, 4},
	} {
		for _, slow := range []bool{false, true} {
			w.disk.slow = slow
			id := uint64(i*2 + 1)
			if slow {
				id++
			}
			g.follow(id, 1<<20, c.start, "")
			w.settle()
			if s := take[protocol.Subscribed](g); len(s) != 1 || s[0].Next != c.next || s[0].Refused != "" {
				t.Fatalf("%+v: subscribed %+v, want %d", c.start, s, c.next)
			}
			got, _ := g.read(id)
			if want := max(0, 6-int(c.next)); len(got) != want {
				t.Fatalf("%+v: read %v", c.start, got)
			}
		}
	}
	g.publish("x", "y", "z", "u")
	w.settle()
	if got, _ := g.read(5); len(got) != 4 || got[0] != "6:x" {
		t.Fatalf("the reader of what is next got %v", got)
	}
	if got, _ := g.read(9); len(got) != 1 || got[0] != "9:u" {
		t.Fatalf("the reader of offset 9 got %v", got)
	}
}

func TestStreamCreditBoundsWhatIsSent(t *testing.T) {
	w, g := streamWorld(t, 2, nil)
	for i := range 20 {
		g.publish(fmt.Sprint(i))
		w.settle()
	}
	g.follow(1, 300, stream.Start{Kind: stream.StartFirst}, "")
	w.settle()
	first, bytes := g.read(1)
	if len(first) == 0 || len(first) == 20 || bytes > 300+200 {
		t.Fatalf("%d records, %d bytes with a credit of 300", len(first), bytes)
	}
	got := first
	for len(got) < 20 {
		g.send(protocol.Credit{To: g.to(), Consumer: 1, Bytes: bytes})
		w.settle()
		var more []string
		more, bytes = g.read(1)
		if len(more) == 0 {
			t.Fatalf("stuck after %v", got)
		}
		got = append(got, more...)
	}
	for i, s := range got {
		if s != fmt.Sprintf("%d:%d", i, i) {
			t.Fatalf("record %d is %s", i, s)
		}
	}
}

// A hundred readers each get each record once, in order, slow disk or not, and batches are shared.
func TestStreamFanOut(t *testing.T) {
	for seed := range uint64(6) {
		w, g := streamWorld(t, seed, nil)
		w.disk.slow = seed%2 == 1
		for i := range 100 {
			g.follow(uint64(i+1), 1<<20, stream.Start{Kind: stream.StartFirst}, "")
		}
		for i := range 100 {
			g.publish(fmt.Sprint(i))
			if i%9 == 0 {
				w.settle()
			}
		}
		w.settle()
		for c := range 100 {
			got, _ := g.read(uint64(c + 1))
			if len(got) != 100 {
				t.Fatalf("seed %d: reader %d got %d", seed, c, len(got))
			}
			for i, s := range got {
				if s != fmt.Sprintf("%d:%d", i, i) {
					t.Fatalf("seed %d: reader %d: record %d is %s", seed, c, i, s)
				}
			}
		}
	}
}

func TestStreamCursorsSurviveARestart(t *testing.T) {
	w, g := streamWorld(t, 3, nil)
	g.publish("a", "b", "c")
	g.send(protocol.Cursor{To: g.to(), Seq: 1, Name: "app", Offset: 0}) // may run ahead of the publish: brought to the confirmed end
	w.settle()
	g.send(protocol.Cursor{To: g.to(), Seq: 2, Name: "app", Offset: 2})
	w.settle()
	var seq uint64
	for _, s := range take[protocol.Settled](g) {
		seq = max(seq, s.Seq)
	}
	if seq != 2 {
		t.Fatalf("settled %d", seq)
	}
	w.crash()
	w.start()
	w.transition()
	h := w.gateway(0)
	h.attach(1)
	h.follow(1, 1<<20, stream.Start{Kind: stream.StartFirst}, "app")
	w.settle()
	if s := take[protocol.Subscribed](h); len(s) != 1 || s[0].Next != 2 {
		t.Fatalf("subscribed %+v", s)
	}
	got, _ := h.read(1)
	wantEqual(t, "after a restart", got, []string{"2:c"})
	h.send(protocol.Get{To: h.to(), Request: 1}, protocol.Purge{To: h.to(), Request: 2})
	w.settle()
	if d := take[protocol.GetDone](h); len(d) != 1 || d[0].Refused == "" {
		t.Fatalf("get on a stream: %+v", d)
	}
	if d := take[protocol.Counted](h); len(d) != 1 || d[0].Refused == "" {
		t.Fatalf("purge of a stream: %+v", d)
	}
}

func TestStreamRetention(t *testing.T) {
	for name, s := range map[string]stream.Settings{
		"records": {MaxRecords: 10}, "bytes": {MaxBytes: 1200}, "age": {MaxAge: 2000},
	} {
		t.Run(name, func(t *testing.T) {
			w, g := streamWorld(t, 4, &s)
			for i := range 50 {
				g.publish(fmt.Sprint(i))
				w.settle()
				w.sim.RunFor(200 * time.Millisecond)
			}
			st := w.status()
			if st.Ready < 5 || st.Ready > 12 || st.Offset != 50 {
				t.Fatalf("status %+v", st)
			}
			g.follow(1, 1<<20, stream.Start{Kind: stream.StartOffset, Offset: 3}, "")
			w.settle()
			got, _ := g.read(1)
			if uint64(len(got)) != st.Ready || got[len(got)-1] != "49:49" {
				t.Fatalf("read %v of %d", got, st.Ready)
			}
			// What was dropped is not needed to come back.
			w.crash()
			w.start()
			w.transition()
			if again := w.status(); again.State != Serving || again.Offset != 50 || again.Ready > st.Ready {
				t.Fatalf("after a restart: %+v", again)
			}
			if name == "age" { // an idle stream ages too
				w.sim.RunFor(3 * time.Second)
				if st := w.status(); st.Ready != 0 {
					t.Fatalf("after a while: %+v", st)
				}
			}
		})
	}
}

// A reader that retention overtakes goes on with what is kept.
func TestStreamReaderIsOvertaken(t *testing.T) {
	w, g := streamWorld(t, 5, &stream.Settings{MaxRecords: 5})
	g.follow(1, 1, stream.Start{Kind: stream.StartFirst}, "")
	w.settle()
	for i := range 30 {
		g.publish(fmt.Sprint(i))
		w.settle()
	}
	first, _ := g.read(1)
	g.send(protocol.Credit{To: g.to(), Consumer: 1, Bytes: 1 << 20})
	w.settle()
	got, _ := g.read(1)
	if len(first) != 1 || len(got) < 4 || len(got) > 7 || got[len(got)-1] != "29:29" {
		t.Fatalf("read %v, then %v", first, got)
	}
}

// A reader that goes while its start is being looked up is not begun afterwards; one that comes again under its number begins once.
func TestAReaderThatWentDoesNotBegin(t *testing.T) {
	w, g := streamWorld(t, 7, nil)
	g.publish("a")
	w.settle()
	w.disk.slow = true
	last := stream.Start{Kind: stream.StartLast}
	h := w.gateway(1)
	h.attach(1)
	g.follow(1, 1<<20, last, "")
	g.send(protocol.Unsubscribe{To: g.to(), Consumer: 1})
	g.follow(2, 1<<20, last, "")
	h.follow(1, 1<<20, last, "")
	h.send(protocol.Detach{To: h.to()})
	w.settle()
	if s := w.status(); s.Consumers != 1 {
		t.Fatalf("%d readers, one has not gone", s.Consumers)
	}
	if got, _ := g.read(1); len(got) != 0 {
		t.Fatalf("sent %v to a reader that went", got)
	}
	if got, _ := g.read(2); len(got) != 1 {
		t.Fatalf("the reader that stayed got %v", got)
	}
}
