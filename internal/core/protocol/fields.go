package protocol

import (
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/stream"
)

// The fields of each message, in order. Fields are only ever appended, together with a new version of the encoding.

func (c *coder) to(t *To) {
	c.partition(&t.Partition)
	c.gateway(&t.Gateway)
	c.u64(&t.Stream)
}

func (c *coder) gateway(g *Gateway) {
	c.name(&g.Node)
	c.u64(&g.Boot)
	c.u32(&g.Shard)
}

func (c *coder) attach(m *Attach) {
	c.to(&m.To)
	c.u64(&m.Producer)
	c.u64(&m.First)
	c.u64(&m.Epoch)
	l := list(c, &m.Claims, 2)
	for i := range l {
		c.u64(&l[i].Consumer)
		c.u64(&l[i].Offset)
	}
	k := list(c, &m.Kept, 2)
	for i := range k {
		c.u64(&k[i].Consumer)
		c.u64(&k[i].Delivered)
	}
}

// publish is checked when read, since an owner takes the records into its log as they are: the runs are of records and add up to
// Count, and so many records there are.
func (c *coder) publish(m *Publish) {
	c.room(len(m.Records) + 32*len(m.Runs))
	c.to(&m.To)
	c.u64(&m.First)
	c.u32(&m.Count)
	l := list(c, &m.Runs, 4)
	left := uint64(m.Count)
	for i := range l {
		c.u8((*uint8)(&l[i].Kind), uint8(batch.KindRecord))
		c.u32(&l[i].Count)
		c.u64(&l[i].Producer)
		c.u64(&l[i].First)
		if c.reading && (l[i].Kind != batch.KindRecord || l[i].Count == 0 || uint64(l[i].Count) > left) {
			c.fail("runs")
			return
		}
		left -= uint64(l[i].Count)
	}
	c.bytes(&m.Records)
	if c.reading && c.err == nil && (left != 0 || !records(m.Records, m.Count)) {
		c.fail("records")
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
	c.u64(&m.Consumer)
	c.bool(&m.NoAck)
	c.bool(&m.Exclusive)
	c.i32(&m.Priority)
	c.u32(&m.Prefetch)
	c.i64(&m.Credit)
	c.text(&m.Session)
	c.u8((*uint8)(&m.Start.Kind), uint8(stream.StartTimestamp))
	c.u64(&m.Start.Offset)
	c.i64(&m.Start.Time)
	c.text(&m.Cursor)
}

func (c *coder) unsubscribe(m *Unsubscribe) {
	c.to(&m.To)
	c.u64(&m.Consumer)
}

func (c *coder) credit(m *Credit) {
	c.to(&m.To)
	c.u64(&m.Consumer)
	c.i64(&m.Bytes)
}

func (c *coder) settle(m *Settle) {
	c.to(&m.To)
	c.u64(&m.Seq)
	l := list(c, &m.Items, 4)
	for i := range l {
		c.u64(&l[i].Consumer)
		c.u64(&l[i].First)
		c.u64(&l[i].Last)
		c.u8((*uint8)(&l[i].Outcome), uint8(Release))
	}
}

func (c *coder) cursor(m *Cursor) {
	c.to(&m.To)
	c.u64(&m.Seq)
	c.text(&m.Name)
	c.u64(&m.Offset)
}

func (c *coder) get(m *Get) {
	c.to(&m.To)
	c.u64(&m.Request)
	c.bool(&m.NoAck)
}

func (c *coder) purge(m *Purge) {
	c.to(&m.To)
	c.u64(&m.Request)
}

func (c *coder) stats(m *Stats) {
	c.to(&m.To)
	c.u64(&m.Request)
}

func (c *coder) close(m *Close) {
	c.to(&m.To)
	c.u64(&m.Request)
	c.bool(&m.IfUnused)
	c.bool(&m.IfEmpty)
}

func (c *coder) reopen(m *Reopen) { c.to(&m.To) }

func (c *coder) detach(m *Detach) { c.to(&m.To) }

func (c *coder) unclaimed(m *Unclaimed) {
	c.gateway(&m.Gateway)
	l := list(c, &m.Items, 3)
	for i := range l {
		c.partition(&l[i].Partition)
		c.u64(&l[i].Epoch)
	}
}

func (c *coder) attached(m *Attached) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.Epoch)
	c.u64(&m.Expect)
	c.bool(&m.Lost)
	c.u64(&m.LostFrom)
}

func (c *coder) notServing(m *NotServing) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.bool(&m.Gone)
	c.text(&m.Reason)
}

func (c *coder) published(m *Published) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.UpTo)
}

func (c *coder) publishRefused(m *PublishRefused) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.First)
	c.u32(&m.Count)
	c.text(&m.Reason)
	c.u8((*uint8)(&m.Cause), uint8(CauseLease))
	c.bool(&m.Unknown)
}

func (c *coder) publishExpected(m *PublishExpected) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.Expect)
}

func (c *coder) publishUnknown(m *PublishUnknown) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.First)
	c.text(&m.Reason)
}

func (c *coder) subscribed(m *Subscribed) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.Consumer)
	c.text(&m.Refused)
	c.u64(&m.Next)
}

func (c *coder) unsubscribed(m *Unsubscribed) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.Consumer)
}

func (c *coder) consumerEnded(m *ConsumerEnded) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.Consumer)
	c.text(&m.Reason)
}

// leastItem is the size of an Item without a body, its numbers the smallest.
const leastItem = 3 + batch.RecordHeaderSize

func (c *coder) item(i *Item) {
	c.u64(&i.Offset)
	c.u32(&i.Count)
	c.bool(&i.Again)
	c.record(&i.Record, &i.Body)
}

