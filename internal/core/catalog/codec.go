package catalog

import (
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
)

// The encoding of each object. Fields are only ever appended, together with a new format version.

func (c *coder) vhost(v *VHost) { c.str(&v.Name) }

func (c *coder) home(h *Home) {
	c.name(&h.Node)
	c.u64(&h.Boot)
	c.u64(&h.Session)
}

func (c *coder) exchange(e *Exchange) {
	c.name(&e.VHost)
	c.str(&e.Name)
	c.name(&e.Type)
	c.bool(&e.Durable)
	c.bool(&e.AutoDelete)
	c.bool(&e.Internal)
	c.str(&e.Alternate)
	c.table(&e.Args)
	c.bool(&e.Builtin)
	optional(c, &e.Home, (*coder).home)
}

func (c *coder) binding(b *Binding) {
	c.name(&b.VHost)
	c.name(&b.Source)
	c.str(&b.Destination)
	c.bool(&b.ToExchange)
	c.str(&b.Key)
	c.table(&b.Args)
}

func (c *coder) queue(q *queue.Settings) {
	optional(c, &q.TTL, (*coder).i64)
	c.i64(&q.Expires)
	optional(c, &q.MaxLength, (*coder).i64)
	optional(c, &q.MaxBytes, (*coder).i64)
	c.name((*string)(&q.Overflow))
	optional(c, &q.DeliveryLimit, (*coder).i64)
	optional(c, &q.DeadLetterExchange, (*coder).name)
	optional(c, &q.DeadLetterRoutingKey, (*coder).str)
	c.bool(&q.SingleActive)
	c.i64(&q.ConsumerTimeout)
}

func (c *coder) stream(s *stream.Settings) {
	c.i64(&s.MaxAge)
	c.i64(&s.MaxBytes)
	c.i64(&s.MaxRecords)
}

// plain are the settings of most queues, kept once. Objects of the catalog never change.
var plain queue.Settings

func (c *coder) resource(r *Resource) {
	c.u64(&r.Incarnation)
	c.name(&r.VHost)
	c.str(&r.Name)
	c.name((*string)(&r.Kind))
	c.bool(&r.Durable)
	c.bool(&r.AutoDelete)
	c.bool(&r.Exclusive)
	optional(c, &r.Home, (*coder).home)
	optional(c, &r.Queue, (*coder).queue)
	if c.reading && r.Queue != nil && *r.Queue == (queue.Settings{}) {
		r.Queue = &plain
	}
	optional(c, &r.Stream, (*coder).stream)
	c.table(&r.Args)
	c.name(&r.Policy)
	c.u32(&r.Copies)
	list(c, &r.Partitions, func(c *coder, a **Assignment) {
		if c.reading {
			*a = &Assignment{}
		}
		c.assignment(*a)
	})
}

func (c *coder) partition(p *ident.Partition) {
	c.u64(&p.Incarnation)
	c.u32(&p.Index)
}

func (c *coder) instance(i *ident.Instance) {
	c.name(&i.Node)
	c.bytes(i.Store[:])
	c.u64(&i.Boot)
}

func (c *coder) member(m *Member) {
	c.name(&m.Node)
	c.bytes(m.Store[:])
}

func (c *coder) assignment(a *Assignment) {
	c.partition(&a.Partition)
	c.u64(&a.Epoch)
	c.u64(&a.Version)
	c.instance(&a.Owner)
	list(c, &a.Followers, (*coder).member)
	list(c, &a.Learners, (*coder).member)
	list(c, &a.Leaving, (*coder).member)
	c.name(&a.Policy)
	optional(c, &a.Pending, (*coder).pending)
	list(c, &a.Starts, (*coder).start)
}

func (c *coder) pending(p *Pending) {
	c.str(&p.ID)
	c.u64(&p.Epoch)
	c.name(&p.Cause)
	c.i64(&p.Since)
	list(c, &p.By, (*coder).name)
	c.i64(&p.Suspected)
}

func (c *coder) start(s *HistoryStart) {
	c.u64(&s.Epoch)
	c.u64(&s.Position)
	c.u64(&s.Offset)
	c.bytes(s.Link[:])
	c.name(&s.Node)
	var has uint8
	if s.Evidence != (evidence.Digest{}) {
		has |= startDecided
	}
	if s.Loss.Accepted {
		has |= startLossy
	}
	if c.u8(&has); has&^(startDecided|startLossy) != 0 {
		c.fail("history start")
	}
	if has&startDecided != 0 && c.err == nil {
		if c.bytes(s.Evidence[:]); s.Evidence == (evidence.Digest{}) {
			c.fail("digest")
		}
	}
	if s.Loss.Accepted = has&startLossy != 0; s.Loss.Accepted {
		c.u64(&s.Loss.To)
	}
}

// What follows a history start.
const (
	startDecided = 1 << iota // the digest of its evidence
	startLossy               // the end of what an accepted loss gave up
)

func (c *coder) node(n *Node) {
	c.name(&n.Name)
	c.bytes(n.Store[:])
	c.u64(&n.Boot)
	c.u32(&n.Number)
	c.str(&n.AMQP)
	c.str(&n.Admin)
	c.str(&n.Mesh)
	c.name(&n.Zone)
	c.bool(&n.Draining)
	c.u32(&n.Shards)
	c.i64(&n.Absent)
}

func (c *coder) removed(r *Removed) {
	c.bytes(r.Store[:])
	c.name(&r.Node)
}

func (c *coder) token(t *Token) {
	c.str(&t.ID)
	c.bytes(t.Hash[:])
	c.i64(&t.Expires)
	c.name(&t.Node)
}

func (c *coder) authority(a *Authority) {
	c.str(&a.Certificate)
	c.str(&a.Key)
}

func (c *coder) user(u *User) {
	c.str(&u.Name)
	c.str(&u.Hash)
	list(c, &u.Roles, (*coder).name)
	c.u64(&u.Version)
}

func (c *coder) permission(p *Permission) {
	c.name(&p.User)
	c.name(&p.VHost)
	c.name(&p.Configure)
	c.name(&p.Write)
	c.name(&p.Read)
}

func (c *coder) setting(s *Setting) {
	c.str(&s.Name)
	c.str(&s.Value)
	c.u64(&s.Version)
}

func (c *coder) cluster(k *Cluster) {
	c.bytes(k.ID[:])
	c.u64(&k.Format)
	c.authority(&k.Authority)
}
