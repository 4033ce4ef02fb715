package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/internal/bench/account"
)

// Role is which node of a cluster is killed.
type Role string

// The roles.
const (
	Owner           Role = "owner"            // of all the resources, and not the controller
	Follower        Role = "follower"         // of all the resources, and not the controller
	Controller      Role = "controller"       // which owns none of them
	OwnerController Role = "owner-controller" // the controller, which owns all of them
	Own             Role = "own"              // the owner of all, and the node that all publishers are connected to
)

// Roles are all of them.
var Roles = []Role{Owner, OwnerController, Follower, Controller, Own}

// Plan says what is done to a cluster. All resources are owned by one node, so that all of them need another owner, or none does.
type Plan struct {
	Kill        Role          `json:"kill"`
	Halt        bool          `json:"halt"` // with SIGSTOP, for as long as Halted says; else SIGKILL
	Kind        string        `json:"kind"` // queue or stream
	Resources   int           `json:"resources"`
	Rate        float64       `json:"rate"` // messages a second, of all publishers together
	Size        int           `json:"size"` // bytes of a body
	Connections int           `json:"connections"`
	Warmup      time.Duration `json:"-"`
	Before      time.Duration `json:"-"` // how long is measured before the kill
	After       time.Duration `json:"-"` // how long the load goes on after it
	Halted      time.Duration `json:"-"`
	Prefix      string        `json:"-"`
}

// String is a line for people.
func (p Plan) String() string {
	signal := "SIGKILL"
	if p.Halt {
		signal = "SIGSTOP"
	}
	return fmt.Sprintf("%s, %s, %d %ss", p.Kill, signal, p.Resources, p.Kind)
}

// FailoverRun is what came of one kill. Times are in milliseconds. Pauses are the longest of all resources.
type FailoverRun struct {
	Broker      string    `json:"broker"`
	Node        string    `json:"node"`
	Before      float64   `json:"longest_pause_before_ms"` // between two confirms of a resource
	Pause       float64   `json:"longest_pause_ms"`        // likewise, from the last confirm before the kill on
	PauseAt     float64   `json:"longest_pause_began_ms"`  // since the kill
	Served      float64   `json:"all_serve_ms"`            // until every resource had confirmed a message that was sent after the kill
	Reconnected float64   `json:"reconnected_ms"`          // of who lost its connection: from when it could publish again until a confirm
	Closed      int64     `json:"closed_connections"`
	Moved       int       `json:"changed_epochs"` // resources with another epoch than before; -1 where none are told
	Phases      *Phases   `json:"phases,omitempty"`
	Books       AllTotals `json:"books"`
}

// AllTotals are the books of all resources together.
type AllTotals = account.Totals

// failover is one run under way.
type failover struct {
	Subject
	plan          Plan
	victim, owner int
	names         []string
	crowd         *crowd
	out           FailoverRun
}

// Failover puts a load on a cluster, kills or halts a node, waits until the cluster is whole again with that node, reads everything back
// and deletes it. n is how often it was done before: nodes take turns.
func Failover(ctx context.Context, s Subject, p Plan, n int, tell func(string)) (out FailoverRun, err error) {
	f := &failover{Subject: s, plan: p}
	f.plan.Prefix = fmt.Sprintf("%s-%d", p.Prefix, n)
	f.out.Broker = s.Name()
	if err := f.cast(ctx, n); err != nil {
		return f.out, err
	}
	f.out.Node = nodeName(f.victim)
	tell(fmt.Sprintf("%s: declaring, to be owned by %s", s.Name(), nodeName(f.owner)))
	if err := f.place(ctx); err != nil {
		return f.out, err
	}
	defer func() { err = errors.Join(err, f.remove()) }()
	if err := f.awaitWhole(ctx); err != nil {
		return f.out, err
	}
	f.crowd = newCrowd(f.names, max(p.Connections, 1), p.Size, p.Rate)
	err = f.underLoad(ctx, tell)
	return f.out, err
}

