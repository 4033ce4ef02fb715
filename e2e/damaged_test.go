package e2e

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// breaks turns a bit behind each place where a text is stored in a node's log files, and reports how many there were.
func (b *broker) breaks(text string) (places int) {
	b.t.Helper()
	names, err := filepath.Glob(filepath.Join(b.dir, "*.log"))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			b.t.Fatal(err)
		}
		p, err := os.ReadFile(name)
		if err != nil {
			b.t.Fatal(err)
		}
		for from := 0; ; places++ {
			i := bytes.Index(p[from:], []byte(text))
			if i < 0 {
				break
			}
			from += i + len(text)
			if _, err := f.WriteAt([]byte{p[from+100] ^ 8}, int64(from+100)); err != nil {
				b.t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			b.t.Fatal(err)
		}
	}
	return places
}

// TestADamagedOwnerGivesItsQueueUp turns a bit in a log file of an owner that is full and closed, while it runs and under load. A client that takes the
// message gets it all the same: another node owns the queue. Nothing else moves. The damaged copy is made anew, and all copies end identical.
func TestADamagedOwnerGivesItsQueueUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 11))
	c := newCluster(t, 3)
	r := newRig(t, c.nodes...)
	declareAll(r, "n1", "n2", "n3")
	ch := c.nodes[1].channel()
	c.own(ch, "n1", "far", nil)
	const needle = "the one that breaks"
	ids := append([]string{needle}, numbered("more ", churned)...) // so that it is read from the disk
	flood(t, ch, "far", ids)
	c.up().await("copies to be level", func() error { return c.level("far") })
	before := r.owners("created")
	load := startLoad(r, rng)
	pause(time.Second)
	if n := c.nodes[0].breaks(needle); n == 0 {
		t.Fatal("it is not stored")
	}
	began := time.Now()
	var got amqp.Delivery
	c.up().await("the message", func() error {
		d, ok, err := ch.Get("far", false)
		if ok {
			got = d
		} else if err == nil {
			err = errors.New("there is none")
		}
		return err
	})
	t.Logf("taken %v after the damage was looked at", time.Since(began).Round(time.Millisecond))
	if err := got.Ack(false); err != nil || got.MessageId != needle {
		t.Errorf("got %q, redelivered %t, %v", got.MessageId, got.Redelivered, err)
	}
	p, err := c.owned("far")
	if err != nil || p.Owner == "n1" || p.Epoch != before["far"].Epoch+1 {
		t.Errorf("it was %+v, and is %+v, %v", before["far"], p, err)
	}
	c.up().await("a follower that is made anew", func() error { return c.level("far") })
	if err := c.nodes[0].said("copy.anew"); err != nil {
		t.Error(err)
	}
	delete(before, "far")
	r.verdict()
	r.unharmed()
	c.sameEpochs(before)
	load.finish(r)
	r.drainAll()
	r.verdict()
	c.identical(append(slices.Clone(everything), "far")...)
	t.Logf("%d messages, %d events; longest times without a confirm %s", r.messages, r.judge.Events(), r.pauses())
}
