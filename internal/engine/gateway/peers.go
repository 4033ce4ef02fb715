package gateway

import (
	"fmt"
	"slices"
	"time"
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
