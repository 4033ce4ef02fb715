package catalog_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
	"github.com/tanist/tanist/internal/core/value"
)

// A script is a story: each "apply" is one command, whose items are the lines below it; what follows ---- is the outcome of each item
// and then every change. "show" prints the catalog. After each command the snapshot is restored and must give the same bytes.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s, index := catalog.New(), uint64(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "apply":
				var items []catalog.Item
				for line := range strings.Lines(d.Input) {
					items = append(items, parseItem(t, strings.Fields(line)))
				}
				cmd, err := catalog.Encode(items...)
				if err != nil {
					t.Fatal(err)
				}
				index++
				res, changes, err := s.Apply(index, cmd)
				if err != nil {
					t.Fatal(err)
				}
				again, err := catalog.Restore(s.Snapshot())
				if err != nil || string(again.Snapshot()) != string(s.Snapshot()) {
					t.Fatalf("%s: snapshot does not round-trip: %v", d.Pos, err)
				}
				s = again
				return outcome(res, changes)
			case "show":
				var b strings.Builder
				for _, c := range s.Changes() {
					if e, ok := c.After.(*catalog.Exchange); ok && e.Builtin {
						continue
					}
					fmt.Fprintln(&b, describe(c.After))
				}
				return b.String()
			}
			t.Fatalf("%s: unknown directive %s", d.Pos, d.Cmd)
			return ""
		})
	})
}

func outcome(res catalog.Result, changes []catalog.Change) string {
	var b strings.Builder
	for _, r := range res.Items {
		switch {
		case r.Refused != nil:
			fmt.Fprintf(&b, "refused, %s: %s\n", r.Refused.Code, r.Refused.Error())
		case r.Created:
			fmt.Fprintln(&b, "made")
		case r.Object == nil:
			fmt.Fprintln(&b, "nothing to do")
		default:
			fmt.Fprintln(&b, "ok")
		}
	}
	for _, c := range changes {
		switch {
		case c.Before == nil:
			fmt.Fprintln(&b, "+", describe(c.After))
		case c.After == nil:
			fmt.Fprintln(&b, "-", describe(c.Before))
		default:
			fmt.Fprintln(&b, "=", describe(c.After))
		}
	}
	return b.String()
}

func describe(o any) string {
	flags := func(s string, fs ...any) string {
		for i := 0; i < len(fs); i += 2 {
			if fs[i+1].(bool) {
				s += " " + fs[i].(string)
			}
		}
		return s
	}
	at := func(h *catalog.Home) string {
		if h == nil {
			return ""
		}
		return fmt.Sprintf(" in the memory of %s/%d", h.Node, h.Boot)
	}
	switch o := o.(type) {
	case *catalog.Cluster:
		s := fmt.Sprintf("cluster %s format %d", o.ID.String()[:4], o.Format)
		if o.Authority.Certificate != "" {
			s += " authority " + o.Authority.Certificate
		}
		return s
	case *catalog.VHost:
		return "vhost " + o.Name
	case *catalog.Exchange:
		return flags(fmt.Sprintf("exchange %s:%s %s", o.VHost, o.Name, o.Type), "auto-delete", o.AutoDelete) + at(o.Home)
	case *catalog.Binding:
		return flags(fmt.Sprintf("binding %s:%s -> %s key %q", o.VHost, o.Source, o.Destination, o.Key), "(exchange)", o.ToExchange)
	case *catalog.Resource:
		s := fmt.Sprintf("%s %s:%s", o.Kind, o.VHost, o.Name) + at(o.Home)
		if o.Copies > 0 {
			s += fmt.Sprintf(" wants %d copies", o.Copies)
		}
		if o.Policy != o.Partitions[0].Policy {
			s += " wants " + o.Policy
		}
		for _, a := range o.Partitions {
			s += fmt.Sprintf(" [%s epoch %d version %d owner %s/%d", a.Partition, a.Epoch, a.Version, a.Owner.Node, a.Owner.Boot)
			s += members(" followers", a.Followers) + members(" learners", a.Learners) + members(" leaving", a.Leaving)
			if a.Policy != "" {
				s += " " + a.Policy
			}
			if a.Pending != nil {
				s += fmt.Sprintf(" pending %s to epoch %d", a.Pending.ID, a.Pending.Epoch)
			}
			s += lastStart(a.Starts) + "]"
		}
		return s
	case *catalog.Node:
		s := flags(fmt.Sprintf("node %s store %s boot %d run %d", o.Name, o.Store.String()[:2], o.Boot, o.Number), "draining", o.Draining)
		if o.Absent > 0 {
			s += fmt.Sprintf(" absent since %d", o.Absent)
		}
		return s
	case *catalog.Removed:
		return fmt.Sprintf("removed store %s of %s", o.Store.String()[:2], o.Node)
	case *catalog.Token:
		return fmt.Sprintf("token %s for %q until %d", o.ID, o.Node, o.Expires)
	case *catalog.Deletion:
		return fmt.Sprintf("deletion of %d: %s %s:%s at %d for %q stopped %v held%s", o.Incarnation, o.Kind, o.VHost, o.Name, o.At, o.Reason, o.Stopped, members("", o.Held))
	case *catalog.User:
		return fmt.Sprintf("user %s version %d", o.Name, o.Version)
	case *catalog.Permission:
		return fmt.Sprintf("permission %s in %s %q %q %q", o.User, o.VHost, o.Configure, o.Write, o.Read)
	case *catalog.Setting:
		return fmt.Sprintf("setting %s = %s version %d", o.Name, o.Value, o.Version)
	}
	return fmt.Sprintf("%T", o)
}