func (c *coder) deliver(m *Deliver) {
	size := 0
	for i := range m.Items {
		size += len(m.Items[i].Body) + leastItem + 12
	}
	c.room(size)
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.Consumer)
	l := list(c, &m.Items, leastItem)
	for i := range l {
		c.item(&l[i])
	}
}

func (c *coder) streamData(m *StreamData) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.Consumer)
	c.u64(&m.First)
	c.batches(&m.Batches)
}

func (c *coder) settled(m *Settled) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.Seq)
}

func (c *coder) getDone(m *GetDone) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.Request)
	c.bool(&m.OK)
	c.item(&m.Item)
	c.u64(&m.Left)
	c.text(&m.Refused)
}

func (c *coder) counted(m *Counted) {
	c.partition(&m.Partition)
	c.u64(&m.Stream)
	c.u64(&m.Request)
	c.u64(&m.Ready)
	c.u64(&m.Unsettled)
	c.u64(&m.Consumers)
	c.text(&m.Refused)
}

func (c *coder) probe(m *Probe) {
	c.partition(&m.Partition)
	c.u64(&m.Epoch)
	c.instance(&m.From)
}

func (c *coder) standing(m *Standing) {
	c.partition(&m.Partition)
	c.u64(&m.Epoch)
	c.instance(&m.From)
	c.bool(&m.Learner)
	c.bool(&m.Asked)
	c.tail(&m.Tail)
	c.u64(&m.Durable)
	c.bool(&m.Empty)
	c.bool(&m.Partial)
	c.bytes(&m.Importing)
	c.text(&m.Damaged)
}

func (c *coder) extend(m *Extend) {
	c.partition(&m.Partition)
	c.u64(&m.Epoch)
	c.instance(&m.From)
	c.u64(&m.Confirmed)
	c.u64(&m.Keep)
	c.batches(&m.Batches)
}

func (c *coder) held(m *Held) {
	c.partition(&m.Partition)
	c.u64(&m.Epoch)
	c.instance(&m.From)
	c.u64(&m.Durable)
}

func (c *coder) imageChunk(m *ImageChunk) {
	c.room(len(m.Chunk))
	c.partition(&m.Partition)
	c.u64(&m.Epoch)
	c.instance(&m.From)
	c.u64(&m.Over)
	c.bytes(&m.Chunk)
}

func (c *coder) imageTaken(m *ImageTaken) {
	c.partition(&m.Partition)
	c.u64(&m.Epoch)
	c.instance(&m.From)
	c.bytes(&m.Next)
	c.bool(&m.Done)
	c.text(&m.Failed)
}

func (c *coder) heartbeat(m *Heartbeat) {
	c.instance(&m.From)
	c.u64(&m.Term)
	c.name(&m.Health)
	c.bool(&m.Closed)
	c.bool(&m.Draining)
	c.i64(&m.Stalled)
	c.i64(&m.Sent)
}

func (c *coder) lease(m *Lease) {
	c.u64(&m.Term)
	c.instance(&m.Holder)
	c.i64(&m.TTL)
	c.i64(&m.Sent)
	c.u64(&m.Index)
}

func (c *coder) confirms(m *Confirms) {
	c.instance(&m.From)
	l := list(c, &m.Items, 4)
	for i := range l {
		c.partition(&l[i].Partition)
		c.u64(&l[i].Epoch)
		c.u64(&l[i].Position)
	}
}

func (c *coder) promises(m *Promises) {
	c.instance(&m.From)
	l := list(c, &m.Items, 3)
	for i := range l {
		c.partition(&l[i].Partition)
		c.u64(&l[i].Epoch)
	}
}

func (c *coder) sealRequests(m *SealRequests) {
	c.u64(&m.Request)
	c.u64(&m.Term)
	l := list(c, &m.Items, 4)
	for i := range l {
		c.partition(&l[i].Partition)
		c.u64(&l[i].Epoch)
		c.text(&l[i].Transition)
	}
}

func (c *coder) sealAnswers(m *SealAnswers) {
	c.u64(&m.Request)
	c.instance(&m.From)
	l := list(c, &m.Items, 28)
	for i := range l {
		c.partition(&l[i].Partition)
		c.text(&l[i].Transition)
		c.tail(&l[i].Tail)
		c.u64(&l[i].Confirmed)
		c.i64(&l[i].LastConfirm)
		c.text(&l[i].Damaged)
		c.text(&l[i].Refused)
	}
}

func (c *coder) linksAsk(m *LinksAsk) {
	c.u64(&m.Request)
	l := list(c, &m.Items, 3)
	for i := range l {
		c.partition(&l[i].Partition)
		at := list(c, &l[i].Positions, 1)
		for j := range at {
			c.u64(&at[j])
		}
	}
}

func (c *coder) linksAnswer(m *LinksAnswer) {
	c.u64(&m.Request)
	c.instance(&m.From)
	l := list(c, &m.Items, 4)
	for i := range l {
		c.partition(&l[i].Partition)
		at := list(c, &l[i].Links, 17)
		for j := range at {
			c.u64(&at[j].Position)
			c.fixed(at[j].Link[:])
		}
		c.text(&l[i].Failed)
	}
}

func (c *coder) runReport(m *RunReport) {
	c.instance(&m.From)
	c.u64(&m.Term)
	l := list(c, &m.Runs, 21)
	for i := range l {
		c.instance(&l[i].Node)
		c.bool(&l[i].Up)
		c.name(&l[i].Cause)
		c.text(&l[i].Reason)
	}
}
