package catalog

import (
	"fmt"

	"github.com/tanist/tanist/internal/core/codec"
	"github.com/tanist/tanist/internal/core/ident"
)

// State is the catalog. It is not safe for concurrent use.
type State struct {
	view  *View
	index uint64 // of the last command applied

	// Sequences: what they gave is never given again.
	incarnations uint64
	runs         uint32
	versions     uint64 // of settings and users

	changes []Change
	names   map[string]string // strings that objects share
}

// New makes an empty catalog.
func New() *State { return &State{view: NewView(), names: map[string]string{}} }

// Index is the index of the last command applied.
func (s *State) Index() uint64 { return s.index }

// View is the state's own index, for reading between calls of Apply.
func (s *State) View() *View { return s.view }

// Result is the outcome of a command: one item's for each of its items, in order.
type Result struct {
	Index uint64
	Items []ItemResult
}

// Err is the refusal of the first item that was refused, or nil. For commands of one item.
func (r Result) Err() error {
	for i := range r.Items {
		if r.Items[i].Refused != nil {
			return r.Items[i].Refused
		}
	}
	return nil
}

// ItemResult is the outcome of one item.
type ItemResult struct {
	// Refused says why nothing was changed; nil if the item was done or there was nothing to do.
	Refused *Refusal
	// Created says that the item added an object that did not exist.
	Created bool
	// Object is the object as it is now: what was put, declared, or already there; of a deletion what was deleted; of an item
	// about a partition its *Resource. nil if refused or there was none.
	Object any
}

// Resource is the object as a resource, or nil.
func (r ItemResult) Resource() *Resource { o, _ := r.Object.(*Resource); return o }

// Exchange is the object as an exchange, or nil.
func (r ItemResult) Exchange() *Exchange { o, _ := r.Object.(*Exchange); return o }

// Node is the object as a node, or nil.
func (r ItemResult) Node() *Node { o, _ := r.Object.(*Node); return o }

// Apply does a command. Indexes must rise. The changes are in the order in which they were made and belong to the caller. An error is
// ErrUnknownCommand or ErrMalformed, and means that the node must stop: the state is not to be used any more.
func (s *State) Apply(index uint64, cmd []byte) (Result, []Change, error) {
	if index <= s.index {
		return Result{}, nil, fmt.Errorf("%w: index %d after %d", ErrMalformed, index, s.index)
	}
	items, err := decodeItems(cmd)
	if err != nil {
		return Result{}, nil, err
	}
	s.index, s.changes = index, nil
	res := Result{Index: index, Items: make([]ItemResult, len(items))}
	for i, it := range items {
		c := reader(it.body, s.names)
		res.Items[i], err = s.item(it.op, &c)
		if err != nil {
			return Result{}, nil, fmt.Errorf("item %d of command %d: %w", i, index, err)
		}
	}
	changes := s.changes
	s.changes = nil
	return res, changes, nil
}

// change replaces an object. Exactly one of before and after may be nil.
func (s *State) change(before, after any) {
	c := Change{s.index, before, after}
	s.view.apply(&c)
	s.changes = append(s.changes, c)
}

// item decodes and does one item. Nothing is done unless the whole body was understood.
func (s *State) item(o op, c *coder) (ItemResult, error) {
	if do, ok := operations[o]; ok {
		return do(s, c)
	}
	return ItemResult{}, fmt.Errorf("%w: operation %d", ErrUnknownCommand, o)
}

type operation func(*State, *coder) (ItemResult, error)

// with makes an operation of how its arguments are decoded and what they do.
func with[A any](decode func(*coder, *A), do func(*State, *A) ItemResult) operation {
	return func(s *State, c *coder) (ItemResult, error) {
		var a A
		decode(c, &a)
		if err := c.End(); err != nil {
			return ItemResult{}, err
		}
		return do(s, &a), nil
	}
}

// args are the arguments of operations that have no type of their own.
type args struct {
	vhost, name, text string
	number, epoch     uint64
	flag              bool
	resource          Resource
	owner             ident.Instance
	members           []Member
	partition         ident.Partition
	partitions        uint32
	pending           Pending
}

var operations = map[op]operation{
	opInitCluster:     with((*coder).cluster, (*State).initCluster),
	opCreateVHost:     with((*coder).vhost, (*State).createVHost),
	opDeleteVHost:     with((*coder).vhost, (*State).deleteVHost),
	opDeclareExchange: with((*coder).exchange, (*State).declareExchange),
	opDeleteExchange:  with(func(c *coder, a *args) { c.Text(&a.vhost); c.Text(&a.name); c.Bool(&a.flag) }, (*State).deleteExchange),
	opBind:            with((*coder).binding, (*State).bind),
	opUnbind:          with((*coder).binding, (*State).unbind),
	opDeleteResource: with(func(c *coder, a *args) {
		c.Text(&a.vhost)
		c.Text(&a.name)
		c.U64(&a.number)
		c.U64(&a.epoch)
	}, (*State).deleteResource),
	opPutUser:          with((*coder).user, (*State).putUser),
	opDeleteUser:       with(func(c *coder, a *args) { c.Text(&a.name) }, (*State).deleteUser),
	opPutPermission:    with((*coder).permission, (*State).putPermission),
	opDeletePermission: with(func(c *coder, a *args) { c.Text(&a.name); c.Text(&a.vhost) }, (*State).deletePermission),
	opRegisterBoot:     with((*coder).node, (*State).registerBoot),
	opCommitTransition: with((*coder).commit, (*State).commitTransition),
	opAcceptLoss:       with((*coder).commit, (*State).acceptLoss),
	opPutSetting:       with(func(c *coder, a *args) { c.Text(&a.name); c.Text(&a.text); c.U64(&a.number) }, (*State).putSetting),
	opDeleteSetting:    with(func(c *coder, a *args) { c.Text(&a.name); c.U64(&a.number) }, (*State).deleteSetting),
	opAdoptResource:    with((*coder).resource, (*State).adoptResource),
	opDeclareResource: with(func(c *coder, a *args) {
		c.resource(&a.resource)
		c.Instance(&a.owner)
		codec.List(c, &a.members, (*coder).member)
		c.U32(&a.partitions)
	}, (*State).declareResource),
	opRecordPending: with(func(c *coder, a *args) {
		c.Partition(&a.partition)
		c.U64(&a.number)
		c.pending(&a.pending)
	}, (*State).recordPending),
	opCancelPending: with(func(c *coder, a *args) {
		c.Partition(&a.partition)
		c.U64(&a.number)
		c.Text(&a.text)
	}, (*State).cancelPending),
	opRaiseFormat: raiseFormat,

	opAddLearner:    with((*coder).learner, (*State).addLearner),
	opDropLearner:   with((*coder).learner, (*State).dropLearner),
	opChangeMembers: with((*coder).membership, (*State).changeMembers),
	opRemoveNode:    with((*coder).member, (*State).removeNode),
	opReplaceNode:   with((*coder).replacement, (*State).replaceNode),
	opDrainNode:     with((*coder).drain, (*State).drainNode),
	opPutToken:      with((*coder).tokenPut, (*State).putToken),
	opUseToken:      with((*coder).tokenUse, (*State).useToken),
	opSetAuthority:  with((*coder).authorityChange, (*State).setAuthority),
	opNoteAbsent:    with((*coder).absence, (*State).noteAbsent),
	opMarkLeaving:   with((*coder).leaving, (*State).markLeaving),
	opSetWishes:     with((*coder).wishes, (*State).setWishes),

	opForceDelete:    with((*coder).forcing, (*State).forceDelete),
	opForgetDeletion: with((*coder).number, (*State).forgetDeletion),
}
