package catalog

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
	"github.com/tanist/tanist/internal/core/value"
)

var update = flag.Bool("update", false, "write the golden files anew")

// one of every operation, with every field set somewhere.
func everyOperation() []Item {
	n, s := int64(5), "dlx"
	p := ident.Partition{Incarnation: 1}
	args := value.Table{
		{Name: "x-max-length", Value: value.Of(-300)},
		{Name: "f", Value: value.Of(1.5)},
		{Name: "b", Value: value.Of(true)},
		{Name: "t", Value: value.Value{Kind: value.Time, Int: 9}},
		{Name: "l", Value: value.Of([]value.Value{value.Of("x"), {}})},
		{Name: "m", Value: value.Of(value.Table{{Name: "k", Value: value.Of("\xff")}})},
	}
	copies := ident.Partition{Incarnation: 4}
	home := &Home{Node: "n1", Boot: 1, Session: 7}
	return []Item{
		InitCluster(ident.StoreID{9}), RaiseFormat(3, 4), CreateVHost("/"), CreateVHost("gone"), DeleteVHost("gone"),
		RegisterBoot(Node{Name: "n1", Store: one.Store, Boot: 1, AMQP: "a:1", Admin: "b:2", Mesh: "c:3"}),
		DeclareExchange(Exchange{VHost: "/", Name: "e", Type: "topic", Durable: true, AutoDelete: true, Internal: true, Alternate: "lost", Args: args}),
		DeclareExchange(Exchange{VHost: "/", Name: "m", Type: "fanout", Home: home}), DeleteExchange("/", "none", true),
		DeclareResource(Resource{
			VHost: "/", Name: "q", Kind: Queue, Durable: true, AutoDelete: true, Args: args, Policy: "majority_durable", Queue: &queue.Settings{
				TTL: &n, Expires: 6, MaxLength: &n, MaxBytes: &n, Overflow: queue.RejectPublish, DeliveryLimit: &n, DeadLetterExchange: &s,
				DeadLetterRoutingKey: &s, SingleActive: true, ConsumerTimeout: 7,
			},
		}, one, []Member{{"n2", ident.StoreID{2}}}, 1),
		DeclareResource(Resource{VHost: "/", Name: "x", Kind: Queue, Exclusive: true, Home: home, Queue: &queue.Settings{}}, one, nil, 1),
		DeclareResource(Resource{
			VHost: "/", Name: "s", Kind: Stream, Durable: true, Policy: "all_durable", Stream: &stream.Settings{MaxAge: 1, MaxBytes: 2, MaxRecords: 3},
		}, one, nil, 2),
		DeleteResource("/", "none", 3, 4),
		Bind(Binding{VHost: "/", Source: "e", Destination: "q", Key: "a.*", Args: args}),
		Bind(Binding{VHost: "/", Source: "amq.fanout", Destination: "e", ToExchange: true}),
		Unbind(Binding{VHost: "/", Source: "amq.direct", Destination: "q", Key: "k"}),
		PutUser(User{Name: "ada", Hash: "h", Roles: []string{"administrator", "monitoring"}}), DeleteUser("none"),
		PutPermission(Permission{User: "ada", VHost: "/", Configure: "c", Write: "w", Read: "r"}), DeletePermission("ada", "none"),
		RecordPending(p, 1, Pending{ID: "t1", Epoch: 2, Cause: "boot", Since: 1234}),
		CommitTransition(Commit{
			Partition: p, Version: 2, Transition: "t1", Owner: one, Followers: []Member{{"n2", ident.StoreID{2}}},
			Learners: []Member{{"n3", ident.StoreID{3}}}, Start: HistoryStart{Epoch: 2, Position: 17, Offset: 11, Link: [16]byte{5}, Node: "n1", Evidence: [32]byte{7}},
		}),
		RecordPending(p, 3, Pending{ID: "t2", Epoch: 3, Cause: "boot", Since: 1235, By: []string{"n2", "n3"}, Suspected: 1234999}), CancelPending(p, 3, "t1"),
		PutSetting("hold", "5m", 0), DeleteSetting("hold", 9),
		AdoptResource(made("made", 1)),
		SetAuthority("", Authority{Certificate: "cert", Key: "key"}),
		RegisterBoot(Node{Name: "n4", Store: ident.StoreID{4}, Boot: 1, Zone: "z", Shards: 300}), DrainNode("n4", ident.StoreID{4}, true),
		DeclareResource(Resource{
			VHost: "/", Name: "c", Kind: Queue, Durable: true, Policy: "replica_durable(2)", Copies: 5, Queue: &queue.Settings{},
		}, one, []Member{{"n4", ident.StoreID{4}}}, 1),
		RegisterBoot(Node{Name: "n5", Store: ident.StoreID{5}, Boot: 1}),
		AddLearner(copies, 1, Member{"n5", ident.StoreID{5}}),
		ChangeMembers(Membership{
			Partition: copies, Version: 2, Epoch: 1, Followers: []Member{{"n4", ident.StoreID{4}}, {"n5", ident.StoreID{5}}},
			Policy: "majority_durable", Floor: 1, Evidence: []Evidence{{one.Store, 1}, {ident.StoreID{5}, 2}},
		}),
		DropLearner(copies, 3, Member{"n5", ident.StoreID{5}}),
		ReplaceNode(ident.StoreID{4}, Node{Name: "n4", Store: ident.StoreID{6}, Boot: 1}),
		AddLearner(copies, 3, Member{"n4", ident.StoreID{6}}),
		RegisterBoot(Node{Name: "n7", Store: ident.StoreID{7}, Boot: 1}), RemoveNode("n7", ident.StoreID{7}),
		PutToken(Token{ID: "t1", Hash: [32]byte{1}, Expires: 100, Node: "n8"}, 50), PutToken(Token{ID: "t2", Hash: [32]byte{2}, Expires: 100}, 50),
		UseToken("t2", [32]byte{2}, "n9", 60),
		NoteAbsent("n5", ident.StoreID{5}, 1, 1234567890123), SetWishes("/", "c", 4, "all_durable", 3),
		MarkLeaving(copies, 4, []Member{{"n4", ident.StoreID{4}}}),
		RecordPending(p, 3, Pending{ID: "t3", Epoch: 3, Cause: "boot", Since: 1236}),
		AcceptLoss(Commit{
			Partition: p, Version: 4, Transition: "t3", Owner: one, Learners: []Member{{"n2", ident.StoreID{2}}, {"n3", ident.StoreID{3}}},
			Start: HistoryStart{Epoch: 3, Position: 17, Offset: 11, Link: [16]byte{5}, Node: "n1", Evidence: [32]byte{8}, Loss: Loss{To: 19}},
		}),
		DeclareResource(Resource{VHost: "/", Name: "lost", Kind: Stream, Durable: true, Stream: &stream.Settings{}}, one, []Member{{"n5", ident.StoreID{5}}}, 1),
		ForceDelete(Deletion{Incarnation: 5, VHost: "/", Name: "lost", At: 1234567890124, Reason: "a fire", Stopped: []string{"n1", "n5"}}, []uint64{1}), ForgetDeletion(99),
	}
}

