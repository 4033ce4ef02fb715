package replica

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/trace"
)

// imageChunkSize is about how many bytes of an image go in one message.
const imageChunkSize = 1 << 20

// imageAgain is when an image is begun anew that failed.
const imageAgain = time.Second

// imageKept is how long an image that was interrupted is held open at least: its copy may be starting again.
const imageKept = time.Minute

// Images is what a Log also is where its copy can be sent as an image, and be made of one (design 3). Where an image stands is opaque
// here: storage encodes what it is of and the next chunk.
type Images interface {
	// Export opens an image. want is where one stands that was begun before, nil for a new one; an error says that it cannot be had.
	Export(want []byte, done func(Export, error))
	// Anew gives up what a damaged copy holds, for an image to come in its place. done says when that is durable, or why it was not done.
	Anew(done func(error))
	// Salvage gives whole batches of a damaged copy, those nearest to its end, ascending and with gaps, of about max bytes at most.
	Salvage(max int, done func([]batch.Batch))
	// Importing is where the image stands that the copy is being made of; nil where none was begun, or it is complete.
	Importing() []byte
	// Import takes the next chunk, and the first also in place of a log that ends at over, where that is above 0. done says when it is durable,
	// or why it was not taken.
	Import(chunk []byte, over uint64, done func(error))
}

// Export is an image that is being sent. While it is open, what it needs is kept.
type Export interface {
	// Position is that of the log's end that the image leads to.
	Position() uint64
	// Is reports whether a place where an image stands, as Importing gives it, is in this one.
	Is(place []byte) bool
	// Chunk gives the chunk at a place, nil for the first, of about max bytes.
	Chunk(at []byte, max int, done func(chunk []byte, err error))
	Close()
}

// imageFeed is an image on its way to a copy, one chunk at a time.
type imageFeed struct {
	export Export // nil until it is open
	over   uint64 // where the log ends that it takes the place of; 0: the copy is empty, or has begun with it
	ended  bool   // nothing more of it is sent; its export is closed as it opens, or was
}

// reseeding is why a copy that takes an image in place of its log counts for nothing until it has it.
const reseeding = "it was away for longer than the log is kept, or damaged, and takes an image"

// salvaged is about how many bytes are kept, at most, of the end of a damaged copy that was an owner's.
const salvaged = 16 << 20

// sendImage begins to send an image, or goes on with one. over is where the log ends that it takes the place of, if the copy has one.
func (r *replica) sendImage(f *feed, want []byte, over uint64) {
	images, ok := r.log.(Images)
	if !ok {
		f.reason = errNoImages.Error()
		return
	}
	g := &imageFeed{over: over}
	if !f.learner {
		f.reason = reseeding
		r.reach()
	}
	f.allowed, f.missed = 0, 0
	f.image = g
	if k := f.kept; k != nil && want != nil && k.export.Is(want) {
		f.kept, g.export = nil, k.export
		r.nextChunk(f, g, want)
		return
	}
	f.letGo()
	images.Export(want, func(x Export, err error) {
		r.box.Post(call{func() {
			switch {
			case err == nil && g.ended:
				x.Close()
			case g.ended:
			case err != nil && want != nil:
				trace.Info(r.m.env.Trace, "replica.image.anew", r.attr(), slog.String("node", f.Node), slog.String("reason", err.Error()))
				f.image = nil
				r.sendImage(f, nil, 0) // what it was of is not here any more: it begins anew
			case err != nil:
				r.imageFailed(f, err.Error())
			default:
				g.export = x
				r.nextChunk(f, g, want)
			}
		}})
	})
}

// keepImage holds an image open that was interrupted as the way to its copy was lost, as long as a follower's place is kept for it.
func (r *replica) keepImage(f *feed) {
	k := f.kept
	if k == nil {
		return
	}
	r.box.After(max(r.m.tunables.Load().FollowerLossHold, imageKept), call{func() {
		if f.kept == k {
			f.letGo()
		}
	}})
}

func (r *replica) imageFailed(f *feed, reason string) {
	f.lose()
	f.reason = "image: " + reason
	trace.Warn(r.m.env.Trace, "replica.image.failed", r.attr(), slog.String("node", f.Node), slog.String("reason", reason))
	r.box.After(imageAgain, call{func() {
		if slices.Contains(r.feeds, f) && f.image == nil && !f.Standing() {
			r.probe(f) // it says where it stands, and an image begins anew
		}
	}})
}

