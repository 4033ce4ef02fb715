package sim

import (
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/lease"
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
	// toPeer passes on what the node at a place sends to another.
	toPeer(s *site, to string, p mesh.Purpose, key uint64, msg []byte, send func([]byte))
	// sealed changes a copy's answer on its way to the controller of the node at a place.
	sealed(s *site, a control.SealAnswer) control.SealAnswer
	// members stands between the owners at a place and the catalog.
	members(s *site, m replica.Members) replica.Members
	// granted changes what a controller grants the run at a place.
	granted(s *site, g lease.Grant) lease.Grant
	// setting changes what an operator sets.
	setting(name, value string) string
	// policy is how resources are declared: with "" by default. Owners are judged by the default all the same.
	policy() string
}

// honest plants nothing.
type honest struct{}

func (honest) disk(_ *site, fs vfs.FS) vfs.FS         { return fs }
func (honest) log(_ *site, l replica.Log) replica.Log { return l }
func (honest) toOwner(e *ear, msg any)                { e.to.Send(msg) }
func (honest) toPeer(_ *site, _ string, _ mesh.Purpose, _ uint64, msg []byte, send func([]byte)) {
	send(msg)
}
func (honest) sealed(_ *site, a control.SealAnswer) control.SealAnswer { return a }
func (honest) members(_ *site, m replica.Members) replica.Members      { return m }
func (honest) granted(_ *site, g lease.Grant) lease.Grant              { return g }
func (honest) setting(_, value string) string                          { return value }
func (honest) policy() string                                          { return "" }
func (honest) toGateway(m *mouth, msg any)                             { m.to.Send(msg) }
