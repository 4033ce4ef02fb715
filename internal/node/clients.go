package node

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/value"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/amqp"
)

// clients are this node's, as its front lists them.
type clients struct {
	list func(ctx context.Context) []amqp.Connection
}

// answerLists answers what another node asks for a list, or takes its answer.
func (n *Node) answerLists(peer ident.Instance, msg any) {
	switch m := msg.(type) {
	case protocol.ClientsAsk:
		n.answerClients(m, func(a protocol.ClientsAnswer) { n.sendControl(peer.Node, a) })
	case protocol.ClientsAnswer:
		n.questions.answered(m.Request, peer.Node, 1, m)
	case protocol.CursorsAsk:
		n.answerCursors(m, func(a protocol.CursorsAnswer) { n.sendControl(peer.Node, a) })
	case protocol.CursorsAnswer:
		n.questions.answered(m.Request, peer.Node, 1, m)
	}
}

func (n *Node) answerClients(m protocol.ClientsAsk, done func(protocol.ClientsAnswer)) {
	out := protocol.ClientsAnswer{Request: m.Request, From: n.local}
	known := n.clients.Load()
	if known == nil {
		done(out)
		return
	}
	go func() { // each connection answers for itself
		ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout/2)
		defer cancel()
		all := known.list(ctx)
		out.Total = uint64(len(all))
		left := protocol.MaxConsumers
		for _, c := range all[:min(len(all), protocol.MaxClients)] {
			one := clientOf(&c)
			one.Consumers = one.Consumers[:min(len(one.Consumers), left)]
			left -= len(one.Consumers)
			out.Items = append(out.Items, one)
		}
		done(out)
	}()
}

func clientOf(c *amqp.Connection) protocol.ClientStatus {
	s := &c.Status
	out := protocol.ClientStatus{
		ID: c.ID, Peer: c.Peer, TLS: c.TLS, Since: c.Since.UnixMilli(), State: s.State, User: s.User, VHost: s.VHost, Name: s.Client.Name,
		Product: strings.TrimSpace(s.Client.Product + " " + s.Client.Version), Channels: uint64(len(s.Channels)), In: c.In, Out: c.Out,
	}
	for _, ch := range s.Channels {
		out.Unsettled += uint64(ch.Unsettled)
	}
	for _, k := range s.Consumers {
		out.Consumers = append(out.Consumers, protocol.ConsumerStatus{
			Resource: k.Queue, Tag: k.Tag, Channel: uint64(k.Channel), Prefetch: uint64(k.Prefetch), NoAck: k.NoAck,
		})
	}
	return out
}

// Clients implements admin.Backend.
func (b *backend) Clients(ctx context.Context) (out admin.Clients, _ error) {
	answers := map[string]protocol.ClientsAnswer{}
	silent := askAll(ctx, b, func(node string, done func(protocol.ClientsAnswer, bool)) {
		if node == b.n.local.Node {
			b.n.answerClients(protocol.ClientsAsk{}, func(a protocol.ClientsAnswer) { done(a, true) })
			return
		}
		askPeer(b.n, node, func(request uint64) any { return protocol.ClientsAsk{Request: request} }, done)
	}, func(node string, a protocol.ClientsAnswer) { answers[node] = a })
	out.Silent = slices.Sorted(maps.Keys(silent))
	for _, node := range slices.Sorted(maps.Keys(answers)) {
		out.Total += int(answers[node].Total)
		for _, c := range answers[node].Items {
			one := admin.Client{
				Node: node, ID: c.ID, Peer: c.Peer, TLS: c.TLS, Since: c.Since, State: c.State, User: c.User, VHost: c.VHost, Name: c.Name, Product: c.Product,
				Channels: int(c.Channels), Unsettled: c.Unsettled, In: c.In, Out: c.Out,
			}
			for _, k := range c.Consumers {
				one.Consumers = append(one.Consumers, admin.Consumer{
					Node: node, Connection: c.ID, VHost: c.VHost, Resource: k.Resource, Tag: k.Tag, Channel: int(k.Channel), Prefetch: int(k.Prefetch), NoAck: k.NoAck,
				})
			}
			out.Clients = append(out.Clients, one)
		}
	}
	return out, nil
}

// Exchanges implements admin.Backend.
func (b *backend) Exchanges(context.Context) (out []admin.Exchange, _ error) {
	b.n.View(func(v *catalog.View) {
		for _, h := range v.VHosts() {
			for _, x := range v.Exchanges(h.Name) {
				one := admin.Exchange{
					VHost: x.VHost, Name: x.Name, Type: x.Type, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Alternate: x.Alternate,
					Builtin: x.Builtin, Arguments: texts(x.Args),
				}
				if x.Home != nil {
					one.Node = x.Home.Node
				}
				out = append(out, one)
			}
		}
	})
	return out, nil
}

