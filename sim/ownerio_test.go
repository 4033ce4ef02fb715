package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/port/vfs"
)

// An owner sends a batch to its followers before its own sync returns (design 2 §2). These are the schedules of design 7 in which that
// sync, or what comes before it, fails. Followers' copies never stand in for the owner's: what failed is not confirmed and not delivered
// in that epoch, what was confirmed before survives, and what failed may come back under the next owner, once.

// failure is how the owner's input or output fails.
type failure string

const (
	writeError   failure = "write error"
	partialWrite failure = "partial write"
	syncError    failure = "sync error"
	syncedError  failure = "sync error after the sync"
	exit         failure = "abrupt exit"
)

// step is what fails.
type ioStep string

const (
	appending ioStep = "append"         // the group that holds the batch
	rolling   ioStep = "file roll"      // the beginning of the file that the batch is to go into
	directory ioStep = "directory sync" // the making of that file
)

// ioCase is one schedule.
type ioCase struct {
	failure failure
	step    ioStep
	first   bool // nothing was confirmed in the queue before
	early   bool // the followers hold the batch durably before the owner learns of its failure
	event   bool // the batch is a settle, not a record
	all     bool // policy all_durable, else majority_durable
	remote  bool // clients are on another node than the owner
}

func (c ioCase) String() string {
	text := fmt.Sprintf("%s of %s", c.failure, c.step)
	for _, x := range []struct {
		is        bool
		yes, no   string
		whichever bool
	}{
		{c.first, "first record", "after one confirmed", true},
		{c.early, "follower durable before", "follower durable after", true},
		{c.event, "event", "record", c.remote},
		{c.all, "all copies", "majority", c.remote},
	} {
		switch {
		case !x.whichever:
		case x.is:
			text += ", " + x.yes
		default:
			text += ", " + x.no
		}
	}
	return text
}

// TestOwnerIOFailure plays the 48 schedules of design 7, with the client on the owner's node.
func TestOwnerIOFailure(t *testing.T) {
	n := 0
	for _, f := range []failure{writeError, partialWrite, syncError, exit} {
		for _, s := range []ioStep{appending, rolling, directory} {
			for i := range 4 {
				n++
				playIO(t, ioCase{failure: f, step: s, first: i&1 == 0, early: i&2 == 0})
			}
		}
	}
	if n != 48 {
		t.Fatalf("%d schedules", n)
	}
}

// TestOwnerIOFailureOfThreeNodes plays the 8 of design 7, with clients on a follower's node, whose gateway goes on.
func TestOwnerIOFailureOfThreeNodes(t *testing.T) {
	n := 0
	for _, f := range []failure{syncError, syncedError} {
		for i := range 4 {
			n++
			playIO(t, ioCase{failure: f, step: appending, early: true, event: i&1 == 0, all: i&2 == 0, remote: true})
		}
	}
	if n != 8 {
		t.Fatalf("%d schedules", n)
	}
}

// ioPlant stands between the owner's node and its disk, and fails once.
type ioPlant struct {
	honest
	c     ioCase
	owner *site // nil: not chosen yet
	ready bool  // the next batch of the wanted kind is the one
	want  []byte
	file  string // whose next sync fails
	fired bool
	after int // calls on log files after the failure, by the same run
	fire  func()
}

func (p *ioPlant) disk(s *site, fs vfs.FS) vfs.FS { return ioDisk{fs, p, s, s.runs} }

func (p *ioPlant) log(s *site, l replica.Log) replica.Log { return ioLog{l, p, s} }

type ioLog struct {
	replica.Log
	p *ioPlant
	s *site
}

func (l ioLog) Append(b batch.Batch, link batch.Link, urgent bool, done func(error)) {
	if p := l.p; p.ready && l.s == p.owner && p.want == nil && (b.Records == 0) == p.c.event {
		p.want = slices.Clone(b.Bytes())
	}
	l.Log.Append(b, link, urgent, done)
}

type ioDisk struct {
	vfs.FS
	p   *ioPlant
	s   *site
	run uint64
}

// on reports whether a call on a log file of the owner's is one that may fail, and counts those that come after one has.
func (d ioDisk) on(name string) bool {
	if d.s != d.p.owner || d.run != d.s.runs || !strings.HasSuffix(name, ".log") || d.p.want == nil {
		return false
	}
	if d.p.fired {
		d.p.after++
		return false
	}
	return true
}

func (p *ioPlant) fail() error {
	p.fired = true
	p.fire()
	return syscall.EIO
}

// SyncDir, Create and Preallocate make the next file.
func (d ioDisk) SyncDir(dir string) error {
	if d.p.file == dir && !d.p.fired {
		return d.p.fail()
	}
	return d.FS.SyncDir(dir)
}

func (d ioDisk) Create(name string) (vfs.File, error) {
	if d.on(name) && d.p.c.step == directory {
		switch d.p.c.failure {
		case writeError:
			return nil, d.p.fail()
		case syncError, exit:
			d.p.file = "data"
		}
	}
	f, err := d.FS.Create(name)
	return d.wrap(name, f, err)
}

