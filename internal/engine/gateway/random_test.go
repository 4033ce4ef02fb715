package gateway

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/protocol"
)

// rough is an owner that loses messages, refuses some, confirms when it likes, and is replaced by another that inherits what is
// confirmed and perhaps some of what is not. It keeps the rules of core/protocol.
type rough struct {
	rng       *rand.Rand
	reply     protocol.Sender
	stream    uint64
	producer  uint64
	expect    uint64 // of the gateway's producer
	log       []numbered
	confirmed int
	lose      bool
	deaf      bool
}

type numbered struct {
	producer, sequence uint64
	body               string
}

func (o *rough) Send(msg any) {
	if o.deaf {
		return
	}
	switch m := msg.(type) {
	case protocol.Attach:
		if m.Stream <= o.stream {
			return
		}
		if m.Producer != o.producer {
			o.producer, o.expect = m.Producer, 1
		}
		o.reply, o.stream = m.Reply, m.Stream
		o.expect = max(o.lastLogged()+1, o.expect, m.First)
		o.reply.Send(protocol.Attached{Stream: m.Stream, Partition: m.Partition, Epoch: 1, Expect: o.expect})
	case protocol.Publish:
		if m.Stream == o.stream && !(o.lose && o.rng.IntN(4) == 0) {
			o.publish(m)
		}
	}
}

func (o *rough) lastLogged() uint64 {
	last := uint64(0)
	for _, n := range o.log {
		if n.producer == o.producer {
			last = max(last, n.sequence)
		}
	}
	return last
}

func (o *rough) publish(m protocol.Publish) {
	if m.First > o.expect {
		o.reply.Send(protocol.PublishExpected{Partition: m.Partition, Stream: m.Stream, Expect: o.expect})
		return
	}
	rest, seq := m.Records, m.First
	for _, r := range m.Runs {
		for n := range uint64(r.Count) {
			_, body, after, err := batch.ParseRecord(rest)
			if err != nil || r.First+n != seq || r.Producer != o.producer {
				panic(fmt.Sprintf("run %+v, sequence %d: %v", r, seq, err))
			}
			rest = after
			if seq == o.expect {
				o.expect++
				if o.rng.IntN(8) == 0 {
					o.reply.Send(protocol.PublishRefused{Partition: m.Partition, Stream: m.Stream, First: seq, Count: 1, Reason: "full"})
				} else {
					o.log = append(o.log, numbered{o.producer, seq, text(body)})
				}
			}
			seq++
		}
	}
	o.say(m.To)
}

// say tells how far everything is confirmed: below the first number that is in the log and not confirmed.
func (o *rough) say(to protocol.To) {
	upTo := o.expect
	for _, n := range o.log[o.confirmed:] {
		if n.producer == o.producer {
			upTo = min(upTo, n.sequence)
		}
	}
	o.reply.Send(protocol.Published{Partition: to.Partition, Stream: o.stream, UpTo: upTo})
}

// succeed replaces the owner by one that inherits what is confirmed and perhaps more.
func (o *rough) succeed() {
	keep := o.confirmed + o.rng.IntN(len(o.log)-o.confirmed+1)
	o.log = append([]numbered(nil), o.log[:keep]...)
	o.stream, o.producer, o.expect, o.reply = 0, 0, 0, nil
}

func TestOneOutcomeWhateverOwnersDo(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 50
	}
	for seed := range uint64(seeds) {
		if !oneOutcome(t, seed) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func oneOutcome(t *testing.T, seed uint64) bool {
	rng := rand.New(rand.NewPCG(seed, 2))
	limits := Limits{}
	if seed%3 == 0 {
		limits.ConfirmTimeout = 2 * time.Second
	}
	h := newHarness(t, limits)
	c := h.client()
	p := c.declare(durable("q")).p
	h.sim.RunFor(10 * time.Second) // the attachment to the owner above is left
	o := &rough{rng: rng, lose: seed%2 == 0}
	h.sh.env.Directory = directory{o}
	to := protocol.To{Partition: p}
	next := uint64(1)
	for range 150 {
		switch rng.IntN(7) {
		case 0, 1, 2:
			h.sh.post(func() {
				for range 1 + rng.IntN(5) {
					c.publish(next, "", "q", strconv.FormatUint(next, 10))
					next++
				}
			})
			if rng.IntN(2) == 0 {
				h.settle()
			}
		case 3:
			if o.reply != nil {
				o.confirmed += rng.IntN(len(o.log) - o.confirmed + 1)
				o.say(to)
			}
		case 4:
			if reply, stream := o.reply, o.stream; reply != nil && rng.IntN(2) == 0 {
				o.succeed()
				if rng.IntN(3) != 0 {
					reply.Send(protocol.NotServing{Partition: p, Stream: stream})
				} else {
					h.settle()
					h.sh.post(func() { // as a change of the catalog does
						if a := h.sh.byPartition[p]; a != nil {
							a.again()
						}
					})
				}
			}
		case 5:
			o.deaf = rng.IntN(3) == 0
		default:
			h.sim.RunFor(time.Duration(rng.IntN(1500)) * time.Millisecond)
		}
	}
	o.deaf, o.lose = false, false
	for range 100 {
		h.sim.RunFor(time.Second)
		if o.reply != nil {
			o.confirmed = len(o.log)
			o.say(to)
		}
	}
	h.settle()
	return judge(t, c, o, next)
}

type directory struct{ o *rough }

func (d directory) Sender(_ partitionID) protocol.Sender { return d.o }
func (d directory) Reader(_ partitionID) protocol.Sender { return nil }

// judge compares what the client was told with what is in the log.
func judge(t *testing.T, c *client, o *rough, next uint64) bool {
	stored, last, ok := map[uint64]int{}, uint64(0), true
	fail := func(f string, a ...any) { t.Errorf(f, a...); ok = false }
	for i, n := range o.log {
		id, _ := strconv.ParseUint(n.body, 10, 64)
		stored[id]++
		if id <= last {
			fail("message %d is at %d, after %d", id, i, last)
		}
		last = id
	}
	for id := uint64(1); id < next; id++ {
		switch told := c.outcome(id); {
		case len(told) != 1:
			fail("message %d has the outcomes %v", id, told)
		case told[0] == broker.Confirmed && stored[id] != 1:
			fail("message %d is confirmed and stored %d times", id, stored[id])
		case told[0] == broker.Refused && stored[id] != 0:
			fail("message %d is refused and stored", id)
		case stored[id] > 1:
			fail("message %d is stored %d times", id, stored[id])
		}
	}
	if c.h.sh.bytes != 0 {
		fail("%d bytes are not given back", c.h.sh.bytes)
	}
	return ok
}
