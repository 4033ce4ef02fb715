// Package protocol holds the messages between a gateway and the owner of a partition. They are values: who carries them (a
// mailbox on the same node, a mesh stream between nodes) is not known here.
//
// A gateway is one shard of one run of one node. It has one ordered stream to each partition that it works with. A stream is
// opened by Attach and named by a number that rises; a newer one ends the older, and an owner ignores what comes on an old one.
// All messages to an owner carry Partition, Gateway and Stream. Messages are sent as values, not pointers. What a consumer's byte
// credit is charged: of a queue len(Item.Body), of a stream Batch.Size. Source: design 2 §2.
package protocol

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/stream"
)

// Sender takes messages for somebody else, in order, without blocking.
type Sender interface{ Send(msg any) }

// Crowder is a Sender that can say when so much waits to be sent there that what can wait should: the way is slower than the work.
type Crowder interface {
	Sender
	Crowded() bool
}

// Crowded asks a sender, if it can say. One on the same node never is.
func Crowded(s Sender) bool {
	c, ok := s.(Crowder)
	return ok && c.Crowded()
}

// Gateway names one shard of one run of a node.
type Gateway struct {
	Node  string
	Boot  uint64
	Shard uint32
}

// To is the address that every message to an owner begins with.
type To struct {
	Partition ident.Partition
	Gateway   Gateway
	Stream    uint64
}

// Attach opens a stream. The owner answers Attached once it serves; until then it may answer NotServing.
type Attach struct {
	To
	Reply Sender // where everything for this gateway goes
	// Producer is the gateway's own producer id (see ProducerID) and First its oldest unresolved sequence: the gateway will
	// never again send a number below it. The owner expects max(last logged + 1, First).
	Producer uint64
	First    uint64
	Epoch    uint64  // of the owner that the gateway was attached to last, which what it claims is of at the latest; 0: none
	Away     uint64  // for how long, in milliseconds, the stream to that owner has been lost; 0: it stood until now
	Claims   []Claim // deliveries of this queue that the gateway's clients hold unsettled
	// Kept are the consumers of a queue that an owner before had taken. Each is followed by its Subscribe as soon as the stream is open, or
	// by its Unsubscribe if it has gone meanwhile: until then the owner keeps its place from others.
	Kept []KeptConsumer
}

// KeptConsumer is a consumer that a gateway has from an earlier stream.
type KeptConsumer struct {
	Consumer  uint64
	Delivered uint64 // the last epoch in which something was delivered to it; 0: none
}

// Unclaimed says, when the owner or the epoch of partitions has changed, that a gateway works with none of them and so holds nothing
// that an owner before delivered: the new owner need not wait for its claims (design 2 §2, "Order and claims"). One message goes to a node
// for all of its partitions; nobody answers it. It may come before the owner has applied the epoch.
type Unclaimed struct {
	Gateway Gateway
	Items   []UnclaimedItem
}

// UnclaimedItem is one partition and the epoch that the gateway has seen begin.
type UnclaimedItem struct {
	Partition ident.Partition
	Epoch     uint64
}

// Claim is a delivery held unsettled from an earlier stream.
type Claim struct {
	Consumer uint64
	Offset   uint64
}

// Attached answers Attach: the stream is open. Consumers must be subscribed anew on every stream.
type Attached struct {
	Partition ident.Partition
	Stream    uint64
	Epoch     uint64
	// Expect is the next sequence that the owner takes of the gateway's producer.
	Expect uint64
	// Lost says that since the epoch of Attach a loss was accepted: what lay from offset LostFrom on is gone, delivered or not, and those
	// offsets are given anew (design 2 §8).
	Lost     bool
	LostFrom uint64
}

// Denied says that a gateway's clients do not hold any more what it claimed on a stream: others were given it while it was away, or it came too late. What
// is said of those deliveries settles nothing.
type Denied struct {
	Partition ident.Partition
	Stream    uint64
	Claims    []Claim
}

// NotServing says that the partition is not owned here, not yet or not any more; Gone that it was deleted. The stream has ended. The
// gateway looks up the owner again and sends on a new stream, under the same numbers, what was not answered: it may be in the log.
type NotServing struct {
	Partition ident.Partition
	Stream    uint64
	Gone      bool
	Reason    string
}

