package protocol

import (
	"github.com/tanist/tanist/internal/core/codec"
	"github.com/tanist/tanist/internal/core/ident"
)

// MaxClients bounds the clients that a ClientsAnswer lists, and MaxConsumers the consumers of all of them together.
const (
	MaxClients   = 2000
	MaxConsumers = 10_000
)

// ClientsAsk asks a node who its clients are.
type ClientsAsk struct{ Request uint64 }

// ClientsAnswer answers ClientsAsk: the clients that came first, and how many there are.
type ClientsAnswer struct {
	Request uint64
	From    ident.Instance
	Total   uint64
	Items   []ClientStatus
}

// ClientStatus is one client's connection, for people.
type ClientStatus struct {
	ID        uint64 // unique in a run of the node
	Peer      string // host:port
	TLS       bool
	Since     int64 // milliseconds since 1970
	State     string
	User      string
	VHost     string
	Name      string // that it gave itself
	Product   string // of the client, with its version
	Channels  uint64
	Unsettled uint64 // deliveries
	In, Out   uint64 // bytes
	Consumers []ConsumerStatus
}

// ConsumerStatus is one consumer, for people.
type ConsumerStatus struct {
	Resource string
	Tag      string
	Channel  uint64
	Prefetch uint64 // of its channel; 0: no bound
	NoAck    bool   // deliveries are settled as they are sent
}

func (c *coder) clientsAsk(m *ClientsAsk) { c.U64(&m.Request) }

func (c *coder) clientsAnswer(m *ClientsAnswer) {
	c.U64(&m.Request)
	c.Instance(&m.From)
	c.U64(&m.Total)
	l := codec.Items(&c.Coder, &m.Items, 13)
	for i := range l {
		c.clientStatus(&l[i])
	}
}

func (c *coder) clientStatus(s *ClientStatus) {
	c.U64(&s.ID)
	c.Text(&s.Peer)
	c.Bool(&s.TLS)
	c.I64(&s.Since)
	c.Name(&s.State)
	c.Text(&s.User)
	c.Text(&s.VHost)
	c.Text(&s.Name)
	c.Text(&s.Product)
	c.U64(&s.Channels)
	c.U64(&s.Unsettled)
	c.U64(&s.In)
	c.U64(&s.Out)
	l := codec.Items(&c.Coder, &s.Consumers, 5)
	for i := range l {
		c.Text(&l[i].Resource)
		c.Text(&l[i].Tag)
		c.U64(&l[i].Channel)
		c.U64(&l[i].Prefetch)
		c.Bool(&l[i].NoAck)
	}
}

// CursorsAsk asks the owner of a stream's partition for its named cursors, and to forget one first.
type CursorsAsk struct {
	Request   uint64
	Partition ident.Partition
	Forget    string // "": none
}

// CursorsAnswer answers CursorsAsk, once what is to be forgotten is confirmed to be.
type CursorsAnswer struct {
	Request uint64
	From    ident.Instance
	Refused string // not empty: why there is no answer
	Known   bool   // the cursor that was to be forgotten was there
	Items   []CursorAt
}

// CursorAt is where a named cursor stands.
type CursorAt struct {
	Name   string
	Offset uint64 // of the next record wanted
}

func (c *coder) cursorsAsk(m *CursorsAsk) {
	c.U64(&m.Request)
	c.Partition(&m.Partition)
	c.Text(&m.Forget)
}

func (c *coder) cursorsAnswer(m *CursorsAnswer) {
	c.U64(&m.Request)
	c.Instance(&m.From)
	c.Text(&m.Refused)
	c.Bool(&m.Known)
	l := codec.Items(&c.Coder, &m.Items, 2)
	for i := range l {
		c.Text(&l[i].Name)
		c.U64(&l[i].Offset)
	}
}
