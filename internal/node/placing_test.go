package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
)

// What is declared goes to other nodes while a disk has no room, whichever node is asked, also one that came after the word of it; and gets the
// copy that it lacks once there is room.
func TestNothingNewIsPlacedOnAFullDisk(t *testing.T) {
	c := newCluster(t, 5, 4)
	c.await("four voters or more", func() bool { return c.voters(0) >= 3 })
	on := func(name string) int {
		a := c.assignment(0, name)
		count := 0
		for _, m := range append([]catalog.Member{{Node: a.Owner.Node}}, a.Followers...) {
			if m.Node == "n3" || m.Node == "n4" {
				count++
			}
		}
		return count
	}
	c.nodes[2].disk.Full(true)
	c.nodes[3].disk.Full(true)
	c.sim.RunFor(3 * time.Second)
	c.kill(1)
	c.restart(1)
	c.sim.RunFor(2 * time.Second)
	var names []string
	for i := range 8 {
		names = append(names, fmt.Sprint("q", i))
		c.nodes[i%2].login(0).declare(durable(names[i]))
		if n := on(names[i]); n != 0 {
			t.Fatalf("%s has %d copies on full disks: %+v", names[i], n, c.assignment(0, names[i]))
		}
	}
	c.nodes[2].disk.Full(false)
	c.nodes[3].disk.Full(false)
	c.await("three copies of each", func() bool {
		return !slices.ContainsFunc(names, func(q string) bool { return len(c.assignment(0, q).Followers) != 2 })
	})
}