// Publish appends records. Sequences First … First+Count−1 are of the gateway's producer; the owner takes exactly the next one.
// Numbers already taken are answered again when their position is confirmed.
type Publish struct {
	To
	First uint64
	Count uint32
	// Runs divides the records by the producer whose (id, sequence) goes into the log. Where a client asked for its own
	// (x-producer), such a run has its id and number; the others have the gateway's. Counts add up to Count.
	Runs []batch.Run
	// Records are encoded by batch.AppendRecord. The gateway may use the bytes again once all of them are resolved on this stream.
	Records []byte
}

// Published says that every sequence below UpTo that was not refused is confirmed.
type Published struct {
	Partition ident.Partition
	Stream    uint64
	UpTo      uint64
}

// PublishRefused says that a range of sequences was refused by admission: not stored, never will be. The numbers count as taken.
// It may come before earlier numbers are confirmed.
type PublishRefused struct {
	Partition ident.Partition
	Stream    uint64
	First     uint64
	Count     uint32
	Reason    string
	Cause     Cause
	// Unknown says that they may be stored all the same, and that nobody can tell any more: a number older than what is remembered.
	Unknown bool
}

// Cause is the kind of reason that a publish was refused for, to be counted by.
type Cause uint8

// The causes.
const (
	CauseOther  Cause = iota
	CauseFull         // the queue's length limit
	CauseCopies       // fewer copies can be reached than a confirm needs (design 2 §6)
	CauseLease        // the owner's lease does not let it take durable changes (design 2 §7)
)

// PublishExpected says that a Publish did not begin at the number expected: the gateway resends from Expect, in order.
type PublishExpected struct {
	Partition ident.Partition
	Stream    uint64
	Expect    uint64
}

// PublishUnknown says that sequences from First on may or may not be stored, and that the owner will not say more: its storage
// failed. The gateway reattaches.
type PublishUnknown struct {
	Partition ident.Partition
	Stream    uint64
	First     uint64
	Reason    string
}

// Subscribe adds a consumer. Consumer numbers are the gateway's, unique among its consumers.
type Subscribe struct {
	To
	Consumer  uint64
	NoAck     bool
	Exclusive bool
	Priority  int32
	Prefetch  uint32 // 0: no bound by count
	Credit    int64  // bytes that may be sent before more credit comes; a delivery may overdraw it
	Session   string // for people
	// Of a stream:
	Start  stream.Start
	Cursor string
}

// Subscribed answers Subscribe. Refused is empty on success; "exclusive" means that another consumer excludes this one.
type Subscribed struct {
	Partition ident.Partition
	Stream    uint64
	Consumer  uint64
	Refused   string
	// Next is, of a stream, the offset that delivery begins at: what a gateway asks for on its next stream if nothing came before.
	Next uint64
}

// Unsubscribe ends a consumer. Its claims stay. Unsubscribed answers once nothing more will be delivered to it.
type Unsubscribe struct {
	To
	Consumer uint64
}

// Unsubscribed answers Unsubscribe.
type Unsubscribed struct {
	Partition ident.Partition
	Stream    uint64
	Consumer  uint64
}

// ConsumerEnded says that the owner ended a consumer: the resource was deleted.
type ConsumerEnded struct {
	Partition ident.Partition
	Stream    uint64
	Consumer  uint64
	Reason    string
}

// Credit gives a consumer further bytes.
type Credit struct {
	To
	Consumer uint64
	Bytes    int64
}

// Deliver hands confirmed messages of a queue to a consumer.
type Deliver struct {
	Partition ident.Partition
	Stream    uint64
	Consumer  uint64
	Items     []Item
}

// Item is one delivered message.
type Item struct {
	Offset uint64
	Count  uint32 // earlier deliveries that came back
	Again  bool   // delivered before, as far as the owner knows
	Record batch.RecordHeader
	Body   []byte // an envelope
}

// StreamData hands confirmed batches of a stream to a reader, which drops records below First. Batches are shared: not to be
// changed. A reader that was overtaken by retention sees a gap.
type StreamData struct {
	Partition ident.Partition
	Stream    uint64
	Consumer  uint64
	First     uint64
	Batches   []batch.Batch
}

// Outcome of a settle.
type Outcome uint8

// The outcomes of a settle.
const (
	Accept  Outcome = iota // gone for good
	Reject                 // dead-lettered or dropped
	Requeue                // back to its place, counted against the delivery limit
	Release                // back to its place, the consumer having gone: counted as delivered, as Requeue is
)