func lastStart(of []catalog.HistoryStart) string {
	last := of[len(of)-1]
	s := fmt.Sprintf(" last of %d starts %d@%d", len(of), last.Epoch, last.Position)
	if last.Loss.Accepted {
		s += fmt.Sprintf(" loss to %d", last.Loss.To)
	}
	return s
}

func members(what string, list []catalog.Member) string {
	for _, m := range list {
		what += fmt.Sprintf(" %s/%s", m.Node, m.Store.String()[:2])
	}
	if len(list) == 0 {
		return ""
	}
	return what
}

// words are the rest of an item's line: name=value, or a bare name for yes.
type words map[string]string

func (w words) num(name string) uint64 {
	n, err := strconv.ParseUint(w[name], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (w words) names(name string) (out []string) {
	if w[name] != "" {
		out = strings.Split(w[name], ",")
	}
	return out
}

func (w words) nums(name string) (out []uint64) {
	for _, n := range w.names(name) {
		out = append(out, words{"n": n}.num("n"))
	}
	return out
}

func (w words) has(name string) bool { _, ok := w[name]; return ok }

func (w words) instance() ident.Instance {
	return ident.Instance{Node: w["node"], Store: ident.StoreID{byte(max(w.num("store"), 1))}, Boot: w.num("boot")}
}

func (w words) home() *catalog.Home {
	if !w.has("memory") {
		return nil
	}
	return &catalog.Home{Node: w["node"], Boot: w.num("boot"), Session: w.num("session")}
}

func (w words) args() (t value.Table) {
	for _, k := range []string{"x-max-length", "x-match", "x-queue-type"} {
		if w.has(k) {
			v := value.Of(w[k])
			if n, err := strconv.Atoi(w[k]); err == nil {
				v = value.Of(n)
			}
			t = append(t, value.Field{Name: k, Value: v})
		}
	}
	return t
}

func (w words) partition(t *testing.T) ident.Partition {
	p, err := ident.ParsePartition(w["partition"])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func parseItem(t *testing.T, fields []string) catalog.Item {
	w := words{}
	for _, f := range fields[1:] {
		k, v, _ := strings.Cut(f, "=")
		w[k] = v
	}
	vhost := w["vhost"]
	if vhost == "" {
		vhost = "/"
	}
	switch fields[0] {
	case "cluster":
		return catalog.InitCluster(ident.StoreID{byte(w.num("id"))})
	case "raise-format":
		return catalog.RaiseFormat(w.num("from"), w.num("to"))
	case "create-vhost":
		return catalog.CreateVHost(w["name"])
	case "delete-vhost":
		return catalog.DeleteVHost(w["name"])
	case "boot":
		i := w.instance()
		return catalog.RegisterBoot(catalog.Node{Name: i.Node, Store: i.Store, Boot: i.Boot, AMQP: w["amqp"]})
	case "declare-exchange":
		return catalog.DeclareExchange(catalog.Exchange{
			VHost: vhost, Name: w["name"], Type: w["type"], Durable: !w.has("memory"), AutoDelete: w.has("auto-delete"), Home: w.home(),
		})
	case "delete-exchange":
		return catalog.DeleteExchange(vhost, w["name"], w.has("if-unused"))
	case "bind", "unbind":
		b := catalog.Binding{
			VHost: vhost, Source: w["from"], Destination: w["to"], ToExchange: w.has("exchange"), Key: w["key"], Args: w.args(),
		}
		if fields[0] == "bind" {
			return catalog.Bind(b)
		}
		return catalog.Unbind(b)
	case "declare-queue", "declare-stream":
		r := catalog.Resource{
			VHost: vhost, Name: w["name"], Kind: catalog.Queue, Durable: !w.has("transient"), AutoDelete: w.has("auto-delete"),
			Exclusive: w.has("exclusive"), Home: w.home(), Args: w.args(), Queue: &queue.Settings{}, Policy: w["policy"],
		}
		if fields[0] == "declare-stream" {
			r.Kind, r.Queue, r.Stream = catalog.Stream, nil, &stream.Settings{MaxAge: 1}
		}
		return catalog.DeclareResource(r, w.instance(), w.members("followers"), uint32(max(w.num("partitions"), 1)))
	case "delete-queue":
		return catalog.DeleteResource(vhost, w["name"], w.num("incarnation"), w.num("epoch"))
	case "user":
		return catalog.PutUser(catalog.User{Name: w["name"], Version: w.num("version")})
	case "delete-user":
		return catalog.DeleteUser(w["name"])
	case "permit":
		return catalog.PutPermission(catalog.Permission{User: w["user"], VHost: vhost, Configure: w["configure"], Read: w["read"]})
	case "forbid":
		return catalog.DeletePermission(w["user"], vhost)
	case "add-learner", "drop-learner", "change-members", "mark-leaving", "wish":
		return parseCopies(t, fields[0], w)
	case "remove-node", "replace-node", "drain-node", "absent", "put-token", "use-token", "authority", "force-delete", "forget-deletion":
		return parseNodes(fields[0], w)
	case "record", "commit", "accept-loss", "cancel":
		return parseTransition(t, fields[0], w)
	case "set":
		return catalog.PutSetting(w["name"], w["value"], w.num("version"))
	case "unset":
		return catalog.DeleteSetting(w["name"], w.num("version"))
	}
	t.Fatalf("unknown item %s", slices.Clone(fields))
	return catalog.Item{}
}

func parseTransition(t *testing.T, name string, w words) catalog.Item {
	switch p := w.partition(t); name {
	case "record":
		return catalog.RecordPending(p, w.num("version"), catalog.Pending{ID: w["transition"], Epoch: w.num("epoch"), Cause: "test"})
	case "commit":
		return catalog.CommitTransition(catalog.Commit{
			Partition: p, Version: w.num("version"), Transition: w["transition"], Owner: w.instance(), Followers: w.members("followers"),
			Start: catalog.HistoryStart{Epoch: w.num("epoch"), Position: w.num("position"), Node: w["node"]},
		})
	case "accept-loss":
		return catalog.AcceptLoss(catalog.Commit{
			Partition: p, Version: w.num("version"), Transition: w["transition"], Owner: w.instance(), Followers: w.members("followers"),
			Learners: w.members("learners"),
			Start:    catalog.HistoryStart{Epoch: w.num("epoch"), Position: w.num("position"), Node: w["node"], Loss: catalog.Loss{To: w.num("to")}},
		})
	default:
		return catalog.CancelPending(p, w.num("version"), w["transition"])
	}
}

// members reads node/store,node/store.
func (w words) members(name string) (out []catalog.Member) {
	for m := range strings.SplitSeq(w[name], ",") {
		if node, store, ok := strings.Cut(m, "/"); ok {
			out = append(out, catalog.Member{Node: node, Store: words{"s": store}.store("s")})
		}
	}
	return out
}

func (w words) store(name string) ident.StoreID { return ident.StoreID{byte(w.num(name))} }

func parseCopies(t *testing.T, name string, w words) catalog.Item {
	if name == "wish" {
		return catalog.SetWishes("/", w["name"], w.num("incarnation"), w["policy"], uint32(w.num("copies")))
	}
	p := w.partition(t)
	m := catalog.Member{Node: w["node"], Store: w.store("store")}
	switch name {
	case "add-learner":
		return catalog.AddLearner(p, w.num("version"), m)
	case "drop-learner":
		return catalog.DropLearner(p, w.num("version"), m)
	case "mark-leaving":
		return catalog.MarkLeaving(p, w.num("version"), w.members("leaving"))
	}
	change := catalog.Membership{
		Partition: p, Version: w.num("version"), Epoch: w.num("epoch"), Followers: w.members("followers"), Learners: w.members("learners"),
		Policy: w["policy"], Floor: w.num("floor"),
	}
	for e := range strings.SplitSeq(w["evidence"], ",") { // store@position
		store, at, _ := strings.Cut(e, "@")
		change.Evidence = append(change.Evidence, catalog.Evidence{Store: words{"s": store}.store("s"), Position: words{"p": at}.num("p")})
	}
	return catalog.ChangeMembers(change)
}

func parseNodes(name string, w words) catalog.Item {
	i := w.instance()
	switch name {
	case "force-delete":
		d := catalog.Deletion{Incarnation: w.num("incarnation"), VHost: "/", Name: w["name"], At: int64(w.num("at")), Reason: w["reason"], Stopped: w.names("stopped")}
		return catalog.ForceDelete(d, w.nums("versions"))
	case "forget-deletion":
		return catalog.ForgetDeletion(w.num("incarnation"))
	case "remove-node":
		return catalog.RemoveNode(i.Node, i.Store)
	case "replace-node":
		return catalog.ReplaceNode(w.store("old"), catalog.Node{Name: i.Node, Store: i.Store, Boot: i.Boot})
	case "drain-node":
		return catalog.DrainNode(i.Node, i.Store, !w.has("undo"))
	case "absent":
		return catalog.NoteAbsent(i.Node, i.Store, i.Boot, int64(w.num("since")))
	case "put-token":
		t := catalog.Token{ID: w["id"], Hash: [32]byte{byte(w.num("secret"))}, Expires: int64(w.num("expires")), Node: w["node"]}
		return catalog.PutToken(t, int64(w.num("now")))
	case "use-token":
		return catalog.UseToken(w["id"], [32]byte{byte(w.num("secret"))}, w["node"], int64(w.num("now")))
	}
	return catalog.SetAuthority(w["have"], catalog.Authority{Certificate: w["certificate"], Key: w["key"]})
}
