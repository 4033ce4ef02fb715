package control

import (
	"fmt"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/queue"
)

// BenchmarkArrange goes through many partitions of which nothing is to be done, as the controller does after each change of the catalog, and
// through as many with a node away.
func BenchmarkArrange(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		w := newWorld(b)
		for i := range 5 {
			w.happens([]string{"join", fmt.Sprint("n", i+1)})
		}
		sites := Sites(w.s.View(), func(string) bool { return true })
		var items []catalog.Item
		for i := range n {
			for j := range sites {
				sites[j].Load = catalog.Load{Owned: (i + j) % len(sites)}
			}
			name := fmt.Sprint("q", i)
			owner, followers, _ := Place(name, "", sites, 3)
			items = append(items, catalog.DeclareResource(catalog.Resource{
				VHost: "/", Name: name, Kind: catalog.Queue, Durable: true, Queue: &queue.Settings{},
			}, owner, followers, 1))
		}
		cmds, err := catalog.Chunks(items)
		if err != nil {
			b.Fatal(err)
		}
		for _, cmd := range cmds {
			if _, _, err := w.s.Apply(w.s.Index()+1, cmd); err != nil {
				b.Fatal(err)
			}
		}
		for _, state := range []string{"well", "away"} {
			if state == "away" {
				w.happens([]string{"away", "n5"})
			}
			b.Run(fmt.Sprintf("%s/%d", state, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					w.plan(16)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/partition")
			})
		}
	}
}
