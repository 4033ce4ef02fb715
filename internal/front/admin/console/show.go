package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/front/admin"
)

// Bounds of lists on a page.
const (
	overviewRows = 12
	pageRows     = 100
	maxTiles     = 600 // of one node
	maxBars      = 64  // partitions drawn on the page of a resource
	maxBindings  = 100 // listed there
)

// row is a queue or stream in a list.
type row struct {
	admin.Resource
	Rate  rate
	Known bool // its owners answered, so that the counts are theirs
}

// InRate and LeftRate are for templates.
func (r row) InRate() string { return perSecond(r.Rate.Known, r.Rate.In) }

// LeftRate is of a queue only: nothing is taken off a stream.
func (r row) LeftRate() string {
	return perSecond(r.Rate.Known && r.Kind == string(ident.Queue), r.Rate.Left)
}

// stateRank is how bad a state is.
func stateRank(s admin.State) int { return slices.Index(admin.States, s) }

func (s *sample) row(r *admin.Resource) row {
	k := key{r.VHost, r.Name}
	return row{Resource: *r, Rate: s.rates[k], Known: s.points[len(s.points)-1].counts[k].known}
}

// rows are the resources that keep, the worst first and then by name, which is an order that does not change by itself.
func (s *sample) rows(keep func(*admin.Resource) bool) []row {
	var out []row
	for i := range s.Resources {
		r := &s.Resources[i]
		if keep == nil || keep(r) {
			out = append(out, s.row(r))
		}
	}
	slices.SortStableFunc(out, func(a, b row) int { return cmp.Compare(stateRank(b.State), stateRank(a.State)) })
	return out
}

// stateCount is how many partitions are in a state.
type stateCount struct {
	State       admin.State
	Count       int
	From, Width float64
}

func statesOf(o admin.Overview) (out []stateCount) {
	from := 0
	for _, s := range admin.States {
		n := o.States[s]
		if n > 0 && o.Partitions > 0 {
			out = append(out, stateCount{s, n, full * float64(from) / float64(o.Partitions), full * float64(n) / float64(o.Partitions)})
		}
		from += n
	}
	return out
}

// verdict is the state of the cluster in one sentence.
func verdict(s *sample) (text string, worst admin.State) {
	worst = admin.Serving
	served := s.Overview.States[admin.Serving] + s.Overview.States[admin.Moving]
	for _, x := range admin.States {
		if s.Overview.States[x] > 0 {
			worst = x
		}
	}
	all := s.Overview.Partitions
	switch {
	case all == 0:
		return "There are no queues and streams yet", worst
	case served == all:
		return "Everything is served", worst
	case served == 0:
		return "Nothing is served", worst
	}
	return number(all-served) + " of " + number(all) + " " + plural(all, "partition is", "partitions are") + " not served", worst
}

// nodeCard is a node with what it holds.
type nodeCard struct {
	admin.Node
	Asked         bool
	Owns, Follows int
	Learns        int
	Tiles         []tile
	More          int // copies beyond the tiles
}

// tile is a copy in the picture.
type tile struct {
	VHost, Resource, Role, Health string
	Partition                     uint32
	Several                       bool // the resource has more than one partition
	State                         admin.State
}

// Class is how it is drawn.
func (t tile) Class() string {
	switch {
	case silent(admin.Copy{Health: t.Health}) || t.Health == "damaged":
		return "tile " + roleClass(t.Role) + " lost"
	case t.State != admin.Serving && t.Role == "owner":
		return "tile " + roleClass(t.Role) + " unserved"
	}
	return "tile " + roleClass(t.Role)
}

// roleClass keeps to the roles that are drawn.
func roleClass(role string) string {
	switch role {
	case "owner", "follower", "learner":
		return role
	}
	return "other"
}

