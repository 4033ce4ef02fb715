package consensus

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// Recovery is the evidence of one recovery of the catalog: that an operator had one member go on without the majority of the voters
// (design 2 §12). It is part of every snapshot from then on.
type Recovery struct {
	Number  uint64   `json:"generation"` // the generation that it made
	Index   uint64   `json:"index"`      // of the first entry of that generation: the log that was taken ended just before it
	Term    uint64   `json:"term"`
	At      int64    `json:"at"` // milliseconds since 1970
	Node    string   `json:"node"`
	Reason  string   `json:"reason"`
	Lost    []Member `json:"lost"`              // voters given up for good, by the operator's word
	Stopped []Member `json:"stopped,omitempty"` // voters that are stopped by the operator's word, and follow later
}

// Member is a member of the consensus by its raft id, with the name of its node, or its id where the catalog names none.
type Member struct {
	ID   uint64 `json:"-"`
	Node string `json:"node"`
}

// ErrNoRecovery is returned where a catalog must not be recovered as asked; the text says why and what else to do. Nothing was changed.
var ErrNoRecovery = errors.New("the catalog is not to be recovered like that")

// maxReason bounds the reason of a recovery, in bytes: it is in every snapshot.
const maxReason = 1024

// maxRecoveries is how many recoveries are kept as evidence; their number goes on.
const maxRecoveries = 16

// Superseded is given to Env.Failed when a node of a later generation of the catalog spoke: an operator recovered the catalog without
// this member. It votes and serves no more. No retry helps: its catalog and its place in the consensus are to be put aside.
type Superseded struct {
	By   string           // the node that spoke
	Of   ident.Generation // its generation
	Here ident.Generation
}

// Error says what happened and what to do.
func (s *Superseded) Error() string {
	return fmt.Sprintf("consensus: superseded: node %q goes by generation %s of the catalog, which was recovered without this node, whose is %s", s.By, s.Of, s.Here)
}

// Supersede stops this member for good: it takes no part in a line of the catalog that others have left.
func (c *Consensus) Supersede(by string, g ident.Generation) { c.box.Post(superseded{by, g}) }

type superseded struct {
	by         string
	generation ident.Generation
}

func (c *Consensus) receiveSuperseded(m superseded) {
	c.fail(&Superseded{By: m.by, Of: m.generation, Here: c.generation()})
}

// generation is the line that this member goes by: its log's, or while that is empty, the one that it waits for.
func (c *Consensus) generation() ident.Generation {
	g := c.ledger.generation()
	if c.env.Generation != nil && c.base == 0 && c.applied == 0 {
		if wants := c.env.Generation(); wants.Compare(g) > 0 {
			return wants
		}
	}
	return g
}

func (l *ledger) generation() ident.Generation {
	if len(l.recoveries) == 0 {
		return ident.FirstGeneration
	}
	return l.recoveries[len(l.recoveries)-1].Generation()
}

// Generation is the one that the recovery made.
func (r *Recovery) Generation() ident.Generation {
	sum := sha256.Sum256(r.append(nil))
	return ident.Generation{Number: r.Number, Mark: max(binary.BigEndian.Uint64(sum[:]), 1)}
}

