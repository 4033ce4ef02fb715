// Package recovery is what an operator does to a node's data directory, while no process holds it, after the majority of the catalog's
// voters was lost for good: the catalog goes on from one member's log (Plan, Carry), and members that come back later follow it again
// (Rejoin). What may be done is decided in engine/consensus; this package reads and writes the directory, in steps that a crash may
// separate. It starts no node, and speaks to nobody.
package recovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/node/identity"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/vfs"
)

// ErrRefused is wrapped where a recovery or a rejoin is not to be done; the text says why. Nothing was changed.
var ErrRefused = errors.New("refused")

// Env is what the directory is reached with.
type Env struct {
	FS     vfs.FS
	Random io.Reader
	Clock  clock.Clock
	Exec   exec.Executor
	// Await begins something, and returns what it calls done with; nil waits for other goroutines.
	Await func(begin func(done func(error))) error
}

func (e *Env) await(begin func(done func(error))) error {
	if e.Await != nil {
		return e.Await(begin)
	}
	done := make(chan error, 1)
	begin(func(err error) { done <- err })
	return <-done
}

// Directory is what a data directory says of its node and of its part in the catalog.
type Directory struct {
	Node   string            `json:"node"`
	Store  ident.StoreID     `json:"store"`
	InUse  bool              `json:"in_use"`            // by a process: the newest entries may be missing here
	Log    *consensus.Survey `json:"log"`               // nil: there is none
	LeftBy string            `json:"left_by,omitempty"` // the node that said that this one was left behind; "": none has

	state catalog.LogState
	id    *identity.File
}

// Look reads a data directory and changes nothing. It fails where the directory or its consensus log cannot be read.
func Look(env Env, dir string) (*Directory, error) {
	state, store, inUse, err := storage.ReadLog(env.FS, dir)
	if err != nil {
		return nil, err
	}
	d := &Directory{Store: store, InUse: inUse, state: state}
	if d.id, err = identity.Read(env.FS, dir); err != nil {
		return nil, err
	}
	if d.id != nil {
		if d.Node = d.id.Node; d.id.Superseded != nil {
			d.LeftBy = d.id.Superseded.By
		}
	}
	if state.Snapshot.Index > 0 {
		d.Log, err = consensus.Examine(state, store)
	}
	return d, err
}

// Plan is what a recovery would do.
type Plan struct {
	Plan      string             `json:"plan"` // the hash to carry it out by
	Directory *Directory         `json:"directory"`
	Recovery  consensus.Recovery `json:"recovery"`
}

// Make plans the recovery of the catalog from a directory's log: lost are the names of voters that are lost for good, stopped of those
// that are stopped and follow later. It changes nothing. It is refused, with ErrRefused or consensus.ErrNoRecovery, where a process holds
// the directory, the node was left behind, the log is empty, a voter is in neither list, or what is lost is no obstacle to a majority.
func Make(env Env, dir string, lost, stopped []string, reason string) (*Plan, error) {
	d, err := Look(env, dir)
	switch {
	case err != nil:
		return nil, err
	case d.InUse:
		return nil, fmt.Errorf("%w: a process holds %s: stop the node first", storage.ErrInUse, dir)
	case d.LeftBy != "":
		return nil, fmt.Errorf("%w: node %q was left behind: the catalog was recovered already, and node %q goes by it; here `tanist recover rejoin` is next",
			ErrRefused, d.Node, d.LeftBy)
	case d.Log == nil:
		return nil, fmt.Errorf("%w: %s holds no catalog", ErrRefused, dir)
	}
	r, err := d.Log.Recover(d.Node, lost, stopped, reason, env.Clock.Wall())
	if err != nil {
		return nil, err
	}
	return &Plan{Plan: d.hash(r), Directory: d, Recovery: r}, nil
}

