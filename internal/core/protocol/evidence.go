package protocol

import "github.com/tanist/tanist/internal/core/codec"

// What nodes give each other of the evidence of transitions (design 6): every node keeps all of it.

// Evidence carries records, each as core/evidence encodes it: decisions from the controller ahead of their commit, facts from whoever
// saw them, and what a node lacks. Nobody answers it, and it may come twice.
type Evidence struct{ Records [][]byte }

// IsEvidence reports whether an encoded message is Evidence. Decisions go the way of the catalog's consensus, so that they arrive ahead of
// their commit; its own messages begin with another byte.
func IsEvidence(b []byte) bool { return len(b) > 0 && kind(b[0]) == kindEvidence }

// EvidenceHeld says, when a session begins, which records the sender holds. The other sends, as Evidence, what it holds and the sender
// does not, or holds otherwise.
type EvidenceHeld struct{ Items []HeldRecord }

// HeldRecord names a record by the transition, with the beginning of the SHA-256 of its encoding.
type HeldRecord struct {
	Transition string
	Sum        [8]byte
}

func (c *coder) evidence(m *Evidence) {
	l := codec.Items(&c.Coder, &m.Records, 1)
	for i := range l {
		c.Bytes(&l[i])
	}
}

func (c *coder) evidenceHeld(m *EvidenceHeld) {
	l := codec.Items(&c.Coder, &m.Items, 9)
	for i := range l {
		c.Text(&l[i].Transition)
		c.Fixed(l[i].Sum[:])
	}
}
