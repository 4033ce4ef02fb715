// Package admin is the HTTP front for operators: the JSON API under /api/v1, metrics for Prometheus, and health. It translates
// between HTTP and a Backend that the node gives it; it decides nothing but who may ask. No engine may come in.
package admin

import (
	"context"

	"github.com/tanist/tanist/internal/core/catalog"
)

// Backend is what a node answers to. Methods may be called from any goroutine and return early when ctx ends. Errors that a client
// should see are *broker.Error, whose code picks the HTTP status; any other error is a fault of the node (500).
type Backend interface {
	Authenticator
	Members
	Recorder
	Checker

	Wisher
	Losses
	Lists
	Deleter

	Overview(ctx context.Context) (Overview, error)
	Nodes(ctx context.Context) ([]Node, error)
	// Resources and Partitions are sorted by virtual host, name and partition.
	Resources(ctx context.Context) ([]Resource, error)
	Partitions(ctx context.Context) ([]Partition, error)

	Users(ctx context.Context) ([]catalog.User, error) // without hashes
	// PutUser creates or changes a user. Without a Password the old one stays.
	PutUser(ctx context.Context, u UserUpdate) error
	DeleteUser(ctx context.Context, name string) error
	VHosts(ctx context.Context) ([]catalog.VHost, error)
	PutVHost(ctx context.Context, name string) error
	DeleteVHost(ctx context.Context, name string) error
	Permissions(ctx context.Context) ([]catalog.Permission, error)
	PutPermission(ctx context.Context, p catalog.Permission) error
	DeletePermission(ctx context.Context, user, vhost string) error

	// Metrics is a snapshot of the node's counters. It must be cheap: it is asked for every few seconds.
	Metrics() Metrics
	// Ready is nil once the node can serve every partition it owns; else the error says what it waits for. It must not block.
	Ready() error
}

// Authenticator knows the users.
type Authenticator interface {
	// Authenticate checks a user's password and returns the user's roles. loopback says that the request came from this machine;
	// the backend refuses guest otherwise. A wrong user or password is a *broker.Error with code AuthFailed.
	Authenticate(ctx context.Context, user, password string, loopback bool) (roles []string, err error)
}

// UserUpdate is a change to a user.
type UserUpdate struct {
	Name     string    `json:"-"`
	Password *string   `json:"password,omitempty"` // nil: unchanged
	Roles    *[]string `json:"roles,omitempty"`    // nil: unchanged
}

// Overview is one screen about the whole cluster.
type Overview struct {
	Product    string `json:"product"`
	Version    string `json:"version"`
	Node       string `json:"node"`       // that answered
	Controller string `json:"controller"` // the node that decides
	Started    int64  `json:"started"`    // of this node, milliseconds since 1970
	Ready      bool   `json:"ready"`
	// NotReady says what the node waits for, if it is not ready.
	NotReady   string `json:"not_ready,omitempty"`
	Nodes      int    `json:"nodes"`
	Resources  int    `json:"resources"`
	Partitions int    `json:"partitions"`
	// States counts partitions by state.
	States map[State]int `json:"states"`
	// Connections are the clients of this node.
	Connections int `json:"connections"`
	// Blocked is why publishers of this node are blocked; empty if they are not.
	Blocked string `json:"blocked,omitempty"`
	// PID is the process, for measuring it from outside.
	PID int `json:"pid"`
}

// Node is one member of the cluster.
type Node struct {
	Name       string `json:"name"`
	AMQP       string `json:"amqp"`  // host:port
	Admin      string `json:"admin"` // host:port
	Mesh       string `json:"mesh"`  // host:port, for other nodes
	Zone       string `json:"zone,omitempty"`
	PID        int    `json:"pid"`              // of its process, 0 if not known
	Live       bool   `json:"live"`             // the node that was asked reaches it
	Reason     string `json:"reason,omitempty"` // why it is not live
	Votes      bool   `json:"votes"`            // on the catalog
	Controller bool   `json:"controller"`
	Health     string `json:"health"` // "ok", "unknown", or a class of storage health (transient, pressure, full, permission, uncertain, corruption); "cooling": its store closed itself not long ago
	Draining   bool   `json:"draining"`
	// Lease is for how many milliseconds it may go on without word from the controller where its lease fences; 0: not at all, or no leases are
	// granted in this cluster of one.
	Lease uint64 `json:"lease_ms"`
	// Absent is since when it has been away by the controller's word, in milliseconds since 1970; not there: it is not.
	Absent int64 `json:"absent_since,omitempty"`
}

