package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/lease"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/node"
	"github.com/tanist/tanist/internal/port/exec"
)

// guest is the hash of guest's password in the cheapest form that the product takes: simulations log in often.
const guest = "$argon2id$v=19$m=8,t=1,p=1$c2ltdWxhdGlvbnM$QammyDmdSZucNn9wLIGB2A"

// formerHold is how long copies without a place keep their data at least: longer than a session outlives its peer's silence, and short enough
// for simulations to see the end of it.
const formerHold = 2500 * time.Millisecond

// newNode assembles the production node over simulated ports.
func newNode(h *host) (*node.Node, error) {
	w, s := h.w, h.site
	env := node.Env{
		Clock: s.clock, Exec: h.exec, FS: w.opt.plant.disk(s, s.disk), Trace: h, Random: exec.NewSimRandom(w.opt.Seed^w.counts.Runs<<32, s.name),
		Store: s.witness.store, Owner: h.owner,
		Sealed:  func(a control.SealAnswer) control.SealAnswer { return w.opt.plant.sealed(s, a) },
		Members: func(m replica.Members) replica.Members { return overheard{w.opt.plant.members(s, m), s} },
		Granted: func(g lease.Grant) lease.Grant {
			h.granted(g)
			return w.opt.plant.granted(s, g)
		},
	}
	cfg := node.Config{
		Name: s.name, Dir: "data", Storage: w.storage, SnapshotEvery: w.snapshots, FormerHold: formerHold, CatalogBytes: 256 << w.rng.IntN(8),
		GuestHash: func() (string, error) { return guest, nil },
	}
	if w.cluster() {
		env.Mesh = s.mesh
		cfg.Mesh, cfg.Zone = s.address(), s.zone()
		cfg.Joining, cfg.Peers = s.joins()
		cfg.PeersChanged = func(list []mesh.Peer) { s.peers = list }
	}
	return node.New(env, cfg)
}

// joins says whether the node's store, if it is fresh, is told the catalog by others, and by whom.
func (s *site) joins() (bool, []mesh.Peer) {
	joins, peers := s.wiped || s != s.w.sites[0], s.peers
	if peers == nil && joins {
		for _, o := range s.w.sites {
			if o != s && !o.enrolled.IsZero() {
				peers = append(peers, mesh.Peer{Node: o.name, Store: o.enrolled, Address: o.address()})
			}
		}
	}
	return joins, peers
}

// status is what a node says of one partition.
type status struct {
	replica.Status
	name  string
	epoch uint64 // of the assignment
	owner string
	owned bool // here
	host  *host
}

// damaged reports whether the node says that what it holds of the partition is broken. One whose journal has failed closes everything
// and says nothing about what is kept.
func (h *host) damaged(s status) bool {
	return s.State == replica.Blocked && s.Role == "quarantined" && !h.hurt
}

// statuses asks for the partitions of all resources, in order of name.
func (h *host) statuses(done func([]status)) {
	h.node.Statuses(func(list []replica.Status) {
		if h.site.host != h {
			return
		}
		var out []status
		h.node.View(func(v *catalog.View) {
			for _, x := range list {
				if r := v.Incarnation(x.Partition.Incarnation); r != nil {
					a := r.Partitions[x.Partition.Index]
					out = append(out, status{
						Status: x, name: r.Name, epoch: a.Epoch, owner: a.Owner.String(), owned: a.Owner == h.node.Local(), host: h,
					})
				}
			}
		})
		slices.SortFunc(out, func(a, b status) int { return cmp.Compare(a.name, b.name) })
		done(out)
	})
}

// ask keeps the nodes' last answers about what they own fresh, until it is called again.
func (w *world) ask() {
	w.asking++
	w.askAgain(w.asking)
}

func (w *world) askAgain(turn uint64) {
	w.sim.At(w.sim.Now()+time.Duration(1+w.rng.IntN(5))*time.Millisecond, func() {
		if w.asking != turn || w.failed() {
			return
		}
		w.collect(func(all []status) {
			w.last = slices.DeleteFunc(all, func(s status) bool { return w.cluster() && !s.owned })
			w.asked++
			if w.asking == turn {
				w.askAgain(turn)
			}
		})
	})
}

// collect asks every node that serves for its copies.
func (w *world) collect(done func([]status)) {
	var all []status
	up := w.hosts()
	left := len(up)
	for _, h := range up {
		h.statuses(func(list []status) {
			all = append(all, list...)
			if left--; left == 0 {
				done(all)
			}
		})
	}
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
			if slices.Contains(h.site.witness.torn, s.Partition) {
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

// overheard says which changes of members owners propose, and what comes of them.
type overheard struct {
	replica.Members
	s *site
}

// ChangeMembers implements replica.Members.
func (o overheard) ChangeMembers(m catalog.Membership, done func(error)) {
	if f := o.s.w.proposed; f != nil {
		f(o.s, m)
	}
	o.s.w.say("%s proposes of %v, from version %d: followers %v, learners %v, %s", o.s.name, m.Partition, m.Version, m.Followers, m.Learners, m.Policy)
	o.Members.ChangeMembers(m, func(err error) {
		o.s.w.say("%s is answered about %v, version %d: %v", o.s.name, m.Partition, m.Version, err)
		done(err)
	})
}
