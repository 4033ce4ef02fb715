package replica

import (
	"log/slog"

	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/trace"
)

// imageChunkSize is about how many bytes of an image go in one message.
const imageChunkSize = 1 << 20

// Images is what a Log also is where its copy can be sent as an image, and be made of one (design 3). Where an image stands is opaque
// here: storage encodes what it is of and the next chunk.
type Images interface {
	// Export opens an image. want is where one stands that was begun before, nil for a new one; an error says that it cannot be had.
	Export(want []byte, done func(Export, error))
	// Importing is where the image stands that the copy is being made of; nil where none was begun, or it is complete.
	Importing() []byte
	// Import takes the next chunk. done says when it is durable, or why it was not taken.
	Import(chunk []byte, done func(error))
}

// Export is an image that is being sent. While it is open, what it needs is kept.
type Export interface {
	// Position is that of the log's end that the image leads to.
	Position() uint64
	// Chunk gives the chunk at a place, nil for the first, of about max bytes.
	Chunk(at []byte, max int, done func(chunk []byte, err error))
	Close()
}

// imageFeed is an image on its way to a copy, one chunk at a time.
type imageFeed struct {
	export Export // nil until it is open
	ended  bool
}

func (g *imageFeed) close() {
	g.ended = true
	if g.export != nil {
		g.export.Close()
	}
}

// sendImage begins to send an image, or goes on with one.
func (r *replica) sendImage(f *feed, want []byte) {
	images, ok := r.log.(Images)
	if !ok {
		f.reason = errNoImages.Error()
		return
	}
	g := &imageFeed{}
	f.image = g
	images.Export(want, func(x Export, err error) {
		r.box.Post(call{func() {
			switch {
			case err == nil && g.ended:
				x.Close()
			case g.ended:
			case err != nil && want != nil:
				f.image = nil
				r.sendImage(f, nil) // what it was of is not here any more: it begins anew
			case err != nil:
				r.imageFailed(f, err.Error())
			default:
				g.export = x
				r.nextChunk(f, g, want)
			}
		}})
	})
}

func (r *replica) imageFailed(f *feed, reason string) {
	f.lose()
	f.reason = "image: " + reason
	trace.Warn(r.m.env.Trace, "replica.image.failed", r.attr(), slog.String("node", f.Node), slog.String("reason", reason))
}

func (r *replica) nextChunk(f *feed, g *imageFeed, at []byte) {
	g.export.Chunk(at, imageChunkSize, func(chunk []byte, err error) {
		r.box.Post(call{func() {
			switch {
			case g.ended:
			case err != nil:
				r.imageFailed(f, err.Error())
				r.probe(f) // it says where it stands, and an image begins anew
			default:
				r.sendCopy(f.Node, protocol.ImageChunk{Partition: r.id, Epoch: r.copy.Epoch(), From: r.m.env.Local, Chunk: chunk})
			}
		}})
	})
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

// importing is where the image stands that this copy is being made of.
func (r *replica) importing() []byte {
	if images, ok := r.log.(Images); ok {
		return images.Importing()
	}
	return nil
}

// imageChunk takes a chunk of the image that this copy is made of.
func (r *replica) imageChunk(m protocol.ImageChunk) {
	images, ok := r.log.(Images)
	if !ok || !r.follows() || m.Epoch != r.copy.Epoch() || m.From != r.want.Owner {
		return
	}
	answer := protocol.ImageTaken{Partition: r.id, Epoch: m.Epoch, From: r.m.env.Local}
	images.Import(m.Chunk, func(err error) {
		r.box.Post(call{func() {
			if !r.follows() || r.copy.Epoch() != m.Epoch {
				return
			}
			if err == nil {
				r.cameFurther()
			}
			if err != nil {
				answer.Failed = err.Error()
			} else if answer.Next = images.Importing(); answer.Next == nil {
				answer.Done = true
			}
			r.sendCopy(m.From.Node, answer)
			if answer.Done {
				r.imported()
			}
		}})
	})
}

// imported goes on as a copy that holds what the image was of.
func (r *replica) imported() {
	r.unload() // the state was that of an empty log
	r.step(func(fx *partition.Effects) { r.copy.Imported(r.log.Image(), fx) })
	r.sayStanding()
	r.warm()
}