func (s *sample) cards(tiles bool) []nodeCard {
	out := make([]nodeCard, len(s.Nodes))
	at := map[string]int{}
	for i, n := range s.Nodes {
		at[n.Name] = i
		out[i] = nodeCard{Node: n, Asked: n.Name == s.Overview.Node}
	}
	parts := map[key]int{}
	for i := range s.Resources {
		parts[key{s.Resources[i].VHost, s.Resources[i].Name}] = s.Resources[i].Partitions
	}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		for _, c := range p.Copies {
			x, ok := at[c.Node]
			if !ok {
				continue
			}
			card := &out[x]
			role := c.Role
			switch {
			case c.Node == p.Owner:
				card.Owns++
				role = "owner"
			case slices.Contains(p.Learners, c.Node):
				card.Learns++
			default:
				card.Follows++
			}
			if !tiles {
				continue
			}
			if len(card.Tiles) == maxTiles {
				card.More++
				continue
			}
			card.Tiles = append(card.Tiles, tile{p.VHost, p.Resource, role, c.Health, p.Partition, parts[key{p.VHost, p.Resource}] > 1, p.State})
		}
	}
	return out
}

// change is a transition in a list.
type change struct {
	*evidence.Evidence
	Begun int64 // milliseconds since 1970
	Total int64 // microseconds
	Pause int64 // microseconds from the last confirm to the first; 0: not known
}

// Withdrawn reports whether the old owner kept what it had.
func (c change) Withdrawn() bool { return c.Outcome == evidence.Cancelled }

// Ended reports whether no more moments will come: nobody was chosen.
func (c change) Ended() bool { return c.Outcome == evidence.Cancelled || c.Outcome == evidence.Refused }

func changesOf(all []*evidence.Evidence) []change {
	out := make([]change, 0, len(all))
	for _, e := range all {
		c := change{Evidence: e, Begun: cmp.Or(e.Suspected, e.Recorded, e.Sealed, e.Chosen, e.Committed, e.Serving) / 1000, Total: timelineOf(e).Total}
		if e.LastConfirm != 0 && e.FirstConfirm > e.LastConfirm && !e.NobodyWaited() {
			c.Pause = e.FirstConfirm - e.LastConfirm
		}
		out = append(out, c)
	}
	return out
}

type overviewBody struct {
	Over        admin.Overview
	Verdict     string
	Worst       admin.State
	States      []stateCount
	Total       rate
	Clients     clients
	Lines       lines
	Ready       uint64
	Unsettled   uint64
	Records     uint64
	Consumers   int
	Unheard     int // queues and streams whose owners did not answer
	Conditions  []control.Condition
	MoreAlerts  int
	Needing     int
	Nodes       []nodeCard
	Rows        []row
	MoreRows    int
	Transitions []change
}

func showOverview(_ context.Context, _ *Console, s *sample, _ *http.Request) (any, error) {
	b := overviewBody{
		Over: s.Overview, States: statesOf(s.Overview), Total: s.total, Clients: s.served, Nodes: s.cards(false),
		Lines: linesOf(s.points, true, func(p point) rate { return p.total }), Rows: s.rows(nil), Transitions: changesOf(s.transitions),
	}
	b.Verdict, b.Worst = verdict(s)
	for i := range b.Rows {
		r := &b.Rows[i]
		b.Consumers += r.Consumers
		if !r.Known {
			b.Unheard++
		} else if r.Kind == string(ident.Queue) {
			b.Ready += r.Ready
			b.Unsettled += r.Unsettled
		} else {
			b.Records += r.Ready
		}
	}
	b.Conditions = s.Attention.Conditions[:min(len(s.Attention.Conditions), 4)]
	b.Needing = s.Attention.Needing
	b.MoreAlerts = s.Attention.Total - len(b.Conditions)
	b.MoreRows = len(b.Rows) - min(len(b.Rows), overviewRows)
	b.Rows = b.Rows[:min(len(b.Rows), overviewRows)]
	return b, nil
}

type clusterBody struct {
	Asked      string
	Picture    picture
	Nodes      []nodeCard
	Rows       []admin.Partition
	Columns    []string
	Pages      pages
	Partitions int
}

// RoleOn is what the copy of a partition on a node is, for the table below the picture.
func (b clusterBody) RoleOn(p admin.Partition, node string) string {
	for _, c := range p.Copies {
		if c.Node != node {
			continue
		}
		role := c.Role
		if c.Node == p.Owner {
			role = "owner"
		}
		if silent(c) || c.Health == "damaged" {
			role += ", " + c.Health
		}
		return role
	}
	return ""
}

