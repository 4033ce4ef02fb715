package catalog

import (
	"math"
	"slices"

	"github.com/tanist/tanist/internal/core/ident"
)

// Nodes that leave, are replaced or drained; tokens that let one in; and the authority that signs their certificates.

const (
	maxTokens      = 256      // at once; expired ones go when the next is made
	maxCertificate = 64 << 10 // bytes of PEM
)

// RemoveNode removes a node, by name and store, for good: the store can never register again. It is refused with NotFound or
// StoreMoved if the name is not that store's, and with InUse while a durable partition has its owner or a follower there, or is
// pending with a learner there: move them first. Learners there are dropped, and what lived in the node's memory goes.
func RemoveNode(name string, store ident.StoreID) Item {
	m := Member{name, store}
	return item(opRemoveNode, func(c *coder) { c.member(&m) })
}

// ReplaceNode gives the name of a node to a new store, and bars the old one: n.Name was registered with old, and is with n.Store and
// n.Boot from now on. What lived in the old run's memory goes; places of the old store in assignments stay until the joint rule swaps
// them (design 2 §3). Refused as RegisterBoot is; with StoreMoved if the name is not old's any more. Repeating it changes nothing.
func ReplaceNode(old ident.StoreID, n Node) Item {
	r := replacement{old, n}
	r.node.Number, r.node.Draining, r.node.Absent = 0, false, 0
	return item(opReplaceNode, func(c *coder) { c.replacement(&r) })
}

type replacement struct {
	old  ident.StoreID
	node Node
}

func (c *coder) replacement(r *replacement) {
	c.Fixed(r.old[:])
	c.node(&r.node)
}

// DrainNode says that a node is to be left, or is not any more. Refused with NotFound or StoreMoved if the name is not that store's.
func DrainNode(name string, store ident.StoreID, draining bool) Item {
	d := drain{Member{name, store}, draining}
	return item(opDrainNode, func(c *coder) { c.drain(&d) })
}

type drain struct {
	member   Member
	draining bool
}

func (c *coder) drain(d *drain) {
	c.member(&d.member)
	c.Bool(&d.draining)
}

// NoteAbsent says since when the registered run of a node has been away, in milliseconds since 1970, or with 0 that it is there. What is
// said of it already is not moved by a later time: the hold of its places counts from the first. Refused with NotFound, StoreMoved or
// StaleBoot if another run is registered, and with Invalid for a time below 0.
func NoteAbsent(node string, store ident.StoreID, boot uint64, since int64) Item {
	a := absence{ident.Instance{Node: node, Store: store, Boot: boot}, since}
	return item(opNoteAbsent, func(c *coder) { c.absence(&a) })
}

type absence struct {
	run   ident.Instance
	since int64
}

func (c *coder) absence(a *absence) {
	c.Instance(&a.run)
	c.I64(&a.since)
}

// PutToken makes a token, at now milliseconds since 1970 by the proposer's clock; those that have expired by then go. Refused with
// Exists if its id is taken, and with Invalid if it is expired already, has no id, or there are too many.
func PutToken(t Token, now int64) Item {
	p := tokenPut{t, now}
	return item(opPutToken, func(c *coder) { c.tokenPut(&p) })
}

type tokenPut struct {
	token Token
	now   int64
}

func (c *coder) tokenPut(p *tokenPut) {
	c.token(&p.token)
	c.I64(&p.now)
}

// UseToken takes a token away, if hash is the SHA-256 of its secret, node the name it was made for (or it was made for any), and now,
// milliseconds since 1970 by the proposer's clock, before its end. Of two uses one succeeds. It is refused with NotFound if it was
// used or never made, with Wrong if the secret or the name is another, and with Expired. A refused token stays as it is.
func UseToken(id string, hash [32]byte, node string, now int64) Item {
	u := tokenPut{Token{ID: id, Hash: hash, Node: node}, now}
	return item(opUseToken, func(c *coder) { c.tokenUse(&u) })
}

func (c *coder) tokenUse(p *tokenPut) { c.tokenPut(p) }

// SetAuthority changes the cluster's authority if its certificate is still have ("": none). Refused with NotFound before the cluster
// is named, with VersionMoved if the certificate is another, with Invalid if the new one is empty or too large. Beside Bootstrap's
// items it makes the first one.
func SetAuthority(have string, a Authority) Item {
	x := authorityChange{have, a}
	return item(opSetAuthority, func(c *coder) { c.authorityChange(&x) })
}

type authorityChange struct {
	have      string
	authority Authority
}

func (c *coder) authorityChange(x *authorityChange) {
	c.Text(&x.have)
	c.authority(&x.authority)
}

// free checks that a store may register under a name: it has not left, and is no other node's.
func (s *State) free(n *Node) *Refusal {
	if r := s.view.Removed(n.Store); r != nil {
		return &Refusal{Code: Gone, What: "store", Name: n.Store.String(), Have: r.Node}
	}
	for _, other := range s.view.Nodes() {
		if other.Store == n.Store && other.Name != n.Name {
			return &Refusal{
				Code: StoreMoved, What: "store", Name: n.Store.String(), Argument: "node", Have: other.Name, Want: n.Name,
			}
		}
	}
	return nil
}

