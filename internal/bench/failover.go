package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// FollowerResult says what publishers noticed of a follower's death.
type FollowerResult struct {
	Node   string  `json:"node"` // that was killed
	Before float64 `json:"longest_gap_before_ms"`
	After  float64 `json:"longest_gap_after_ms"` // the kill included, over the same time
	Nacked int64   `json:"nacked"`
	Rate   float64 `json:"confirmed_per_second"`
}

// KillFollower publishes at a rate to one queue of a cluster, through the other nodes, kills a node that only follows, and compares the
// longest time between two confirms in the time before with that of as long after. Then the node is started again, and its other follower
// is taken.
func KillFollower(ctx context.Context, c *Cluster, l Load, repeats int) (out []FollowerResult, err error) {
	for n := range repeats {
		l.Prefix = fmt.Sprintf("%s-%d", l.Prefix, n)
		r, err := c.killFollower(ctx, l, n)
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
	return out, nil
}

func (c *Cluster) killFollower(ctx context.Context, l Load, n int) (out FollowerResult, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l.Resources, l.Consumers = 1, 0
	r := &run{load: l, target: c.Target(), times: newTimes(), stop: stop}
	if err := r.declare(); err != nil {
		return out, err
	}
	victim := -1
	if err := c.nodes[0].poll(ctx, func() error {
		_, followers, err := c.holders(ctx, r.names[0])
		if err == nil && len(followers) < 2 {
			err = errors.New("too few copies")
		} else if err == nil {
			victim = followers[n%len(followers)]
		}
		return err
	}); err != nil {
		return out, err
	}
	out.Node = fmt.Sprint("n", victim+1)
	r.target = c.without(victim)
	defer r.remove()
	var publishers sync.WaitGroup
	for i := range l.Connections {
		publishers.Go(func() { r.note(r.publish(ctx, i)) })
	}
	err = c.killUnder(ctx, r, victim, &out)
	stop()
	publishers.Wait()
	out.Nacked = r.nacked.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	return out, errors.Join(err, r.err)
}

func (c *Cluster) killUnder(ctx context.Context, r *run, victim int, out *FollowerResult) error {
	if !wait(ctx, r.load.Warmup) {
		return r.interrupted()
	}
	r.gaps.begin()
	from, began := r.confirmed.Load(), time.Now()
	if !wait(ctx, r.load.Duration) {
		return r.interrupted()
	}
	out.Before = float64(r.gaps.end().Microseconds()) / 1000
	r.gaps.begin()
	if err := c.nodes[victim].Stop(true); err != nil {
		return err
	}
	if !wait(ctx, r.load.Duration) {
		return r.interrupted()
	}
	out.After = float64(r.gaps.end().Microseconds()) / 1000
	out.Rate = float64(r.confirmed.Load()-from) / time.Since(began).Seconds()
	_, _, err := c.nodes[victim].Start(ctx)
	return err
}
