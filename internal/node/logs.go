package node

import (
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/engine/storage"
)

// logs gives the store the shape that replicas ask for.
type logs struct{ s *storage.Store }

func (l logs) Create(p ident.Partition) (replica.Log, error) {
	c, err := l.s.Create(p)
	if err != nil {
		return nil, err
	}
	return copyLog{c}, nil
}

func (l logs) Copies() []replica.Log {
	var all []replica.Log
	for _, c := range l.s.Copies() {
		all = append(all, copyLog{c})
	}
	return all
}

// copyLog is one copy, which can be sent as an image.
type copyLog struct{ *storage.Copy }

var _ replica.Images = copyLog{}

// Export implements replica.Images.
func (l copyLog) Export(want []byte, done func(replica.Export, error)) {
	var of *storage.ImageHead
	if want != nil {
		head, _, err := storage.ParsePlace(want)
		if err != nil {
			done(nil, err)
			return
		}
		of = &head
	}
	l.Copy.Export(of, func(x *storage.Export, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(export{x}, nil)
	})
}

// export is an image that is being sent.
type export struct{ *storage.Export }

// Position implements replica.Export.
func (x export) Position() uint64 { return x.Head().Tail.Position }

// Is implements replica.Export.
func (x export) Is(place []byte) bool {
	head, _, err := storage.ParsePlace(place)
	return err == nil && head == x.Head()
}

// Chunk implements replica.Export.
func (x export) Chunk(at []byte, most int, done func([]byte, error)) {
	var cursor storage.ImageCursor
	if at != nil {
		var err error
		if _, cursor, err = storage.ParsePlace(at); err != nil {
			done(nil, err)
			return
		}
	}
	x.Export.Chunk(cursor, most, done)
}
