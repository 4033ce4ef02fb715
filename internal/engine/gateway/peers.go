package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
)

// Messages about the ways to other nodes.
type (
	peerUp   string
	peerDown string
)

// PeerUp says that a session with another node has begun: what waits for an owner there tries at once. Any goroutine may call it.
func (s *Shard) PeerUp(node string) { s.box.Post(peerUp(node)) }

// PeerDown says that the session with another node has ended: what was sent to owners there and not answered may be lost, and is sent
// again on a new stream. Any goroutine may call it.
func (s *Shard) PeerDown(node string) { s.box.Post(peerDown(node)) }

func (s *Shard) peerUp(node string) {
	s.sayUnclaimed()
	for _, a := range slices.Clone(s.attachments) {
		if a.state == waiting && a.owner() == node {
			a.again()
		}
	}
}

func (s *Shard) peerDown(node string) {
	for _, a := range slices.Clone(s.attachments) {
		if a.node == node {
			a.lost()
		}
	}
}

// owner is the node that owns the partition, by the catalog as this shard knows it.
func (a *attachment) owner() string {
	if now, _ := a.sh.view.Assignment(a.p); now != nil {
		return now.Owner.Node
	}
	return ""
}

// homeTimeout is how long consumers wait for the node that has their queue in its memory. No other node can go on with the queue, so after
// that their clients are told: to declare it anew elsewhere, perhaps.
const homeTimeout = 30 * time.Second

// expireHome ends the consumers of a queue that lives in the memory of another node, once that has been out of reach for long. What they
// hold goes with the queue, or back to it.
func (a *attachment) expireHome() {
	home := a.res.Home
	if home == nil || a.away == 0 || a.sh.now-a.away < homeTimeout || home.Node == a.sh.env.Local.Node || len(a.consumers) == 0 {
		return
	}
	reason := fmt.Sprintf("queue '%s' in vhost '%s' is in the memory of node '%s', which has not been reached for %s", a.res.Name, a.res.VHost,
		home.Node, homeTimeout)
	consumers := a.consumers
	a.consumers = nil
	for _, c := range consumers {
		c.release()
		c.ended(reason)
	}
}

// A new owner of a queue delivers nothing before it knows what clients hold of the owner before. A shard that works with the queue says so
// when it attaches anew; one that does not says that it holds nothing, for all queues of an owner's node at once.

// unclaimed is what an owner's node is to be told.
type unclaimed struct {
	owner ident.Instance
	items []protocol.UnclaimedItem
}

// unclaimedItems bounds the items of one message.
const unclaimedItems = 4096

// disclaim gathers the partitions of a queue that have another owner or epoch now, and that this shard does not work with. Owners on this
// node know without being told. before is nil where the resource is new here.
func (s *Shard) disclaim(before, after *catalog.Resource) {
	if s.env.Unclaimed == nil || after.Kind != catalog.Queue {
		return
	}
	for i, now := range after.Partitions {
		if now.Epoch <= 1 || now.Owner.Node == s.env.Local.Node || s.byPartition[now.Partition] != nil {
			continue // nobody owned it before, or nobody has to be told
		}
		if before != nil && i < len(before.Partitions) && before.Partitions[i].Epoch == now.Epoch && before.Partitions[i].Owner == now.Owner {
			continue
		}
		item := protocol.UnclaimedItem{Partition: now.Partition, Epoch: now.Epoch}
		if k := slices.IndexFunc(s.unclaimed, func(u unclaimed) bool { return u.owner == now.Owner }); k >= 0 {
			s.unclaimed[k].items = append(s.unclaimed[k].items, item)
		} else {
			s.unclaimed = append(s.unclaimed, unclaimed{now.Owner, []protocol.UnclaimedItem{item}})
		}
	}
}

// sayUnclaimed tells owners' nodes what was gathered. What there is no way for is kept until there is, if it is still so by then.
func (s *Shard) sayUnclaimed() {
	kept := s.unclaimed[:0]
	for _, u := range s.unclaimed {
		u.items = slices.DeleteFunc(u.items, func(i protocol.UnclaimedItem) bool {
			now, _ := s.view.Assignment(i.Partition)
			return now == nil || now.Owner != u.owner || now.Epoch != i.Epoch || s.byPartition[i.Partition] != nil
		})
		for len(u.items) > 0 {
			n := min(len(u.items), unclaimedItems)
			if !s.env.Unclaimed(u.owner, protocol.Unclaimed{Gateway: s.gateway, Items: u.items[:n:n]}) {
				kept = append(kept, u)
				break
			}
			u.items = u.items[n:]
		}
	}
	clear(s.unclaimed[len(kept):])
	s.unclaimed = kept
}
