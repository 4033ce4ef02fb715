package route

import "hash/crc32"

// Slots is the number of hash slots of a resource (design 1, "partition").
const Slots = 16384

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Slot is the slot that a partition key picks. It must never change: it decides where a key's messages are.
func Slot(key string) uint32 { return crc32.Checksum([]byte(key), castagnoli) % Slots }

// Partition is the one of n partitions whose span holds a slot: partition i has the slots from i·Slots/n to (i+1)·Slots/n.
func Partition(slot, n uint32) uint32 {
	i := slot * n / Slots
	for (i+1)*Slots/n <= slot { // spans are rounded down
		i++
	}
	return i
}
