package partition

import "github.com/tanist/tanist/internal/core/ident"

const (
	// FeedWindow bounds, in bytes, what is on its way to one copy and not durable there.
	FeedWindow = 8 << 20
	// FeedRead bounds, in bytes, what is read from the log at a time for a copy that is behind.
	FeedRead = 1 << 20
)

// Feed is what the owner of an epoch knows of one other copy, and what it sends next: batches as they are made while the copy is at
// the end of the log, or what it misses, read from the log, a piece at a time. It sends nothing before the copy has said where it
// stands, and again nothing after the way to it was lost (design 2 §1–§3).
type Feed struct {
	Store ident.StoreID
	Node  string

	standing bool   // its log is known to be a prefix of the owner's, up to what it said
	next     uint64 // position to send next
	durable  uint64 // what it holds durably
	told     uint64 // confirmed position that it was told
	reading  bool
	flights  []feedFlight
	head     int
	bytes    int64
}

// feedFlight is what was sent at a time.
type feedFlight struct {
	end  uint64
	size int64
}

// Lose forgets where the copy stands: what is on its way is lost, or may be. What it held durably stays known until it says anew.
func (f *Feed) Lose() {
	f.standing, f.reading = false, false
	f.flights, f.head, f.bytes = nil, 0, 0
}

// Stand notes that the copy's log is a prefix of the owner's up to position, durably up to durable; sending goes on from there. What it
// said before does not count any more: it may have lost that.
func (f *Feed) Stand(position, durable uint64) {
	f.Lose()
	f.standing, f.next, f.told = true, position, 0
	f.durable = min(durable, position)
}

// Standing reports whether the copy takes batches.
func (f *Feed) Standing() bool { return f.standing }

// Durable is up to where the copy has said that it holds the log durably, in this epoch.
func (f *Feed) Durable() uint64 { return f.durable }

// Next is the position that is sent next.
func (f *Feed) Next() uint64 { return f.next }

// Takes reports whether a batch that begins at position may be sent now.
func (f *Feed) Takes(position uint64) bool {
	return f.standing && !f.reading && position == f.next && f.bytes < FeedWindow
}

// Sent notes that batches up to end, of size bytes, are on their way, with the confirmed position.
func (f *Feed) Sent(end uint64, size int64, confirmed uint64) {
	f.next = end
	f.bytes += size
	if f.head > 0 && len(f.flights) == cap(f.flights) {
		f.flights = f.flights[:copy(f.flights, f.flights[f.head:])]
		f.head = 0
	}
	f.flights = append(f.flights, feedFlight{end, size})
	f.told = max(f.told, confirmed)
}

// Held notes that the copy holds the log durably up to position. It reports whether there is room again where there was none.
func (f *Feed) Held(position uint64) (room bool) {
	f.durable = max(f.durable, min(position, f.next))
	full := f.bytes >= FeedWindow
	for f.head < len(f.flights) && f.flights[f.head].end <= f.durable {
		f.bytes -= f.flights[f.head].size
		f.head++
	}
	if f.head == len(f.flights) {
		f.flights, f.head = f.flights[:0], 0
		if cap(f.flights) > 256 {
			f.flights = nil
		}
	}
	return full && f.bytes < FeedWindow
}

// Behind says what to read for the copy: batches from position on; false where it is not behind the end of the log, there is no room (FeedWindow), or a read
// is under way. The caller calls Read when they have come, or cannot be had.
func (f *Feed) Behind(tail uint64) (from uint64, ok bool) {
	if !f.standing || f.reading || f.next >= tail || f.bytes >= FeedWindow/2 && f.bytes > 0 {
		return 0, false
	}
	f.reading = true
	return f.next, true
}

// Read ends a read that Behind asked for. It reports whether what was read is still wanted: one that was asked for before Lose or Stand does
// not end another that was asked for since.
func (f *Feed) Read(from uint64) bool {
	if !f.reading || !f.standing || f.next != from {
		return false
	}
	f.reading = false
	return true
}

// Owes reports whether the copy does not know the confirmed position and nothing is under way that would carry it. While the copy has
// something to answer and more can be sent to it, that is so: what is sent next carries the position, or it is asked again at the answer.
func (f *Feed) Owes(confirmed uint64) bool {
	return f.standing && f.told < confirmed && (f.head == len(f.flights) || f.bytes >= FeedWindow)
}

// Tells reports whether the copy is to be told the confirmed position by itself, and notes that it is.
func (f *Feed) Tells(confirmed uint64) bool {
	if !f.Owes(confirmed) {
		return false
	}
	f.told = confirmed
	return true
}
