// Package exec is the port that says who runs what.
//
// Engines are actors: each receives messages one at a time, through a mailbox, on a loop. Many actors share one
// loop and there is one shared loop per core; actors that block in I/O get a loop of their own. In simulation all
// loops are one seeded thread, so nothing in an engine may depend on which of two mailboxes is served first.
//
// Actors on the same loop may call each other directly, since they never run at the same time.
package exec

import "time"

// Actor is the receiving end of a mailbox.
type Actor interface {
	// Receive handles one message. It must not block, except on a dedicated loop.
	Receive(msg any)
	// Flush is called once after everything that was waiting on the loop has been received, if the actor
	// received anything, or was touched, since its last Flush. Work that is cheaper in groups belongs here.
	Flush()
}

// Mailbox is the sending end. Its methods may be called from any goroutine, except Touch.
type Mailbox interface {
	// Post appends a message. It never blocks; senders are bounded by the credits of the protocol they speak.
	// Messages of one sender arrive in the order sent.
	Post(msg any)
	// After posts msg once d has passed. cancel reports whether the message was kept from being posted; a
	// message that is already in the mailbox is still received.
	After(d time.Duration, msg any) (cancel func() bool)
	// Touch asks for a Flush of this actor at the end of the present round. It may only be called on the
	// actor's own loop.
	Touch()
	// Loop is the loop that this mailbox is served by.
	Loop() Loop
}

// Loop runs actors, one message at a time.
type Loop interface {
	// Spawn gives an actor a mailbox on this loop. The actor lives until the mailbox is unreferenced.
	Spawn(name string, a Actor) Mailbox
}

// Executor owns the loops of one node.
type Executor interface {
	// Shared is the number of shared loops, at least 1.
	Shared() int
	// Loop is shared loop i, 0 <= i < Shared().
	Loop(i int) Loop
	// Dedicated makes a loop for actors that block.
	Dedicated(name string) Loop
	// Stop ends every loop after the message in hand; what is still in mailboxes is dropped. It returns when
	// all loops have ended. Posting after Stop does nothing.
	Stop()
}
