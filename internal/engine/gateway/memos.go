package gateway

import "github.com/tanist/tanist/internal/core/broker"

// memosMost bounds the places that a session remembers.
const memosMost = 1024

// memo remembers where messages to one exchange and key went: clients mostly publish to the same places again.
type memo struct {
	exchange, key string
	topology      uint64 // the state of the catalog that it holds for; 0: none
	targets       []*attachment
	missed        bool // see session.targets
	digest        uint32
}

// memos are the places that a session published to. One has two slots, by the digest of its key (broker.Message.Record.KeyHash: another
// digest would do as well, since names are compared). The table grows where both are taken, and from its bound on the newer wins.
type memos struct{ slots []memo }

func (k *memo) is(topology uint64, m *broker.Message) bool {
	return k.topology == topology && k.key == m.RoutingKey && k.exchange == m.Exchange
}

// find is the memo of a message's place; nil where there is none for this state of the catalog.
func (t *memos) find(topology uint64, m *broker.Message) *memo {
	if len(t.slots) == 0 {
		return nil
	}
	i := int(m.Record.KeyHash) & (len(t.slots) - 1)
	if k := &t.slots[i]; k.is(topology, m) {
		return k
	}
	if k := &t.slots[i^1]; k.is(topology, m) {
		return k
	}
	return nil
}

// place gives the memo that is to remember a message's place, in the stead of what it remembered.
func (t *memos) place(topology uint64, m *broker.Message) *memo {
	if k := t.find(topology, m); k != nil {
		return k
	}
	digest := m.Record.KeyHash
	k := t.slot(topology, digest)
	for k == nil {
		t.grow(topology)
		k = t.slot(topology, digest)
	}
	k.exchange, k.key, k.topology, k.digest = m.Exchange, m.RoutingKey, topology, digest
	return k
}

// slot is a slot for a digest; nil where both hold what is valid and the table may grow.
func (t *memos) slot(topology uint64, digest uint32) *memo {
	if len(t.slots) == 0 {
		return nil
	}
	i := int(digest) & (len(t.slots) - 1)
	k, other := &t.slots[i], &t.slots[i^1]
	if k.topology == topology && other.topology != topology {
		k = other
	}
	if k.topology == topology && len(t.slots) < memosMost {
		return nil
	}
	return k
}

// grow doubles the table. What was in one pair of slots lies in two pairs then, so that all of it has its place.
func (t *memos) grow(topology uint64) {
	old := t.slots
	t.slots = make([]memo, max(2*len(old), 2))
	for i := range old {
		if k := &old[i]; k.topology == topology {
			*t.slot(topology, k.digest) = *k
		}
	}
}
