package control

import "fmt"

// AsideKind is a kind of data that is kept for people alone.
type AsideKind string

// The kinds.
const (
	CutEnds       AsideKind = "cut-ends"       // of logs of former owners, and of damaged copies (design 2 §5 step 5, §8, §10)
	OldCatalogs   AsideKind = "old-catalogs"   // consensus logs of a node that follows a recovered catalog
	DeletedCopies AsideKind = "deleted-copies" // of what was deleted by force
)

// Aside is data of one kind that a node has put aside: nothing is served of it, and nothing drops it but a person, or a bound of its kind.
type Aside struct {
	Kind  AsideKind
	Count uint64 // files, or copies
	Bytes uint64
}

// piles says of each kind what one and several are called, what they are, what ends it, and the command that shows it.
var piles = map[AsideKind]struct{ one, several, what, ends, next string }{
	CutEnds: {
		"cut end", "cut ends", "of copies that had owned or were damaged, or of an accepted loss: messages that a client may miss",
		"nobody misses them, and the files are removed from quarantine/ of its data directory",
		"tanist inspect DIRECTORY, with the node stopped, lists them; with --cut and --export it gives their messages",
	},
	OldCatalogs: {
		"old catalog", "old catalogs", "from before it followed a recovered one",
		"nobody will look into them, and the files are removed from aside/ of its data directory", "tanist node list",
	},
	DeletedCopies: {
		"deleted copy", "deleted copies", "of what was deleted by force", "nobody needs them, and tanist deleted forget NUMBER drops them", "tanist deleted",
	},
}

// asides says what nodes keep for people alone. It needs nobody; but who does not know of it does not look for a message there, and wonders where
// the room on the disk has gone.
func (s *survey) asides() {
	for _, n := range s.k.Nodes {
		for _, a := range n.Aside {
			p, known := piles[a.Kind]
			if !known { // of a later version of the program
				p.one, p.several = string(a.Kind), string(a.Kind)
				p.what, p.ends, p.next = "put aside there", "nobody needs them any more", "tanist node list"
			}
			name := p.several
			if a.Count == 1 {
				name = p.one
			}
			s.add(Condition{
				Code: DataAside, Subject: p.several + " on " + n.Node, Notice: true, Ends: p.ends, Next: p.next,
				What: fmt.Sprintf("%d %s (%.1f MiB) %s", a.Count, name, float64(a.Bytes)/(1<<20), p.what),
			})
		}
	}
}
