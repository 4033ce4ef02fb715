package queue

// StagedLength is the length that admission sees.
func (m *Machine) StagedLength() (n, bytes int64) { return m.o.length, m.o.lengthBytes }
