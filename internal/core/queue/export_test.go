package queue

// StagedLength is the length that admission sees.
func (m *Machine) StagedLength() (n, bytes int64) { return m.o.length, m.o.lengthBytes }

// Times is the number of places in the heap of times.
func (m *Machine) Times() int { return len(m.o.heap) }
