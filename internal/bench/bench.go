// Package bench measures brokers from outside, over AMQP alone, so that any broker can be measured in the same run and figures can be
// given as ratios. What a broker's process costs is read from its metrics or from the operating system. Nothing of the inside of a node
// may come in here.
package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Target is a broker to measure.
type Target struct {
	URLs   []string // amqp://… of its nodes: clients connect to them in turn; what is declared is declared at the first
	Probes []Probe  // what tell the costs of its processes; none tells nothing
	// Arguments are added to each declaration of a queue; nil: none.
	Arguments amqp.Table
}

// url is the address for a client, by its place among those of its kind.
func (t Target) url(place int) string { return t.URLs[place%len(t.URLs)] }

// read adds up what the probes tell.
func (t Target) read(ctx context.Context) (sum Reading, err error) {
	for _, p := range t.Probes {
		r, err := p.Read(ctx)
		if err != nil {
			return sum, err
		}
		sum.add(r)
	}
	return sum, nil
}

// Load says what to do to a broker.
type Load struct {
	Kind        string  // "queue" or "stream"
	Resources   int     // queues or streams that the messages are spread over, in turn
	Connections int     // publishers, each with a connection
	InFlight    int     // unconfirmed messages of each
	Size        int     // bytes of a body
	Consumers   int     // each with a connection, spread over the resources; each message is settled
	Rate        float64 // messages a second of all publishers; 0: as fast as possible
	// Backlog holds publishers back while more messages than this wait to be consumed, so that what is measured is both halves of a
	// message's life; 0: never. It counts only with Consumers.
	Backlog  int64
	Warmup   time.Duration
	Duration time.Duration
	// Begin, once closed, has the measurement begin, after Warmup; nil: at once. Until ends it before Duration is over, by what was confirmed
	// in it; nil: nothing does.
	Begin <-chan struct{}
	Until func(confirmed int64) bool
	// During runs beside the clients and ends when its context does, which is when they are done; nil: nothing does.
	During func(context.Context)
	Prefix string // of the names of the resources
	Keep   bool   // do not delete the resources at the end
}

// Result is what came of a load.
type Result struct {
	URL        string  `json:"url"` // without a password
	Seconds    float64 `json:"seconds"`
	Confirmed  int64   `json:"confirmed"`
	Nacked     int64   `json:"nacked"`
	Consumed   int64   `json:"consumed"`
	Rate       float64 `json:"confirmed_per_second"`
	Consuming  float64 `json:"consumed_per_second"`
	ConfirmP50 float64 `json:"confirm_p50_ms"`
	ConfirmP99 float64 `json:"confirm_p99_ms"`
	ConfirmMax float64 `json:"confirm_max_ms"`
	LongestGap float64 `json:"longest_gap_ms"` // between two confirms of any publishers
	// The costs are 0 where no probe tells them.
	CPUPerMessage   float64 `json:"broker_cpu_us_per_message"`
	ClientPerMsg    float64 `json:"client_cpu_us_per_message"` // of this process: all clients
	WrittenPayload  float64 `json:"bytes_written_per_payload"`
	DiskPayload     float64 `json:"disk_bytes_per_payload"` // as the system counts it, over all processes
	Syncs           float64 `json:"syncs_per_second"`
	MessagesPerSync float64 `json:"messages_per_sync"`
	ResidentMiB     float64 `json:"resident_mib"`
}

// run is one load under way.
type run struct {
	load      Load
	target    Target
	names     []string
	confirmed atomic.Int64
	nacked    atomic.Int64
	consumed  atomic.Int64
	measuring atomic.Bool
	gaps      gaps

	mu    sync.Mutex
	times *hdrhistogram.Histogram
	err   error
	stop  context.CancelFunc
	began time.Time // publishers with a rate take turns from here on
}

// collectAt is how much the heap of this process may grow before it is collected, in percent of what is alive. Clients keep little and
// throw away each body: as often as by default, collecting would take a tenth of what they take of the processors.
const collectAt = 800

// Throughput puts a load on a target and measures it. The error is the first that a client met.
func Throughput(ctx context.Context, t Target, l Load) (Result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer debug.SetGCPercent(debug.SetGCPercent(collectAt))
	if l.During != nil {
		var beside sync.WaitGroup
		beside.Go(func() { l.During(ctx) })
		defer beside.Wait()
		defer stop()
	}
	r := &run{load: l, target: t, times: newTimes(), stop: stop, began: time.Now()}
	if err := r.declare(); err != nil {
		return Result{}, err
	}
	defer r.remove()
	var publishers, consumers sync.WaitGroup
	consuming, stopConsuming := context.WithCancel(context.WithoutCancel(ctx))
	defer stopConsuming()
	for i := range l.Consumers {
		consumers.Go(func() { r.note(r.consume(consuming, i)) })
	}
	for i := range l.Connections {
		publishers.Go(func() { r.note(r.publish(ctx, i)) })
	}
	res, err := r.measure(ctx)
	stop()
	publishers.Wait()
	stopConsuming()
	consumers.Wait()
	r.mu.Lock() // publishers have handed their times over when they ended
	defer r.mu.Unlock()
	ms := func(q float64) float64 { return float64(r.times.ValueAtQuantile(q)) / 1000 }
	res.ConfirmP50, res.ConfirmP99, res.ConfirmMax = ms(50), ms(99), float64(r.times.Max())/1000
	if err == nil {
		err = r.err
	}
	return res, err
}

