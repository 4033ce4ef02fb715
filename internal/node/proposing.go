package node

import (
	"errors"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/engine/consensus"
)

// proposer is the catalog's consensus as gateways see it: its errors say what a client may do.
type proposer struct{ n *Node }

// Propose implements gateway.Proposer.
func (p proposer) Propose(cmd []byte, done func(catalog.Result, error)) {
	p.n.consensus.Propose(cmd, func(r catalog.Result, err error) { done(r, forClients(err)) })
}

// forClients puts what became of a change that the catalog did not answer into words. AMQP gives a reply 255 bytes.
func forClients(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, consensus.ErrUncertain):
		return broker.Errorf(broker.Uncertain, "it is not known whether the change was made: the catalog has no quorum, or lost the node that leads it; what is served goes on; asking again is safe")
	case errors.Is(err, consensus.ErrNotProposed):
		return broker.Errorf(broker.Unavailable,
			"nothing was changed: the catalog has no quorum in reach, or too much to do; queues whose owner and copies are in reach go on; try again later or on another node")
	}
	return err
}

// forOperators is the same for the admin API: who changes something there can also ask what is missing.
func forOperators(err error) error {
	switch {
	case errors.Is(err, consensus.ErrUncertain):
		return broker.Errorf(broker.Unavailable, "it is not known whether the change was made: the catalog has no quorum, or lost the node that leads it. "+
			"Look before you ask again; `tanist attention` says which nodes are missing")
	case errors.Is(err, consensus.ErrNotProposed):
		return broker.Errorf(broker.Unavailable, "nothing was changed: the catalog has no quorum in reach of this node, or too much to do. `tanist attention` says which nodes are missing")
	}
	return broker.Errorf(broker.Unavailable, "the catalog did not take the change: %s", err)
}

// askAgain is how soon a proposal is made again whose outcome is not known.
const askAgain = time.Second

// known makes a proposal again, later, for as long as it is not known what became of it, and says what did. An owner that has closed for a deletion
// must not open on less: the deletion could come into force yet, and take what was confirmed since. That a later one was not made says nothing of
// one before it: only the catalog's word on one ends the doubt, since what is applied after another of this run never comes into force. The
// proposal must be one that is guarded against being done twice.
func known(propose func(done func(error)), later func(func()), done func(error)) {
	doubt := false
	var ask func()
	ask = func() {
		propose(func(err error) {
			doubt = doubt || errors.Is(err, consensus.ErrUncertain)
			if doubt && (errors.Is(err, consensus.ErrUncertain) || errors.Is(err, consensus.ErrNotProposed)) {
				later(ask)
				return
			}
			done(err)
		})
	}
	ask()
}