// Bindings implements admin.Backend.
func (b *backend) Bindings(context.Context) (out []admin.Binding, _ error) {
	b.n.View(func(v *catalog.View) {
		for _, h := range v.VHosts() {
			for _, x := range v.Bindings(h.Name) {
				one := admin.Binding{VHost: x.VHost, Source: x.Source, Destination: x.Destination, Kind: "exchange", Key: x.Key, Arguments: texts(x.Args)}
				if r := v.Resource(x.VHost, x.Destination); r != nil && !x.ToExchange {
					one.Kind = string(r.Kind)
				}
				out = append(out, one)
			}
		}
	})
	return out, nil
}

func texts(t value.Table) map[string]string {
	if len(t) == 0 {
		return nil
	}
	out := make(map[string]string, len(t))
	for _, f := range t {
		out[f.Name] = f.Value.Text()
	}
	return out
}

func (n *Node) answerCursors(m protocol.CursorsAsk, done func(protocol.CursorsAnswer)) {
	n.manager.Cursors(m.Partition, m.Forget, func(a protocol.CursorsAnswer) {
		a.Request, a.From = m.Request, n.local
		done(a)
	})
}

// stream is one that is named, as the catalog has it.
func (b *backend) stream(vhost, name string) (parts []*catalog.Assignment, err error) {
	b.n.View(func(v *catalog.View) {
		switch r := v.Resource(vhost, name); {
		case r == nil:
			err = broker.Errorf(broker.NotFound, "no queue or stream '%s' in vhost '%s'", name, vhost)
		case r.Kind != catalog.Stream:
			err = broker.Errorf(broker.Precondition, "'%s' is a queue, and only streams have cursors", name)
		default:
			parts = r.Partitions
		}
	})
	return parts, err
}

// askCursors asks the owner of a partition.
func (b *backend) askCursors(ctx context.Context, a *catalog.Assignment, forget string) (protocol.CursorsAnswer, error) {
	q := protocol.CursorsAsk{Partition: a.Partition, Forget: forget}
	x, err := await(ctx, func(done func(told[protocol.CursorsAnswer])) {
		say := func(a protocol.CursorsAnswer, ok bool) { done(told[protocol.CursorsAnswer]{a, ok}) }
		switch {
		case a.Owner.Node == b.n.local.Node:
			b.n.answerCursors(q, func(a protocol.CursorsAnswer) { say(a, true) })
		default:
			askPeer(b.n, a.Owner.Node, func(request uint64) any { q.Request = request; return q }, say)
		}
	})
	switch {
	case err != nil:
		return x.a, err
	case !x.ok:
		return x.a, broker.Errorf(broker.Unavailable, "the owner's node %s cannot be reached; try again once another owns", a.Owner.Node)
	case x.a.Refused != "":
		return x.a, broker.Errorf(broker.Unavailable, "node %s did not answer for the stream: %s; try again", a.Owner.Node, x.a.Refused)
	}
	return x.a, nil
}

// Cursors implements admin.Backend.
func (b *backend) Cursors(ctx context.Context, vhost, name string) (out []admin.Cursor, _ error) {
	parts, err := b.stream(vhost, name)
	if err != nil {
		return nil, err
	}
	for _, a := range parts {
		answer, err := b.askCursors(ctx, a, "")
		if err != nil {
			return nil, err
		}
		for _, c := range answer.Items {
			out = append(out, admin.Cursor{VHost: vhost, Resource: name, Partition: a.Partition.Index, Name: c.Name, Offset: c.Offset})
		}
	}
	return out, nil
}

// ForgetCursor implements admin.Backend. An owner's answer lists what is confirmed, so it is asked until the cursor is not in it any more.
func (b *backend) ForgetCursor(ctx context.Context, vhost, name, cursor string) error {
	parts, err := b.stream(vhost, name)
	if err != nil {
		return err
	}
	known := false
	for _, a := range parts {
		for forget := cursor; ; forget = "" {
			answer, err := b.askCursors(ctx, a, forget)
			if err != nil {
				return err
			}
			there := slices.ContainsFunc(answer.Items, func(c protocol.CursorAt) bool { return c.Name == cursor })
			if known = known || answer.Known || there; !there {
				break
			}
			select {
			case <-ctx.Done():
				return broker.Errorf(broker.Unavailable, "it is not known whether cursor '%s' is forgotten: a consumer may be moving it, or nothing is confirmed; look again", cursor)
			case <-time.After(stepAgain):
			}
		}
	}
	if !known {
		return broker.Errorf(broker.NotFound, "'%s' has no cursor '%s'; `tanist cursor list %s` shows those that it has", name, cursor, name)
	}
	return nil
}
