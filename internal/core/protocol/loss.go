package protocol

import (
	"github.com/tanist/tanist/internal/core/codec"
	"github.com/tanist/tanist/internal/core/ident"
)

// LossAsk asks the node whose controller decides what accepting a loss would do (design 2 §8), or to do it.
type LossAsk struct {
	Request   uint64
	Partition ident.Partition
	Execute   bool
	Plan      string   // of Execute: the hash of the plan that is to be carried out
	Reason    string   // likewise, of the operator
	Stopped   []string // likewise: nodes that the operator says are stopped
}

// LossAnswer answers LossAsk: with the plan as it is now, and what became of it. Members are named by their nodes.
type LossAnswer struct {
	Request   uint64
	From      ident.Instance
	Epoch     uint64 // in force when it was planned
	Owner     ident.Instance
	Candidate ident.Instance
	Position  uint64 // where the candidate's history would begin
	Offset    uint64
	To        uint64 // position that ends what may be gone,
	FloorBy   string // who reported it,
	FloorAt   int64  // and when, milliseconds since 1970; 0: not known
	Followers []string
	Learners  []string
	Missing   []string
	Fence     []string // missing nodes that must be known to be stopped
	Notes     []string // answers that do not count, and why
	Against   string   // not empty: why nothing can be accepted
	Hash      string   // of the plan
	// Refused says why Execute was not done; Moved that the plan is another by now. Both are final, and nothing was given up.
	Refused string
	Moved   bool
	// Transition is what Execute did.
	Transition string
}

func (c *coder) lossAsk(m *LossAsk) {
	c.U64(&m.Request)
	c.Partition(&m.Partition)
	c.Bool(&m.Execute)
	c.Text(&m.Plan)
	c.Text(&m.Reason)
	c.namesOf(&m.Stopped)
}

func (c *coder) lossAnswer(m *LossAnswer) {
	c.U64(&m.Request)
	c.Instance(&m.From)
	c.U64(&m.Epoch)
	c.Instance(&m.Owner)
	c.Instance(&m.Candidate)
	c.U64(&m.Position)
	c.U64(&m.Offset)
	c.U64(&m.To)
	c.Name(&m.FloorBy)
	c.I64(&m.FloorAt)
	for _, l := range []*[]string{&m.Followers, &m.Learners, &m.Missing, &m.Fence, &m.Notes} {
		c.namesOf(l)
	}
	c.Text(&m.Against)
	c.Text(&m.Hash)
	c.Text(&m.Refused)
	c.Bool(&m.Moved)
	c.Text(&m.Transition)
}

func (c *coder) namesOf(of *[]string) {
	l := codec.Items(&c.Coder, of, 1)
	for i := range l {
		c.Text(&l[i])
	}
}
