package node

import (
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/archive"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/replica"
)

// evidenceKey keeps records apart from what the controller asks: they wait for each other, and nothing waits for them.
const evidenceKey = 1

// Evidence is what this node keeps of transitions, from Start on; every node comes to keep the same.
func (n *Node) Evidence() *archive.Archive { return n.archive }

func (n *Node) openArchive() *archive.Archive {
	return archive.Open(archive.Env{
		Loop: n.env.Exec.Dedicated("evidence"), Clock: n.env.Clock, Trace: n.env.Trace, FS: n.env.FS, Dir: n.cfg.Dir, Store: n.local.Store,
		View: n.View, Known: n.tally.Known,
		Send:  func(node string, msg any) { n.mesh.Send(node, mesh.Control, evidenceKey, protocol.Append(nil, msg)) },
		Ahead: func(node string, msg any) { n.mesh.Send(node, mesh.Consensus, 0, protocol.Append(nil, msg)) },
	})
}

// keepEnd implements replica.Env's Keep.
func (n *Node) keepEnd(end replica.CutEnd, done func(bool)) { n.archive.Keep(archive.End(end), done) }
