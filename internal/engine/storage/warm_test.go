package storage

import (
	"sync"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/port/vfs"
)

// gate holds up reads of a file until it is opened.
type gate struct {
	vfs.File
	once        sync.Once
	begun, open chan struct{}
}

func (g *gate) ReadAt(p []byte, off int64) (int, error) {
	g.once.Do(func() { close(g.begun) })
	<-g.open
	return g.File.ReadAt(p, off)
}

// However slow the disk is to read the index of a full file, what is appended to the copy meanwhile becomes durable.
func TestAppendsDoNotWaitForAnIndexThatIsRead(t *testing.T) {
	for name, ask := range map[string]func(c *Copy, done func(error)){
		"read": func(c *Copy, done func(error)) { c.Read(0, 1, func(_ []batch.Batch, err error) { done(err) }) },
		"seek": func(c *Copy, done func(error)) { c.SeekTime(1, func(_ uint64, err error) { done(err) }) },
		"last": func(c *Copy, done func(error)) { c.LastBatch(3, func(_ uint64, err error) { done(err) }) },
		"scrub": func(c *Copy, done func(error)) {
			c.s.r.do(func() error { done(c.s.r.check(c, c.spans[0].file)); return nil }, done)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{ScrubEvery: -1, CacheBytes: 1, FooterBytes: 1})
			l := r.log(1)
			for range 30 {
				l.append(r, 100<<10)
			}
			r.read(l.c, 0) // all indexes but the last are let go of for it
			g := &gate{begun: make(chan struct{}), open: make(chan struct{})}
			r.must(func(d func(error)) {
				r.s.r.do(func() error {
					f := l.c.spans[0].file
					g.File, f.f = f.f, g
					d(nil)
					return nil
				}, d)
			})
			asked := make(chan error, 1)
			ask(l.c, func(err error) { asked <- err })
			<-g.begun
			b, link := l.next(100)
			appended := make(chan error, 1)
			go l.c.Append(b, link, false, func(err error) { appended <- err })
			select {
			case err := <-appended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("the copy takes nothing while the index is read")
			}
			close(g.open)
			if err := <-asked; err != nil {
				t.Error(err)
			}
		})
	}
}
