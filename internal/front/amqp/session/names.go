package session

import "hash/crc32"

// namesMost bounds the names that a connection remembers.
const namesMost = 1024

// names remembers strings, so that names that are used again and again are not allocated again and again. A name has two places, by its
// digest. The table grows where both are taken, and from its bound on the newer name wins.
type names struct{ slots []string }

// of is the string of b, whose digest the caller has at hand: CRC-32C.
func (n *names) of(b []byte, digest uint32) string {
	if len(b) == 0 {
		return ""
	}
	if len(n.slots) > 0 {
		i := int(digest) & (len(n.slots) - 1)
		if n.slots[i] == string(b) {
			return n.slots[i]
		}
		if n.slots[i^1] == string(b) {
			return n.slots[i^1]
		}
	}
	s := string(b)
	n.keep(s, digest)
	return s
}

func (n *names) keep(s string, digest uint32) {
	for {
		if len(n.slots) > 0 {
			i := int(digest) & (len(n.slots) - 1)
			if n.slots[i] != "" && n.slots[i^1] == "" {
				i ^= 1
			}
			if n.slots[i] == "" || len(n.slots) == namesMost {
				n.slots[i] = s
				return
			}
		}
		old := n.slots
		n.slots = make([]string, max(2*len(old), 8))
		for _, o := range old { // a set splits in two: what was there has its place
			if o != "" {
				n.keep(o, crc32.Checksum([]byte(o), castagnoli))
			}
		}
	}
}
