// Package trace is the port through which engines say what happened.
//
// An event is typed data, not a line of text: logs, metrics and the timeline are its listeners. Events are for
// what an operator may want to know (a start, a role, a damaged copy, a refused write), not for every message.
package trace

import (
	"context"
	"log/slog"
)

// Event is one thing that happened.
type Event struct {
	// Level is slog's: Debug, Info, Warn or Error.
	Level slog.Level
	// Name says what happened in dotted words, such as "storage.sync.failed". Names are stable: metrics and
	// alerts may depend on them.
	Name string
	// Attrs are the facts. Secrets and message bodies never appear.
	Attrs []slog.Attr
}

// Sink receives events. Emit must not block and may be called from any goroutine.
type Sink interface{ Emit(Event) }

// SinkFunc makes a function a Sink.
type SinkFunc func(Event)

// Emit calls f.
func (f SinkFunc) Emit(e Event) { f(e) }

// Discard drops every event.
var Discard Sink = SinkFunc(func(Event) {})

// Log writes events to a slog logger.
func Log(l *slog.Logger) Sink {
	return SinkFunc(func(e Event) { l.LogAttrs(context.Background(), e.Level, e.Name, e.Attrs...) })
}

// Info emits an informational event.
func Info(s Sink, name string, attrs ...slog.Attr) { s.Emit(Event{slog.LevelInfo, name, attrs}) }

// Warn emits an event that an operator should look at.
func Warn(s Sink, name string, attrs ...slog.Attr) { s.Emit(Event{slog.LevelWarn, name, attrs}) }

// Error emits an event about something that failed and stays failed.
func Error(s Sink, name string, attrs ...slog.Attr) { s.Emit(Event{slog.LevelError, name, attrs}) }
