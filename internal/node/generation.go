package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/node/identity"
)

// generation is the line of the catalog that this run goes by, from its log or, while that is empty, as it was told; empty says that it is,
// and that another node's is waited for. The generation stays the same for the run: no session brings another.
func (n *Node) generation() (g ident.Generation, empty bool, err error) {
	log, err := n.store.Consensus().Load()
	if err != nil {
		return g, false, err
	}
	g, err = consensus.GenerationOf(log)
	switch {
	case err != nil:
		return g, false, err
	case !g.IsZero():
		return g, false, nil
	case n.cfg.Generation.IsZero():
		return ident.FirstGeneration, n.cfg.Joining, nil
	}
	return n.cfg.Generation, n.cfg.Joining, nil
}

// withdraw ends what this node does with others and for clients at once: the cluster goes on without it, and what it would still confirm
// with nodes that were left behind like it would be in no history that counts. The catalog's consensus has stopped by now.
func (n *Node) withdraw() {
	if n.mesh != nil {
		n.mesh.SetPeers(nil)
	}
	n.mu.Lock()
	shards := n.shards
	n.mu.Unlock()
	n.manager.Hold("the cluster goes on without this node")
	for _, s := range shards {
		s.Shutdown("the cluster goes on without this node")
	}
}

// leftBehind says that the catalog was recovered without this node, and what to do.
func leftBehind(by string, g ident.Generation, dir string) error {
	return fmt.Errorf("%w: node %q goes by generation %s of the cluster's catalog, which was recovered without this node: it votes and serves no "+
		"more. To have it follow again: `tanist recover rejoin --data %s`, which keeps its copies, and then start it", ErrLeftBehind, by, g, dir)
}

// ErrLeftBehind is returned by Serve when the catalog was recovered without this node. Starting it again does not help; the text says what does.
var ErrLeftBehind = errors.New("left behind")

// left writes down that the cluster has left this node behind, if that is why it fails, so that it never votes again in the line that was
// left: also where it starts again and reaches only nodes that were left behind like it.
func (m *membership) left(err error) error {
	var by *consensus.Superseded
	if !errors.As(err, &by) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := *m.id
	next.Superseded = &identity.Superseded{By: by.By, Generation: by.Of, At: time.Now().UnixMilli()}
	if failed := next.Write(m.fs, m.cfg.Data); failed != nil {
		return errors.Join(err, failed)
	}
	m.id = &next
	return leftBehind(by.By, by.Of, m.cfg.Data)
}

// removed reports whether the catalog says that a store has left the cluster for good.
func (n *Node) removed(store ident.StoreID) (gone bool) {
	n.View(func(v *catalog.View) { gone = v.Removed(store) != nil })
	return gone
}
