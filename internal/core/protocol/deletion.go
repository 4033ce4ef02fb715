package protocol

import (
	"github.com/tanist/tanist/internal/core/codec"
	"github.com/tanist/tanist/internal/core/ident"
)

// DeletionAsk asks the node whose controller decides what deleting a resource by force would give up, or to do it.
type DeletionAsk struct {
	Request     uint64
	Incarnation uint64
	Execute     bool
	Plan        string   // of Execute: the hash of the plan that is to be carried out
	Reason      string   // likewise, of the operator
	Stopped     []string // likewise: nodes that the operator says are stopped
}

// DeletionAnswer answers DeletionAsk: with the plan as it is now, and what became of it.
type DeletionAnswer struct {
	Request uint64
	From    ident.Instance
	Parts   []PartEnd
	Fence   []string // missing nodes that must be known to be stopped
	Against string   // not empty: why it cannot be deleted by force
	Hash    string   // of the plan
	// Refused says why Execute was not done; Moved that the plan is another by now. Both are final, and nothing was deleted.
	Refused string
	Moved   bool
	Done    bool // it is deleted
}

// PartEnd is how one partition of it stands. Members are named by their nodes.
type PartEnd struct {
	Partition ident.Partition
	Epoch     uint64
	Owner     ident.Instance
	Served    bool
	Floor     uint64 // the highest position that anyone reported as confirmed,
	FloorBy   string // and who did
	Left      []string
	Missing   []string
}

func (c *coder) deletionAsk(m *DeletionAsk) {
	c.U64(&m.Request)
	c.U64(&m.Incarnation)
	c.Bool(&m.Execute)
	c.Text(&m.Plan)
	c.Text(&m.Reason)
	c.namesOf(&m.Stopped)
}

func (c *coder) deletionAnswer(m *DeletionAnswer) {
	c.U64(&m.Request)
	c.Instance(&m.From)
	parts := codec.Items(&c.Coder, &m.Parts, 1)
	for i := range parts {
		c.partEnd(&parts[i])
	}
	c.namesOf(&m.Fence)
	c.Text(&m.Against)
	c.Text(&m.Hash)
	c.Text(&m.Refused)
	c.Bool(&m.Moved)
	c.Bool(&m.Done)
}

func (c *coder) partEnd(e *PartEnd) {
	c.Partition(&e.Partition)
	c.U64(&e.Epoch)
	c.Instance(&e.Owner)
	c.Bool(&e.Served)
	c.U64(&e.Floor)
	c.Name(&e.FloorBy)
	c.namesOf(&e.Left)
	c.namesOf(&e.Missing)
}