func showCluster(_ context.Context, _ *Console, s *sample, r *http.Request) (any, error) {
	b := clusterBody{
		Asked: s.Overview.Node, Picture: pictureOf(s.Nodes, s.Partitions), Nodes: s.cards(true), Partitions: len(s.Partitions),
	}
	for _, n := range s.Nodes {
		b.Columns = append(b.Columns, n.Name)
	}
	b.Rows, b.Pages = paged(s.Partitions, r, admin.PagesPath+"cluster?")
	return b, nil
}

// pages are the pages of a long list.
type pages struct {
	First, Last, All int    // of the rows that are shown, from 1
	Before, After    string // links; "": there are none
}

// paged is the part of a list that a request asks for with page=N. link is its address up to and with "?" or "&".
func paged[T any](all []T, r *http.Request, link string) ([]T, pages) {
	n, err := strconv.Atoi(r.URL.Query().Get("page"))
	last := max(1, (len(all)+pageRows-1)/pageRows)
	if err != nil || n < 1 {
		n = 1
	}
	n = min(n, last)
	from, to := (n-1)*pageRows, min(n*pageRows, len(all))
	p := pages{First: min(from+1, to), Last: to, All: len(all)}
	if n > 1 {
		p.Before = link + "page=" + strconv.Itoa(n-1)
	}
	if n < last {
		p.After = link + "page=" + strconv.Itoa(n+1)
	}
	return all[from:to], p
}

// listURL is the address of a list as it was asked for, without its page: for paged.
func listURL(place string, q url.Values) string {
	q.Del("page")
	q.Del("live")
	link := admin.PagesPath + place + "?"
	if len(q) > 0 {
		link += q.Encode() + "&"
	}
	return link
}

type resourcesBody struct {
	Find  string
	State string
	All   int
	Rows  []row
	Pages pages
	List  []admin.State
}

func showResources(_ context.Context, _ *Console, s *sample, r *http.Request) (any, error) {
	q := r.URL.Query()
	b := resourcesBody{Find: q.Get("find"), State: q.Get("state"), All: len(s.Resources), List: admin.States}
	rows := s.rows(func(x *admin.Resource) bool {
		return (b.State == "" || string(x.State) == b.State) && (b.Find == "" || strings.Contains(visible(x.Name), b.Find))
	})
	b.Rows, b.Pages = paged(rows, r, listURL("resources", q))
	return b, nil
}

// partitionView is a partition with its copies drawn.
type partitionView struct {
	admin.Partition
	Bars      []bar
	Window    window
	Confirmed float64 // where the confirmed position lies
	Reached   int     // copies that answered, the owner's among them
}

type resourceBody struct {
	Row         row
	Lines       lines
	Partitions  []partitionView
	MoreParts   int
	Transitions []change
	Arguments   [][2]string
	Bindings    []admin.Binding // that lead here
	MoreBinds   int
}

func (b resourceBody) title() string { return visible(b.Row.Name) }

func showResource(ctx context.Context, c *Console, s *sample, r *http.Request) (any, error) {
	k := key{r.URL.Query().Get("vhost"), r.URL.Query().Get("name")}
	i := slices.IndexFunc(s.Resources, func(x admin.Resource) bool { return x.VHost == k.vhost && x.Name == k.name })
	if i < 0 {
		return nil, broker.Errorf(broker.NotFound, "There is no queue or stream “%s” in virtual host “%s”.", visible(k.name), visible(k.vhost))
	}
	b := resourceBody{Row: s.row(&s.Resources[i])}
	b.Lines = linesOf(s.points, b.Row.Kind == string(ident.Queue), func(p point) rate { return p.rates[k] })
	for j := range s.Partitions {
		p := &s.Partitions[j]
		if p.VHost != k.vhost || p.Resource != k.name {
			continue
		}
		if len(b.Partitions) == maxBars {
			b.MoreParts++
			continue
		}
		b.Partitions = append(b.Partitions, viewOf(p))
	}
	for name, text := range b.Row.Arguments {
		b.Arguments = append(b.Arguments, [2]string{name, text})
	}
	slices.SortFunc(b.Arguments, func(x, y [2]string) int { return strings.Compare(x[0], y[0]) })
	all, err := c.env.Backend.Transitions(ctx, admin.Which{VHost: k.vhost, Resource: k.name}, recent)
	if err != nil {
		return nil, err
	}
	b.Transitions = changesOf(all)
	binds, err := c.env.Backend.Bindings(ctx)
	for _, x := range binds {
		switch here := x.VHost == k.vhost && x.Destination == k.name && x.Kind == b.Row.Kind; {
		case here && len(b.Bindings) < maxBindings:
			b.Bindings = append(b.Bindings, x)
		case here:
			b.MoreBinds++
		}
	}
	return b, err
}

