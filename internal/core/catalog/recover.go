package catalog

import "fmt"

// How far a recovery moves what must never be given twice. What the lost voters committed beyond the log that is recovered is not known:
// they may have given incarnations, numbers of runs, versions and epochs that a copy, a gateway or a client still holds. Each jump is far
// beyond what a cluster gives in the life of one log's end, and far below what is left.
const (
	recoverIncarnations = 1 << 32 // of ident.LocalBit, 1<<62
	recoverRuns         = 1 << 16 // of 1<<32
	recoverVersions     = 1 << 32
	recoverEpochs       = 1 << 20
)

// Recover makes the catalog that goes on without the majority of its voters, as the entry at an index, which is the first that only this
// line has (design 2 §12). Every partition that has copies on nodes gets a pending transition to an epoch that no owner can have had: its
// copies are sealed above whatever the lost voters had decided, and the ordinary rules choose, wait, or leave it to an accepted loss. now
// is in milliseconds since 1970; cause is for people.
func (s *State) Recover(index uint64, cause string, now int64) {
	s.index = max(index, s.index)
	s.incarnations += recoverIncarnations
	s.runs += recoverRuns
	s.versions += recoverVersions
	for _, r := range s.view.AllResources() {
		if r.Home != nil {
			continue // it lives in one run's memory, and goes with it
		}
		for _, a := range r.Partitions {
			after := *a
			after.Pending = recovering(a, cause, now)
			s.assign(after)
		}
	}
	s.changes = nil // there is no listener yet: the catalog is written down whole
}

// recovering is the pending transition of a partition whose catalog was recovered. It takes the place of one that was pending: what that
// one's seals have promised is below.
func recovering(a *Assignment, cause string, now int64) *Pending {
	epoch := a.Epoch
	if a.Pending != nil {
		epoch = max(epoch, a.Pending.Epoch)
	}
	epoch += recoverEpochs
	return &Pending{ID: fmt.Sprintf("%s@%d.%d", a.Partition, epoch, a.Version), Epoch: epoch, Cause: cause, Since: now}
}
