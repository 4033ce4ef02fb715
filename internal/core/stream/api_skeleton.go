package stream

import "github.com/tanist/tanist/internal/core/batch"

// Machine is the state of one stream. It is not safe for use by several goroutines.
type Machine struct{}

// New makes the machine of a stream whose log is empty.
func New(s Settings) *Machine { panic("skeleton") }

// ApplyEvent applies a confirmed event of type 32 to 63. It returns ErrEvent.
func (m *Machine) ApplyEvent(typ uint8, body []byte) error { panic("skeleton") }

// ApplyBatch applies the stream's events of a confirmed batch and skips the rest. It returns ErrEvent.
func (m *Machine) ApplyBatch(b batch.Batch) error { panic("skeleton") }

// Cursor is where a named cursor stands, staged moves included: the next record wanted.
func (m *Machine) Cursor(name string) (uint64, bool) { panic("skeleton") }

// Cursors calls f for every confirmed cursor, in order of name.
func (m *Machine) Cursors(f func(name string, offset uint64)) { panic("skeleton") }

// Move stages a cursor's move to offset, made if it does not exist. Unless back is set, a move to a lower offset than confirmed or
// staged does nothing. The caller has brought offset to at most the confirmed end. It returns ErrCursors and ErrCursorName.
func (m *Machine) Move(name string, offset uint64, back bool) error { panic("skeleton") }

// Forget stages a cursor's deletion; one that does not exist is left at that.
func (m *Machine) Forget(name string) { panic("skeleton") }

// TakeEvents gives what is staged as count encoded events, to be appended as one run of kind KindEvent. See queue.TakeEvents.
func (m *Machine) TakeEvents() (payload []byte, count uint32) { panic("skeleton") }

// Inherit stages a batch of the log that is not confirmed yet, for a new owner: Cursor sees it. It returns ErrEvent.
func (m *Machine) Inherit(b batch.Batch) error { panic("skeleton") }

// Demote drops the owner's side: readers and staged moves.
func (m *Machine) Demote() { panic("skeleton") }

// Subscribe adds a reader that wants next first, or moves one that exists. credit is in bytes of encoded batches.
func (m *Machine) Subscribe(h Holder, next uint64, credit int64) { panic("skeleton") }

// Unsubscribe ends a reader.
func (m *Machine) Unsubscribe(h Holder) { panic("skeleton") }

// ReleaseGateway ends all readers of a gateway: it detached, or attached anew and will subscribe again.
func (m *Machine) ReleaseGateway(gateway uint64) { panic("skeleton") }

// Credit gives a reader bytes.
func (m *Machine) Credit(h Holder, bytes int64) { panic("skeleton") }

// Readers is their number.
func (m *Machine) Readers() int { panic("skeleton") }

// Due appends to dst a Fetch for every reader that has credit, something to read below confirmed (an offset), and no fetch under
// way, ordered by offset and then by how long the reader has been there: one read of the log serves all readers at one offset.
func (m *Machine) Due(confirmed uint64, dst []Fetch) []Fetch { panic("skeleton") }

// Sent ends a reader's fetch: it was sent records up to next, in batches of bytes in all. bytes 0 and an unchanged next: nothing
// came of it. False: the reader has gone meanwhile, and nothing must be sent to it.
func (m *Machine) Sent(h Holder, next uint64, bytes int64) bool { panic("skeleton") }

// Snapshot gives the pages that changed since the last call, all of them if full, and the numbers of those that went.
func (m *Machine) Snapshot(full bool) (pages []batch.Page, gone []uint32) { panic("skeleton") }

// Restore sets a new machine's replicated state from all pages of a snapshot. It returns ErrPage.
func (m *Machine) Restore(pages []batch.Page) error { panic("skeleton") }

// Trim gives back memory that an idle stream does not need.
func (m *Machine) Trim() { panic("skeleton") }
