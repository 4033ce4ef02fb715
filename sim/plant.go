package sim

import (
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/port/vfs"
)

// plant is a fault of the product itself, put in by a test to show that it would be found: only tests can make one. Without one,
// everything passes as it is.
type plant interface {
	// disk stands between the node at a place and its files.
	disk(s *site, fs vfs.FS) vfs.FS
	// log stands between a replica and the log of one copy. The witness hears what it says.
	log(s *site, l replica.Log) replica.Log
	// toOwner and toGateway pass messages on.
	toOwner(e *ear, msg any)
	toGateway(m *mouth, msg any)
	// toPeer changes what a node sends to another.
	toPeer(p mesh.Purpose, msg []byte) []byte
	// policy is how resources are declared: with "" by default. Owners are judged by the default all the same.
	policy() string
}

// honest plants nothing.
type honest struct{}

func (honest) disk(_ *site, fs vfs.FS) vfs.FS           { return fs }
func (honest) log(_ *site, l replica.Log) replica.Log   { return l }
func (honest) toOwner(e *ear, msg any)                  { e.to.Send(msg) }
func (honest) toPeer(_ mesh.Purpose, msg []byte) []byte { return msg }
func (honest) policy() string                           { return "" }
func (honest) toGateway(m *mouth, msg any)              { m.to.Send(msg) }