// made is a resource that node n1 made by itself.
func made(name string, n uint64) Resource {
	p := ident.Partition{Incarnation: ident.TransientBit | ident.LocalBit | n}
	return Resource{
		Incarnation: p.Incarnation, VHost: "/", Name: name, Kind: Queue, Exclusive: true, Home: &Home{Node: "n1", Boot: 1, Session: 7},
		Queue: &queue.Settings{}, Policy: "majority_durable",
		Partitions: []*Assignment{{
			Partition: p, Epoch: 1, Version: 1, Owner: one, Policy: "majority_durable", Starts: []HistoryStart{{Epoch: 1, Node: "n1"}},
		}},
	}
}

func TestAdoptedResources(t *testing.T) {
	s := fresh(t)
	r, _ := mustApply(t, s, AdoptResource(made("amq.gen-1", 1)), Bind(Binding{VHost: "/", Source: "amq.fanout", Destination: "amq.gen-1"}),
		AdoptResource(made("amq.gen-1", 1)))
	if r.Err() != nil || !r.Items[0].Created || r.Items[2].Created || len(s.View().BindingsTo("/", "amq.gen-1", false)) != 1 {
		t.Fatalf("adopted: %+v", r)
	}
	if r, _ := mustApply(t, s, AdoptResource(made("amq.gen-1", 2))); CodeOf(r.Err()) != Exists {
		t.Errorf("another's name: %v", r.Err())
	}
	if r, _ := mustApply(t, s, AdoptResource(made("amq.gen-2", 1))); CodeOf(r.Err()) != IncarnationMoved {
		t.Errorf("another's incarnation: %v", r.Err())
	}
	wrong := made("amq.gen-2", 2)
	wrong.Incarnation &^= ident.LocalBit
	late := made("amq.gen-3", 3)
	late.Home = &Home{Node: "n1", Boot: 9}
	for _, x := range []Resource{wrong, late} {
		if r, _ := mustApply(t, s, AdoptResource(x)); CodeOf(r.Err()) != Invalid {
			t.Errorf("%s: %v", x.Name, r.Err())
		}
	}
	mustApply(t, s, RegisterBoot(Node{Name: "n1", Store: one.Store, Boot: one.Boot + 1}))
	if s.View().Resource("/", "amq.gen-1") != nil {
		t.Error("it outlived the run that made it")
	}
}

// Commands and snapshots that were written once must be read for ever, with the same result: the bytes are pinned.
func TestFormatIsPinned(t *testing.T) {
	cmd := mustEncode(t, everyOperation()...)
	s := New()
	if _, _, err := s.Apply(1, cmd); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("command %x\nsnapshot %x\n", cmd, s.Snapshot())
	const golden = "testdata/format1.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Fatal("the encoding has changed; a new format needs a new number, and the old one must still be read")
	}
	var oldCmd, oldSnap []byte
	if _, err := fmt.Fscanf(strings.NewReader(string(want)), "command %x\nsnapshot %x\n", &oldCmd, &oldSnap); err != nil {
		t.Fatal(err)
	}
	restored, err := Restore(oldSnap)
	if err != nil || string(restored.Snapshot()) != string(oldSnap) {
		t.Fatalf("the pinned snapshot cannot be read: %v", err)
	}
	seen := map[op]bool{}
	for _, it := range everyOperation() {
		seen[it.op] = true
	}
	if len(seen) != len(operations) {
		t.Fatalf("%d operations are pinned, there are %d", len(seen), len(operations))
	}
}
