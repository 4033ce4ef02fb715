package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// QueuesResult compares one resource with many at the same total.
type QueuesResult struct {
	Resources       int     `json:"resources"`
	One             Result  `json:"one"`
	Many            Result  `json:"many"`
	OneAtRate       Result  `json:"one_at_rate"`
	ManyAtRate      Result  `json:"many_at_rate"`
	OfferedRate     float64 `json:"offered_rate"`     // messages a second, of both at the same total rate
	SyncRatio       float64 `json:"sync_ratio"`       // syncs of many over those of one, at the same total rate
	HeldRatio       float64 `json:"held_ratio"`       // confirmed of many over those of one, at the same total rate
	ThroughputRatio float64 `json:"throughput_ratio"` // as fast as possible
}

// Queues measures one resource and many, first as fast as possible, then both at half of the slower rate.
func Queues(ctx context.Context, t Target, l Load, many int) (out QueuesResult, err error) {
	out.Resources = many
	run := func(n int, rate float64) (Result, error) {
		l.Resources, l.Rate = n, rate
		return Throughput(ctx, t, l)
	}
	if out.One, err = run(1, 0); err != nil {
		return out, err
	}
	if out.Many, err = run(many, 0); err != nil {
		return out, err
	}
	rate := min(out.One.Rate, out.Many.Rate) / 2
	out.OfferedRate = rate
	if out.OneAtRate, err = run(1, rate); err != nil {
		return out, err
	}
	if out.ManyAtRate, err = run(many, rate); err != nil {
		return out, err
	}
	out.ThroughputRatio, out.HeldRatio = out.Many.Rate/out.One.Rate, out.ManyAtRate.Rate/out.OneAtRate.Rate
	if out.OneAtRate.Syncs > 0 {
		out.SyncRatio = out.ManyAtRate.Syncs / out.OneAtRate.Syncs
	}
	return out, nil
}

// IdleResult says what queues cost that nobody uses.
type IdleResult struct {
	Queues         int        `json:"queues"`
	SettleSeconds  float64    `json:"settle_seconds"` // that the broker was left alone for before each measurement
	DeclareSeconds float64    `json:"declare_seconds"`
	RestartSeconds float64    `json:"restart_seconds"` // after kill -9, until every queue is ready
	AcceptSeconds  float64    `json:"accept_seconds"`  // until clients are let in
	Empty          Footprint  `json:"empty"`
	Declared       IdleMemory `json:"declared"`  // by the process that they were declared to
	Restarted      IdleMemory `json:"restarted"` // by the next one, after kill -9
}

// Footprint is the memory of a process.
type Footprint struct {
	Heap     int64 `json:"heap_bytes"`     // objects, with those that are dead and not collected
	Resident int64 `json:"resident_bytes"` // as the system sees it
}

// IdleMemory is that of a broker with queues, and each queue's part of what it has more than the empty one.
type IdleMemory struct {
	Footprint
	HeapPerQueue     float64 `json:"heap_bytes_per_queue"`
	ResidentPerQueue float64 `json:"resident_bytes_per_queue"`
}

func (f Footprint) over(empty Footprint, queues int) IdleMemory {
	return IdleMemory{f, float64(f.Heap-empty.Heap) / float64(queues), float64(f.Resident-empty.Resident) / float64(queues)}
}

// Idle starts a broker, measures it empty, declares queues, measures it, kills it, and measures it again once they are ready. Before
// each measurement it is left alone for as long as settle says, so that what is counted is what stays.
func Idle(ctx context.Context, program, dir string, queues int, settle time.Duration) (out IdleResult, err error) {
	out.Queues, out.SettleSeconds = queues, settle.Seconds()
	p, err := NewProcess(program, dir)
	if err != nil {
		return out, err
	}
	defer func() { _ = p.Stop(true) }()
	if _, _, err = p.Start(ctx); err != nil {
		return out, err
	}
	if out.Empty, err = settled(ctx, p.Probe(), settle); err != nil {
		return out, err
	}
	names := make([]string, queues)
	for i := range names {
		names[i] = fmt.Sprintf("idle-%d", i)
	}
	began := time.Now()
	if err := each(p.URL(), names, func(ch *amqp.Channel, name string) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, nil)
		return err
	}); err != nil {
		return out, err
	}
	out.DeclareSeconds = time.Since(began).Seconds()
	now, err := settled(ctx, p.Probe(), settle)
	if err != nil {
		return out, err
	}
	out.Declared = now.over(out.Empty, queues)
	if err := p.Stop(true); err != nil {
		return out, err
	}
	accepting, ready, err := p.Start(ctx)
	if err != nil {
		return out, err
	}
	out.AcceptSeconds, out.RestartSeconds = accepting.Seconds(), ready.Seconds()
	if now, err = settled(ctx, p.Probe(), settle); err != nil {
		return out, err
	}
	out.Restarted = now.over(out.Empty, queues)
	return out, nil
}

// settled measures a process that nobody asked anything for a while.
func settled(ctx context.Context, p Probe, settle time.Duration) (Footprint, error) {
	if !wait(ctx, settle) {
		return Footprint{}, errors.New("interrupted")
	}
	r, err := p.Read(ctx) // what the system sees is read before the broker is asked
	return Footprint{Heap: r.HeapLive, Resident: r.Resident}, err
}

