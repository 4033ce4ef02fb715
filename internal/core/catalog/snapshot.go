package catalog

import (
	"fmt"

	"github.com/tanist/tanist/internal/core/codec"
)

// A snapshot is:
//
//	u8 format | uvarint index, incarnations, runs, versions | optional cluster | lists of settings, nodes,
//	removed stores, tokens, virtual hosts, users, permissions, exchanges, resources, bindings, each sorted | where there are any: list of forced
//	deletions, sorted
//
// The same state gives the same bytes, whatever commands led to it.

// Snapshot encodes the state.
func (s *State) Snapshot() []byte {
	c := writer(make([]byte, 0, 1024+300*len(s.view.resources)))
	c.Buf = append(c.Buf, Format)
	s.counters(&c)
	v := s.view
	codec.Optional(&c, &v.cluster, (*coder).cluster)
	write(&c, v.Settings(), (*coder).setting)
	write(&c, v.Nodes(), (*coder).node)
	write(&c, v.RemovedStores(), (*coder).removed)
	write(&c, v.Tokens(), (*coder).token)
	vhosts := v.VHosts()
	write(&c, vhosts, (*coder).vhost)
	write(&c, v.Users(), (*coder).user)
	write(&c, v.Permissions(), (*coder).permission)
	var exchanges []*Exchange
	var bindings []*Binding
	for _, h := range vhosts {
		exchanges = append(exchanges, v.Exchanges(h.Name)...)
		bindings = append(bindings, v.Bindings(h.Name)...)
	}
	write(&c, exchanges, (*coder).exchange)
	write(&c, v.AllResources(), (*coder).resource)
	write(&c, bindings, (*coder).binding)
	if deletions := v.Deletions(); len(deletions) > 0 {
		write(&c, deletions, (*coder).deletion)
	}
	return c.Buf
}

func (s *State) counters(c *coder) {
	c.U64(&s.index)
	c.U64(&s.incarnations)
	c.U32(&s.runs)
	c.U64(&s.versions)
}

func write[T any](c *coder, objects []*T, each func(*coder, *T)) {
	c.Count(len(objects), 1)
	for _, o := range objects {
		each(c, o)
	}
}

func read[T any](c *coder, v *View, index uint64, each func(*coder, *T)) {
	for range c.Count(0, 1) {
		o := new(T)
		each(c, o)
		if c.Err != nil {
			return
		}
		v.apply(&Change{Index: index, After: o})
	}
}

// Restore decodes a snapshot. An error is ErrUnknownCommand or ErrMalformed, and means that the node must stop.
func Restore(data []byte) (*State, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: empty snapshot", ErrMalformed)
	}
	if data[0] == 0 || data[0] > Format {
		return nil, fmt.Errorf("%w: snapshot of format %d, known up to %d", ErrUnknownCommand, data[0], Format)
	}
	s := New()
	c := reader(data[1:], s.names)
	s.counters(&c)
	v := s.view
	v.index = s.index
	codec.Optional(&c, &v.cluster, (*coder).cluster)
	read(&c, v, s.index, (*coder).setting)
	read(&c, v, s.index, (*coder).node)
	read(&c, v, s.index, (*coder).removed)
	read(&c, v, s.index, (*coder).token)
	read(&c, v, s.index, (*coder).vhost)
	read(&c, v, s.index, (*coder).user)
	read(&c, v, s.index, (*coder).permission)
	read(&c, v, s.index, (*coder).exchange)
	read(&c, v, s.index, (*coder).resource)
	read(&c, v, s.index, (*coder).binding)
	if c.Err == nil && len(c.Buf) > 0 {
		read(&c, v, s.index, (*coder).deletion)
	}
	if err := c.End(); err != nil {
		return nil, err
	}
	return s, nil
}

// Changes is the whole state as additions, for a listener that begins now: the cluster, settings, nodes, removed stores, tokens,
// forced deletions, virtual hosts, users, permissions, exchanges, resources, bindings, each sorted.
func (s *State) Changes() []Change {
	v := s.view
	out := make([]Change, 0, len(v.resources)+64)
	if v.cluster != nil {
		out = append(out, Change{s.index, nil, v.cluster})
	}
	out = added(out, s.index, v.Settings())
	out = added(out, s.index, v.Nodes())
	out = added(out, s.index, v.RemovedStores())
	out = added(out, s.index, v.Tokens())
	out = added(out, s.index, v.Deletions())
	vhosts := v.VHosts()
	out = added(out, s.index, vhosts)
	out = added(out, s.index, v.Users())
	out = added(out, s.index, v.Permissions())
	for _, h := range vhosts {
		out = added(out, s.index, v.Exchanges(h.Name))
	}
	out = added(out, s.index, v.AllResources())
	for _, h := range vhosts {
		out = added(out, s.index, v.Bindings(h.Name))
	}
	return out
}

func added[T any](out []Change, index uint64, objects []*T) []Change {
	for _, o := range objects {
		out = append(out, Change{index, nil, o})
	}
	return out
}
