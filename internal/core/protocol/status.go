package protocol

import "github.com/tanist/tanist/internal/core/ident"

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
	Items []CopyStatus
	// Waits are the transitions that cannot go on, of the node whose controller decides, where all copies were asked for.
	Waits []WaitStatus
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
	c.u64(&m.Request)
	c.bool(&m.All)
	l := list(c, &m.Partitions, 2)
	for i := range l {
		c.partition(&l[i])
	}
}

func (c *coder) statusAnswer(m *StatusAnswer) {
	c.u64(&m.Request)
	c.instance(&m.From)
	c.u64(&m.PID)
	c.name(&m.Health)
	c.bool(&m.Closed)
	c.bool(&m.Blocked)
	c.text(&m.Reason)
	c.i64(&m.Since)
	c.u64(&m.Free)
	c.i64(&m.Wall)
	c.i64(&m.CertificateEnds)
	c.u64(&m.Lease)
	l := list(c, &m.Items, 20)
	for i := range l {
		c.copyStatus(&l[i])
	}
	w := list(c, &m.Waits, 11)
	for i := range w {
		c.waitStatus(&w[i])
	}
}

func (c *coder) copyStatus(s *CopyStatus) {
	c.partition(&s.Partition)
	c.name(&s.Role)
	c.name(&s.State)
	c.text(&s.Reason)
	c.u64(&s.Epoch)
	c.u64(&s.Position)
	c.u64(&s.Offset)
	c.u64(&s.Durable)
	c.u64(&s.Confirmed)
	c.u64(&s.Messages)
	c.u64(&s.Ready)
	c.u64(&s.Unsettled)
	c.u64(&s.Consumers)
	c.i64(&s.Bytes)
	c.i64(&s.Staged)
	c.u64(&s.DeadLetters)
	c.text(&s.Stuck)
	c.i64(&s.Moved)
	c.i64(&s.Kept)
	l := list(c, &s.Feeds, 2)
	for i := range l {
		c.name(&l[i].Node)
		c.u64(&l[i].Durable)
	}
}

func (c *coder) waitStatus(s *WaitStatus) {
	c.partition(&s.Partition)
	c.text(&s.Transition)
	c.u64(&s.Kind)
	c.i64(&s.Since)
	c.u64(&s.Answers)
	c.u64(&s.Needed)
	l := list(c, &s.Missing, 1)
	for i := range l {
		c.name(&l[i])
	}
	c.u64(&s.Floor)
	c.name(&s.FloorBy)
	c.text(&s.Reason)
}
