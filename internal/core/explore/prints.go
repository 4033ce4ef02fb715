package explore

import (
	"crypto/sha256"
	"encoding/binary"
)

// prints is a set of states by fingerprints of 128 bits: two of 100 million states have the same one with a probability below 2^-74, and then
// one of them would not be searched. The zero prints is empty.
type prints struct {
	count int
	slots [][2]uint64 // open addressing, at most three quarters full; a slot whose second half is zero is free
}

// add puts a state's key in. It returns false if it was there.
func (p *prints) add(key []byte) bool {
	sum := sha256.Sum256(key)
	v := [2]uint64{binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16]) | 1}
	if 4*p.count >= 3*len(p.slots) {
		old := p.slots
		p.slots = make([][2]uint64, max(1024, 2*len(old)))
		for _, v := range old {
			if v[1] != 0 {
				p.put(v)
			}
		}
	}
	if !p.put(v) {
		return false
	}
	p.count++
	return true
}

func (p *prints) put(v [2]uint64) bool {
	mask := uint64(len(p.slots) - 1)
	for i := v[0] & mask; ; i = (i + 1) & mask {
		switch {
		case p.slots[i][1] == 0:
			p.slots[i] = v
			return true
		case p.slots[i] == v:
			return false
		}
	}
}
