package partition

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// script drives one copy by the commands of testdata/*.txt. Storage is played by the script: "saved" and "durable" say when.
type script struct {
	c     Copy
	b     batch.Builder
	batch map[string]stored
	tails []batch.Tail // of every batch that this copy holds
}

type stored struct {
	b    batch.Batch
	link batch.Link
	tail batch.Tail
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{batch: map[string]stored{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var fx Effects
			out := s.run(t, d, &fx)
			for _, e := range fx {
				out += describe(e) + "\n"
			}
			if out == "" {
				out = "ok\n"
			}
			return out
		})
	})
}

func number(t *testing.T, d *datadriven.TestData, key string) uint64 {
	t.Helper()
	var s string
	if !d.HasArg(key) {
		return 0
	}
	d.ScanArgs(t, key, &s)
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return n
}

func (s *script) run(t *testing.T, d *datadriven.TestData, fx *Effects) string {
	fail := func(err error) string {
		if err != nil {
			return "error: " + err.Error() + "\n"
		}
		return ""
	}
	switch d.Cmd {
	case "open":
		return s.open(t, d)
	case "assign":
		s.c.Assign(s.assignment(t, d), fx)
	case "seal":
		return fail(s.c.Seal(number(t, d, "epoch"), fx))
	case "saved":
		s.c.Saved(fx)
	case "durable":
		s.c.AppendDone(fx)
	case "fail":
		s.c.Fail("sync: input/output error", fx)
	case "propose":
		return s.propose(t, d, fail)
	case "follow":
		b := s.make(t, d)
		err := s.c.Follow(number(t, d, "from"), b.b, b.link)
		if err == nil {
			s.tails = append(s.tails, s.c.Tail())
		}
		return fail(err)
	case "learn":
		return fail(s.c.Learn(number(t, d, "from"), number(t, d, "confirmed"), fx))
	case "progress":
		s.c.Progressed(ident.StoreID{byte(number(t, d, "store"))}, number(t, d, "epoch"), number(t, d, "position"), fx)
	case "found":
		for i, tail := range s.tails {
			if tail.Position == number(t, d, "position") {
				s.tails = s.tails[:i+1]
				s.c.TailFound(tail, fx)
				return ""
			}
		}
		s.tails = nil
		s.c.TailFound(batch.Tail{}, fx)
	case "show":
		c := &s.c
		return fmt.Sprintf("%s of epoch %d, promise %d, tail %d, durable %d, confirmed %d, serving %v\n",
			c.Role(), c.Epoch(), c.Promise(), c.Tail().Position, c.Durable().Position, c.Confirmed(), c.Serving())
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return ""
}

func (s *script) open(t *testing.T, d *datadriven.TestData) string {
	i := Image{Partition: ident.Partition{Incarnation: 1}, Promise: number(t, d, "promise"), RoleEpoch: number(t, d, "epoch")}
	if d.HasArg("role") {
		var name string
		d.ScanArgs(t, "role", &name)
		for r := None; r <= Quarantined; r++ {
			if r.String() == name {
				i.Role = r
			}
		}
	}
	if n := number(t, d, "tail"); n > 0 {
		i.Tail = batch.Tail{Position: n, Offset: n, Epoch: number(t, d, "last"), Link: batch.Link{byte(n)}}
	}
	i.Snapshot.Position = number(t, d, "snapshot")
	if d.HasArg("damaged") {
		i.Damaged = "checksum"
	}
	s.c = Open(i)
	s.tails = nil
	return ""
}

// assignment reads: epoch=N role=owner starts=1:0,2:5 w=2 followers=1,2
func (s *script) assignment(t *testing.T, d *datadriven.TestData) Assignment {
	a := Assignment{Epoch: number(t, d, "epoch")}
	var role string
	d.ScanArgs(t, "role", &role)
	for r := None; r <= Quarantined; r++ {
		if r.String() == role {
			a.Role = r
		}
	}
	set := Set{W: int(max(number(t, d, "w"), 1))}
	for _, arg := range d.CmdArgs {
		for _, v := range arg.Vals {
			switch arg.Key {
			case "starts":
				e, p, _ := strings.Cut(v, ":")
				epoch, _ := strconv.ParseUint(e, 10, 64)
				at, _ := strconv.ParseUint(p, 10, 64)
				a.Starts = append(a.Starts, catalog.HistoryStart{Epoch: epoch, Position: at, Offset: at})
			case "followers":
				n, _ := strconv.Atoi(v)
				set.Followers = append(set.Followers, ident.StoreID{byte(n)})
			}
		}
	}
	a.Sets = []Set{set}
	if d.HasArg("joint") {
		a.Sets = append(a.Sets, Set{W: int(number(t, d, "joint")), Followers: set.Followers})
	}
	return a
}

// make builds a batch of records that continues the copy's log, or a wrong one.
func (s *script) make(t *testing.T, d *datadriven.TestData) stored {
	tail := s.c.Tail()
	if d.HasArg("link") {
		tail.Link = batch.Link{0xff}
	}
	if d.HasArg("at") {
		tail.Position = number(t, d, "at")
	}
	epoch := number(t, d, "epoch")
	if epoch == 0 {
		epoch = s.c.Epoch()
	}
	n := max(number(t, d, "count"), 1)
	for range n {
		s.b.Add(batch.Run{Kind: batch.KindRecord, Count: 1}, batch.AppendRecord(nil, batch.RecordHeader{}, []byte("x")))
	}
	b := s.b.Finish(ident.Partition{Incarnation: 1}, epoch, tail, 1)
	return stored{b: b, link: b.Link()}
}

func (s *script) propose(t *testing.T, d *datadriven.TestData, fail func(error) string) string {
	b := s.make(t, d)
	err := s.c.Propose(b.b, b.link)
	if err == nil {
		s.tails = append(s.tails, s.c.Tail())
	}
	return fail(err)
}

func describe(e Effect) string {
	switch e.Kind {
	case SavePromise:
		return fmt.Sprintf("save promise %d", e.Epoch)
	case FindTail:
		return fmt.Sprintf("find tail at %d", e.Cut.Position)
	case DropEnd:
		return fmt.Sprintf("cut to %d", e.Tail.Position)
	case SaveRole:
		return fmt.Sprintf("save role %s of epoch %d", e.Role, e.Epoch)
	case WriteMark:
		return fmt.Sprintf("write mark of epoch %d", e.Epoch)
	case Assumed:
		return fmt.Sprintf("is %s of epoch %d", e.Role, e.Epoch)
	case Advanced:
		return fmt.Sprintf("confirmed to %d", e.Position)
	case Closed:
		return fmt.Sprintf("closed at %d: %s", e.Position, e.Reason)
	case SealReady:
		return fmt.Sprintf("answer seals up to %d: durable to %d", e.Epoch, e.Tail.Position)
	case Refused:
		return "refused: " + e.Reason
	}
	return "?"
}

func TestErrorsAreTold(t *testing.T) {
	c := Open(Image{})
	var b batch.Builder
	b.Add(batch.Run{Kind: batch.KindMark, Count: 1}, batch.AppendEvent(nil, MarkEpoch, nil))
	one := b.Finish(ident.Partition{}, 1, batch.Tail{}, 0)
	if err := c.Propose(one, one.Link()); !errors.Is(err, ErrNotOwner) {
		t.Fatalf("propose: %v", err)
	}
	if err := c.Follow(1, one, one.Link()); !errors.Is(err, ErrStale) {
		t.Fatalf("follow: %v", err)
	}
	if err := c.Learn(1, 1, nil); !errors.Is(err, ErrStale) {
		t.Fatalf("learn: %v", err)
	}
}
