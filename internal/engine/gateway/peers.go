package gateway

import "slices"

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
