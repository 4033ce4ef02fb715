package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// Code names a condition that needs a person. Source: design 6 "Attention".
type Code string

// The codes, the most pressing first.
const (
	CatalogQuorumLost   Code = "catalog-quorum-lost"
	Contradiction       Code = "contradictory-evidence"
	BelowHistoryStart   Code = "below-history-start"
	WaitingForCopies    Code = "waiting-for-copies"
	StoreClosed         Code = "store-closed"
	CopyDamaged         Code = "copy-damaged"
	QuorumCritical      Code = "quorum-critical"
	UnderReplicated     Code = "under-replicated"
	DiskLow             Code = "disk-low"
	LearnerStuck        Code = "learner-stuck"
	DeadLetterStuck     Code = "dead-letter-stuck"
	ClockSkew           Code = "clock-skew"
	CertificateExpiring Code = "certificate-expiring"
	DrainWaits          Code = "drain-waits"
	HoldRunning         Code = "hold-running"
	CopyAnew            Code = "copy-anew"
	DataAside           Code = "data-aside"
)

const (
	// MaxConditions bounds what Attention says.
	MaxConditions = 1000
	// maxExamples is how many partitions a condition names.
	maxExamples   = 5
	expiringAfter = 14 * 24 * 3600 * 1000 // milliseconds: a node has tried to renew for two weeks by then
	stuckAfter    = 60 * 1000             // milliseconds without progress
	lossAfter     = 2 * 60 * 1000         // milliseconds after which a loss may be thought of: most nodes are back by then, and nothing is lost
	skewed        = 2000                  // milliseconds between clocks: times to live and evidence would mislead people
)

var codes = []Code{
	CatalogQuorumLost, Contradiction, BelowHistoryStart, WaitingForCopies, StoreClosed, CopyDamaged, QuorumCritical, UnderReplicated, DiskLow,
	LearnerStuck, DeadLetterStuck, ClockSkew, CertificateExpiring, DrainWaits, HoldRunning, CopyAnew, DataAside,
}

// Limit is what a condition is limited by; empty where none of them is.
type Limit string

// The limits.
const (
	MissingQuorum    Limit = "missing quorum"
	StorageFault     Limit = "storage fault"
	ResourcePressure Limit = "resource pressure"
	InvalidEvidence  Limit = "invalid evidence"
)

// Condition is one thing that needs a person, or that a person should know of.
type Condition struct {
	Code    Code   `json:"code"`
	Subject string `json:"subject"` // a node, a resource with its partition, or what is missing; with Code it names the condition
	What    string `json:"what"`
	Since   int64  `json:"since"` // milliseconds since 1970
	Limit   Limit  `json:"limited_by,omitempty"`
	Ends    string `json:"ends"` // what would end it
	Next    string `json:"next"` // the command to begin with
	// Partitions is how many the condition is about, where it stands for several; the text names the first of them.
	Partitions int `json:"partitions,omitempty"`
	// Notice says that it needs nobody: what has to be done is done by itself, at a time that is known, or nothing has to be done.
	Notice bool `json:"notice,omitempty"`

	last string // the command that ends it at a loss: Next names it once nothing else has helped for lossAfter
}

// WaitKind is what a transition waits for.
type WaitKind uint8

// The kinds of wait.
const (
	WaitAnswers WaitKind = iota // too few copies have answered
	WaitFloor                   // enough have, and none holds all that was confirmed
	WaitTruth                   // copies contradict each other
)

// Waiting is a transition that cannot go on.
type Waiting struct {
	Partition  ident.Partition
	Transition string
	Kind       WaitKind
	Since      int64 // milliseconds since 1970
	Answers    int   // that count,
	Needed     int   // of so many
	Missing    []string
	Floor      uint64 // of WaitFloor: the position that must be met,
	FloorBy    string // and who reported it
	Reason     string
}

// String says what it waits for.
func (w Waiting) String() string {
	var out string
	switch w.Kind {
	case WaitAnswers:
		if w.Needed > 0 {
			out = fmt.Sprintf("%d of %d answers needed", w.Answers, w.Needed)
		}
	case WaitFloor:
		out = fmt.Sprintf("no copy that answered reaches %d, which was confirmed", w.Floor)
		if w.FloorBy != "" {
			out += ", as " + w.FloorBy + " reported"
		}
	case WaitTruth:
		out = "copies contradict each other"
	}
	more := strings.TrimPrefix(strings.TrimPrefix(w.Reason, out), "; ") // it may begin with the same words
	if len(w.Missing) > 0 {
		out += "; missing: " + strings.Join(w.Missing, ", ")
	}
	if more != "" {
		out += "; " + more
	}
	return strings.TrimPrefix(out, "; ")
}