// cast chooses who is killed and who owns.
func (f *failover) cast(ctx context.Context, n int) error {
	nodes := len(f.URLs())
	controller, err := f.Controller(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(seq(nodes), func(i int) bool { return i == controller })
	a, b := others[n%len(others)], others[(n+1)%len(others)]
	switch f.plan.Kill {
	case Owner, Own:
		f.victim, f.owner = a, a
	case Follower:
		f.victim, f.owner = a, b
	case OwnerController, Controller:
		if controller < 0 {
			controller = n % nodes // it has none: any node is as good
			a = (controller + 1) % nodes
		}
		f.victim, f.owner = controller, a
		if f.plan.Kill == OwnerController {
			f.owner = controller
		}
	}
	return nil
}

func seq(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// place declares until enough are owned by the node, and deletes those that others own.
func (f *failover) place(ctx context.Context) error {
	args := amqp.Table{"x-queue-type": "quorum"}
	if f.plan.Kind == "stream" {
		args["x-queue-type"] = "stream"
	}
	url, named := f.URLs()[f.owner], 0
	var surplus []string
	for round := 0; len(f.names) < f.plan.Resources; round++ {
		if round == 8 {
			return fmt.Errorf("%d of %d resources came to be owned by %s", len(f.names), f.plan.Resources, nodeName(f.owner))
		}
		missing := f.plan.Resources - len(f.names)
		if round > 0 {
			missing *= len(f.URLs())
		}
		var fresh []string
		for range missing {
			fresh = append(fresh, fmt.Sprintf("%s-%d", f.plan.Prefix, named))
			named++
		}
		if err := each(url, fresh, func(ch *amqp.Channel, name string) error {
			_, err := ch.QueueDeclare(name, true, false, false, false, maps.Clone(args))
			return err
		}); err != nil {
			return err
		}
		owners, err := f.settledOwners(ctx, fresh)
		if err != nil {
			return err
		}
		for i, name := range fresh {
			if owners[i] == f.owner && len(f.names) < f.plan.Resources {
				f.names = append(f.names, name)
			} else {
				surplus = append(surplus, name)
			}
		}
	}
	return deleteAll(url, surplus)
}

// settledOwners asks until each has one.
func (f *failover) settledOwners(ctx context.Context, names []string) (owners []int, err error) {
	err = until(ctx, func() error {
		owners, err = f.Owners(ctx, names)
		if err == nil && slices.Contains(owners, -1) {
			err = errors.New("some resources have no owner")
		}
		return err
	})
	return owners, err
}

func deleteAll(url string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return each(url, names, func(ch *amqp.Channel, name string) error {
		_, err := ch.QueueDelete(name, false, false, false)
		return err
	})
}

func (f *failover) remove() error {
	if err := deleteAll(f.URLs()[f.survivor()], f.names); err != nil {
		return fmt.Errorf("deleting what was measured with: %w", err)
	}
	return nil
}

func (f *failover) survivor() int { return (f.victim + 1) % len(f.URLs()) }

// wholeTimeout bounds how long a cluster may take to be whole again.
const wholeTimeout = 3 * time.Minute

func (f *failover) awaitWhole(ctx context.Context) error {
	return until(ctx, func() error { return f.Whole(ctx, f.names) })
}

// until asks until there is no error, or it has taken too long.
func until(ctx context.Context, ask func() error) error {
	deadline := time.Now().Add(wholeTimeout)
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s: %w", wholeTimeout, err)
		}
		if !wait(ctx, 100*time.Millisecond) {
			return errors.New("interrupted")
		}
	}
}

// addresses are those that a publisher uses, in turn: the node that is killed first, if it is to be the publishers' own, else never.
func (f *failover) addresses(place int) (out []string) {
	urls := f.URLs()
	if f.plan.Kill == Own {
		out = append(out, urls[f.victim])
	}
	for i := range urls {
		if at := (i + place) % len(urls); at != f.victim {
			out = append(out, urls[at])
		}
	}
	return out
}

func (f *failover) underLoad(ctx context.Context, tell func(string)) error {
	epochs, err := f.Epochs(ctx, f.names)
	if err != nil {
		return err
	}
	stream := f.plan.Kind == "stream"
	readers := &watchers{}
	if stream {
		if readers, err = f.crowd.watch(f.addresses(0)[len(f.addresses(0))-1:]); err != nil {
			return err
		}
	}
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	if err := f.crowd.publish(publishing, f.addresses); err != nil {
		return err
	}
	err = f.strike(ctx, tell)
	stop()
	f.crowd.wg.Wait()
	err = errors.Join(err, f.mend(ctx, tell))
	err = errors.Join(err, readers.stop())
	if err != nil {
		return err
	}
	tell(fmt.Sprintf("%s: reading back", f.Name()))
	if err := f.crowd.readBack(ctx, f.URLs()[f.survivor()], stream); err != nil {
		return err
	}
	return f.close(ctx, epochs)
}

