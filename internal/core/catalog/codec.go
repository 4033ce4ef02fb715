package catalog

import (
	"math"

	"github.com/tanist/tanist/internal/core/codec"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
)

// The encoding of each object. Fields are only ever appended, together with a new format version.

func (c *coder) vhost(v *VHost) { c.Text(&v.Name) }

func (c *coder) home(h *Home) {
	c.Name(&h.Node)
	c.U64(&h.Boot)
	c.U64(&h.Session)
}

func (c *coder) exchange(e *Exchange) {
	c.Name(&e.VHost)
	c.Text(&e.Name)
	c.Name(&e.Type)
	c.Bool(&e.Durable)
	c.Bool(&e.AutoDelete)
	c.Bool(&e.Internal)
	c.Text(&e.Alternate)
	c.table(&e.Args)
	c.Bool(&e.Builtin)
	codec.Optional(c, &e.Home, (*coder).home)
}

func (c *coder) binding(b *Binding) {
	c.Name(&b.VHost)
	c.Name(&b.Source)
	c.Text(&b.Destination)
	c.Bool(&b.ToExchange)
	c.Text(&b.Key)
	c.table(&b.Args)
}

func (c *coder) queue(q *queue.Settings) {
	codec.Optional(c, &q.TTL, (*coder).I64)
	c.I64(&q.Expires)
	codec.Optional(c, &q.MaxLength, (*coder).I64)
	codec.Optional(c, &q.MaxBytes, (*coder).I64)
	c.Name((*string)(&q.Overflow))
	codec.Optional(c, &q.DeliveryLimit, (*coder).I64)
	codec.Optional(c, &q.DeadLetterExchange, (*coder).Name)
	codec.Optional(c, &q.DeadLetterRoutingKey, (*coder).Text)
	c.Bool(&q.SingleActive)
	c.I64(&q.ConsumerTimeout)
}

func (c *coder) stream(s *stream.Settings) {
	c.I64(&s.MaxAge)
	c.I64(&s.MaxBytes)
	c.I64(&s.MaxRecords)
}

// plain are the settings of most queues, kept once. Objects of the catalog never change.
var plain queue.Settings

func (c *coder) resource(r *Resource) {
	c.U64(&r.Incarnation)
	c.Name(&r.VHost)
	c.Text(&r.Name)
	c.Name((*string)(&r.Kind))
	c.Bool(&r.Durable)
	c.Bool(&r.AutoDelete)
	c.Bool(&r.Exclusive)
	codec.Optional(c, &r.Home, (*coder).home)
	codec.Optional(c, &r.Queue, (*coder).queue)
	if c.Reading && r.Queue != nil && *r.Queue == (queue.Settings{}) {
		r.Queue = &plain
	}
	codec.Optional(c, &r.Stream, (*coder).stream)
	c.table(&r.Args)
	c.Name(&r.Policy)
	c.U32(&r.Copies)
	codec.List(c, &r.Partitions, func(c *coder, a **Assignment) {
		if c.Reading {
			*a = &Assignment{}
		}
		c.assignment(*a)
	})
}

func (c *coder) member(m *Member) {
	c.Name(&m.Node)
	c.Fixed(m.Store[:])
}

func (c *coder) assignment(a *Assignment) {
	c.Partition(&a.Partition)
	c.U64(&a.Epoch)
	c.U64(&a.Version)
	c.Instance(&a.Owner)
	codec.List(c, &a.Followers, (*coder).member)
	codec.List(c, &a.Learners, (*coder).member)
	codec.List(c, &a.Leaving, (*coder).member)
	c.Name(&a.Policy)
	codec.Optional(c, &a.Pending, (*coder).pending)
	codec.List(c, &a.Starts, (*coder).start)
}

func (c *coder) pending(p *Pending) {
	c.Text(&p.ID)
	c.U64(&p.Epoch)
	c.Name(&p.Cause)
	c.I64(&p.Since)
	codec.List(c, &p.By, (*coder).Name)
	c.I64(&p.Suspected)
}

func (c *coder) start(s *HistoryStart) {
	c.U64(&s.Epoch)
	c.U64(&s.Position)
	c.U64(&s.Offset)
	c.Fixed(s.Link[:])
	c.Name(&s.Node)
	var has uint8
	if s.Evidence != (evidence.Digest{}) {
		has |= startDecided
	}
	if s.Loss.Accepted {
		has |= startLossy
	}
	if c.U8(&has, math.MaxUint8); has&^(startDecided|startLossy) != 0 {
		c.Fail("history start")
	}
	if has&startDecided != 0 && c.Err == nil {
		if c.Fixed(s.Evidence[:]); s.Evidence == (evidence.Digest{}) {
			c.Fail("digest")
		}
	}
	if s.Loss.Accepted = has&startLossy != 0; s.Loss.Accepted {
		c.U64(&s.Loss.To)
	}
}

// What follows a history start.
const (
	startDecided = 1 << iota // the digest of its evidence
	startLossy               // the end of what an accepted loss gave up
)

func (c *coder) node(n *Node) {
	c.Name(&n.Name)
	c.Fixed(n.Store[:])
	c.U64(&n.Boot)
	c.U32(&n.Number)
	c.Text(&n.AMQP)
	c.Text(&n.Admin)
	c.Text(&n.Mesh)
	c.Name(&n.Zone)
	c.Bool(&n.Draining)
	c.U32(&n.Shards)
	c.I64(&n.Absent)
}

func (c *coder) removed(r *Removed) {
	c.Fixed(r.Store[:])
	c.Name(&r.Node)
}

func (c *coder) token(t *Token) {
	c.Text(&t.ID)
	c.Fixed(t.Hash[:])
	c.I64(&t.Expires)
	c.Name(&t.Node)
}

func (c *coder) authority(a *Authority) {
	c.Text(&a.Certificate)
	c.Text(&a.Key)
}

func (c *coder) user(u *User) {
	c.Text(&u.Name)
	c.Text(&u.Hash)
	codec.List(c, &u.Roles, (*coder).Name)
	c.U64(&u.Version)
}

func (c *coder) permission(p *Permission) {
	c.Name(&p.User)
	c.Name(&p.VHost)
	c.Name(&p.Configure)
	c.Name(&p.Write)
	c.Name(&p.Read)
}

func (c *coder) setting(s *Setting) {
	c.Text(&s.Name)
	c.Text(&s.Value)
	c.U64(&s.Version)
}

func (c *coder) cluster(k *Cluster) {
	c.Fixed(k.ID[:])
	c.U64(&k.Format)
	c.authority(&k.Authority)
}