// StartResult says how soon an empty node lets clients in.
type StartResult struct {
	Times  []float64 `json:"seconds"`
	Median float64   `json:"median_seconds"`
	Max    float64   `json:"max_seconds"`
}

// Start starts a new empty node several times.
func Start(ctx context.Context, program string, dir func(int) string, times int) (out StartResult, err error) {
	for i := range times {
		p, err := NewProcess(program, dir(i))
		if err != nil {
			return out, err
		}
		accepting, _, err := p.Start(ctx)
		stopped := p.Stop(false)
		if err := errors.Join(err, stopped); err != nil {
			return out, err
		}
		out.Times = append(out.Times, accepting.Seconds())
	}
	sorted := slices.Sorted(slices.Values(out.Times))
	out.Median, out.Max = sorted[len(sorted)/2], sorted[len(sorted)-1]
	return out, nil
}

// ReadersResult says whether many readers of one stream keep up.
type ReadersResult struct {
	Readers     int     `json:"readers"`
	Published   int64   `json:"published"`
	Rate        float64 `json:"published_per_second"`
	Delivered   int64   `json:"delivered"`
	Missing     int64   `json:"missing"`  // records that a reader had not got when all had the time to
	Disorder    int64   `json:"disorder"` // records out of order or twice
	WorstLag    int64   `json:"worst_lag"`
	CPUShare    float64 `json:"broker_cores"`
	ResidentMiB float64 `json:"resident_mib"`
	GrownMiB    float64 `json:"grown_mib"`
}

// Readers publishes to one stream at a rate while readers, several to a connection, follow it.
func Readers(ctx context.Context, t Target, l Load, readers int) (out ReadersResult, err error) {
	l.Kind, l.Resources, l.Consumers = "stream", 1, 0
	r := &run{load: l, target: t, times: newTimes(), stop: func() {}, began: time.Now()}
	if err := r.declare(); err != nil {
		return out, err
	}
	defer r.remove()
	before, err := t.read(ctx)
	if err != nil {
		return out, err
	}
	f := &followers{total: make([]atomic.Int64, readers)}
	if err := f.attach(t.URLs[0], r.names[0], readers); err != nil {
		return out, err
	}
	defer f.close()
	publishing, stop := context.WithTimeout(ctx, l.Duration)
	defer stop()
	began := time.Now()
	var lag sync.WaitGroup
	lag.Go(func() { out.WorstLag = f.watch(publishing, &r.confirmed) })
	var publishers sync.WaitGroup
	for i := range l.Connections {
		publishers.Go(func() { r.note(r.publish(publishing, i)) })
	}
	publishers.Wait()
	seconds := time.Since(began).Seconds()
	lag.Wait()
	after, err := t.read(ctx)
	if err != nil {
		return out, err
	}
	out.Readers, out.Published, out.Rate = readers, r.confirmed.Load(), float64(r.confirmed.Load())/seconds
	f.await(ctx, out.Published)
	for i := range f.total {
		got := f.total[i].Load()
		out.Delivered += got
		out.Missing += max(0, out.Published-got)
	}
	out.Disorder = f.disorder.Load()
	out.CPUShare = (after.CPU - before.CPU).Seconds() / seconds
	out.ResidentMiB, out.GrownMiB = float64(after.Resident)/(1<<20), float64(after.Resident-before.Resident)/(1<<20)
	return out, r.err
}

// followers are readers of one stream.
type followers struct {
	conns    []*amqp.Connection
	total    []atomic.Int64
	disorder atomic.Int64
}

// perConnection is how many readers share a connection, each with a channel.
const perConnection = 10

func (f *followers) attach(url, name string, readers int) error {
	var conn *amqp.Connection
	for i := range readers {
		if i%perConnection == 0 {
			c, ch, err := connect(url, "reader")
			if err != nil {
				return err
			}
			if err := ch.Close(); err != nil {
				return err
			}
			conn = c
			f.conns = append(f.conns, c)
		}
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		if err := ch.Qos(200, 0, false); err != nil {
			return err
		}
		ds, err := ch.Consume(name, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
		if err != nil {
			return err
		}
		go f.follow(i, ch, ds)
	}
	return nil
}

func (f *followers) follow(i int, ch *amqp.Channel, ds <-chan amqp.Delivery) {
	want := int64(0)
	for d := range ds {
		if at, ok := d.Headers["x-stream-offset"].(int64); !ok || at != want {
			f.disorder.Add(1)
		}
		want++
		if d.DeliveryTag%50 == 0 {
			if err := ch.Ack(d.DeliveryTag, true); err != nil {
				return // the connection is closed: what is missing is counted
			}
		}
		f.total[i].Store(want)
	}
}

// watch gives the furthest that any reader was behind what was confirmed.
func (f *followers) watch(ctx context.Context, confirmed *atomic.Int64) (worst int64) {
	for wait(ctx, 50*time.Millisecond) {
		at := confirmed.Load()
		for i := range f.total {
			worst = max(worst, at-f.total[i].Load())
		}
	}
	return worst
}

// await gives the readers ten seconds to get everything.
func (f *followers) await(ctx context.Context, n int64) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	for wait(ctx, 10*time.Millisecond) {
		behind := false
		for i := range f.total {
			behind = behind || f.total[i].Load() < n
		}
		if !behind {
			return
		}
	}
}

func (f *followers) close() {
	for _, c := range f.conns {
		_ = c.Close() // nothing is lost with it
	}
}
