package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/node"
	"github.com/tanist/tanist/internal/port/exec"
)

// guest is the hash of guest's password in the cheapest form that the product takes: simulations log in often.
const guest = "$argon2id$v=19$m=8,t=1,p=1$c2ltdWxhdGlvbnM$QammyDmdSZucNn9wLIGB2A"

// newNode assembles the production node over simulated ports.
func newNode(w *world, h *host) (*node.Node, error) {
	return node.New(node.Env{
		Clock: w.clock, Exec: h.exec, FS: w.opt.plant.disk(w, w.disk), Trace: w, Random: exec.NewSimRandom(w.opt.Seed^w.counts.Runs<<32, "node"),
		Store: w.witness.store, Owner: w.owner,
	}, node.Config{
		Name: "one", Dir: "data", Storage: w.storage, SnapshotEvery: w.snapshots, CatalogBytes: 256 << w.rng.IntN(8), GuestHash: func() (string, error) { return guest, nil },
	})
}

// status is what the node says of one partition.
type status struct {
	replica.Status
	name  string
	epoch uint64 // of the assignment
	owner string
}

// damaged reports whether the node says that what it holds of the partition is broken. One whose journal has failed closes everything
// and says nothing about what is kept.
func (h *host) damaged(s status) bool {
	return s.State == replica.Blocked && s.Role == "quarantined" && !h.hurt
}

// statuses asks for the partitions of all resources, in order of name.
func (h *host) statuses(done func([]status)) {
	h.node.Statuses(func(list []replica.Status) {
		if h.w.host != h {
			return
		}
		var out []status
		h.node.View(func(v *catalog.View) {
			for _, x := range list {
				if r := v.Incarnation(x.Partition.Incarnation); r != nil {
					a := r.Partitions[x.Partition.Index]
					out = append(out, status{Status: x, name: r.Name, epoch: a.Epoch, owner: a.Owner.String()})
				}
			}
		})
		slices.SortFunc(out, func(a, b status) int { return cmp.Compare(a.name, b.name) })
		done(out)
	})
}

// ask keeps the node's last answer about its partitions fresh.
func (h *host) ask() {
	h.w.later(func() {
		h.statuses(func(list []status) {
			h.last = list
			h.asked++
			h.ask()
		})
	})
}

// owners records who owns what, and what is damaged, and then calls done.
func (h *host) owners(done func()) {
	h.statuses(func(list []status) {
		w := h.w
		for _, s := range list {
			t := w.target(s.name)
			if t == nil || t.born == 0 {
				continue
			}
			if h.damaged(s) {
				w.damage(t, s.Reason)
			}
			if slices.Contains(w.witness.torn, s.Partition) {
				w.say("%s has lost its torn end", t.key)
				w.see(check.Event{Kind: check.Damaged, Resource: t.key})
			}
			if t.maker || t.memory || s.State != replica.Serving {
				continue
			}
			w.see(check.Event{Kind: check.Owned, Resource: t.key, Epoch: s.epoch, Owner: fmt.Sprintf("%s in run %d", s.owner, h.run), Cause: "restart"})
		}
		w.sim.At(w.sim.Now(), done)
	})
}

// damage notes that the node says that a resource is damaged. Nobody works with it any more: there is no other copy to repair it from.
func (w *world) damage(t *target, reason string) {
	if t.damaged {
		return
	}
	t.damaged = true
	w.counts.Damaged++
	w.say("%s is damaged: %s", t.key, reason)
	w.see(check.Event{Kind: check.Damaged, Resource: t.key})
}
