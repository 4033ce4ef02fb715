package node

import (
	"slices"
	"sync"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/controller"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/replica"
)

// questions are what this node has asked others and was not answered yet. The end of a session ends them unanswered.
type questions struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]question
}

type question struct {
	node   string
	left   int           // parts that have not come
	answer func(msg any) // msg nil: it will not come
}

// ask notes a question whose answer may come in so many parts, and gives its number.
func (q *questions) ask(node string, parts int, answer func(any)) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == nil {
		q.open = map[uint64]question{}
	}
	q.last++
	q.open[q.last] = question{node, parts, answer}
	return q.last
}

// answered gives the answer to who asked, or so many parts of it.
func (q *questions) answered(request uint64, node string, parts int, msg any) {
	q.mu.Lock()
	x, ok := q.open[request]
	if ok = ok && x.node == node; ok {
		if x.left -= parts; x.left > 0 {
			q.open[request] = x
		} else {
			delete(q.open, request)
		}
	}
	q.mu.Unlock()
	if ok {
		x.answer(msg)
	}
}

// lose ends the questions to a node.
func (q *questions) lose(node string) {
	q.mu.Lock()
	var ids []uint64
	for id, x := range q.open {
		if x.node == node {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var lost []question
	for _, id := range ids {
		lost = append(lost, q.open[id])
		delete(q.open, id)
	}
	q.mu.Unlock()
	for _, x := range lost {
		x.answer(nil)
	}
}

func (n *Node) sendControl(node string, msg any) {
	if n.mesh != nil {
		n.mesh.Send(node, mesh.Control, 0, protocol.Append(nil, msg))
	}
}

// answerControl answers what another node asks, or takes its answer.
func (n *Node) answerControl(peer ident.Instance, msg any) {
	switch m := msg.(type) {
	case protocol.SealRequests:
		reqs := make([]control.SealRequest, len(m.Items))
		for i, s := range m.Items {
			reqs[i] = control.SealRequest(s)
		}
		n.manager.Seal(reqs, func(as []control.SealAnswer) {
			out := protocol.SealAnswers{Request: m.Request, From: n.local}
			for _, a := range as {
				out.Items = append(out.Items, protocol.Sealed{
					Partition: a.Partition, Transition: a.Transition, Tail: a.Tail, Confirmed: a.Confirmed, LastConfirm: a.LastConfirm,
					Damaged: a.Damaged, Refused: a.Refused,
				})
			}
			n.sendControl(peer.Node, out)
		})
	case protocol.SealAnswers:
		n.questions.answered(m.Request, peer.Node, len(m.Items), m)
	case protocol.LinksAsk:
		n.answerLinks(peer, m)
	case protocol.LinksAnswer:
		n.questions.answered(m.Request, peer.Node, 1, m)
	case protocol.StatusAsk:
		n.answerStatus(m, func(a protocol.StatusAnswer) { n.sendControl(peer.Node, a) })
	case protocol.LossAsk:
		n.answerLoss(m, func(a protocol.LossAnswer) { n.sendControl(peer.Node, a) })
	case protocol.LossAnswer:
		n.questions.answered(m.Request, peer.Node, 1, m)
	case protocol.DeletionAsk:
		n.answerDeletion(m, func(a protocol.DeletionAnswer) { n.sendControl(peer.Node, a) })
	case protocol.DeletionAnswer:
		n.questions.answered(m.Request, peer.Node, 1, m)
	case protocol.StatusAnswer:
		n.questions.answered(m.Request, peer.Node, 1, m)
	case protocol.ClientsAsk, protocol.ClientsAnswer, protocol.CursorsAsk, protocol.CursorsAnswer:
		n.answerLists(peer, msg)
	case protocol.Heartbeat, protocol.RunReport, protocol.Confirms, protocol.Promises, protocol.Damages:
		n.controllerHears(peer, msg)
	case protocol.Lease:
		n.post(func() { n.takeLease(m) })
	case protocol.Evidence, protocol.EvidenceHeld:
		n.archive.Deliver(peer.Node, m)
	}
}

// seal asks a node to seal copies, this one or a peer.
func (n *Node) seal(node string, reqs []control.SealRequest, done func([]control.SealAnswer)) {
	if heard := n.env.Sealed; heard != nil {
		tell := done
		done = func(as []control.SealAnswer) {
			for i := range as {
				as[i] = heard(as[i])
			}
			tell(as)
		}
	}
	if node == n.local.Node {
		n.manager.Seal(reqs, done)
		return
	}
	id := n.questions.ask(node, len(reqs), func(msg any) {
		m, ok := msg.(protocol.SealAnswers)
		if !ok {
			return // the session ended: the controller knows
		}
		as := make([]control.SealAnswer, len(m.Items))
		for i, s := range m.Items {
			as[i] = control.SealAnswer{Partition: s.Partition, Answer: control.Answer{
				Transition: s.Transition, Instance: m.From, Tail: s.Tail, Confirmed: s.Confirmed, LastConfirm: s.LastConfirm,
				Damaged: s.Damaged, Refused: s.Refused,
			}}
		}
		done(as)
	})
	q := protocol.SealRequests{Request: id}
	for _, r := range reqs {
		q.Items = append(q.Items, protocol.Seal(r))
	}
	n.sendControl(node, q)
}

// links asks the copy on a node for its links at positions.
func (n *Node) links(node string, p ident.Partition, positions []uint64, done func(map[uint64]batch.Link)) {
	if node == n.local.Node {
		n.manager.Links(p, positions, done)
		return
	}
	id := n.questions.ask(node, 1, func(msg any) {
		m, ok := msg.(protocol.LinksAnswer)
		if !ok {
			return
		}
		out := map[uint64]batch.Link{}
		for _, i := range m.Items {
			for _, l := range i.Links {
				out[l.Position] = l.Link
			}
		}
		done(out)
	})
	n.sendControl(node, protocol.LinksAsk{Request: id, Items: []protocol.LinksOf{{Partition: p, Positions: positions}}})
}

func (n *Node) answerLinks(peer ident.Instance, m protocol.LinksAsk) {
	for _, i := range m.Items {
		n.manager.Links(i.Partition, i.Positions, func(links map[uint64]batch.Link) {
			f := protocol.LinksFound{Partition: i.Partition}
			for _, at := range i.Positions {
				if l, ok := links[at]; ok {
					f.Links = append(f.Links, protocol.LinkAt{Position: at, Link: l})
				}
			}
			n.sendControl(peer.Node, protocol.LinksAnswer{Request: m.Request, From: n.local, Items: []protocol.LinksFound{f}})
		})
	}
}

// answerStatus says how this node and its copies are. done is called once, from any goroutine.
func (n *Node) answerStatus(m protocol.StatusAsk, done func(protocol.StatusAnswer)) {
	out := n.ownStatus()
	out.Request = m.Request
	of := m.Partitions
	if m.All {
		of = nil
	} else if len(of) == 0 {
		done(out)
		return
	}
	if m.All {
		out.Aside = asideStatus(n.archive.Aside())
	}
	n.manager.Status(of, func(list []replica.Status) {
		for i := range list {
			out.Items = append(out.Items, copyStatus(&list[i]))
		}
		if !m.All {
			done(out)
			return
		}
		n.controller.Waits(func(waits []controller.Waiting) {
			for i := range waits {
				out.Waits = append(out.Waits, waitStatus(&waits[i]))
			}
			done(out)
		})
	})
}

// statusOf asks a node, this one or a peer, how it and its copies are. done is called once, with ok false where the session ended before.
func (n *Node) statusOf(node string, m protocol.StatusAsk, done func(a protocol.StatusAnswer, ok bool)) {
	if node == n.local.Node {
		n.answerStatus(m, func(a protocol.StatusAnswer) { done(a, true) })
		return
	}
	askPeer(n, node, func(request uint64) any { m.Request = request; return m }, done)
}

// askPeer asks another node with a message that carries the number of the question. done is called once, with ok false where the session ended
// before.
func askPeer[A any](n *Node, node string, message func(request uint64) any, done func(a A, ok bool)) {
	request := n.questions.ask(node, 1, func(msg any) {
		a, ok := msg.(A)
		done(a, ok)
	})
	if n.sendControl(node, message(request)); !n.sees(node) {
		n.questions.answered(request, node, 1, nil) // the session ended between: nobody else says so
	}
}

func copyStatus(s *replica.Status) protocol.CopyStatus {
	var feeds []protocol.FeedStatus
	for _, f := range s.Feeds {
		feeds = append(feeds, protocol.FeedStatus(f))
	}
	return protocol.CopyStatus{
		Partition: s.Partition, Role: s.Role, State: string(s.State), Reason: s.Reason, Epoch: s.Epoch, Position: s.Position, Offset: s.Offset,
		Durable: s.Durable, Confirmed: s.Confirmed, Messages: s.Messages, Ready: s.Ready, Unsettled: s.Unsettled, Consumers: s.Consumers,
		Bytes: s.Bytes, Staged: s.Staged, DeadLetters: s.DeadLetters, Stuck: s.Stuck, Moved: s.Moved, Kept: s.Kept, Feeds: feeds,
	}
}
