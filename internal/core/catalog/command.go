package catalog

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tanist/tanist/internal/core/codec"
	"github.com/tanist/tanist/internal/core/ident"
)

// Format is the newest version of commands and snapshots that this code reads, and the one that it writes.
const Format = 1

// MaxCommand is the greatest size of an encoded command (design 2 §12).
const MaxCommand = 256 << 10

// MaxName is the greatest length of a name in bytes.
const MaxName = 255

// MaxPartitions is the greatest number of partitions of one resource.
const MaxPartitions = 64

// A command is a list of items:
//
//	u8 format | uvarint number of items | for each: u8 operation, uvarint length, body
//
// Each item is guarded by itself: one that is refused does not refuse the others. Items are applied in order, and later ones see
// what earlier ones did.
type op uint8

const (
	opInitCluster op = iota + 1
	opRaiseFormat
	opCreateVHost
	opDeleteVHost
	opDeclareExchange
	opDeleteExchange
	opBind
	opUnbind
	opDeclareResource
	opDeleteResource
	opPutUser
	opDeleteUser
	opPutPermission
	opDeletePermission
	opRegisterBoot
	opRecordPending
	opCommitTransition
	opCancelPending
	opPutSetting
	opDeleteSetting
	opAdoptResource
	opAddLearner
	opDropLearner
	opChangeMembers
	opRemoveNode
	opReplaceNode
	opDrainNode
	opPutToken
	opUseToken
	opSetAuthority
	opNoteAbsent
	opMarkLeaving
	opSetWishes
	opAcceptLoss
	opForceDelete
	opForgetDeletion
)

// Item is one guarded change, made by one of the constructors below.
type Item struct {
	op   op
	body []byte
	err  error
}

func item(o op, write func(*coder)) Item {
	c := writer(nil)
	write(&c)
	return Item{o, c.Buf, c.Err}
}

func (i Item) size() int { return 1 + binary.MaxVarintLen32 + len(i.body) }

// Encode makes a command of items. It returns ErrTooLarge for more than MaxCommand bytes, and ErrMalformed if a table is nested
// too deep. Retrying is of no use.
func Encode(items ...Item) ([]byte, error) {
	size := 1 + binary.MaxVarintLen32
	for _, i := range items {
		if i.err != nil {
			return nil, i.err
		}
		size += i.size()
	}
	if size > MaxCommand {
		return nil, ErrTooLarge
	}
	b := append(make([]byte, 0, size), Format)
	b = binary.AppendUvarint(b, uint64(len(items)))
	for _, i := range items {
		b = append(b, byte(i.op))
		b = binary.AppendUvarint(b, uint64(len(i.body)))
		b = append(b, i.body...)
	}
	return b, nil
}

// Chunks makes as few commands of items, in order, as MaxCommand allows. It fails as Encode does if one item alone is too large.
func Chunks(items []Item) ([][]byte, error) {
	var out [][]byte
	for len(items) > 0 {
		n, size := 0, 1+binary.MaxVarintLen32
		for n < len(items) && (n == 0 || size+items[n].size() <= MaxCommand) {
			size += items[n].size()
			n++
		}
		cmd, err := Encode(items[:n]...)
		if err != nil {
			return nil, err
		}
		out = append(out, cmd)
		items = items[n:]
	}
	return out, nil
}

// decodeItems splits a command. Bodies are decoded by the operations.
func decodeItems(cmd []byte) ([]Item, error) {
	if len(cmd) == 0 {
		return nil, fmt.Errorf("%w: empty command", ErrMalformed)
	}
	if cmd[0] == 0 || cmd[0] > Format {
		return nil, fmt.Errorf("%w: format %d, known up to %d", ErrUnknownCommand, cmd[0], Format)
	}
	c := reader(cmd[1:], nil)
	items := make([]Item, 0, min(c.Count(0, 1), 4096))
	c.Buf = cmd[1:]
	for range c.Count(0, 1) {
		var o uint8
		c.U8(&o, math.MaxUint8)
		body := c.Raw(c.Count(0, 1))
		if c.Err != nil {
			return nil, c.Err
		}
		items = append(items, Item{op: op(o), body: body})
	}
	return items, c.End()
}

// InitCluster names the cluster, once. It is refused with Exists if the cluster has a name.
func InitCluster(id ident.StoreID) Item {
	k := Cluster{ID: id, Format: Format}
	return item(opInitCluster, func(c *coder) { c.cluster(&k) })
}

// RaiseFormat raises the cluster's format from one version to a higher one, once all nodes can read it. A node that cannot stops.
func RaiseFormat(from, to uint64) Item {
	return item(opRaiseFormat, func(c *coder) { c.U64(&from); c.U64(&to) })
}

// CreateVHost makes a virtual host with its built-in exchanges. One that exists stays as it is: Created is false then.
func CreateVHost(name string) Item {
	return item(opCreateVHost, func(c *coder) { c.Text(&name) })
}

// DeleteVHost removes a virtual host with everything in it.
func DeleteVHost(name string) Item {
	return item(opDeleteVHost, func(c *coder) { c.Text(&name) })
}

// DeclareExchange makes an exchange, or checks that the one that exists is equivalent. Home must be set where it is not Durable,
// and name the registered boot of its node.
func DeclareExchange(e Exchange) Item {
	return item(opDeclareExchange, func(c *coder) { c.exchange(&e) })
}

// DeleteExchange removes an exchange and its bindings. ifUnused refuses with InUse while bindings lead from it.
func DeleteExchange(vhost, name string, ifUnused bool) Item {
	return item(opDeleteExchange, func(c *coder) { c.Text(&vhost); c.Text(&name); c.Bool(&ifUnused) })
}