// strike measures, kills, and measures again.
func (f *failover) strike(ctx context.Context, tell func(string)) error {
	if !wait(ctx, f.plan.Warmup) {
		return errors.New("interrupted")
	}
	from := f.crowd.now()
	if !wait(ctx, f.plan.Before) {
		return errors.New("interrupted")
	}
	moment, kill := time.Now(), f.Kill
	if f.plan.Halt {
		kill = f.Halt
	}
	if err := kill(f.victim); err != nil {
		return err
	}
	killed := f.crowd.now() // what is sent from now on, the node does not confirm
	close(f.crowd.killed)
	f.out.Phases = &Phases{killed: moment}
	if f.plan.Halt {
		tell(fmt.Sprintf("%s: %s is halted for %s", f.Name(), nodeName(f.victim), f.plan.Halted))
		if !wait(ctx, f.plan.Halted) {
			return errors.New("interrupted")
		}
		if err := f.Resume(f.victim); err != nil { // under load: it still believes that it owns
			return err
		}
	} else {
		tell(fmt.Sprintf("%s: %s is killed", f.Name(), nodeName(f.victim)))
	}
	if !wait(ctx, f.plan.After) {
		return errors.New("interrupted")
	}
	if err := f.awaitService(ctx, killed); err != nil {
		return err
	}
	f.measure(from, killed, f.crowd.now())
	return nil
}

// serviceTimeout bounds how much longer the load goes on where not every resource serves again.
const serviceTimeout = 30 * time.Second

// awaitService lets the load go on until every resource has confirmed what was sent after the kill, so that a pause is measured to its end.
func (f *failover) awaitService(ctx context.Context, killed time.Duration) error {
	for deadline := time.Now().Add(serviceTimeout); time.Now().Before(deadline); {
		serving := 0
		for _, l := range f.crowd.lanes {
			l.mu.Lock()
			if _, ok := l.book.Served(killed); ok {
				serving++
			}
			l.mu.Unlock()
		}
		if serving == len(f.crowd.lanes) {
			return nil
		}
		if !wait(ctx, 100*time.Millisecond) {
			return errors.New("interrupted")
		}
	}
	return nil // the pause lasts until the load ends
}

// measure reads the pauses from the books.
func (f *failover) measure(from, killed, to time.Duration) {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	f.out.Reconnected = ms(f.crowd.reconnected())
	for _, l := range f.crowd.lanes {
		l.mu.Lock()
		before, _ := l.book.Pause(from, killed)
		last := killed
		if at, ok := l.book.LastConfirm(killed); ok {
			last = at
		}
		after, began := l.book.Pause(last, to)
		served, ok := l.book.Served(killed)
		l.mu.Unlock()
		if !ok {
			served = to
		}
		f.out.Before = max(f.out.Before, ms(before))
		if ms(after) > f.out.Pause {
			f.out.Pause, f.out.PauseAt = ms(after), ms(began-killed)
		}
		f.out.Served = max(f.out.Served, ms(served-killed))
	}
}

// mend brings the node back and waits until every copy is level.
func (f *failover) mend(ctx context.Context, tell func(string)) error {
	tell(fmt.Sprintf("%s: until %s is back and level", f.Name(), nodeName(f.victim)))
	if !f.plan.Halt {
		if err := f.Start(ctx, f.victim); err != nil {
			return err
		}
	}
	return f.awaitWhole(ctx)
}

// close takes the totals.
func (f *failover) close(ctx context.Context, epochs []uint64) error {
	for _, l := range f.crowd.lanes {
		f.out.Books.Add(l.book.Totals())
	}
	f.out.Closed = f.crowd.closed.Load()
	now, err := f.Epochs(ctx, f.names)
	if err != nil {
		return err
	}
	f.out.Moved = -1
	if epochs != nil {
		f.out.Moved = 0
		for i := range epochs {
			if now[i] != epochs[i] {
				f.out.Moved++
			}
		}
	}
	story, err := f.Story(ctx, f.names)
	if err != nil {
		return err
	}
	if !f.out.Phases.take(story) {
		f.out.Phases = nil
	}
	return nil
}
