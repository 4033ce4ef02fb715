package protocol

import (
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/codec"
	"github.com/tanist/tanist/internal/core/stream"
)

// The fields of each message, in order. Fields are only ever appended, together with a new version of the encoding.

func (c *coder) to(t *To) {
	c.Partition(&t.Partition)
	c.gateway(&t.Gateway)
	c.U64(&t.Stream)
}

func (c *coder) gateway(g *Gateway) {
	c.Name(&g.Node)
	c.U64(&g.Boot)
	c.U32(&g.Shard)
}

func (c *coder) attach(m *Attach) {
	c.to(&m.To)
	c.U64(&m.Producer)
	c.U64(&m.First)
	c.U64(&m.Epoch)
	c.U64(&m.Away)
	c.claims(&m.Claims)
	k := codec.Items(&c.Coder, &m.Kept, 2)
	for i := range k {
		c.U64(&k[i].Consumer)
		c.U64(&k[i].Delivered)
	}
}

// publish is checked when read, since an owner takes the records into its log as they are: the runs are of records and add up to
// Count, and so many records there are.
func (c *coder) publish(m *Publish) {
	c.room(len(m.Records) + 32*len(m.Runs))
	c.to(&m.To)
	c.U64(&m.First)
	c.U32(&m.Count)
	l := codec.Items(&c.Coder, &m.Runs, 4)
	left := uint64(m.Count)
	for i := range l {
		c.U8((*uint8)(&l[i].Kind), uint8(batch.KindRecord))
		c.U32(&l[i].Count)
		c.U64(&l[i].Producer)
		c.U64(&l[i].First)
		if c.Reading && (l[i].Kind != batch.KindRecord || l[i].Count == 0 || uint64(l[i].Count) > left) {
			c.Fail("runs")
			return
		}
		left -= uint64(l[i].Count)
	}
	c.Bytes(&m.Records)
	if c.Reading && c.Err == nil && (left != 0 || !records(m.Records, m.Count)) {
		c.Fail("records")
	}
}

// records reports whether p is n records.
func records(p []byte, n uint32) bool {
	for ; n > 0; n-- {
		_, _, rest, err := batch.ParseRecord(p)
		if err != nil {
			return false
		}
		p = rest
	}
	return len(p) == 0
}

func (c *coder) subscribe(m *Subscribe) {
	c.to(&m.To)
	c.U64(&m.Consumer)
	c.Bool(&m.NoAck)
	c.Bool(&m.Exclusive)
	c.I32(&m.Priority)
	c.U32(&m.Prefetch)
	c.I64(&m.Credit)
	c.Text(&m.Session)
	c.U8((*uint8)(&m.Start.Kind), uint8(stream.StartTimestamp))
	c.U64(&m.Start.Offset)
	c.I64(&m.Start.Time)
	c.Text(&m.Cursor)
}

func (c *coder) unsubscribe(m *Unsubscribe) {
	c.to(&m.To)
	c.U64(&m.Consumer)
}

func (c *coder) credit(m *Credit) {
	c.to(&m.To)
	c.U64(&m.Consumer)
	c.I64(&m.Bytes)
}

func (c *coder) settle(m *Settle) {
	c.to(&m.To)
	c.U64(&m.Seq)
	l := codec.Items(&c.Coder, &m.Items, 4)
	for i := range l {
		c.U64(&l[i].Consumer)
		c.U64(&l[i].First)
		c.U64(&l[i].Last)
		c.U8((*uint8)(&l[i].Outcome), uint8(Release))
	}
}

func (c *coder) cursor(m *Cursor) {
	c.to(&m.To)
	c.U64(&m.Seq)
	c.Text(&m.Name)
	c.U64(&m.Offset)
}

func (c *coder) get(m *Get) {
	c.to(&m.To)
	c.U64(&m.Request)
	c.Bool(&m.NoAck)
}

func (c *coder) purge(m *Purge) {
	c.to(&m.To)
	c.U64(&m.Request)
}

func (c *coder) stats(m *Stats) {
	c.to(&m.To)
	c.U64(&m.Request)
}

func (c *coder) close(m *Close) {
	c.to(&m.To)
	c.U64(&m.Request)
	c.Bool(&m.IfUnused)
	c.Bool(&m.IfEmpty)
}

