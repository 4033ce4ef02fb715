package node

import (
	"sync"

	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
)

// Records are the evidence that this node keeps. Its methods may be called from any goroutine; what they give out is shared and must not
// be changed.
type Records struct {
	mu    sync.Mutex
	shelf *evidence.Shelf
}

// Evidence is what this node keeps of transitions.
func (n *Node) Evidence() *Records { return n.records }

// Last are the last n records, the first put first.
func (r *Records) Last(n int) []*evidence.Evidence {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shelf.Last(n)
}

// Of are the records of a partition, the first put first.
func (r *Records) Of(p ident.Partition) []*evidence.Evidence {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shelf.Of(p)
}

// Get is the record of a transition, or nil.
func (r *Records) Get(id string) *evidence.Evidence {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shelf.Get(id)
}

// Put keeps a record (evidence.Shelf).
func (r *Records) Put(e *evidence.Evidence) (gone string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shelf.Put(e)
}
