package admin

import (
	"context"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/broker"
)

func (f *fake) Exchanges(context.Context) ([]Exchange, error) {
	return []Exchange{{VHost: "/", Name: "x", Type: "topic"}, {VHost: "v", Name: "y", Type: "fanout"}}, nil
}

func (f *fake) Bindings(context.Context) ([]Binding, error) {
	return []Binding{{VHost: "/", Source: "x", Destination: "q", Kind: "queue"}, {VHost: "/", Source: "x", Destination: "z", Kind: "exchange"}}, nil
}

func (f *fake) Clients(context.Context) (Clients, error) {
	return Clients{Total: 2, Silent: []string{"n3"}, Clients: []Client{
		{Node: "n1", ID: 1, VHost: "/", Consumers: []Consumer{{Node: "n1", VHost: "/", Resource: "q", Tag: "a"}, {Node: "n1", VHost: "/", Resource: "s", Tag: "b"}}},
		{Node: "n2", ID: 1, VHost: "v"},
	}}, nil
}

func (f *fake) Cursors(_ context.Context, vhost, stream string) ([]Cursor, error) {
	if vhost == "v" {
		return nil, broker.Errorf(broker.NotFound, "no queue or stream '%s' in vhost '%s'", stream, vhost)
	}
	return nil, nil
}

func (f *fake) ForgetCursor(_ context.Context, vhost, stream, cursor string) error {
	return broker.Errorf(broker.NotFound, "%s %s %s", vhost, stream, cursor)
}

// What clients have made and do is listed, by virtual host and by name; what is empty is a list.
func TestLists(t *testing.T) {
	h := handlerOf(newFake())
	for _, x := range []struct {
		path   string
		status int
		want   string
		count  int // of want
	}{
		{"/api/v1/exchanges", 200, `"name"`, 2},
		{"/api/v1/exchanges?vhost=v", 200, `"name": "y"`, 1},
		{"/api/v1/exchanges?vhost=w", 200, "[]", 1},
		{"/api/v1/bindings", 200, `"source"`, 2},
		{"/api/v1/bindings?resource=x", 200, `"source"`, 2},
		{"/api/v1/bindings?resource=q", 200, `"source"`, 1},
		{"/api/v1/bindings?resource=q&vhost=v", 200, "[]", 1},
		{"/api/v1/connections", 200, `"peer"`, 2},
		{"/api/v1/connections?vhost=v", 200, `"consumers": []`, 1},
		{"/api/v1/connections", 200, `"n3"`, 1},
		{"/api/v1/consumers", 200, `"tag"`, 2},
		{"/api/v1/consumers?resource=s", 200, `"tag": "b"`, 1},
		{"/api/v1/consumers?vhost=v", 200, `"consumers": []`, 1},
		{"/api/v1/cursors/s", 200, "[]", 1},
		{"/api/v1/cursors/q?vhost=v", 404, "'q' in vhost 'v'", 1},
	} {
		w := ask(h, "watch", "GET", x.path, "")
		if w.Code != x.status || strings.Count(w.Body.String(), x.want) != x.count {
			t.Errorf("%s: %d %s", x.path, w.Code, w.Body)
		}
	}
	if w := ask(h, "root", "DELETE", "/api/v1/cursors/a%2Fb?cursor=c%2Fd", ""); w.Code != 404 || !strings.Contains(w.Body.String(), "/ a/b c/d") {
		t.Errorf("forget: %d %s", w.Code, w.Body)
	}
	if w := ask(h, "root", "DELETE", "/api/v1/cursors/s", ""); w.Code != 422 || !strings.Contains(w.Body.String(), "no cursor is named") {
		t.Errorf("no cursor: %d %s", w.Code, w.Body)
	}
	if w := ask(h, "watch", "DELETE", "/api/v1/cursors/s?cursor=c", ""); w.Code != 403 {
		t.Errorf("who may only read: %d %s", w.Code, w.Body)
	}
}