func (r *Recovery) append(b []byte) []byte {
	b = appendUvarints(b, r.Number, r.Index, r.Term, uint64(r.At))
	b = appendString(appendString(b, r.Node), r.Reason)
	for _, list := range [][]Member{r.Lost, r.Stopped} {
		b = appendUvarints(b, uint64(len(list)))
		for _, m := range list {
			b = appendString(appendUvarints(b, m.ID), m.Node)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte { return append(appendUvarints(b, uint64(len(s))), s...) }

func readString(b []byte, s *string) ([]byte, error) {
	var n uint64
	b, err := readUvarints(b, &n)
	if err != nil || n > uint64(len(b)) {
		return nil, errMalformed
	}
	*s = string(b[:n])
	return b[n:], nil
}

func readRecoveries(b []byte) (all []Recovery, rest []byte, err error) {
	var n uint64
	if b, err = readUvarints(b, &n); err != nil || n == 0 || n > maxRecoveries {
		return nil, nil, errMalformed
	}
	for ; n > 0; n-- {
		var r Recovery
		if b, err = r.read(b); err != nil {
			return nil, nil, err
		}
		all = append(all, r)
	}
	return all, b, nil
}

func (r *Recovery) read(b []byte) ([]byte, error) {
	var at uint64
	b, err := readUvarints(b, &r.Number, &r.Index, &r.Term, &at)
	r.At = int64(at)
	for _, s := range []*string{&r.Node, &r.Reason} {
		if err == nil {
			b, err = readString(b, s)
		}
	}
	for _, list := range []*[]Member{&r.Lost, &r.Stopped} {
		var n uint64
		if err == nil {
			b, err = readUvarints(b, &n)
		}
		for ; err == nil && n > 0; n-- {
			var m Member
			if b, err = readUvarints(b, &m.ID); err == nil {
				b, err = readString(b, &m.Node)
			}
			*list = append(*list, m)
		}
	}
	return b, err
}

// Survey is what a member's log says, read whole, with nothing running on it.
type Survey struct {
	Self        uint64           `json:"-"`
	Generation  ident.Generation `json:"generation"`
	Index       uint64           `json:"index"` // where the log ends
	Term        uint64           `json:"term"`
	Committed   uint64           `json:"committed"` // up to where this member knew the log to be committed
	Voters      []Member         `json:"voters"`    // by the log's end, or at any entry that was not known to be committed
	Recoveries  []Recovery       `json:"recoveries,omitempty"`
	Unconfirmed int              `json:"uncommitted"` // entries after Committed

	hardTerm uint64
	state    *catalog.State
	ledger   *ledger
}

// Examine reads a log as a whole, also what is not known to be committed: any of it may be, and a recovery takes it. Errors say that the
// log is empty, damaged, another store's, or of a newer version.
func Examine(l catalog.LogState, store ident.StoreID) (*Survey, error) {
	if l.Snapshot.Index == 0 {
		return nil, errors.New("consensus: the log is empty: this node has no catalog")
	}
	c := &Consensus{id: ID(store), state: catalog.New(), ledger: newLedger()}
	hard, err := c.restore(l)
	if err != nil {
		return nil, err
	}
	s := &Survey{
		Self: c.id, Index: l.Snapshot.Index, Term: l.Snapshot.Term, Committed: hard.GetCommit(), hardTerm: hard.GetTerm(), state: c.state, ledger: c.ledger,
	}
	conf := proto.Clone(c.conf).(*raftpb.ConfState)
	voters := slices.Clone(conf.GetVoters())
	for _, e := range l.Entries {
		if e.Index == s.Committed+1 {
			voters = slices.Clone(conf.GetVoters())
		}
		if err := s.replay(e, conf); err != nil {
			return nil, fmt.Errorf("consensus: entry %d of the log: %w", e.Index, err)
		}
		voters = append(voters, conf.GetVoters()...)
		s.Index, s.Term = e.Index, e.Term
	}
	if s.Committed >= s.Index {
		voters = conf.GetVoters()
	}
	s.Unconfirmed = int(s.Index - min(s.Committed, s.Index))
	s.Generation, s.Recoveries = s.ledger.generation(), s.ledger.recoveries
	slices.Sort(voters)
	for _, id := range slices.Compact(voters) {
		s.Voters = append(s.Voters, s.member(id))
	}
	slices.SortFunc(s.Voters, byNode)
	return s, nil
}

// replay does what one entry does to the catalog, to the ledger and to the members.
func (s *Survey) replay(e catalog.LogEntry, conf *raftpb.ConfState) error {
	entry, err := decodeEntry(e)
	switch {
	case err != nil:
		return err
	case entry.GetType() == raftpb.EntryConfChange:
		cc := &raftpb.ConfChange{}
		if err := proto.Unmarshal(entry.GetData(), cc); err != nil {
			return err
		}
		s.reseat(conf, cc)
		return nil
	case entry.GetType() != raftpb.EntryNormal:
		return fmt.Errorf("%w: a change of members of a kind that this version does not make", errMalformed)
	case len(entry.GetData()) == 0:
		return nil
	}
	h, cmd, err := decodeProposal(entry.GetData())
	if err != nil || !s.ledger.take(h) {
		return err
	}
	_, _, err = s.state.Apply(e.Index, cmd)
	return err
}

func (s *Survey) reseat(conf *raftpb.ConfState, cc *raftpb.ConfChange) {
	id := cc.GetNodeId()
	is := func(x uint64) bool { return x == id }
	conf.Voters = slices.DeleteFunc(slices.Clone(conf.Voters), is)
	conf.Learners = slices.DeleteFunc(slices.Clone(conf.Learners), is)
	switch cc.GetType() {
	case raftpb.ConfChangeAddNode:
		conf.Voters = append(conf.Voters, id)
	case raftpb.ConfChangeAddLearnerNode:
		conf.Learners = append(conf.Learners, id)
	case raftpb.ConfChangeRemoveNode:
		s.ledger.remove(id)
	}
}

func (s *Survey) member(id uint64) Member {
	for _, n := range s.state.View().Nodes() {
		if ID(n.Store) == id {
			return Member{id, n.Name}
		}
	}
	return Member{id, name(id)}
}

// before says when the catalog was recovered last, if it ever was.
func (s *Survey) before() string {
	if len(s.Recoveries) == 0 {
		return ""
	}
	last := s.Recoveries[len(s.Recoveries)-1]
	return fmt.Sprintf(" (recovered on %s at %s, generation %d)", last.Node, time.UnixMilli(last.At).UTC().Format(time.DateTime), last.Number)
}

// named are the voters of these names.
func (s *Survey) named(names []string) (out []Member, err error) {
	for _, n := range names {
		i := slices.IndexFunc(s.Voters, func(m Member) bool { return m.Node == n })
		switch {
		case i < 0:
			return nil, fmt.Errorf("%w: %q is no voter; the voters are %s", ErrNoRecovery, n, listed(s.Voters))
		case s.Voters[i].ID == s.Self:
			return nil, fmt.Errorf("%w: %q is this node itself", ErrNoRecovery, n)
		case slices.Contains(out, s.Voters[i]):
		default:
			out = append(out, s.Voters[i])
		}
	}
	slices.SortFunc(out, byNode)
	return out, nil
}

func byNode(a, b Member) int { return strings.Compare(a.Node, b.Node) }

func listed(all []Member) string {
	var out []string
	for _, m := range all {
		out = append(out, m.Node)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// Recover decides a recovery: node is this member's, lost are the voters that are given up for good, and stopped those that are stopped
// and will follow. Every other voter must be in one of the two, and the lost must be so many that the others are no majority; else it
// returns ErrNoRecovery. It changes the survey's catalog: examine the log anew for another try.
func (s *Survey) Recover(node string, lost, stopped []string, reason string, now time.Time) (Recovery, error) {
	if len(s.Voters) == 1 && s.Voters[0].ID == s.Self {
		return Recovery{}, fmt.Errorf("%w: node %s is the only voter already%s: start it", ErrNoRecovery, node, s.before())
	}
	r := Recovery{Number: s.Generation.Number + 1, Index: s.Index + 1, Term: max(s.Term, s.hardTerm) + 1, At: now.UnixMilli(), Node: node, Reason: reason}
	var err error
	if r.Lost, err = s.named(lost); err == nil {
		r.Stopped, err = s.named(stopped)
	}
	if err != nil {
		return r, err
	}
	var unsaid []Member
	for _, v := range s.Voters {
		inLost, inStopped := slices.Contains(r.Lost, v), slices.Contains(r.Stopped, v)
		switch {
		case inLost && inStopped:
			return r, fmt.Errorf("%w: %q is named as lost and as stopped", ErrNoRecovery, v.Node)
		case !inLost && !inStopped && v.ID != s.Self:
			unsaid = append(unsaid, v)
		}
	}
	left := len(s.Voters) - len(r.Lost)
	switch {
	case len(reason) > maxReason:
		return r, fmt.Errorf("%w: a reason has at most %d bytes", ErrNoRecovery, maxReason)
	case len(unsaid) > 0:
		return r, fmt.Errorf("%w: nothing is said of %s: name each other voter as lost for good (--lost) or, if it is stopped and will follow this node, as stopped (--stopped)",
			ErrNoRecovery, listed(unsaid))
	case left > len(s.Voters)/2:
		return r, fmt.Errorf("%w: %d of %d voters are left, which is a majority: start them, and replace what is lost with `tanist node replace`",
			ErrNoRecovery, left, len(s.Voters))
	}
	return r, nil
}

// Snapshot is the log that the recovery leaves: the whole catalog as its first entry, with this member as the only voter. Written in one
// piece (Log.SaveSnapshot) it takes the place of all that was there. It may be called once.
func (s *Survey) Snapshot(r Recovery) catalog.LogSnapshot {
	s.state.Recover(r.Index, fmt.Sprintf("the catalog was recovered on %s (generation %d)", r.Node, r.Number), r.At)
	s.ledger.recoveries = append(slices.Clone(s.ledger.recoveries), r)
	s.ledger.recoveries = s.ledger.recoveries[max(0, len(s.ledger.recoveries)-maxRecoveries):]
	conf := &raftpb.ConfState{Voters: []uint64{s.Self}}
	return catalog.LogSnapshot{Index: r.Index, Term: r.Term, Data: encodeSnapshot(conf, s.ledger, s.state.Snapshot())}
}

// GenerationOf is the generation that a log goes by; zero of an empty one. An error says that the log's snapshot is damaged; a retry does not help.
func GenerationOf(l catalog.LogState) (ident.Generation, error) {
	if l.Snapshot.Index == 0 {
		return ident.Generation{}, nil
	}
	_, book, _, err := decodeSnapshot(l.Snapshot.Data)
	if err != nil {
		return ident.Generation{}, fmt.Errorf("consensus: the log is damaged: snapshot at %d: %w", l.Snapshot.Index, err)
	}
	return book.generation(), nil
}
