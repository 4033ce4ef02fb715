package console

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/admin"
)

func (f *fake) Clients(context.Context) (admin.Clients, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.clients, f.err
}

func (f *fake) Deletions(context.Context) ([]admin.Deletion, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deletions, f.err
}

func (f *fake) PlanDeletion(_ context.Context, q admin.DeletionQuery) (admin.DeletionPlan, error) {
	switch q.Resource {
	case "events":
		return admin.DeletionPlan{
			Plan: "5d1f0c9a4be27a33", VHost: q.VHost, Resource: q.Resource, Kind: "stream", MustBeStopped: []string{"n2", "n3"},
			Partitions: []admin.PartEnd{{Confirmed: 4711, ReportedBy: "n2", Left: []string{"n1"}, Missing: []string{"n2", "n3"}}, {Partition: 1, Served: true, Owner: "n1"}},
		}, nil
	case "orders":
		return admin.DeletionPlan{VHost: q.VHost, Resource: q.Resource, Kind: "queue", Against: "it is served: its clients can delete it"}, nil
	}
	return admin.DeletionPlan{}, broker.Errorf(broker.NotFound, "no queue or stream '%s'", q.Resource)
}

// connected are two clients of more that are connected.
func connected() admin.Clients {
	return admin.Clients{Total: 2003, Silent: []string{"n2"}, Clients: []admin.Client{
		{
			Node: "n1", ID: 7, Peer: "10.0.1.9:40112", TLS: true, Since: noon.Add(-time.Hour).UnixMilli(), State: "running", User: "shop", VHost: "/", Name: "checkout",
			Product: "pika 1.3", Channels: 2, Unsettled: 34, In: 1 << 20, Out: 3 << 20, Consumers: []admin.Consumer{
				{Node: "n1", Connection: 7, Channel: 1, VHost: "/", Resource: "orders", Tag: "a", Prefetch: 50}, {Node: "n1", Connection: 7, Channel: 2, VHost: "/", Resource: "events", NoAck: true},
			},
		},
		{Node: "n3", ID: 1, Peer: "10.0.1.8:5001", Since: noon.UnixMilli(), State: "opening", VHost: "/"},
	}}
}

// forced is what was deleted by force.
func forced() []admin.Deletion {
	return []admin.Deletion{{
		Incarnation: 9, VHost: "/", Resource: "old", Kind: "queue", At: noon.Add(-time.Hour).UnixMilli(), Reason: "all three disks burnt", Stopped: []string{"n2"}, Held: []string{"n1", "n2"},
		Aside: []admin.AsideCopy{{Node: "n1", Position: 4711, Bytes: 1 << 20, Damaged: "checksum"}},
	}}
}

// nastyLists makes nasty what clients and deletions say, and who is silent.
func (f *fake) nastyLists() {
	f.picture.Attention.Silent = []string{nasty}
	for i := range f.clients.Clients {
		x := &f.clients.Clients[i]
		x.Node, x.Peer, x.State, x.User, x.VHost, x.Name, x.Product = nasty, nasty, nasty, nasty, nasty+"0", nasty, nasty
		for j := range x.Consumers {
			x.Consumers[j] = admin.Consumer{VHost: nasty + "0", Resource: nasty, Tag: nasty}
		}
	}
	f.clients.Silent = []string{nasty}
	f.deletions[0] = admin.Deletion{
		VHost: nasty, Resource: nasty, Kind: nasty, Reason: nasty, Stopped: []string{nasty}, Held: []string{nasty}, Aside: []admin.AsideCopy{{Node: nasty, Damaged: nasty}},
	}
}

// TestClientsAreFound: by whatever a client goes by, and by what it consumes; and pages share what the nodes said.
func TestClientsAreFound(t *testing.T) {
	now := noon
	f := whole()
	c := console(f, &now)
	for find, want := range map[string][2]bool{
		"": {true, true}, "checkout": {true, false}, "10.0.1.8": {false, true}, "shop": {true, false}, "n3": {false, true}, "events": {true, false}, "nobody": {},
	} {
		page := ask(c, "watch", "/console/clients?find="+find).Body.String()
		if got := [2]bool{strings.Contains(page, "10.0.1.9:40112"), strings.Contains(page, "10.0.1.8:5001")}; got != want {
			t.Errorf("%q: found %v, want %v", find, got, want)
		}
	}
	if w := ask(c, "watch", "/console/deletion?vhost=%FF&name=%3Cscript%3Ealert"); w.Code != 404 {
		t.Errorf("a plan for nothing: status %d", w.Code)
	} else {
		harmless(t, "plan", w.Body.String())
	}
	harmless(t, "find", ask(c, "watch", "/console/clients?find=%22%3E%3Cscript%3Ealert%FF").Body.String())
	if f.asked != 2 { // for the sample, and for the clients
		t.Errorf("the nodes were asked %d times", f.asked)
	}
}
