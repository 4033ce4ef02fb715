package gateway

import (
	"log/slog"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/trace"
)

// A queue that the broker named and that is exclusive to its session needs no entry in the catalog: its name says where it is, it goes
// with its session, and only that session may bind, consume or delete it. So the shard of the session makes it, and tells the other
// shards of the node and whoever listens as the catalog would. It is put into the catalog if it is bound (design 5), and as soon as there
// are other nodes, where clients may publish to it by its name: a name alone would not say whether it is in their virtual host.

// local reports whether a resource was made by a shard.
func isLocal(incarnation uint64) bool {
	const bits = ident.TransientBit | ident.LocalBit
	return incarnation&bits == bits
}

// The incarnation of a local resource is, from the top: TransientBit, LocalBit, 22 bits of the run's number, 8 of the shard, 32 of its
// count. So no two runs of any node make the same one.
const (
	localShift = 32
	runShift   = 40
	runMask    = 1<<22 - 1
)

// declareLocal makes a resource on this node alone.
func (s *Shard) declareLocal(r catalog.Resource, done func(catalog.ItemResult, error)) {
	s.locals++
	r.Incarnation = ident.TransientBit | ident.LocalBit | uint64(s.env.Number&runMask)<<runShift | uint64(s.env.Shard)<<localShift |
		s.locals&(1<<localShift-1)
	r.Partitions = []*catalog.Assignment{{
		Partition: ident.Partition{Incarnation: r.Incarnation}, Epoch: 1, Version: 1, Owner: s.env.Local, Policy: r.Policy,
		Starts: []catalog.HistoryStart{{Epoch: 1, Node: s.env.Local.Node}},
	}}
	s.env.Node.tell([]catalog.Change{{After: &r}})
	s.post(func() { done(catalog.ItemResult{Created: true, Object: &r}, nil) }) // behind the change, which is posted already
}

// deleteResource deletes a resource where it is known: in the catalog, or on this node alone.
// epoch is the one that its owner agreed in; 0: whoever owns it.
func (s *Shard) deleteResource(r *catalog.Resource, epoch uint64, done func(catalog.ItemResult, error)) {
	if !isLocal(r.Incarnation) {
		s.propose(catalog.DeleteResource(r.VHost, r.Name, r.Incarnation, epoch), done)
		return
	}
	if s.adopted[r.Incarnation] {
		s.propose(catalog.DeleteResource(r.VHost, r.Name, r.Incarnation, epoch), func(o catalog.ItemResult, err error) {
			if err == nil && o.Refused == nil {
				done(o, nil)
				return
			}
			delete(s.adopted, r.Incarnation) // it was not adopted, or the catalog is out of reach and forgets it with this run
			s.deleteResource(r, epoch, done)
		})
		return
	}
	if have := s.view.Incarnation(r.Incarnation); have != nil {
		s.env.Node.tell([]catalog.Change{{Before: have}})
	}
	s.post(func() { done(catalog.ItemResult{Object: r}, nil) })
}

// endAgain is how soon the end of a resource is asked for again whose outcome is not known.
const endAgain = time.Second

// end deletes what goes with its session, however long the catalog is out of reach: nobody else would before this node's next run, and until then
// it would take messages, and keep its name from everybody.
func (s *Shard) end(r *catalog.Resource) {
	s.deleteResource(r, 0, func(_ catalog.ItemResult, err error) {
		if err != nil {
			s.box.After(endAgain, call(func() { s.end(r) }))
		}
	})
}

// adopt has the catalog learn of a resource that is about to be bound; before is empty where it knows it.
func (x *session) adopt(b *catalog.Binding) (before []catalog.Item) {
	if b.ToExchange {
		return nil
	}
	r := x.sh.view.Resource(x.vhost, b.Destination)
	if r == nil || !isLocal(r.Incarnation) || x.sh.adopted[r.Incarnation] {
		return nil
	}
	if x.sh.adopted == nil {
		x.sh.adopted = map[uint64]bool{}
	}
	x.sh.adopted[r.Incarnation] = true // see joined
	return []catalog.Item{catalog.AdoptResource(*r)}
}

// joined has the catalog learn of all that this shard made, now that there are other nodes. From then on it is the catalog's to delete: a
// deletion that is proposed later is applied later.
func (s *Shard) joined() {
	s.others = true
	for _, r := range s.view.AllResources() {
		if !isLocal(r.Incarnation) || s.adopted[r.Incarnation] || s.env.Node.shard(r.Incarnation) != s || r.Home == nil ||
			r.Home.Node != s.env.Local.Node || r.Home.Boot != s.env.Local.Boot {
			continue
		}
		if s.adopted == nil {
			s.adopted = map[uint64]bool{}
		}
		s.adopted[r.Incarnation] = true
		s.propose(catalog.AdoptResource(*r), func(o catalog.ItemResult, err error) {
			if e := answer(o, err); e != nil {
				trace.Warn(s.env.Trace, "gateway.adopt.failed", slog.String("queue", r.Name), slog.String("reason", e.Text))
			}
		})
	}
}

// DeleteLocal deletes a resource that a shard of this node made, for its replica: an auto-delete queue without consumers. done is called
// once, from any goroutine: with nil where it is gone, also if it was before; else with a *broker.Error, NotFound where no shard of this node made it,
// and it is there yet. Repeating it is safe.
func (n *Node) DeleteLocal(incarnation uint64, done func(error)) {
	s := n.shard(incarnation)
	if s == nil {
		done(broker.Errorf(broker.NotFound, "no shard of this node made resource %d", incarnation))
		return
	}
	s.post(func() {
		r := s.view.Incarnation(incarnation)
		if r == nil {
			done(nil)
			return
		}
		s.deleteResource(r, 0, func(o catalog.ItemResult, err error) {
			if e := answer(o, err); e != nil && e.Code != broker.NotFound {
				done(e)
				return
			}
			done(nil)
		})
	})
}

// IsLocal reports whether a resource was made by a shard of its node and not by the catalog: DeleteLocal deletes it.
func IsLocal(incarnation uint64) bool { return isLocal(incarnation) }
