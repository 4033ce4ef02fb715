package mesh

import "testing"

func TestABufferIsAsLongAsWasAskedFor(t *testing.T) {
	p := &pool{}
	for _, n := range []int{0, 1, 2047, 2048, 2049, 16 << 10, 16<<10 + 1, 1 << mostBuffer, 1<<mostBuffer + 1} {
		b := p.Get(n)
		if len(*b) != n {
			t.Errorf("%d bytes of %d", len(*b), n)
		}
		p.Put(b)
		if again := p.Get(n); len(*again) != n {
			t.Errorf("%d bytes of %d from the pool", len(*again), n)
		}
	}
	p.Put(&[]byte{1, 2, 3}) // not of the pool
	foreign := make([]byte, 5000)
	p.Put(&foreign)
	if b := p.Get(4096); cap(*b) == cap(foreign) {
		t.Error("a buffer that is not of the pool's sizes was kept")
	}
}