// viewOf draws the copies of a partition.
func viewOf(p *admin.Partition) partitionView {
	v := partitionView{Partition: *p}
	var ends []uint64
	for _, c := range p.Copies {
		if !silent(c) {
			ends = append(ends, c.Position, c.Durable)
			v.Reached++
		}
	}
	if slices.ContainsFunc(p.Copies, func(c admin.Copy) bool { return c.Node == p.Owner && !silent(c) }) {
		ends = append(ends, p.Confirmed)
	}
	v.Window = windowOf(ends...)
	v.Confirmed = v.Window.at(p.Confirmed)
	for _, c := range p.Copies {
		b := bar{Copy: c, Known: !silent(c), Here: c.Node == p.Owner}
		if b.Known {
			b.Soft, b.Firm = v.Window.at(c.Position), v.Window.at(min(c.Durable, c.Position))
		}
		v.Bars = append(v.Bars, b)
	}
	return v
}

// OwnerKnown reports whether the confirmed position is the owner's word.
func (v partitionView) OwnerKnown() bool {
	return slices.ContainsFunc(v.Bars, func(b bar) bool { return b.Here && b.Known })
}

type transitionsBody struct {
	Rows  []change
	Pages pages
	Of    admin.Which
}

func showTransitions(ctx context.Context, c *Console, s *sample, r *http.Request) (any, error) {
	q := r.URL.Query()
	b := transitionsBody{Of: admin.Which{VHost: q.Get("vhost"), Resource: q.Get("name")}}
	all, err := c.env.Backend.Transitions(ctx, b.Of, admin.MaxTransitions)
	if err != nil {
		return nil, err
	}
	q.Del("page")
	q.Del("live")
	link := admin.PagesPath + "transitions?"
	if len(q) > 0 {
		link += q.Encode() + "&"
	}
	shown, pages := paged(all, r, link)
	b.Rows, b.Pages = changesOf(shown), pages
	return b, nil
}

type transitionBody struct {
	Change  change
	Line    timeline
	Answers []answerBar
	Window  window
	Start   float64
	Silent  []evidence.Exclusion // members without an answer
}

// answerBar is what a copy answered, drawn.
type answerBar struct {
	evidence.Answer
	Soft, Counted float64
	Chosen        bool
	Excluded      string
}

func (b transitionBody) title() string { return "Transition of " + visible(b.Change.Resource) }

func showTransition(ctx context.Context, c *Console, s *sample, r *http.Request) (any, error) {
	e, err := c.env.Backend.Transition(ctx, r.URL.Query().Get("id"))
	if err != nil {
		return nil, err
	}
	b := transitionBody{Change: changesOf([]*evidence.Evidence{e})[0], Line: timelineOf(e)}
	var ends []uint64
	for _, a := range e.Answers {
		ends = append(ends, a.End.Position, a.Clipped)
	}
	if e.After.Owner.Node != "" {
		ends = append(ends, e.Start.Position)
	}
	b.Window = windowOf(ends...)
	b.Start = b.Window.at(e.Start.Position)
	used := map[int]bool{}
	for _, a := range e.Answers {
		x := answerBar{Answer: a, Soft: b.Window.at(a.End.Position), Counted: b.Window.at(a.Clipped), Chosen: a.From == e.After.Owner}
		for i, out := range e.Exclusions {
			if out.Node == a.From.Node && out.Store == a.From.Store {
				x.Excluded, used[i] = out.Reason, true
			}
		}
		b.Answers = append(b.Answers, x)
	}
	for i, out := range e.Exclusions {
		if !used[i] {
			b.Silent = append(b.Silent, out)
		}
	}
	return b, nil
}

func showAttention(_ context.Context, _ *Console, s *sample, _ *http.Request) (any, error) {
	return s.Attention, nil
}