func (c *coder) reopen(m *Reopen) { c.to(&m.To) }

func (c *coder) detach(m *Detach) { c.to(&m.To) }

func (c *coder) unclaimed(m *Unclaimed) {
	c.gateway(&m.Gateway)
	l := codec.Items(&c.Coder, &m.Items, 3)
	for i := range l {
		c.Partition(&l[i].Partition)
		c.U64(&l[i].Epoch)
	}
}

func (c *coder) claims(s *[]Claim) {
	l := codec.Items(&c.Coder, s, 2)
	for i := range l {
		c.U64(&l[i].Consumer)
		c.U64(&l[i].Offset)
	}
}

func (c *coder) denied(m *Denied) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.claims(&m.Claims)
}

func (c *coder) attached(m *Attached) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.Epoch)
	c.U64(&m.Expect)
	c.Bool(&m.Lost)
	c.U64(&m.LostFrom)
}

func (c *coder) notServing(m *NotServing) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.Bool(&m.Gone)
	c.Text(&m.Reason)
}

func (c *coder) published(m *Published) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.UpTo)
}

func (c *coder) publishRefused(m *PublishRefused) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.First)
	c.U32(&m.Count)
	c.Text(&m.Reason)
	c.U8((*uint8)(&m.Cause), uint8(CauseLease))
	c.Bool(&m.Unknown)
}

func (c *coder) publishExpected(m *PublishExpected) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.Expect)
}

func (c *coder) publishUnknown(m *PublishUnknown) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.First)
	c.Text(&m.Reason)
}

func (c *coder) subscribed(m *Subscribed) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.Consumer)
	c.Text(&m.Refused)
	c.U64(&m.Next)
}

func (c *coder) unsubscribed(m *Unsubscribed) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.Consumer)
}

func (c *coder) consumerEnded(m *ConsumerEnded) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.Consumer)
	c.Text(&m.Reason)
}

// leastItem is the size of an Item without a body, its numbers the smallest.
const leastItem = 3 + batch.RecordHeaderSize

func (c *coder) item(i *Item) {
	c.U64(&i.Offset)
	c.U32(&i.Count)
	c.Bool(&i.Again)
	c.record(&i.Record, &i.Body)
}

func (c *coder) deliver(m *Deliver) {
	size := 0
	for i := range m.Items {
		size += len(m.Items[i].Body) + leastItem + 12
	}
	c.room(size)
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.Consumer)
	l := codec.Items(&c.Coder, &m.Items, leastItem)
	for i := range l {
		c.item(&l[i])
	}
}

func (c *coder) streamData(m *StreamData) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.Consumer)
	c.U64(&m.First)
	c.batches(&m.Batches)
}

func (c *coder) settled(m *Settled) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.Seq)
}

func (c *coder) getDone(m *GetDone) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.Request)
	c.Bool(&m.OK)
	c.item(&m.Item)
	c.U64(&m.Left)
	c.Text(&m.Refused)
}

func (c *coder) counted(m *Counted) {
	c.Partition(&m.Partition)
	c.U64(&m.Stream)
	c.U64(&m.Request)
	c.U64(&m.Ready)
	c.U64(&m.Unsettled)
	c.U64(&m.Consumers)
	c.Text(&m.Refused)
}

func (c *coder) probe(m *Probe) {
	c.Partition(&m.Partition)
	c.U64(&m.Epoch)
	c.Instance(&m.From)
}

func (c *coder) standing(m *Standing) {
	c.Partition(&m.Partition)
	c.U64(&m.Epoch)
	c.Instance(&m.From)
	c.Bool(&m.Learner)
	c.Bool(&m.Asked)
	c.tail(&m.Tail)
	c.U64(&m.Durable)
	c.Bool(&m.Empty)
	c.Bool(&m.Partial)
	c.Bytes(&m.Importing)
	c.Text(&m.Damaged)
	c.Bool(&m.Sealed)
}

func (c *coder) extend(m *Extend) {
	c.Partition(&m.Partition)
	c.U64(&m.Epoch)
	c.Instance(&m.From)
	c.U64(&m.Confirmed)
	c.U64(&m.Keep)
	c.batches(&m.Batches)
}

func (c *coder) held(m *Held) {
	c.Partition(&m.Partition)
	c.U64(&m.Epoch)
	c.Instance(&m.From)
	c.U64(&m.Durable)
}