// Settle settles deliveries of a queue. Seq is the gateway's count of settle messages on this partition, from 1, kept and resent
// on a new stream until Settled covers it; settling again what is settled does nothing.
type Settle struct {
	To
	Seq   uint64
	Items []SettleItem
}

// SettleItem settles the offsets First … Last, those of them that Consumer holds (0: got by Get).
type SettleItem struct {
	Consumer uint64
	First    uint64
	Last     uint64
	Outcome  Outcome
}

// Settled says that every Settle and Cursor message up to Seq is confirmed.
type Settled struct {
	Partition ident.Partition
	Stream    uint64
	Seq       uint64
}

// Cursor moves a named cursor of a stream to Offset, the next record wanted. Seq counts with Settle's.
type Cursor struct {
	To
	Seq    uint64
	Name   string
	Offset uint64
}

// Get asks for one ready message. NoAck settles it at once.
type Get struct {
	To
	Request uint64
	NoAck   bool
}

// GetDone answers Get.
type GetDone struct {
	Partition ident.Partition
	Stream    uint64
	Request   uint64
	OK        bool
	Item      Item
	Left      uint64
	Refused   string // not empty: why there is no answer
}

// Purge drops all ready messages, or moves nothing on a stream (refused).
type Purge struct {
	To
	Request uint64
}

// Stats asks for counts.
type Stats struct {
	To
	Request uint64
}

// Close asks the owner to stop admitting, ahead of a deletion, if the conditions hold. It reopens on Reopen.
type Close struct {
	To
	Request  uint64
	IfUnused bool
	IfEmpty  bool
}

// Reopen undoes Close: the catalog refused the deletion.
type Reopen struct{ To }

// Counted answers Purge, Stats and Close.
type Counted struct {
	Partition ident.Partition
	Stream    uint64
	Request   uint64
	Ready     uint64 // for Purge: the messages dropped
	Unsettled uint64
	Consumers uint64
	Refused   string // not empty: "in use", "not empty", or why not
}

// Detach ends a gateway's work with a partition: consumers go, claims are released.
type Detach struct{ To }

// Read begins to read a stream from a copy beside the gateway that follows, from an offset that the owner gave (Subscribed.Next) or that
// was read before. To names a stream of its own, beside those to the owner. What is sent for Consumer comes as StreamData on that stream,
// up to the position that the copy knows to be confirmed; Credit on it gives more, Unread ends it, and NotServing says that the gateway
// must go on elsewhere, behind what came. Neither travels between nodes.
type Read struct {
	To
	Consumer uint64
	Offset   uint64
	Credit   int64
	Reply    Sender
}

// Unread ends a reading stream.
type Unread struct{ To }

// DeadLetter asks the gateway beside the owner to publish a dead message; it answers with DeadLettered. Number counts the source
// partition's dead letters from 1 and goes into the log with the event that decided it, so that a new owner asks with the same.
type DeadLetter struct {
	Partition ident.Partition
	Number    uint64
	// Lane divides the numbers: within a lane they rise and go one at a time. The producer is named of partition and lane, so that a
	// dead letter which was refused and is asked for again under its number is never taken for a duplicate.
	Lane   uint8
	Offset uint64
	Reason string // "rejected", "expired", "maxlen", "delivery_limit"
	Count  uint32
	Time   int64
	Record batch.RecordHeader
	Body   []byte
	Reply  Sender
}

// DeadLettered answers DeadLetter: every target confirmed it, or it is to be dropped (cycle, no route). Kept means that a target
// is missing or full: the owner asks again later.
type DeadLettered struct {
	Partition ident.Partition
	Number    uint64
	Offset    uint64
	Kept      string
}

// ProducerID is the producer id of a gateway: number of the run (catalog.Node.Number, 31 bits count), shard, and how often the
// gateway gave a publish up as unknown (24 bits count). The top bit is clear; NamedProducer sets it.
func ProducerID(number uint32, shard uint8, generation uint32) uint64 {
	return uint64(number&(1<<31-1))<<32 | uint64(shard)<<24 | uint64(generation&(1<<24-1))
}

// NamedProducer is the producer id of a name that a client chose, or of a partition that dead-letters.
func NamedProducer(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.LittleEndian.Uint64(sum[:]) | 1<<63
}