// NodeState is how a registered node stands.
type NodeState struct {
	Node            string
	Live            bool
	Since           int64  // when it was last heard, if it is not live; else since when its store is as it is; 0: not known
	Closed          bool   // its store takes no more writes
	Blocked         bool   // publishers must wait: space is low
	Reason          string // of any of these
	Free            uint64 // bytes
	CertificateEnds int64  // milliseconds since 1970; 0: not known
	Ahead           int64  // milliseconds that its clock is ahead of the asking node's for sure; below 0: behind
	Aside           []Aside
}

// CopyState is how one copy stands.
type CopyState struct {
	Partition   ident.Partition
	Node        string
	Damaged     string // why it does not count
	Learns      bool
	Anew        bool   // a follower that takes an image in place of its log
	Moved       int64  // of a learner: when it last came further, milliseconds since 1970
	DeadLetters uint64 // kept because they could not be passed on,
	Stuck       string // and why

	Run     ident.Instance // that says so
	Epoch   uint64         // that it has taken up
	Durable uint64         // position
	// Of an owner: whether it serves, else why not, and the nodes whose copies take what it sends.
	Serves bool
	Reason string
	Feeds  []string
}

// Known is all that attention is drawn from.
type Known struct {
	Now      int64 // milliseconds since 1970
	View     *catalog.View
	NoQuorum string // why the catalog cannot be changed; "" if it can
	Nodes    []NodeState
	Copies   []CopyState
	Waits    []Waiting
	// Voters are the nodes that vote on the catalog; one that has gone from it is "".
	Voters []string
	// VotersDue says which change of the catalog's members comes next, as Voters has it; "" if none is due.
	VotersDue string
	// Ends are the ends of logs that their owners told before the copies were asked.
	Ends map[ident.Partition]End
}

// Attention says what needs a person, the most pressing first and then by subject, and last what a person should know of; at most MaxConditions.
// total is how many there are, and needing how many of them need somebody.
// prev is what it said before: what goes on since then keeps its Since, and what is new begins now unless it is known better.
func Attention(k Known, prev []Condition) (conditions []Condition, total, needing int) {
	s := newSurvey(k)
	if k.NoQuorum != "" {
		s.add(Condition{
			Code: CatalogQuorumLost, Subject: "catalog", What: k.NoQuorum + "; what serves goes on, nothing can be declared or moved", Limit: MissingQuorum,
			Ends: "a majority of the voters can be reached", Next: "tanist node list", last: "tanist recover catalog",
		})
	}
	s.voters()
	s.transitions()
	s.stores()
	s.copies()
	s.redundancy()
	s.drains()
	s.asides()
	several := s.several()
	since := map[[2]string]int64{}
	for _, c := range prev {
		since[[2]string{string(c.Code), c.Subject}] = c.Since
	}
	for i := range s.out {
		c := &s.out[i]
		if began, ok := since[[2]string{string(c.Code), c.Subject}]; ok && c.Since == 0 {
			c.Since = began
		}
		if c.Since == 0 {
			c.Since = k.Now
		}
		if c.last != "" && k.Now-c.Since >= lossAfter {
			c.Next += c.lastWay(several)
		}
		if !c.Notice {
			needing++
		}
	}
	slices.SortStableFunc(s.out, func(a, b Condition) int {
		return cmp.Or(cmp.Compare(slices.Index(codes, a.Code), slices.Index(codes, b.Code)), strings.Compare(a.Subject, b.Subject))
	})
	return s.out[:min(len(s.out), MaxConditions)], len(s.out), needing
}

// lastWay is the end of a condition's next step, once nothing else has helped. all says that several wait for copies.
func (c *Condition) lastWay(all bool) string {
	switch {
	case c.Code == CatalogQuorumLost:
		return "; the last way, if no missing voter can come back: " + c.last
	case all:
		return "; the last way, if no missing copy can come back: " + c.last + ", or for all that wait: tanist plan accept-loss --all-waiting"
	}
	return "; the last way, if no missing copy can come back: " + c.last
}

// several reports whether more than one partition waits for copies that could be given up.
func (s *survey) several() bool {
	n := 0
	for i := range s.out {
		if x := &s.out[i]; x.last != "" && x.Code != CatalogQuorumLost {
			n += max(1, x.Partitions)
		}
	}
	return n > 1
}