// nextChunk sends the chunk at a place, when it is its turn.
func (r *replica) nextChunk(f *feed, g *imageFeed, at []byte) {
	size, turns := r.piece(f, imageChunkSize)
	g.export.Chunk(at, size, func(chunk []byte, err error) {
		r.box.Post(call{func() {
			switch {
			case g.ended:
			case err != nil:
				r.imageFailed(f, err.Error())
			default:
				r.turn(f, int64(len(chunk)), turns, func() { r.sendChunk(f, g, at, chunk) })
			}
		}})
	})
}

func (r *replica) sendChunk(f *feed, g *imageFeed, at, chunk []byte) {
	if g.ended {
		return
	}
	m := protocol.ImageChunk{Partition: r.id, Epoch: r.copy.Epoch(), From: r.m.env.Local, Chunk: chunk}
	if at == nil {
		m.Over = g.over
	}
	r.sendCopy(f.Node, m)
}

// imageTaken sends the next chunk. After the last, the copy says where it stands.
func (r *replica) imageTaken(m protocol.ImageTaken) {
	f := r.feedOf(m.From, m.Epoch)
	if f == nil || f.image == nil || f.image.export == nil {
		return
	}
	switch {
	case m.Failed != "":
		r.imageFailed(f, m.Failed)
	case !m.Done:
		r.nextChunk(f, f.image, m.Next)
	}
}

// saysWhyNot says for people why a damaged copy with a place will not be made anew, and reports whether there is a reason.
func (r *replica) saysWhyNot() bool {
	if r.want == nil || r.ended {
		return true
	}
	why := r.copy.KeptBack(r.want, r.m.env.Local, int(r.madeAnew))
	if r.copy.Damaged() != "" && r.log.Image().Damaged == "" {
		why = "what is wrong is not on its disk; start its node again"
	}
	own := r.want.Owner.Node == r.m.env.Local.Node
	if own && len(r.want.Followers) == 0 && r.copy.Damaged() != "" {
		r.reason = r.copy.Damaged() + "; there is no other copy"
	}
	if _, named := partition.RoleOf(r.want, r.m.env.Local); why != "" && named && !own {
		r.reason = r.copy.Damaged() + "; it is not made anew: " + why
	}
	return why != ""
}

// mayGoAnew has a damaged copy made anew in its place from its owner's image, at that owner's word, where partition.Copy.KeptBack says nothing against
// it: what only it holds and can be read is kept aside, what it holds is given up durably, and it goes on as one whose image is not complete. A
// crash before that finds it damaged and begins again, one after it finds it without its image.
func (r *replica) mayGoAnew(m protocol.MakeAnew) {
	images, ok := r.log.(Images)
	asked := r.want != nil && m.From == r.want.Owner && m.Epoch == r.want.Epoch
	if !ok || !asked || r.givesUp || r.former != nil || r.stopping() || r.copy.Damaged() == "" || r.saysWhyNot() {
		return
	}
	r.givesUp = true
	end := CutEnd{Partition: r.id, Epoch: r.want.Epoch, To: r.copy.Tail().Position}
	cut, beyond := partition.CutTo(r.want.Starts, r.copy.Tail(), r.want.Epoch)
	if end.From = cut.Position; !beyond || r.m.env.Keep == nil || !r.ruled() {
		r.giveUp(images, nil, false)
		return
	}
	images.Salvage(salvaged, func(bs []batch.Batch) {
		end.Batches = slices.DeleteFunc(bs, func(b batch.Batch) bool { return b.End() <= end.From })
		r.m.env.Keep(end, func(kept bool) { r.box.Post(call{func() { r.giveUp(images, &end, kept) }}) })
	})
}

// giveUp has storage give up what a damaged copy holds. end is what only it held, if it held more than its owner; kept says that it was kept, as far
// as it could be read.
func (r *replica) giveUp(images Images, end *CutEnd, kept bool) {
	trace.Warn(r.m.env.Trace, "copy.anew", r.attr(), slog.Uint64("epoch", r.want.Epoch), slog.Uint64("position", r.copy.Tail().Position),
		slog.Bool("kept", kept), slog.String("reason", r.copy.Damaged()))
	images.Anew(func(err error) {
		if err == nil && end != nil {
			r.tellCut(end, kept)
		}
		r.box.Post(call{func() { r.gaveUp(err) }})
	})
}

// gaveUp has the copy take up its role, and with it the image.
func (r *replica) gaveUp(err error) {
	r.givesUp = false
	if r.ended || r.former != nil || r.copy.Damaged() == "" {
		return
	}
	if err != nil {
		r.reason = r.copy.Damaged() + "; it is not made anew: " + err.Error()
		return // its next assignment, or the node's next run, begins again
	}
	r.madeAnew++
	r.copy.Anew()
	r.reason = ""
	r.noteDamage()
	r.unload()
	role, _ := partition.RoleOf(r.want, r.m.env.Local)
	r.assign(assignment{r.res, r.want, role})
}