func (d ioDisk) Open(name string) (vfs.File, error) {
	f, err := d.FS.Open(name)
	return d.wrap(name, f, err)
}

func (d ioDisk) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return ioFile{f, d, name}, nil
}

type ioFile struct {
	vfs.File
	d    ioDisk
	name string
}

func (f ioFile) Preallocate(size int64) error {
	if p := f.d.p; p.c.step == directory && p.c.failure == partialWrite && f.d.on(f.name) {
		return p.fail()
	}
	return f.File.Preallocate(size)
}

func (f ioFile) WriteAt(b []byte, off int64) (int, error) {
	p := f.d.p
	at := -1
	if f.d.on(f.name) {
		switch p.c.step {
		case appending:
			if at = bytes.Index(b, p.want); at >= 0 {
				at += len(p.want) / 2
			}
		case rolling:
			if off == 0 {
				at = len(b) / 2
			}
		case directory:
		}
	}
	if at < 0 {
		return f.File.WriteAt(b, off)
	}
	switch p.c.failure {
	case writeError:
		return 0, p.fail()
	case partialWrite:
		n, err := f.File.WriteAt(b[:at], off)
		if err != nil {
			return n, err
		}
		return n, p.fail()
	}
	p.file = f.name
	return f.File.WriteAt(b, off)
}

func (f ioFile) Sync() error {
	p := f.d.p
	if !f.d.on(f.name) || p.file != f.name {
		return f.File.Sync()
	}
	if p.c.failure == syncedError {
		if err := f.File.Sync(); err != nil {
			return err
		}
	}
	return p.fail()
}

// ioPlay is one schedule being played.
type ioPlay struct {
	t       *testing.T
	c       ioCase
	p       *ioPlant
	w       *world
	target  *target
	part    ident.Partition
	slow    bool // from the owner to others
	client  *client
	message uint64 // what fails, or what is settled
}

func playIO(t *testing.T, c ioCase) {
	t.Run(c.String(), func(t *testing.T) {
		t.Parallel()
		x := &ioPlay{t: t, c: c, p: &ioPlant{c: c}}
		x.w = newWorld(Options{Seed: 4, Nodes: 3, Faults: []Fault{}, plant: x.p})
		x.play()
	})
}

func (x *ioPlay) await(what string, cond func() bool) {
	x.t.Helper()
	if !x.w.await(what, cond) {
		x.t.Fatalf("%v %v", x.w.fault, x.w.judge.Verdict())
	}
}

func (x *ioPlay) play() {
	x.begin()
	x.prepareClient()
	x.provoke()
	x.judgeFailure()
	x.comeBack()
}

// begin makes three nodes with one queue of three copies.
func (x *ioPlay) begin() {
	w := x.w
	w.storage.FileSize, w.storage.ScrubEvery = 256<<10, -1
	if w.policy = ""; x.c.all {
		w.policy = "all_durable"
	}
	x.target = w.target("plain")
	w.targets, w.producers, w.opt.Clients = []*target{x.target}, nil, 1
	w.net.Delay = func(from, _ string, p mesh.Purpose) time.Duration {
		if x.slow && p == mesh.Copies && from == x.p.owner.name {
			return 300 * time.Millisecond
		}
		return 200 * time.Microsecond
	}
	w.found()
	x.await("the first start", func() bool { return w.open && w.serving() })
	w.want = 0
	x.await("three copies", w.now(func() bool { return w.alike() == "" }))
	a := x.assignment()
	x.part = a.Partition
	for _, s := range w.sites {
		if s.name == a.Owner.Node {
			x.p.owner = s
		}
	}
}

func (x *ioPlay) assignment() (a catalog.Assignment) {
	x.w.anyHost().node.View(func(v *catalog.View) { a = *v.Resource("/", x.target.spec.Name).Partitions[0] })
	return a
}

// prepareClient brings the client in, on the owner's node or on another, and has one record confirmed if one is to be.
func (x *ioPlay) prepareClient() {
	w := x.w
	at := x.p.owner
	if x.c.remote {
		at = at.other(0)
	}
	x.client = at.host.client(0)
	w.clients = append(w.clients, x.client)
	x.client.connect()
	x.await("the login", func() bool { return x.client.open })
	if !x.c.first {
		x.publish(100)
		x.await("the first confirm", func() bool { return w.counts.Confirmed == 1 && len(x.client.waiting) == 0 })
	}
	x.client.consume(x.target, broker.ConsumeSpec{Queue: x.target.spec.Name, Prefetch: 10}, check.Event{Kind: check.Attached})
	x.await("the first delivery", func() bool { return x.c.first || w.counts.Delivered == 1 })
	w.sim.RunFor(50 * time.Millisecond)
}

func fixed(d time.Duration) func(*rand.Rand) time.Duration {
	return func(*rand.Rand) time.Duration { return d }
}

func (x *ioPlay) publish(size int) {
	id := x.w.nextMessage()
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i*7 + i>>8)
	}
	body[7] = byte(id)
	clear(body[:7])
	x.client.send(&broker.Message{
		RoutingKey: x.target.spec.Name, Body: [][]byte{body}, Record: batch.RecordHeader{Flags: batch.FlagPersistent},
	}, id, []*target{x.target}, 0)
	x.message = id
}

