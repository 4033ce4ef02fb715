package replica

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
)

// keeping is what a node tells of changes of owner, and keeps of what is cut.
type keeping struct {
	told  []string
	ends  []CutEnd
	fails bool
	holds bool       // nothing is answered
	done  func(bool) // of what is not answered
}

func (k *keeping) became(p ident.Partition, epoch uint64, b evidence.Became) {
	what := fmt.Sprint(epoch, ":")
	if b.Serving > 0 {
		what += " serves"
	}
	if b.FirstConfirm > 0 {
		what += " confirms"
	}
	for _, c := range b.Cuts {
		what += fmt.Sprintf(" cut from %d to %d on %s, kept %v", c.From, c.To, c.Node, c.Quarantined)
	}
	k.told = append(k.told, what)
}

func (k *keeping) keep(e CutEnd, done func(bool)) {
	k.ends = append(k.ends, e)
	if k.done = done; !k.holds {
		done(!k.fails)
	}
}

// lostEnd has the first node's copy hold an end that the others do not have, and another take over.
func lostEnd(t *testing.T) *trio {
	g := newTrio(t, 7, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	c.publish("kept")
	g.run(10)
	g.nodes[0].cut["n2"], g.nodes[0].cut["n3"] = true, true
	c.publish("lost")
	c.publish("lost too")
	g.run(10)
	g.nodes[0].kill()
	clear(g.nodes[0].cut)
	g.transition(2, 1, 2)
	g.run(20)
	return g
}

func TestANewOwnerTellsWhenItServesAndConfirms(t *testing.T) {
	g := lostEnd(t)
	owner := g.nodes[2]
	if !slices.Equal(owner.told, []string{"2: serves"}) {
		t.Fatalf("told %q", owner.told)
	}
	d := g.client(2)
	d.publish("new")
	d.publish("newer")
	g.run(30)
	if !slices.Equal(owner.told, []string{"2: serves", "2: confirms"}) {
		t.Fatalf("told %q", owner.told)
	}
	if told := slices.Concat(g.nodes[0].told, g.nodes[1].told); len(told) > 0 {
		t.Fatalf("who does not own tells %q, or a first owner does", told)
	}
}

func TestWhatAnOwnerHadIsKeptBeforeItIsCut(t *testing.T) {
	g := lostEnd(t)
	old := g.nodes[0]
	old.holds = true
	old.restart()
	g.run(30)
	if len(old.ends) != 1 || len(old.told) > 0 || old.status().Role == "follower" {
		t.Fatalf("%d ends kept, told %q, %+v", len(old.ends), old.told, old.status())
	}
	end := old.ends[0]
	records := uint32(0)
	for _, b := range end.Batches {
		records += b.Records
	}
	last := end.Batches[len(end.Batches)-1]
	if records != 2 || end.Batches[0].Position != end.From || last.End() != end.To || end.Epoch != 2 || end.Partition != part {
		t.Fatalf("kept %d records of %+v", records, end)
	}
	old.done(true)
	g.run(30)
	if want := fmt.Sprintf("2: cut from %d to %d on n1, kept true", end.From, end.To); !slices.Equal(old.told, []string{want}) {
		t.Fatalf("told %q, want %q", old.told, want)
	}
	g.same(2, 0, 1)
}

// The disk may fail, or be full: the copy follows all the same, and the evidence says that nothing was kept.
func TestWhatCannotBeKeptIsCutAllTheSame(t *testing.T) {
	g := lostEnd(t)
	old := g.nodes[0]
	old.fails = true
	old.restart()
	g.run(50)
	if end := old.ends[0]; !slices.Equal(old.told, []string{fmt.Sprintf("2: cut from %d to %d on n1, kept false", end.From, end.To)}) {
		t.Fatalf("told %q", old.told)
	}
	g.same(2, 0, 1)
}

// A follower's end was told to nobody's clients, and its owner has it if it matters.
func TestWhatAFollowerHadIsNotKept(t *testing.T) {
	g := newTrio(t, 9, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	c.publish("kept")
	g.run(10)
	g.nodes[0].cut["n3"] = true
	before := g.nodes[1].status().Position
	c.publish("on two")
	if !g.sim.RunUntil(func() bool { return g.nodes[1].m.find(part).copy.Tail().Position > before }, time.Second) {
		t.Fatal("it does not come")
	}
	g.nodes[1].cut["n1"] = true // its word that it has it does not arrive
	g.run(10)
	behind := g.nodes[1].status().Position
	g.nodes[0].kill()
	g.nodes[1].kill()
	clear(g.nodes[0].cut)
	clear(g.nodes[1].cut)
	g.transition(2, 2)
	g.run(20)
	g.nodes[1].restart()
	g.nodes[0].restart()
	g.run(60)
	told := g.nodes[1].told
	if len(g.nodes[1].ends) > 0 || len(told) != 1 || told[0] != fmt.Sprintf("2: cut from %d to %d on n2, kept false", behind-1, behind) {
		t.Fatalf("kept %d ends, told %q", len(g.nodes[1].ends), told)
	}
	if len(g.nodes[0].ends) != 1 {
		t.Fatalf("the owner's: %d ends", len(g.nodes[0].ends))
	}
	g.same(2, 0, 1)
}
