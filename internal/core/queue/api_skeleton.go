package queue

import "github.com/tanist/tanist/internal/core/batch"

// Machine is the state of one queue. It is not safe for use by several goroutines.
type Machine struct{}

// New makes the machine of a queue whose log is empty. A nil machine state costs about 200 bytes.
func New(s Settings) *Machine { panic("skeleton") }

// ApplyRecord applies a confirmed record. at is its batch's time in ms since 1970. Offsets come in order, without gaps.
func (m *Machine) ApplyRecord(offset uint64, h batch.RecordHeader, at int64) { panic("skeleton") }

// ApplyEvent applies a confirmed event of type 1 to 31. It returns ErrEvent.
func (m *Machine) ApplyEvent(typ uint8, body []byte, at int64) error { panic("skeleton") }

// ApplyBatch applies the records and the queue's events of a confirmed batch and skips the rest. It returns ErrEvent.
func (m *Machine) ApplyBatch(b batch.Batch) error { panic("skeleton") }

// Next is the offset of the next record to be applied.
func (m *Machine) Next() uint64 { panic("skeleton") }

// Promote begins the owner's side, empty of consumers.
func (m *Machine) Promote(now int64) { panic("skeleton") }

// Inherit stages a batch of the log that is not confirmed yet, for a new owner. It returns ErrEvent.
func (m *Machine) Inherit(b batch.Batch) error { panic("skeleton") }

// Serving reports whether the owner's side is on and all that was inherited has been applied.
func (m *Machine) Serving() bool { panic("skeleton") }

// Demote ends the owner's side: holders, consumers, all that was staged.
func (m *Machine) Demote() { panic("skeleton") }

// Limited reports whether Admit must be asked for every record.
func (m *Machine) Limited() bool { panic("skeleton") }

// Admit decides on one record about to be staged, and counts it if it is taken. False: refused, the queue is full.
func (m *Machine) Admit(h batch.RecordHeader) bool { panic("skeleton") }

// Subscribe adds a consumer, or replaces the options of one that has only claims. It returns ErrExclusive.
func (m *Machine) Subscribe(h Holder, o Options) error { panic("skeleton") }

// Unsubscribe ends a consumer. Its claims stay.
func (m *Machine) Unsubscribe(h Holder, now int64) { panic("skeleton") }

// Credit gives a consumer bytes.
func (m *Machine) Credit(h Holder, bytes int64) { panic("skeleton") }

// Attach begins a gateway's new stream: its consumers are gone until they subscribe anew, it holds what it claims, and what it held
// but does not claim was never received, so it is ready again without having been counted. Claims of what does not live, or is
// held by another, are ignored. The claims must include deliveries whose settle is not confirmed yet, ahead of that settle.
func (m *Machine) Attach(gateway uint64, claims []Claim) { panic("skeleton") }

// ReleaseGateway ends a gateway: its consumers go, what it holds is released (staged as returns, counted).
func (m *Machine) ReleaseGateway(gateway uint64, now int64) { panic("skeleton") }

// Assign decides at most max deliveries and appends them to dst. It must be called after every Tick, consumers or not.
func (m *Machine) Assign(max int, dst []Assignment) []Assignment { panic("skeleton") }

// Get assigns one ready message to consumer 0 of a gateway (noAck: settles it at once). left: ready messages that remain.
func (m *Machine) Get(gateway uint64, noAck bool, now int64) (a Assignment, left uint64, ok bool) {
	panic("skeleton")
}

// Settle settles those of the offsets first … last that h holds, and returns how many they were.
func (m *Machine) Settle(h Holder, first, last uint64, o Outcome) uint64 { panic("skeleton") }

// Purge stages the drop of every ready message and returns their number.
func (m *Machine) Purge() uint64 { panic("skeleton") }

// Tick stages what time brings: expiry, delays that are due. Bounded per call; NextWake tells when to call again.
func (m *Machine) Tick(now int64) { panic("skeleton") }

// NextWake is when Tick (or NextDead, or Unused) next has something to do, in ms since 1970; 0: never. It may be in the past.
func (m *Machine) NextWake() int64 { panic("skeleton") }

// TakeEvents gives the staged decisions as count encoded events (batch.AppendEvent), to be appended after the records that
// were admitted, as one run of kind KindEvent. count 0: nothing. The bytes are the caller's. An event is at most 32 KiB.
func (m *Machine) TakeEvents() (payload []byte, count uint32) { panic("skeleton") }

// NextDead gives dead letters to publish now, in order of number, and takes them as under way.
func (m *Machine) NextDead(now int64, dst []DeadLetter) []DeadLetter { panic("skeleton") }

// DeadSettled stages the end of a dead letter that was published, or is to be dropped.
func (m *Machine) DeadSettled(number uint64) { panic("skeleton") }

// DeadKept says that a target was missing or full. NextDead gives it again a second later, later each time, up to half a minute.
func (m *Machine) DeadKept(number uint64, why string, now int64) { panic("skeleton") }

// Stuck is how many dead letters were kept last time, since when the oldest has been, and why; for people.
func (m *Machine) Stuck() (n int, since int64, why string) { panic("skeleton") }

// Touch counts as use of the queue (redeclaration).
func (m *Machine) Touch(now int64) { panic("skeleton") }

// Unused reports whether the queue has been unused for Settings.Expires: it is to be deleted.
func (m *Machine) Unused(now int64) bool { panic("skeleton") }

// Abandoned reports whether there were consumers under this owner and the last has gone by Unsubscribe or ReleaseGateway: an
// auto-delete queue is to be deleted.
func (m *Machine) Abandoned() bool { panic("skeleton") }

// Counts are the queue's numbers.
func (m *Machine) Counts() Counts { panic("skeleton") }

// Live appends the spans of offsets whose bodies are still needed, ascending. Spans less than gap apart are joined.
func (m *Machine) Live(gap uint64, dst []batch.Span) []batch.Span { panic("skeleton") }

// Snapshot gives the replicated state's pages that changed since the last call, all of them if full, and the numbers of those
// that went.
func (m *Machine) Snapshot(full bool) (pages []batch.Page, gone []uint32) { panic("skeleton") }

// Restore sets a new machine's replicated state from all pages of a snapshot. It returns ErrPage, and the machine is then unusable.
func (m *Machine) Restore(pages []batch.Page) error { panic("skeleton") }

// Trim gives back memory that an idle queue does not need.
func (m *Machine) Trim() { panic("skeleton") }