// provoke gives the owner what it will fail to keep, and has followers be faster, or slower.
func (x *ioPlay) provoke() {
	w, owner := x.w, x.p.owner
	w.disturb("")
	if x.c.early {
		owner.host.exec.SetLatency(fixed(slowDisk + time.Microsecond))
	} else {
		owner.host.exec.SetLatency(fixed(20 * time.Microsecond))
		x.slow = true
	}
	told := false
	x.p.fire = func() {
		w.sim.At(w.sim.Now()+x.knows(), func() {
			if held := x.holders() == 2; held != x.c.early {
				x.t.Errorf("the followers hold it: %v, before the owner learns of its failure", held)
			}
			if told = true; x.c.failure == exit {
				owner.crash(0)
			}
		})
	}
	x.p.ready = true
	switch {
	case x.c.event:
		x.client.settleSome(1, broker.Accept, check.Accept)
	case x.c.step == appending:
		x.publish(1000)
	default:
		x.publish(256 << 10) // more than is left in the owner's file
	}
	x.await("failure", func() bool { return told })
}

// knows is how long after its failing call the owner learns of it, or would.
func (x *ioPlay) knows() time.Duration {
	if x.c.early {
		return slowDisk
	}
	return 0
}

const slowDisk = 100 * time.Millisecond

// holders is how many followers hold durably what the owner appended last.
func (x *ioPlay) holders() (n int) {
	h := x.w.historyOf(x.part)
	own := h.in(x.p.owner.witness)
	list := own.pending
	if len(list) == 0 {
		return 0
	}
	for _, s := range x.w.sites {
		if s != x.p.owner && h.in(s.witness).holds(list[len(list)-1]) {
			n++
		}
	}
	return n
}

// replaced reports whether some node knows of another owner than the one that failed.
func (x *ioPlay) replaced() (is bool) {
	for _, s := range x.w.sites {
		if s.host != nil && s.host.node != nil {
			s.host.node.View(func(v *catalog.View) {
				is = is || v.Resource("/", x.target.spec.Name).Partitions[0].Owner.Node != x.p.owner.name
			})
		}
	}
	return is
}

// judgeFailure holds what clients have heard against what may be said.
func (x *ioPlay) judgeFailure() {
	w := x.w
	confirmed := uint64(0)
	if !x.c.first {
		confirmed = 1
	}
	has := func() bool {
		return w.counts.Confirmed != confirmed || w.counts.Settled != 0 || w.counts.Refused != 0 || w.counts.Delivered != confirmed
	}
	// The owner that failed may answer nothing. Where followers have it durably, one of them may come to own, and answer for it.
	another := false
	watch := func() {
		if has() && !another {
			if another = true; !x.c.early || !x.replaced() {
				x.t.Errorf("what failed has an outcome: %+v", w.counts)
			}
		}
	}
	switch {
	case x.c.event || x.c.failure == exit:
		w.sim.RunUntil(func() bool { watch(); return false }, time.Second)
	default:
		x.await("an outcome", func() bool { watch(); return len(x.client.waiting) == 0 })
		if !another && w.counts.Unknown != 1 {
			x.t.Errorf("the outcome is not unknown: %+v", w.counts)
		}
	}
	if w.counts.Confirmed > confirmed+1 || w.counts.Settled > 1 || w.counts.Refused != 0 || w.counts.Delivered > confirmed+1 {
		x.t.Errorf("more has an outcome than there was: %+v", w.counts)
	}
	if x.p.after > 0 {
		x.t.Errorf("%d calls on log files after one had failed", x.p.after)
	}
}

// comeBack starts the owner's node again, and empties the queue: what was confirmed is there, and what failed at most once.
func (x *ioPlay) comeBack() {
	w := x.w
	x.slow = false
	held := x.holders()
	if x.p.owner.host != nil {
		x.p.owner.crash(0)
	}
	if x.c.failure == exit && !x.c.early {
		held = 0
	}
	x.p.owner.boot()
	x.await("service", func() bool { return w.serving() })
	if x.c.event { // its gateway gives it to the next owner
		x.await("the settle", func() bool { return w.counts.Settled == 1 })
	}
	if !w.quiesce() || !w.empty() {
		x.t.Fatalf("%v %v", w.fault, w.judge.Verdict())
	}
	came := slices.Contains(w.offsets[x.target.key], x.message)
	if want := held == 2; !x.c.event && came != want {
		x.t.Errorf("%d followers held what failed; it came back: %v", held, came)
	}
	if x.c.event && w.counts.Delivered != 1 {
		x.t.Errorf("what was settled came %d times", w.counts.Delivered)
	}
	for _, s := range w.sites {
		s.crash(1)
		s.boot()
	}
	x.await("service after the last crash", w.serving)
	if !w.empty() {
		x.t.Fatalf("%v %v", w.fault, w.judge.Verdict())
	}
	x.await("identical copies", w.now(func() bool { return w.alike() == "" }))
}