// Resource is a queue or stream with what its owners count.
type Resource struct {
	Name        string `json:"name"`
	VHost       string `json:"vhost"`
	Kind        string `json:"kind"` // queue or stream
	Incarnation uint64 `json:"incarnation"`
	Durable     bool   `json:"durable"`
	Exclusive   bool   `json:"exclusive"`
	AutoDelete  bool   `json:"auto_delete"`
	Policy      string `json:"policy"` // that is wished, as Copies is
	Copies      int    `json:"copies"` // of each partition
	Partitions  int    `json:"partitions"`
	State       State  `json:"state"` // the worst of its partitions'
	Ready       uint64 `json:"ready"` // messages; of a stream, records kept
	Unsettled   uint64 `json:"unsettled"`
	Consumers   int    `json:"consumers"`
	Bytes       uint64 `json:"bytes"` // of the bodies kept, 0 if not known
	// Arguments are the known arguments as declared, each as text.
	Arguments map[string]string `json:"arguments,omitempty"`
}

// State is what a partition does for clients (design 6).
type State string

// The states of a partition, best first.
const (
	Serving    State = "serving"
	Moving     State = "moving"
	Recovering State = "recovering"
	Waiting    State = "waiting"
	Blocked    State = "blocked"
)

// States are all states, best first.
var States = []State{Serving, Moving, Recovering, Waiting, Blocked}

// Partition is one partition with its copies.
type Partition struct {
	Resource  string   `json:"resource"`
	VHost     string   `json:"vhost"`
	Kind      string   `json:"kind"`
	Partition uint32   `json:"partition"`
	ID        string   `json:"id"` // RESOURCE/PARTITION in numbers, as inspect and the log write it
	Epoch     uint64   `json:"epoch"`
	Version   uint64   `json:"version"`
	Policy    string   `json:"policy"`
	E         int      `json:"e"`
	W         int      `json:"w"`
	R         int      `json:"r"`
	Owner     string   `json:"owner"`
	Followers []string `json:"followers"`
	Learners  []string `json:"learners"`
	Leaving   []string `json:"leaving"` // followers that are to leave
	// Changing is what there is yet to do of what is wished: copies that learn, leave or are missing, and another policy.
	Changing  []string `json:"changing"`
	Held      []Held   `json:"held"` // followers that are not simply there, in the order of followers
	State     State    `json:"state"`
	Reason    string   `json:"reason,omitempty"` // why it does not serve
	Confirmed uint64   `json:"confirmed"`        // position: it counts settles and other events as it does messages
	Messages  uint64   `json:"messages"`         // ever confirmed, those that are gone since too
	// Transition is the id of the change of owner that is under way.
	Transition string `json:"transition,omitempty"`
	Copies     []Copy `json:"copies"`
}

// Held is a follower that is not simply there, and what becomes of its place.
type Held struct {
	Node string `json:"node"`
	Why  string `json:"why"` // its place is kept, or why it is to be replaced
	// Since is when its node went away and Until when its place goes to another, in milliseconds since 1970; 0: it did not go away, or its place
	// is to go now.
	Since   int64  `json:"since"`
	Until   int64  `json:"until"`
	Learner string `json:"learner,omitempty"` // the node that learns in its stead
}

// Copy is one node's copy of a partition.
type Copy struct {
	Node     string `json:"node"`
	Role     string `json:"role"` // owner, follower, learner, sealed or quarantined; former: it is none any more
	Position uint64 `json:"position"`
	Offset   uint64 `json:"offset"`
	Durable  uint64 `json:"durable"` // position up to which it has been synced
	Lag      uint64 `json:"lag"`     // entries behind the owner's tail
	Health   string `json:"health"`  // as a node's, or "damaged", "missing" or "unreachable"
	// Moved is, of a copy that catches up from far, when it last came further, in milliseconds since 1970.
	Moved int64 `json:"moved,omitempty"`
	// Reason is why a copy that does not own counts for nothing: it is damaged, or being made of an image.
	Reason string `json:"reason,omitempty"`
	// Bytes are kept in its log.
	Bytes uint64 `json:"bytes"`
	// Kept is, of a former copy, until when its data is kept, in milliseconds since 1970; 0: for now, since an owner is being chosen, or it is damaged.
	Kept int64 `json:"kept,omitempty"`
	// CouldLead says whether it could own if the owner was lost now, as far as is known; WhyNot why it could not.
	CouldLead bool   `json:"could_lead"`
	WhyNot    string `json:"why_not,omitempty"`
}
