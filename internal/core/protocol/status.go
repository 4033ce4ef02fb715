package protocol

import (
	"github.com/tanist/tanist/internal/core/codec"
	"github.com/tanist/tanist/internal/core/ident"
)

// How nodes and copies stand, for people.

// StatusAsk asks a node how copies stand: those named, or all that it holds.
type StatusAsk struct {
	Request    uint64
	All        bool
	Partitions []ident.Partition
}

// StatusAnswer answers StatusAsk, and says how the node itself is. Copies that it does not hold are missing.
type StatusAnswer struct {
	Request uint64
	From    ident.Instance
	PID     uint64 // of its process; 0: it is none
	Health  string // class of its storage fault (design 2 §10); "" is health
	Closed  bool   // its storage takes no more writes
	Blocked bool   // publishers must wait there: space is low
	Reason  string // of any of these
	Since   int64  // when that began, milliseconds since 1970; 0: it has been so since the node's start
	Free    uint64 // bytes that can still be written
	Wall    int64  // its clock as it answered, milliseconds since 1970
	// CertificateEnds is when its certificate for other nodes does, milliseconds since 1970; 0: it has none.
	CertificateEnds int64
	// Lease is for how many milliseconds it may go on without word from the controller where its lease fences; 0: not at all, or no leases are
	// granted to it.
	Lease uint64
	// Aside is what lies in its data directory for people alone, where all copies were asked for; copies that are put aside are Items.
	Aside []AsideStatus
	Items []CopyStatus
	// Waits are the transitions that cannot go on, of the node whose controller decides, where all copies were asked for.
	Waits []WaitStatus
}

// AsideStatus is how much of one kind a node keeps for people alone.
type AsideStatus struct {
	Kind  string // a control.AsideKind
	Files uint64
	Bytes uint64
}

// CopyStatus is how one copy stands, for people. Counts of messages are its owner's to know; other copies say 0.
type CopyStatus struct {
	Partition   ident.Partition
	Role        string
	State       string
	Reason      string // why it does not serve
	Epoch       uint64
	Position    uint64 // the log's end
	Offset      uint64
	Durable     uint64 // position
	Confirmed   uint64 // position
	Messages    uint64 // ever confirmed and applied: the offset after the last of them
	Ready       uint64
	Unsettled   uint64
	Consumers   uint64
	Bytes       int64 // kept in the log
	Staged      int64 // bytes admitted and not yet confirmed
	DeadLetters uint64
	Stuck       string // why the last dead letter was kept
	Moved       int64  // of a learner: when it last came further, milliseconds since 1970
	Kept        int64  // of a former copy: until when its data is kept, milliseconds since 1970; 0: for now
	// Feeds are, of an owner, the copies that take what it sends.
	Feeds []FeedStatus
}

// FeedStatus is what an owner knows of another copy.
type FeedStatus struct {
	Node    string
	Durable uint64 // position up to which the copy has said that it holds the log durably
}

// WaitStatus is a transition that cannot go on, and what for.
type WaitStatus struct {
	Partition  ident.Partition
	Transition string
	Kind       uint64 // a control.WaitKind
	Since      int64  // milliseconds since 1970
	Answers    uint64 // that count,
	Needed     uint64 // of so many
	Missing    []string
	Floor      uint64 // position that must be met,
	FloorBy    string // and who reported it
	Reason     string
}

func (c *coder) statusAsk(m *StatusAsk) {
	c.U64(&m.Request)
	c.Bool(&m.All)
	l := codec.Items(&c.Coder, &m.Partitions, 2)
	for i := range l {
		c.Partition(&l[i])
	}
}

func (c *coder) statusAnswer(m *StatusAnswer) {
	c.U64(&m.Request)
	c.Instance(&m.From)
	c.U64(&m.PID)
	c.Name(&m.Health)
	c.Bool(&m.Closed)
	c.Bool(&m.Blocked)
	c.Text(&m.Reason)
	c.I64(&m.Since)
	c.U64(&m.Free)
	c.I64(&m.Wall)
	c.I64(&m.CertificateEnds)
	c.U64(&m.Lease)
	kept := codec.Items(&c.Coder, &m.Aside, 3)
	for i := range kept {
		c.Name(&kept[i].Kind)
		c.U64(&kept[i].Files)
		c.U64(&kept[i].Bytes)
	}
	l := codec.Items(&c.Coder, &m.Items, 20)
	for i := range l {
		c.copyStatus(&l[i])
	}
	w := codec.Items(&c.Coder, &m.Waits, 11)
	for i := range w {
		c.waitStatus(&w[i])
	}
}

func (c *coder) copyStatus(s *CopyStatus) {
	c.Partition(&s.Partition)
	c.Name(&s.Role)
	c.Name(&s.State)
	c.Text(&s.Reason)
	c.U64(&s.Epoch)
	c.U64(&s.Position)
	c.U64(&s.Offset)
	c.U64(&s.Durable)
	c.U64(&s.Confirmed)
	c.U64(&s.Messages)
	c.U64(&s.Ready)
	c.U64(&s.Unsettled)
	c.U64(&s.Consumers)
	c.I64(&s.Bytes)
	c.I64(&s.Staged)
	c.U64(&s.DeadLetters)
	c.Text(&s.Stuck)
	c.I64(&s.Moved)
	c.I64(&s.Kept)
	l := codec.Items(&c.Coder, &s.Feeds, 2)
	for i := range l {
		c.Name(&l[i].Node)
		c.U64(&l[i].Durable)
	}
}

func (c *coder) waitStatus(s *WaitStatus) {
	c.Partition(&s.Partition)
	c.Text(&s.Transition)
	c.U64(&s.Kind)
	c.I64(&s.Since)
	c.U64(&s.Answers)
	c.U64(&s.Needed)
	l := codec.Items(&c.Coder, &s.Missing, 1)
	for i := range l {
		c.Name(&l[i])
	}
	c.U64(&s.Floor)
	c.Name(&s.FloorBy)
	c.Text(&s.Reason)
}
