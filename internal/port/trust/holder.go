package trust

import "sync/atomic"

// Holder keeps the material that is in use, and lets it be replaced while connections are made. Connections that are there stay. It is safe
// for concurrent use.
type Holder struct{ material atomic.Pointer[Material] }

// Hold makes a holder.
func Hold(m *Material) *Holder {
	h := &Holder{}
	h.material.Store(m)
	return h
}

// Material is what is in use.
func (h *Holder) Material() *Material { return h.material.Load() }

// Replace puts other material in use.
func (h *Holder) Replace(m *Material) { h.material.Store(m) }