// noteDamage has the node know whether this copy is to own and is damaged: it tells the controller.
func (r *replica) noteDamage() {
	d := protocol.Damaged{Partition: r.id}
	if w := r.want; w != nil && !r.ended && w.Owner == r.m.env.Local && !r.id.Transient() {
		d.Epoch, d.Reason = w.Epoch, r.copy.Damaged()
	}
	if d.Reason != "" || r.hurt {
		r.hurt = d.Reason != ""
		r.m.damaged(d)
	}
}

// importing is where the image stands that this copy is being made of.
func (r *replica) importing() []byte {
	if images, ok := r.log.(Images); ok {
		return images.Importing()
	}
	return nil
}

// imageChunk takes a chunk of the image that this copy is made of. The first one may take the place of a log.
func (r *replica) imageChunk(m protocol.ImageChunk) {
	images, ok := r.log.(Images)
	if !ok || !r.follows() || m.Epoch != r.copy.Epoch() || m.From != r.want.Owner {
		return
	}
	if r.noRoom() != "" {
		r.room() // it goes on with this chunk when there is room
		return
	}
	if m.Over > 0 {
		if !r.copy.Discard(m.Over) {
			r.sayStanding() // it is not where the owner took it to be
			return
		}
		trace.Info(r.m.env.Trace, "replica.reseeded", r.attr(), slog.Uint64("position", m.Over))
		r.unload()
		r.cameFurther()
	}
	images.Import(m.Chunk, m.Over, func(err error) {
		r.box.Post(call{func() { r.chunkTaken(images, m, err) }})
	})
}

// chunkTaken tells the owner what became of a chunk.
func (r *replica) chunkTaken(images Images, m protocol.ImageChunk, err error) {
	if err != nil && m.Over > 0 && !r.log.Image().Importing {
		r.isImported() // the log is there as it was
	}
	if !r.follows() || r.copy.Epoch() != m.Epoch {
		if err == nil && images.Importing() == nil && r.copy.Damaged() == "" {
			r.holdsImage() // nobody waits for it any more, and the log is what it was of
		}
		return
	}
	answer := protocol.ImageTaken{Partition: r.id, Epoch: m.Epoch, From: r.m.env.Local}
	if err != nil {
		answer.Failed = err.Error()
	} else {
		r.cameFurther()
		answer.Next = images.Importing()
		answer.Done = answer.Next == nil
	}
	r.sendCopy(m.From.Node, answer)
	if answer.Done {
		r.imported()
	}
	r.warm()
}

// imported goes on as a copy that holds what the image was of.
func (r *replica) imported() {
	r.holdsImage()
	r.sayStanding()
}

func (r *replica) holdsImage() {
	r.unload() // the state was that of an empty log
	r.isImported()
}

func (r *replica) isImported() {
	r.step(func(fx *partition.Effects) { r.copy.Imported(r.log.Image(), r.want.Starts, fx) })
}

// What a node sends to copies that catch up from far goes piece by piece, in turns (partition.Pace), so that publishers hardly notice it.

const (
	// turnSize is how many bytes such a copy is sent at a time: a piece is written and synced with what others wait for.
	turnSize = 256 << 10
	// nearEnough is how much of the log a follower is sent without waiting for turns: one that was away for a moment is back at once.
	nearEnough = 16 << 20
)

// piece says how much a copy is sent next, at most most bytes, and whether that waits for its turn. What was appended since it is behind it may
// be sent at once, so that it comes nearer however much that is.
func (r *replica) piece(f *feed, most int) (size int, turns bool) {
	if !f.learner && f.image == nil && f.read < nearEnough || f.allowed >= int64(most) || r.short() {
		return most, false
	}
	return min(most, turnSize), true
}

// turn notes that a copy is sent so many bytes of what it is behind, and calls send when it is their turn.
func (r *replica) turn(f *feed, size int64, turns bool, send func()) {
	f.read += size
	if !turns {
		f.allowed = max(0, f.allowed-size)
		send()
		return
	}
	if wait := r.m.turn(size); wait > 0 {
		r.box.After(wait, call{send})
	} else {
		send()
	}
}

// short reports whether fewer copies are in step than a confirm needs: then whatever brings another nearer must not wait.
func (r *replica) short() bool {
	n := 1
	for _, f := range r.feeds {
		if !f.learner && !f.doubted && f.Standing() && f.Next() >= r.copy.Confirmed() {
			n++
		}
	}
	return n < int(r.w)
}
