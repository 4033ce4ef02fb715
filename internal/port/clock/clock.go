// Package clock is the port through which engines learn the time.
//
// Two kinds are kept apart: wall time, which is stamped on batches and shown to people and may jump, and
// monotonic time, which measures how long something took and never goes back. Nothing in core may import this
// package: the core receives times as values.
package clock

import "time"

// Clock tells the time. Implementations are safe for concurrent use.
type Clock interface {
	// Wall is the time of day. It may jump in either direction.
	Wall() time.Time
	// Mono is the time since an arbitrary start, and never goes back.
	Mono() time.Duration
}

// System is the machine's clock.
func System() Clock { return &system{start: time.Now()} }

type system struct{ start time.Time }

func (s *system) Wall() time.Time     { return time.Now() }
func (s *system) Mono() time.Duration { return time.Since(s.start) }