type survey struct {
	k       Known
	nodes   map[string]NodeState
	waits   map[ident.Partition]bool
	damaged map[ident.Partition][]string // nodes
	held    map[copyKey]*CopyState
	out     []Condition
}

func newSurvey(k Known) survey {
	s := survey{
		k: k, nodes: map[string]NodeState{}, waits: map[ident.Partition]bool{}, damaged: map[ident.Partition][]string{},
		held: make(map[copyKey]*CopyState, len(k.Copies)),
	}
	for _, n := range k.Nodes {
		s.nodes[n.Node] = n
	}
	for i := range k.Copies {
		x := &k.Copies[i]
		s.held[copyKey{x.Partition, x.Node}] = x
	}
	return s
}

func (s *survey) add(c Condition) { s.out = append(s.out, c) }

// resource gives the names of a partition for people, and the command that shows it.
func (s *survey) resource(p ident.Partition) (name, show string, ok bool) {
	a, r := s.k.View.Assignment(p)
	if a == nil {
		return "", "", false
	}
	name, show = r.Name, "tanist status "+Quoted(r.Name)
	if r.VHost != catalog.DefaultVHost {
		name, show = r.VHost+": "+name, show+" --vhost "+Quoted(r.VHost)
	}
	if len(r.Partitions) > 1 {
		name += fmt.Sprintf(", partition %d", p.Index)
	}
	return name, show, true
}

// planLoss is the command that says what giving up on a partition's missing copies would do; "" while the catalog could not take it.
func (s *survey) planLoss(p ident.Partition) string {
	if s.k.NoQuorum != "" {
		return ""
	}
	_, r := s.k.View.Assignment(p)
	next := "tanist plan accept-loss " + Quoted(r.Name)
	if r.VHost != catalog.DefaultVHost {
		next += " --vhost " + Quoted(r.VHost)
	}
	if len(r.Partitions) > 1 {
		next += fmt.Sprintf(" --partition %d", p.Index)
	}
	return next
}