func (s *State) removeNode(m *Member) ItemResult {
	if refused := s.stored(*m); refused != nil {
		return ItemResult{Refused: refused}
	}
	if l := s.view.Load(m.Store); l.Owned+l.Followed > 0 {
		return s.inUse(m.Node, number(uint64(l.Owned))+" partitions owned and "+number(uint64(l.Followed))+" followed there")
	}
	var learning []Assignment
	if s.view.Load(m.Store).Learning > 0 {
		for _, r := range s.view.AllResources() {
			for _, a := range r.Partitions {
				if !a.Names(m.Store) || r.Home != nil {
					continue
				}
				if a.Pending != nil {
					return s.inUse(m.Node, "a transition of "+a.Partition.String()+" pending, which learns there")
				}
				after := *a
				after.Learners = slices.DeleteFunc(slices.Clone(a.Learners), func(l Member) bool { return l.Store == m.Store })
				learning = append(learning, after)
			}
		}
	}
	for _, a := range learning {
		s.assign(a)
	}
	have := s.view.Node(m.Node)
	s.bury(m.Node, math.MaxUint64)
	s.change(nil, &Removed{m.Store, m.Node})
	s.change(have, nil)
	return done(have)
}

func (s *State) inUse(node, why string) ItemResult {
	return refuse(Refusal{Code: InUse, What: "node", Name: node, Argument: "copies", Want: why})
}

func (s *State) replaceNode(r *replacement) ItemResult {
	n := &r.node
	if n.Name == "" || n.Store.IsZero() || n.Boot == 0 || n.Store == r.old {
		return refuse(Refusal{Code: Invalid, What: "node", Name: n.Name, Argument: "instance", Want: "name, store and boot must be set, the store anew"})
	}
	if refused := s.free(n); refused != nil {
		return ItemResult{Refused: refused}
	}
	have := s.view.Node(n.Name)
	if have != nil && have.Store == n.Store && s.view.Removed(r.old) != nil {
		return done(have) // a repeat, whose first answer was lost
	}
	if refused := s.stored(Member{n.Name, r.old}); refused != nil {
		return ItemResult{Refused: refused}
	}
	s.runs++
	n.Number = s.runs
	s.bury(n.Name, math.MaxUint64)
	s.change(nil, &Removed{r.old, n.Name})
	s.change(have, n)
	return done(n)
}

func (s *State) drainNode(d *drain) ItemResult {
	if refused := s.stored(d.member); refused != nil {
		return ItemResult{Refused: refused}
	}
	have := s.view.Node(d.member.Node)
	if have.Draining == d.draining {
		return done(have)
	}
	after := *have
	after.Draining = d.draining
	s.change(have, &after)
	return done(&after)
}

func (s *State) noteAbsent(a *absence) ItemResult {
	if refused := s.registered(a.run); refused != nil {
		return ItemResult{Refused: refused}
	}
	if a.since < 0 {
		return refuse(Refusal{Code: Invalid, What: "node", Name: a.run.Node, Argument: "absence", Want: "milliseconds since 1970, or 0"})
	}
	have := s.view.Node(a.run.Node)
	if have.Absent == a.since || have.Absent != 0 && a.since != 0 {
		return done(have)
	}
	after := *have
	after.Absent = a.since
	s.change(have, &after)
	return done(&after)
}

func (s *State) putToken(p *tokenPut) ItemResult {
	t := &p.token
	live, expired := []*Token{}, []*Token{}
	for _, have := range s.view.Tokens() {
		switch {
		case p.now >= have.Expires:
			expired = append(expired, have)
		case have.ID == t.ID:
			return refuse(Refusal{Code: Exists, What: "token", Name: t.ID})
		default:
			live = append(live, have)
		}
	}
	if t.ID == "" || len(t.ID) > MaxName || p.now >= t.Expires {
		return refuse(Refusal{Code: Invalid, What: "token", Name: t.ID, Argument: "token", Want: "an id, and an end that is to come"})
	}
	if len(live) >= maxTokens {
		return refuse(Refusal{
			Code: Invalid, What: "token", Name: t.ID, Argument: "number of tokens",
			Want: number(maxTokens) + " wait to be used already; use one, or wait until one ends, which takes as long as its --ttl said",
		})
	}
	for _, have := range expired {
		s.change(have, nil)
	}
	s.change(nil, t)
	return ItemResult{Created: true, Object: t}
}

func (s *State) useToken(u *tokenPut) ItemResult {
	t := s.view.Token(u.token.ID)
	refuseAs := func(code Code, argument string) ItemResult {
		return refuse(Refusal{Code: code, What: "token", Name: u.token.ID, Argument: argument})
	}
	switch {
	case t == nil:
		return refuseAs(NotFound, "")
	case t.Hash != u.token.Hash:
		return refuseAs(Wrong, "secret")
	case t.Node != "" && t.Node != u.token.Node:
		return refuseAs(Wrong, "node")
	case u.now >= t.Expires:
		return refuse(Refusal{
			Code: Expired, What: "token", Name: t.ID, Argument: "end", Have: number(uint64(t.Expires)), Want: number(uint64(u.now)),
		})
	}
	s.change(t, nil)
	return done(t)
}

func (s *State) setAuthority(x *authorityChange) ItemResult {
	have := s.view.cluster
	switch {
	case have == nil:
		return refuse(Refusal{Code: NotFound, What: "cluster"})
	case have.Authority.Certificate != x.have:
		return refuse(Refusal{
			Code: VersionMoved, What: "cluster", Name: have.ID.String(), Argument: "authority", Have: "another", Want: "its former certificate",
		})
	case x.authority.Certificate == "" || len(x.authority.Certificate)+len(x.authority.Key) > maxCertificate:
		return refuse(Refusal{
			Code: Invalid, What: "cluster", Name: have.ID.String(), Argument: "authority", Want: "a certificate of at most 64 KiB is needed",
		})
	}
	after := *have
	after.Authority = x.authority
	s.change(have, &after)
	return done(&after)
}
