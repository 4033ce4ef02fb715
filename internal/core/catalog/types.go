// Package catalog is the cluster's metadata as a replicated state machine: state, command → state, outcome, changes; and View, the
// index that everybody who needs to look things up builds from the changes. It knows neither how commands are agreed on nor what
// the changes bring about. No clock, no randomness and no order of a map may decide anything here: every node must get the same
// state from the same commands, byte for byte.
package catalog

import (
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
	"github.com/tanist/tanist/internal/core/value"
)

// Objects of the catalog are immutable: a change replaces the object, so that views and listeners may share pointers.

// VHost is a name space of exchanges and resources.
type VHost struct {
	Name string `json:"name"`
}

// Exchange routes messages to resources and other exchanges.
type Exchange struct {
	VHost      string      `json:"vhost"`
	Name       string      `json:"name"`
	Type       string      `json:"type"` // direct, fanout, topic, headers
	Durable    bool        `json:"durable"`
	AutoDelete bool        `json:"auto_delete,omitempty"` // goes with its last binding
	Internal   bool        `json:"internal,omitempty"`
	Alternate  string      `json:"alternate,omitempty"` // exchange for what this one cannot route
	Args       value.Table `json:"args,omitempty"`
	Builtin    bool        `json:"builtin,omitempty"`
	Home       *Home       `json:"home,omitempty"` // set where not Durable
}

// Home ties a transient object to the node and the run that hold it; it goes when that boot is buried.
type Home struct {
	Node    string `json:"node"`
	Boot    uint64 `json:"boot"`
	Session uint64 `json:"session,omitempty"` // of an exclusive resource: the client session it goes with
}

// Binding routes from an exchange to a resource or another exchange.
type Binding struct {
	VHost       string      `json:"vhost"`
	Source      string      `json:"source"`
	Destination string      `json:"destination"`
	ToExchange  bool        `json:"to_exchange,omitempty"`
	Key         string      `json:"key"`
	Args        value.Table `json:"args,omitempty"`
}

// Kind is what a resource is.
type Kind = ident.Kind

// The kinds of resource.
const (
	Queue  = ident.Queue
	Stream = ident.Stream
)

// DefaultCopies is how many copies a resource wants that does not say.
const DefaultCopies = 3

// Resource is a queue or a stream. Durable ones are replicated; transient ones live in the memory of Home.
type Resource struct {
	Incarnation uint64           `json:"incarnation"`
	VHost       string           `json:"vhost"`
	Name        string           `json:"name"`
	Kind        Kind             `json:"kind"`
	Durable     bool             `json:"durable"`
	AutoDelete  bool             `json:"auto_delete,omitempty"` // goes with its last consumer
	Exclusive   bool             `json:"exclusive,omitempty"`
	Home        *Home            `json:"home,omitempty"` // set where not Durable or Exclusive
	Queue       *queue.Settings  `json:"queue,omitempty"`
	Stream      *stream.Settings `json:"stream,omitempty"`
	Args        value.Table      `json:"args,omitempty"` // the known arguments as declared, for later declarations to match
	Policy      string           `json:"policy"`         // one of quorum's policies, as text
	// Copies is how many copies of each partition are wanted, the owner's included; 0: DefaultCopies. A wish: there are never more
	// than nodes (design 2 §12).
	Copies     uint32        `json:"copies,omitempty"`
	Partitions []*Assignment `json:"partitions"`
}

// Target is how many copies are wanted of each partition: 1 of a resource that lives in memory.
func (r *Resource) Target() int {
	switch {
	case r.Home != nil:
		return 1
	case r.Copies == 0:
		return DefaultCopies
	}
	return int(r.Copies)
}

// Member is one place in an assignment. Only the named store is admitted.
type Member struct {
	Node  string        `json:"node"`
	Store ident.StoreID `json:"store"`
}

// Assignment says who owns and follows a partition (design 1).
type Assignment struct {
	Partition ident.Partition `json:"partition"`
	Epoch     uint64          `json:"epoch"`   // 0 until a first owner was committed
	Version   uint64          `json:"version"` // counts every change
	Owner     ident.Instance  `json:"owner"`
	Followers []Member        `json:"followers,omitempty"`
	Learners  []Member        `json:"learners,omitempty"`
	// Leaving are followers that are to leave: each goes with the admission of a learner in its place, or at once where there are more
	// copies than wanted. They count like every follower until then.
	Leaving []Member       `json:"leaving,omitempty"`
	Policy  string         `json:"policy"`
	Pending *Pending       `json:"pending,omitempty"`
	Starts  []HistoryStart `json:"starts,omitempty"` // ascending epochs, the last 32
}

// Eligible is E: the owner and the followers.
func (a *Assignment) Eligible() int { return 1 + len(a.Followers) }

// Member reports whether a store is the owner's or a follower's: whether the catalog admits what is said of its copy.
func (a *Assignment) Member(store ident.StoreID) bool {
	return a.Owner.Store == store || slices.ContainsFunc(a.Followers, func(m Member) bool { return m.Store == store })
}

// admits reports whether a place is the owner's or a follower's, by node and store.
func (a *Assignment) admits(m Member) bool {
	return m == (Member{Node: a.Owner.Node, Store: a.Owner.Store}) || slices.Contains(a.Followers, m)
}