// Quoted is a name as a shell reads it.
func Quoted(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == "" {
		return s
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ansiQuoted(s)
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// ansiQuoted is a name that holds what cannot be printed, as bash, zsh and ksh read it.
func ansiQuoted(s string) string {
	out := []byte("$'")
	for _, b := range []byte(s) {
		switch {
		case b == '\'' || b == '\\':
			out = append(out, '\\', b)
		case b < ' ' || b >= 0x7f:
			out = fmt.Appendf(out, `\x%02x`, b)
		default:
			out = append(out, b)
		}
	}
	return string(append(out, '\''))
}

// voters looks at the catalog's majority while there is one: queues may be well beside it, or none be there.
func (s *survey) voters() {
	var away []string
	since := int64(0)
	for _, v := range s.k.Voters {
		switch n := s.nodes[v]; {
		case v == "":
			away = append(away, "one that was removed")
		case !n.Live || n.Closed:
			away, since = append(away, v), max(since, n.Since)
		}
	}
	if len(away) == 0 || s.k.NoQuorum != "" || len(s.k.Voters)-len(away) > len(s.k.Voters)/2+1 {
		return
	}
	slices.Sort(away)
	s.add(Condition{
		Code: QuorumCritical, Subject: "catalog", Since: since, Limit: MissingQuorum,
		What: fmt.Sprintf("%d of %s can be reached: if one more goes, nothing can be declared, changed or taken over", len(s.k.Voters)-len(away), plural(len(s.k.Voters), "voter")),
		Ends: "they are back or replaced: " + strings.Join(away, ", "), Next: "tanist node list",
	})
}

func (s *survey) transitions() {
	for _, w := range s.k.Waits {
		name, show, ok := s.resource(w.Partition)
		if !ok {
			continue
		}
		s.waits[w.Partition] = true
		c := Condition{Subject: name, What: w.String(), Since: w.Since, Limit: MissingQuorum, Next: show}
		if w.Kind != WaitTruth && w.Answers > 0 { // there is something that it could go on with
			c.last = s.planLoss(w.Partition)
		}
		switch w.Kind {
		case WaitAnswers:
			c.Code, c.Ends = WaitingForCopies, "copies that are missing answer"
			if w.Needed == 0 { // nobody was asked yet
				c.Ends = "the catalog takes the record of it"
			}
		case WaitFloor:
			c.Code, c.Ends = BelowHistoryStart, "a copy that holds it answers"
		case WaitTruth:
			c.Code, c.Limit, c.Ends = Contradiction, InvalidEvidence, "a person decides which copy is right"
		}
		if len(w.Missing) > 0 {
			c.Ends += ": " + strings.Join(w.Missing, ", ")
			c.Ends += s.start(w.Missing)
		}
		s.add(c)
	}
}

// start says which nodes of some have to be started again; "" where all run.
func (s *survey) start(nodes []string) string {
	var away []string
	for _, n := range nodes {
		if !s.nodes[n].Live {
			away = append(away, n)
		}
	}
	switch len(away) {
	case 0:
		return ""
	case 1:
		return "; start " + away[0] + " again over its data directory"
	}
	return "; start " + strings.Join(away, ", ") + " again, each over its data directory"
}

func (s *survey) stores() {
	for _, n := range s.k.Nodes {
		if n.Closed {
			s.add(Condition{
				Code: StoreClosed, Subject: n.Node, What: "its store takes no more writes" + because(n.Reason), Limit: StorageFault, Since: n.Since,
				Ends: "the node is started again over a sound disk, or replaced", Next: "tanist node list",
			})
		} else if n.Blocked {
			s.add(Condition{
				Code: DiskLow, Subject: n.Node, What: fmt.Sprintf("publishers wait: %d MiB can still be written", n.Free>>20), Limit: ResourcePressure, Since: n.Since,
				Ends: "there is space again, by consuming, retention or a larger disk", Next: "tanist status",
			})
		}
		if n.Ahead >= skewed || n.Ahead <= -skewed {
			what := fmt.Sprintf("its clock is %.1f s ahead of this node's", float64(n.Ahead)/1000)
			if n.Ahead < 0 {
				what = fmt.Sprintf("its clock is %.1f s behind this node's", float64(-n.Ahead)/1000)
			}
			s.add(Condition{
				Code: ClockSkew, Subject: n.Node, What: what + ": delays and times to live are wrong by as much, and evidence misleads",
				Ends: "the clocks agree to within 2 s", Next: "chronyc tracking, or what keeps the time there",
			})
		}
		if n.CertificateEnds != 0 && n.CertificateEnds-s.k.Now <= expiringAfter {
			what := fmt.Sprintf("its certificate ends in %d hours", (n.CertificateEnds-s.k.Now)/3_600_000)
			if n.CertificateEnds <= s.k.Now {
				what = "its certificate has ended: no node makes a new session with it"
			}
			s.add(Condition{
				Code: CertificateExpiring, Subject: n.Node, What: what, Ends: "it has renewed it, or an operator's own is put in its place", Next: "tanist node list",
			})
		}
	}
}

func (s *survey) copies() {
	for _, x := range s.k.Copies {
		name, show, ok := s.resource(x.Partition)
		if !ok {
			continue
		}
		subject := name + " on " + x.Node
		if x.Damaged != "" {
			s.damaged[x.Partition] = append(s.damaged[x.Partition], x.Node)
			s.add(Condition{
				Code: CopyDamaged, Subject: subject, What: x.Damaged, Limit: StorageFault,
				Ends: "it is made anew from its owner's by itself; where it says why it is not, another takes its place: tanist node drain " +
					Quoted(x.Node) + ", or tanist node replace where no other node can", Next: show,
			})
		}
		if x.Anew {
			s.add(Condition{
				Code: CopyAnew, Subject: subject, What: x.Reason + "; until it is whole it counts for nothing", Ends: "it has the image, by itself", Next: show, Notice: true,
			})
		}
		if x.Learns && x.Moved != 0 && s.k.Now-x.Moved >= stuckAfter {
			s.add(Condition{
				Code: LearnerStuck, Subject: subject, What: strings.TrimSuffix("it has caught up nothing more for a minute: "+x.Reason, ": "), Since: x.Moved, Limit: ResourcePressure,
				Ends: "it comes further, or another node learns in its place", Next: show,
			})
		}
		if x.Stuck != "" {
			what := "1 dead letter is kept: "
			if x.DeadLetters != 1 {
				what = fmt.Sprintf("%d dead letters are kept: ", x.DeadLetters)
			}
			s.add(Condition{
				Code: DeadLetterStuck, Subject: name, What: what + x.Stuck, Next: show,
				Ends: "the exchange that the queue names for them is there and takes them",
			})
		}
	}
}