func (c *coder) imageChunk(m *ImageChunk) {
	c.room(len(m.Chunk))
	c.Partition(&m.Partition)
	c.U64(&m.Epoch)
	c.Instance(&m.From)
	c.U64(&m.Over)
	c.Bytes(&m.Chunk)
}

func (c *coder) makeAnew(m *MakeAnew) {
	c.Partition(&m.Partition)
	c.U64(&m.Epoch)
	c.Instance(&m.From)
}

func (c *coder) imageTaken(m *ImageTaken) {
	c.Partition(&m.Partition)
	c.U64(&m.Epoch)
	c.Instance(&m.From)
	c.Bytes(&m.Next)
	c.Bool(&m.Done)
	c.Text(&m.Failed)
}

func (c *coder) heartbeat(m *Heartbeat) {
	c.Instance(&m.From)
	c.U64(&m.Term)
	c.Name(&m.Health)
	c.Bool(&m.Closed)
	c.Bool(&m.Draining)
	c.I64(&m.Stalled)
	c.I64(&m.Sent)
}

func (c *coder) lease(m *Lease) {
	c.U64(&m.Term)
	c.Instance(&m.Holder)
	c.I64(&m.TTL)
	c.I64(&m.Sent)
	c.U64(&m.Index)
}

func (c *coder) confirms(m *Confirms) {
	c.Instance(&m.From)
	l := codec.Items(&c.Coder, &m.Items, 4)
	for i := range l {
		c.Partition(&l[i].Partition)
		c.U64(&l[i].Epoch)
		c.U64(&l[i].Position)
	}
}

func (c *coder) promises(m *Promises) {
	c.Instance(&m.From)
	l := codec.Items(&c.Coder, &m.Items, 3)
	for i := range l {
		c.Partition(&l[i].Partition)
		c.U64(&l[i].Epoch)
	}
}

func (c *coder) damages(m *Damages) {
	c.Instance(&m.From)
	l := codec.Items(&c.Coder, &m.Items, 4)
	for i := range l {
		c.Partition(&l[i].Partition)
		c.U64(&l[i].Epoch)
		c.Text(&l[i].Reason)
	}
}

func (c *coder) sealRequests(m *SealRequests) {
	c.U64(&m.Request)
	c.U64(&m.Term)
	l := codec.Items(&c.Coder, &m.Items, 4)
	for i := range l {
		c.Partition(&l[i].Partition)
		c.U64(&l[i].Epoch)
		c.Text(&l[i].Transition)
	}
}

func (c *coder) sealAnswers(m *SealAnswers) {
	c.U64(&m.Request)
	c.Instance(&m.From)
	l := codec.Items(&c.Coder, &m.Items, 28)
	for i := range l {
		c.Partition(&l[i].Partition)
		c.Text(&l[i].Transition)
		c.tail(&l[i].Tail)
		c.U64(&l[i].Confirmed)
		c.I64(&l[i].LastConfirm)
		c.Text(&l[i].Damaged)
		c.Text(&l[i].Refused)
	}
}

func (c *coder) linksAsk(m *LinksAsk) {
	c.U64(&m.Request)
	l := codec.Items(&c.Coder, &m.Items, 3)
	for i := range l {
		c.Partition(&l[i].Partition)
		at := codec.Items(&c.Coder, &l[i].Positions, 1)
		for j := range at {
			c.U64(&at[j])
		}
	}
}

func (c *coder) linksAnswer(m *LinksAnswer) {
	c.U64(&m.Request)
	c.Instance(&m.From)
	l := codec.Items(&c.Coder, &m.Items, 4)
	for i := range l {
		c.Partition(&l[i].Partition)
		at := codec.Items(&c.Coder, &l[i].Links, 17)
		for j := range at {
			c.U64(&at[j].Position)
			c.Fixed(at[j].Link[:])
		}
		c.Text(&l[i].Failed)
	}
}

func (c *coder) runReport(m *RunReport) {
	c.Instance(&m.From)
	c.U64(&m.Term)
	l := codec.Items(&c.Coder, &m.Runs, 21)
	for i := range l {
		c.Instance(&l[i].Node)
		c.Bool(&l[i].Up)
		c.Name(&l[i].Cause)
		c.Text(&l[i].Reason)
	}
}