// Bind adds a binding; one that exists stays as it is.
func Bind(b Binding) Item { return item(opBind, func(c *coder) { c.binding(&b) }) }

// Unbind removes a binding, and its source if that is an auto-delete exchange and this was its last one. Removing a binding that
// does not exist changes nothing and is not refused, as RabbitMQ has it.
func Unbind(b Binding) Item { return item(opUnbind, func(c *coder) { c.binding(&b) }) }

// DeclareResource makes a resource of r, or checks that the one of that name is equivalent and for the session that asks. Of r the
// Incarnation and Partitions are ignored: the catalog gives the incarnation, and every partition begins at epoch 1 with owner and
// followers as its copies; a fresh copy is empty, so it follows from the start. Home must be set where it is not Durable or is
// Exclusive; such a resource lives in the memory of Home and has no followers. owner and Home must name registered boots, followers
// registered stores on nodes of their own. Where a node has moved on in between the item is refused (StaleBoot, StoreMoved, NotFound):
// place anew and retry.
func DeclareResource(r Resource, owner ident.Instance, followers []Member, partitions uint32) Item {
	r.Incarnation, r.Partitions = 0, nil
	return item(opDeclareResource, func(c *coder) {
		c.resource(&r)
		c.Instance(&owner)
		codec.List(c, &followers, (*coder).member)
		c.U32(&partitions)
	})
}

// DeleteResource removes a resource and its bindings. incarnation guards against a name that was recreated in between; 0 takes any.
// Whether it is in use or empty only its owner knows (protocol.Close); that is asked before, and epoch is the one that it answered in: a
// later owner has taken messages and consumers since. 0 deletes it whoever owns it.
func DeleteResource(vhost, name string, incarnation, epoch uint64) Item {
	return item(opDeleteResource, func(c *coder) { c.Text(&vhost); c.Text(&name); c.U64(&incarnation); c.U64(&epoch) })
}

// PutUser adds or replaces a user if its version is still the one given; 0 means that there must be none. The user's next version is the
// catalog's to give.
func PutUser(u User) Item { return item(opPutUser, func(c *coder) { c.user(&u) }) }

// DeleteUser removes a user and its permissions. It is refused with InUse for the only administrator.
func DeleteUser(name string) Item { return item(opDeleteUser, func(c *coder) { c.Text(&name) }) }

// PutPermission adds or replaces what a user may do in a virtual host; both must exist. The patterns are checked by core/authz.
func PutPermission(p Permission) Item {
	return item(opPutPermission, func(c *coder) { c.permission(&p) })
}

// DeletePermission removes what a user may do in a virtual host.
func DeletePermission(user, vhost string) Item {
	return item(opDeletePermission, func(c *coder) { c.Text(&user); c.Text(&vhost) })
}

// RegisterBoot makes n.Boot the one run of node n.Name over n.Store, gives it a Number and buries older runs: transient objects
// tied to them go. Repeating it changes nothing but addresses. It is refused with StaleBoot if a later boot is registered and with
// StoreMoved if the name belongs to another store, or the store to another name.
func RegisterBoot(n Node) Item {
	n.Number = 0
	return item(opRegisterBoot, func(c *coder) { c.node(&n) })
}

// RecordPending records a transition of one partition if its assignment is still at version. The transition's epoch must be
// above the assignment's. A transition that is pending is only replaced by one of the same ID; repeating it as it stands changes
// nothing.
func RecordPending(p ident.Partition, version uint64, t Pending) Item {
	return item(opRecordPending, func(c *coder) { c.Partition(&p); c.U64(&version); c.pending(&t) })
}

// Commit is the outcome of a transition of one partition.
type Commit struct {
	Partition  ident.Partition
	Version    uint64 // of the assignment that it was decided on, its pending transition included
	Transition string
	Owner      ident.Instance // must be the registered boot of its node
	Followers  []Member
	Learners   []Member
	Start      HistoryStart // its epoch is the pending transition's and becomes the assignment's; it names the evidence
}

// CommitTransition ends a pending transition: the owner and epoch change, the history start is appended, pending is cleared.
func CommitTransition(t Commit) Item {
	return item(opCommitTransition, func(c *coder) { c.commit(&t) })
}

func (c *coder) commit(t *Commit) {
	c.Partition(&t.Partition)
	c.U64(&t.Version)
	c.Text(&t.Transition)
	c.Instance(&t.Owner)
	codec.List(c, &t.Followers, (*coder).member)
	codec.List(c, &t.Learners, (*coder).member)
	c.start(&t.Start)
}

// CancelPending removes a pending transition. It may be proposed only while no seal request of it has been sent (design 2 §4).
func CancelPending(p ident.Partition, version uint64, transition string) Item {
	return item(opCancelPending, func(c *coder) { c.Partition(&p); c.U64(&version); c.Text(&transition) })
}

// PutSetting adds or changes a runtime setting if its version is still the one given; 0 means that there must be none.
func PutSetting(name, value string, version uint64) Item {
	return item(opPutSetting, func(c *coder) { c.Text(&name); c.Text(&value); c.U64(&version) })
}

// DeleteSetting removes a runtime setting if its version is still the one given. A later one of that name goes on counting.
func DeleteSetting(name string, version uint64) Item {
	return item(opDeleteSetting, func(c *coder) { c.Text(&name); c.U64(&version) })
}

// AdoptResource makes a resource known that its node made by itself, under the incarnation that it has (ident.LocalBit): from now on
// it can be bound, and it goes as every transient resource goes. Repeating it changes nothing. It is refused with Exists if the
// name is another's.
func AdoptResource(r Resource) Item {
	return item(opAdoptResource, func(c *coder) { c.resource(&r) })
}