// hash names what a plan goes by: another end of the log, or other words of the operator's, are another plan.
func (d *Directory) hash(r consensus.Recovery) string {
	names := func(all []consensus.Member) string {
		var out []string
		for _, m := range all {
			out = append(out, fmt.Sprintf("%s/%x", m.Node, m.ID))
		}
		return strings.Join(out, ",")
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d %s %s", d.Store, d.Log.Generation, r.Index, r.Term, names(r.Lost), names(r.Stopped)))
	return hex.EncodeToString(sum[:8])
}

// ErrPlanMoved is returned where the plan is another by now. Nothing was changed; plan anew.
var ErrPlanMoved = errors.New("the plan is another by now")

// Carry carries a plan out that Make has made with the same words. The log is replaced in one piece: after a crash at any point the
// directory holds the old one or the new one, and Make says which (the generation). Errors are those of Make, of storage.Open and of
// writing, and ErrPlanMoved; only one of writing leaves it open what was done: look again.
func Carry(env Env, dir, plan string, lost, stopped []string, reason string) (*Plan, error) {
	if strings.TrimSpace(reason) == "" {
		return nil, fmt.Errorf("%w: a recovery needs a reason, for the evidence", ErrRefused)
	}
	p, err := Make(env, dir, lost, stopped, reason)
	if err != nil {
		return nil, err
	}
	if p.Plan != plan {
		return nil, fmt.Errorf("%w: it was %s, and is %s: look at it again", ErrPlanMoved, plan, p.Plan)
	}
	return p, withLog(env, dir, func(log *storage.Consensus, now catalog.LogState) (func(func(error)), error) {
		if !same(now, p.Directory.state) {
			return nil, fmt.Errorf("%w: the log has changed since it was read", ErrPlanMoved)
		}
		s := p.Directory.Log.Snapshot(p.Recovery)
		return func(done func(error)) { log.SaveSnapshot(s, done) }, nil
	})
}

// same reports whether two logs are the same, as far as that decides anything.
func same(a, b catalog.LogState) bool {
	return a.Snapshot.Index == b.Snapshot.Index && a.Snapshot.Term == b.Snapshot.Term && bytes.Equal(a.Hard, b.Hard) && len(a.Entries) == len(b.Entries) &&
		slices.EqualFunc(a.Entries, b.Entries, func(x, y catalog.LogEntry) bool { return x.Index == y.Index && x.Term == y.Term })
}

// logFile is how large a log file is that is begun here, in bytes: little is written, and the disk may be nearly full.
const logFile = 8 << 20

// withLog opens a directory, has one thing written to its consensus log, and closes it.
func withLog(env Env, dir string, decide func(*storage.Consensus, catalog.LogState) (func(func(error)), error)) (err error) {
	store, err := storage.Open(storage.Env{FS: env.FS, Clock: env.Clock, Exec: env.Exec, Random: env.Random}, dir, storage.Options{FileSize: logFile, ScrubEvery: -1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.await(store.Close)) }()
	log := store.Consensus()
	state, err := log.Load()
	if err != nil {
		return err
	}
	write, err := decide(log, state)
	if err != nil || write == nil {
		return err
	}
	return env.await(write)
}

// Rejoined is what Rejoin did.
type Rejoined struct {
	Node       string           `json:"node"`
	Generation ident.Generation `json:"generation"` // that the node waits for now
	Aside      string           `json:"aside"`      // the file that its old catalog is kept in; "" where that was done before
}

// Rejoin has a node that was left behind follow again: its old catalog and place in the consensus are kept in a file, and it waits for the
// catalog of the generation that left it behind, as a node that joins does. Its store and its copies stay. It is refused, with ErrRefused,
// for a node that was not told, by a member, that it was left behind: starting it once has it told.
//
// Three steps, each durable before the next, and repeatable: the log is written to a file; the log is emptied; the identity takes the
// generation. Until the last the node does not start, and Rejoin may be called again.
func Rejoin(env Env, dir string) (Rejoined, error) {
	d, err := Look(env, dir)
	switch {
	case err != nil:
		return Rejoined{}, err
	case d.InUse:
		return Rejoined{}, fmt.Errorf("%w: a process holds %s: stop the node first", storage.ErrInUse, dir)
	case d.id != nil && d.id.Superseded == nil && !d.id.Generation.IsZero() && empty(d.state):
		return Rejoined{}, fmt.Errorf("%w: node %q waits for the catalog of generation %s already: start it", ErrRefused, d.Node, d.id.Generation)
	case d.id == nil || d.id.Superseded == nil:
		return Rejoined{}, fmt.Errorf("%w: nobody has told this node that the catalog was recovered without it: start it once where it reaches the node that goes on, "+
			"which tells it", ErrRefused)
	}
	out := Rejoined{Node: d.Node, Generation: d.id.Superseded.Generation}
	if d.Log != nil && d.Log.Generation.Compare(out.Generation) >= 0 {
		return Rejoined{}, fmt.Errorf("%w: this node goes by generation %s, and was left behind by %s: its log and its identity contradict each other",
			ErrRefused, d.Log.Generation, out.Generation)
	}
	if !empty(d.state) {
		if out.Aside, err = setAside(env, dir, d); err != nil {
			return Rejoined{}, err
		}
	}
	next := *d.id
	next.Superseded, next.Generation, next.Joined = nil, out.Generation, true
	return out, next.Write(env.FS, dir)
}

func empty(l catalog.LogState) bool {
	return l.Snapshot.Index == 0 && len(l.Entries) == 0 && len(l.Hard) == 0
}

// setAside does the first two steps of Rejoin.
func setAside(env Env, dir string, d *Directory) (string, error) {
	line := ident.FirstGeneration
	if d.Log != nil {
		line = d.Log.Generation
	} else if !d.id.Generation.IsZero() {
		line = d.id.Generation
	}
	last := d.state.Snapshot.Index + uint64(len(d.state.Entries))
	name := path.Join(dir, "aside", fmt.Sprintf("catalog-%d-%016x-%d", line.Number, line.Mark, last))
	if err := storage.SetLogAside(env.FS, name, d.state); err != nil {
		return "", err
	}
	kept, err := storage.ReadLogAside(env.FS, name)
	if err == nil && !same(kept, d.state) {
		err = fmt.Errorf("%s does not read back as it was written", name)
	}
	if err != nil {
		return "", err
	}
	return name, withLog(env, dir, func(log *storage.Consensus, now catalog.LogState) (func(func(error)), error) {
		if !same(now, d.state) {
			return nil, fmt.Errorf("%w: the log has changed since it was read", ErrPlanMoved)
		}
		return log.Empty, nil
	})
}