func newTimes() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)
}

// ahead reports whether publishers should wait for consumers.
func (r *run) ahead() bool {
	if r.load.Consumers == 0 || r.load.Backlog == 0 {
		return false
	}
	consumed := r.consumed.Load()
	if r.load.Kind == "stream" {
		consumed /= int64(r.load.Consumers)
	}
	return r.confirmed.Load()-consumed > r.load.Backlog
}

// note keeps the first error and ends the run.
func (r *run) note(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	if r.err == nil {
		r.err = err
	}
	r.mu.Unlock()
	r.stop()
}

// measure lets the load warm up and compares what was counted at both ends of the time that counts.
func (r *run) measure(ctx context.Context) (Result, error) {
	if !wait(ctx, r.load.Warmup) || !r.begin(ctx) {
		return Result{}, r.interrupted()
	}
	before, err := r.target.read(ctx)
	if err != nil {
		return Result{}, err
	}
	confirmed, consumed, began, own := r.confirmed.Load(), r.consumed.Load(), time.Now(), ownCPU()
	r.gaps.begin()
	r.measuring.Store(true)
	if !r.last(ctx, confirmed) {
		return Result{}, r.interrupted()
	}
	r.measuring.Store(false)
	confirmed, consumed = r.confirmed.Load()-confirmed, r.consumed.Load()-consumed
	seconds, gap := time.Since(began).Seconds(), r.gaps.end()
	own = ownCPU() - own
	after, err := r.target.read(ctx)
	if err != nil {
		return Result{}, err
	}
	res := Result{
		URL: Redact(r.target.URLs[0]), Seconds: seconds, Confirmed: confirmed, Consumed: consumed, Nacked: r.nacked.Load(),
		Rate: float64(confirmed) / seconds, Consuming: float64(consumed) / seconds,
		LongestGap: float64(gap.Microseconds()) / 1000,
	}
	if confirmed == 0 {
		return res, errors.New("nothing was confirmed in the time measured; take a longer --duration")
	}
	res.cost(before, after, int64(r.load.Size), seconds)
	res.ClientPerMsg = own.Seconds() * 1e6 / float64(confirmed)
	return res, nil
}

// begin waits until the measurement may begin, if ctx does not end before.
func (r *run) begin(ctx context.Context) bool {
	if r.load.Begin == nil {
		return true
	}
	select {
	case <-r.load.Begin:
		return true
	case <-ctx.Done():
		return false
	}
}

// last waits until the measurement is over, if ctx does not end before. before is what was confirmed when it began.
func (r *run) last(ctx context.Context, before int64) bool {
	if r.load.Until == nil {
		return wait(ctx, r.load.Duration)
	}
	for end := time.Now().Add(r.load.Duration); time.Now().Before(end) && !r.load.Until(r.confirmed.Load()-before); {
		if !wait(ctx, 10*time.Millisecond) {
			return false
		}
	}
	return true
}

func (res *Result) cost(before, after Reading, size int64, seconds float64) {
	n := float64(res.Confirmed)
	res.CPUPerMessage = (after.CPU - before.CPU).Seconds() * 1e6 / n
	res.WrittenPayload = float64(after.Written-before.Written) / (n * float64(max(size, 1)))
	res.DiskPayload = float64(after.Disk-before.Disk) / (n * float64(max(size, 1)))
	res.Syncs = float64(after.Syncs-before.Syncs) / seconds
	if d := after.Syncs - before.Syncs; d > 0 {
		res.MessagesPerSync = n / float64(d)
	}
	res.ResidentMiB = float64(after.Resident) / (1 << 20)
}

func (r *run) interrupted() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	return errors.New("interrupted")
}

// wait reports whether d passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// openTimeout bounds how long a connection may take to open, as the client library has it.
const openTimeout = 30 * time.Second

// connect opens a client's connection. One that is to be as fast as possible gathers what it writes; at a rate each message goes at once.
func (r *run) connect(what string, place int) (*amqp.Connection, *amqp.Channel, error) {
	config := client(what)
	if r.load.Rate == 0 {
		dial := amqp.DefaultDial(openTimeout)
		config.Dial = func(network, address string) (net.Conn, error) {
			c, err := dial(network, address)
			if err != nil {
				return nil, err
			}
			return gather(c), nil
		}
	}
	return open(r.target.url(place), config)
}

func client(what string) amqp.Config {
	return amqp.Config{
		Heartbeat: 30 * time.Second, Locale: "en_US", Properties: amqp.Table{"connection_name": "tanist bench " + what},
	}
}

func connect(url, what string) (*amqp.Connection, *amqp.Channel, error) {
	return open(url, client(what))
}

func open(url string, config amqp.Config) (*amqp.Connection, *amqp.Channel, error) {
	conn, err := amqp.DialConfig(url, config)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", Redact(url), err)
	}
	ch, err := conn.Channel()
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("%s: %w", Redact(url), err)
	}
	return conn, ch, nil
}

// Redact is an address without its password.
func Redact(url string) string {
	u, err := amqp.ParseURI(url)
	if err != nil {
		return "the broker's address"
	}
	return fmt.Sprintf("%s://%s:%d", u.Scheme, u.Host, u.Port)
}