// Names reports whether a store has any place in the assignment, be it a learner's.
func (a *Assignment) Names(store ident.StoreID) bool {
	return a.Member(store) || slices.ContainsFunc(a.Learners, func(m Member) bool { return m.Store == store })
}

// Pending is a transition that has been recorded and not yet committed (design 2 §5, step 1).
type Pending struct {
	ID    string `json:"id"`
	Epoch uint64 `json:"epoch"` // the one that copies are sealed at
	Cause string `json:"cause"`
	Since int64  `json:"since"` // milliseconds since 1970
	// By are the nodes that saw the cause, sorted, and Suspected is when it began, in microseconds since 1970; 0: not known.
	By        []string `json:"by,omitempty"`
	Suspected int64    `json:"suspected,omitempty"`
}

// Equal reports whether two are the same in everything.
func (p *Pending) Equal(o *Pending) bool {
	return p.ID == o.ID && p.Epoch == o.Epoch && p.Cause == o.Cause && p.Since == o.Since && slices.Equal(p.By, o.By) && p.Suspected == o.Suspected
}

// HistoryStart is where an owner's history began.
type HistoryStart struct {
	Epoch    uint64     `json:"epoch"`
	Position uint64     `json:"position"`
	Offset   uint64     `json:"offset"`
	Link     batch.Link `json:"link"`
	Node     string     `json:"node"`
	// Evidence is the digest of the record that the owner was chosen by; nodes keep the record itself. Zero: a first owner has none.
	Evidence evidence.Digest `json:"evidence,omitzero"`
	// Loss is what an accepted loss gave up; zero of every other start.
	Loss Loss `json:"loss,omitzero"`
}

// Loss is what an operator gave up with the missing copies (design 2 §8): the entries from the start's position up to To were confirmed, as
// far as anyone had reported, and their places are taken by what the new owner appends. Only below such a start may a copy be cut that has
// applied more.
type Loss struct {
	Accepted bool   `json:"accepted"`
	To       uint64 `json:"to"` // position; that of the start where nothing confirmed is known to be gone
}

// Node is a member of the cluster.
type Node struct {
	Name   string        `json:"name"`
	Store  ident.StoreID `json:"store"`
	Boot   uint64        `json:"boot"`   // the last registered; older ones are buried
	Number uint32        `json:"number"` // of this run, unique among all runs of all nodes; producer ids are made of it
	AMQP   string        `json:"amqp,omitempty"`
	Admin  string        `json:"admin,omitempty"`
	Mesh   string        `json:"mesh,omitempty"`
	Zone   string        `json:"zone,omitempty"` // copies spread over zones first
	// Draining says that the node is to be left: it takes no new copies. Only DrainNode changes it; it outlives restarts.
	Draining bool `json:"draining,omitempty"`
	// Shards is how many gateways this run has: a new owner hears from each of them what its clients hold.
	Shards uint32 `json:"shards,omitempty"`
	// Absent is since when the registered run has been away by the controller's word, in milliseconds since 1970; 0: it is not. How long a
	// lost follower keeps its place counts from here, whoever is the controller.
	Absent int64 `json:"absent,omitempty"`
}

// Removed is a store that has left the cluster for good. It may not register again, whatever it still holds.
type Removed struct {
	Store ident.StoreID `json:"store"`
	Node  string        `json:"node"`
}

// Token lets one new node enrol, once. The secret itself is never kept.
type Token struct {
	ID      string   `json:"id"`
	Hash    [32]byte `json:"-"`              // SHA-256 of the secret
	Expires int64    `json:"expires"`        // milliseconds since 1970; at that time it is expired
	Node    string   `json:"node,omitempty"` // the only name that may use it; "": any
}

// Authority is who signs the certificates of the cluster's nodes.
type Authority struct {
	Certificate string `json:"certificate"` // PEM, one or more; "": none is known yet
	Key         string `json:"-"`           // PEM; "" where the cluster did not make the authority itself
}

// User may log in. Hash is argon2id in its usual text form.
type User struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
	// Roles: "administrator" may do everything on the admin port, "monitoring" may read there.
	Roles []string `json:"roles,omitempty"`
	// Version is another with every change. Of a user that is put, it is the one that the change was decided on.
	Version uint64 `json:"version"`
}

// Permission is what a user may do in a virtual host: regular expressions on names, as RabbitMQ has them.
type Permission struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

// Cluster is what all nodes of a cluster share. There is one.
type Cluster struct {
	ID ident.StoreID `json:"id"`
	// Format is the version of commands in use; it is raised once every node can read the next.
	Format    uint64    `json:"format"`
	Authority Authority `json:"authority"`
}

// Change is one object replaced: Before nil means added, After nil removed. Objects are *VHost, *Exchange, *Binding, *Resource,
// *Node, *User, *Permission, *Setting, *Token, *Removed, *Deletion or *Cluster.
type Change struct {
	Index  uint64 // of the consensus entry that made it
	Before any
	After  any
}

// Setting is one runtime setting.
type Setting struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Version uint64 `json:"version"`
}
