package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/trace"
)

// feed is what an owner does for one other copy.
type feed struct {
	partition.Feed
	learner bool
	later   bool // a timer is set to go on feeding it
	up      bool // there is a session with its node
	doubted bool // it came back with less than it had said: it counts for nothing in this epoch
	damaged bool // by its own word: it counts for nothing until it says otherwise
	sealed  bool // by its own word, for a later epoch: it follows no more
	image   *imageFeed
	kept    *imageFeed // was interrupted, and is held open for the copy to go on with
	missed  int64      // bytes that were appended since it is not fed, in this epoch
	read    int64      // bytes that it was sent from the log since it was known where it stands
	allowed int64      // bytes that were appended while it was behind: what it may be sent without waiting for its turn
	gap     uint64     // a copy whose log ends at or below it misses what is not kept here any more; 0: none is known
	reason  string     // why it is not fed, for people
}

// lose lets go of all that was on its way to a copy.
func (f *feed) lose() {
	f.pause()
	f.letGo()
}

// pause is lose, but keeps an image that has been begun: a log that goes on makes a new snapshot every while, and the copy could go on with
// none but the old.
func (f *feed) pause() {
	f.Lose()
	g := f.image
	if f.image = nil; g == nil {
		return
	}
	if g.ended = true; g.export != nil {
		f.letGo()
		f.kept = g
	}
}

// letGo closes an image that was kept.
func (f *feed) letGo() {
	if f.kept != nil {
		f.kept.export.Close()
		f.kept = nil
	}
}

// setFeeds brings the feeds in line with an assignment that makes this copy the owner.
func (r *replica) setFeeds(a *catalog.Assignment) {
	var next []*feed
	add := func(m catalog.Member, learner bool) {
		i := slices.IndexFunc(r.feeds, func(f *feed) bool { return f.Node == m.Node && f.Store == m.Store })
		if i >= 0 {
			r.feeds[i].learner = learner
			next = append(next, r.feeds[i])
			return
		}
		f := &feed{learner: learner}
		f.Node, f.Store = m.Node, m.Store
		peer, ok := r.m.peer(m.Node)
		f.up = ok && peer.Store == m.Store
		next = append(next, f)
		r.probe(f)
	}
	for _, m := range a.Followers {
		add(m, false)
	}
	for _, m := range a.Learners {
		add(m, true)
	}
	for _, f := range r.feeds {
		if !slices.Contains(next, f) {
			f.lose()
		}
	}
	r.feeds = next
	r.copy.Keep(a.Names)
	r.reach()
}

// endFeeds is called when the copy does not own any more.
func (r *replica) endFeeds() {
	for _, f := range r.feeds {
		f.lose()
	}
	r.feeds, r.changing = nil, nil
}

// probe asks a copy where it stands, if this copy has begun its epoch and the way is open.
func (r *replica) probe(f *feed) {
	if f.up && r.copy.Role() == partition.Owner {
		r.sendCopy(f.Node, protocol.Probe{Partition: r.id, Epoch: r.copy.Epoch(), From: r.m.env.Local})
	}
}

// feedOf is the feed of the copy that a message is from, if the message is of this owner's epoch.
func (r *replica) feedOf(from ident.Instance, epoch uint64) *feed {
	if r.copy.Role() != partition.Owner || epoch != r.copy.Epoch() {
		return nil
	}
	for _, f := range r.feeds {
		if f.Node == from.Node && f.Store == from.Store { // a node may learn on a new store beside the place of its old one
			return f
		}
	}
	return nil
}

// standing goes on from where a copy's log ends, if that is a place in this log.
func (r *replica) standing(m protocol.Standing) {
	r.hears(m.Epoch)
	f := r.feedOf(m.From, m.Epoch)
	if f == nil {
		return
	}
	if m.Asked && (f.Standing() || f.image != nil) {
		return // it has said the same unasked, and what it is sent since is on its way
	}
	if f.sealed = m.Sealed; f.sealed {
		r.reach() // what is published waits: the next owner takes it
		return
	}
	f.pause()
	f.up, f.reason, f.damaged = true, m.Damaged, m.Damaged != "" || m.Partial
	if f.damaged {
		r.copy.Renews(f.Store) // whatever it had said that it holds
	}
	if f.reason != "" {
		r.reach()
		if _, ok := r.log.(Images); ok && m.Damaged != "" { // from here on nothing is confirmed by what it had said
			r.sendCopy(f.Node, protocol.MakeAnew{Partition: r.id, Epoch: m.Epoch, From: r.m.env.Local})
		}
		return
	}
	if f.doubted = !r.copy.Returned(f.Store, m.Epoch, m.Durable); f.doubted {
		f.reason = fmt.Sprintf("it holds the log up to %d only, and had said more", m.Durable)
		trace.Error(r.m.env.Trace, "replica.follower.shorter", r.attr(), slog.String("node", f.Node), slog.Uint64("position", m.Durable))
	}
	switch {
	case m.Partial || m.Empty && r.log.Image().Head > 0:
		r.sendImage(f, m.Importing, 0)
	case f.gap > 0 && m.Tail.Position <= f.gap:
		f.gap = 0
		r.reseed(f, m.Tail.Position)
	default:
		f.gap = 0
		r.locate(f, m)
	}
}

// locate finds the copy's tail in this log by its link.
func (r *replica) locate(f *feed, m protocol.Standing) {
	at := m.Tail.Position
	stand := func() {
		f.Stand(at, m.Durable)
		f.read, f.allowed, f.missed = 0, 0, 0
		f.letGo()
		if !f.doubted {
			f.reason = ""
		}
		r.reach()
		r.progressed(f)
		r.catchUp(f)
	}
	switch r.copy.Locate(m.Tail) {
	case partition.Here:
		stand()
		return
	case partition.Beyond:
		f.reason = fmt.Sprintf("its log ends at %d with another history than this one's", at)
		trace.Error(r.m.env.Trace, "replica.follower.differs", r.attr(), slog.String("node", f.Node), slog.Uint64("position", at))
		return
	case partition.Within:
	}
	epoch := r.copy.Epoch()
	r.readLog(at-1, 1, func(bs []batch.Batch, err error) {
		if f.Standing() || r.copy.Role() != partition.Owner || r.copy.Epoch() != epoch || !slices.Contains(r.feeds, f) {
			return
		}
		switch {
		case err != nil:
			r.fail("read", err)
		case len(bs) == 0 || bs[0].Position > at: // dropped here
			r.reseed(f, at)
		case linkAt(bs[0], at) != m.Tail.Link:
			f.reason = fmt.Sprintf("its history differs from this one's below position %d", at)
			trace.Error(r.m.env.Trace, "replica.follower.differs", r.attr(), slog.String("node", f.Node), slog.Uint64("position", at))
		default:
			stand()
		}
	})
}

// linkAt is the link of the log at a position, by a batch that ends or begins there: what came before it may have been dropped. Inside of a
// batch there is none, and the answer is that of the empty log.
func linkAt(b batch.Batch, position uint64) batch.Link {
	switch position {
	case b.End():
		return b.Link()
	case b.Position:
		return b.PrevLink
	}
	return batch.Link{}
}

// reseed sends an image in place of a copy's log, which ends where this log does not go on from any more. That it is a prefix of this owner's
// history follows from how it came about (design 2 §1): what it was given by others was cut as it applied this epoch. This log lets go of
// confirmed entries only, and a copy counts for nothing while it takes the image. So whatever it gives up is confirmed, and held here.
func (r *replica) reseed(f *feed, at uint64) {
	f.lose()
	if at > r.copy.Confirmed() {
		f.reason = fmt.Sprintf("it ends at %d, beyond what is confirmed, and this log does not go on from there", at)
		trace.Error(r.m.env.Trace, "replica.follower.differs", r.attr(), slog.String("node", f.Node), slog.Uint64("position", at))
		return
	}
	trace.Info(r.m.env.Trace, "replica.follower.behind", r.attr(), slog.String("node", f.Node), slog.Uint64("position", at))
	r.copy.Renews(f.Store)
	r.sendImage(f, nil, at)
}

// heldBy notes how far a copy holds the log durably.
func (r *replica) heldBy(m protocol.Held) {
	f := r.feedOf(m.From, m.Epoch)
	if f == nil || !f.Standing() {
		return
	}
	f.Held(m.Durable)
	r.progressed(f)
	r.catchUp(f)
}

// progressed tells the protocol.
func (r *replica) progressed(f *feed) {
	r.step(func(fx *partition.Effects) { r.copy.Progressed(f.Store, r.copy.Epoch(), f.Durable(), fx) })
}

// feedBatch sends a batch at the moment that it is given to this node's own storage: before any sync (design 2 §2, early replication).
func (r *replica) feedBatch(b batch.Batch) {
	if len(r.feeds) == 0 {
		return
	}
	confirmed := r.copy.Confirmed()
	r.sendCopies([]batch.Batch{b}, func(f *feed) bool {
		takes := f.Takes(b.Position)
		if takes {
			f.Sent(b.End(), int64(b.Size()), confirmed)
		} else {
			f.allowed += int64(b.Size())
			if !f.Standing() {
				f.missed += int64(b.Size())
			}
		}
		return takes
	})
}

// sendCopies sends batches and the confirmed position to the copies that want them.
func (r *replica) sendCopies(bs []batch.Batch, want func(*feed) bool) {
	var room [4]string
	nodes := room[:0]
	for _, f := range r.feeds {
		if want(f) {
			nodes = append(nodes, f.Node)
		}
	}
	if p := r.m.env.Peers; p != nil && len(nodes) > 0 {
		p.Send(*r.extension(bs), nodes...)
	}
}

func (r *replica) extension(bs []batch.Batch) *protocol.Extend {
	return &protocol.Extend{
		Partition: r.id, Epoch: r.copy.Epoch(), From: r.m.env.Local, Confirmed: r.copy.Confirmed(), Keep: r.owed(r.copy.Confirmed()),
		Batches: bs,
	}
}

// catchUp sends a copy that is behind what it misses next, once it is its turn.
func (r *replica) catchUp(f *feed) {
	if p := r.m.env.Peers; p != nil && p.Crowded(f.Node) {
		r.catchUpLater(f)
		return
	}
	from, ok := f.Behind(r.copy.Tail().Position)
	if !ok {
		if f.Next() >= r.copy.Tail().Position {
			f.read, f.allowed = 0, 0 // it is at the end of the log
		}
		return
	}
	size, turns := r.piece(f, partition.FeedRead)
	r.readLog(from, size, func(bs []batch.Batch, err error) { r.sendRead(f, from, bs, err, turns) })
}

// sendRead sends what was read of the log to a copy that is behind, when it is its turn.
func (r *replica) sendRead(f *feed, from uint64, bs []batch.Batch, err error, turns bool) {
	wanted := func() bool { return slices.Contains(r.feeds, f) && r.copy.Role() == partition.Owner && f.Read(from) }
	if err != nil || len(bs) == 0 || bs[0].Position != from {
		switch {
		case !wanted():
		case err != nil:
			r.fail("read", err)
		default:
			f.lose()
			f.gap = from
			r.probe(f) // what was sent may not have come
		}
		return
	}
	n, size := 0, int64(0)
	for end := from; n < len(bs) && bs[n].Position == end; n++ {
		end = bs[n].End()
		size += int64(bs[n].Size())
	}
	r.turn(f, size, turns, func() {
		if !wanted() {
			return
		}
		msg := r.extension(bs[:n:n])
		f.Sent(bs[n-1].End(), size, msg.Confirmed)
		r.sendCopy(f.Node, *msg)
		r.catchUp(f)
	})
}

// catchUpLater feeds a copy when there may be room again on the way to it.
func (r *replica) catchUpLater(f *feed) {
	if f.later {
		return
	}
	f.later = true
	r.box.After(paceEvery, call{func() {
		f.later = false
		if slices.Contains(r.feeds, f) && r.copy.Role() == partition.Owner {
			r.catchUp(f)
		}
	}})
}

// readLog reads the log for a copy. Unlike read, what comes is wanted whatever becomes of the state.
func (r *replica) readLog(from uint64, size int, then func([]batch.Batch, error)) {
	r.log.Read(from, size, func(bs []batch.Batch, err error) {
		r.box.Post(call{func() { then(bs, err) }})
	})
}

// tellEvery is how long copies of a queue may not know what was confirmed last. A follower of a queue only builds with it what an owner
// needs, so it can wait for the next batch, which carries it; told at once, it would cost two messages for each that is published alone.
const tellEvery = 20 * time.Millisecond

// tellCopies gives the confirmed position to copies to which nothing is on its way that carries it: of a stream at once, since clients may
// read there.
func (r *replica) tellCopies() {
	if r.telling || r.copy.Role() != partition.Owner {
		return
	}
	if r.res == nil || r.res.Kind == catalog.Stream {
		r.tellNow()
		return
	}
	owes := func(f *feed) bool { return f.Owes(r.copy.Confirmed()) }
	if r.telling = slices.ContainsFunc(r.feeds, owes); r.telling {
		r.box.After(tellEvery, call{func() {
			if r.telling = false; r.copy.Role() == partition.Owner {
				r.tellNow()
			}
		}})
	}
}

func (r *replica) tellNow() {
	r.sendCopies(nil, func(f *feed) bool { return f.Tells(r.copy.Confirmed()) })
}

// owed is the position from which the log is kept for other copies: what the furthest behind of them does not hold yet; upTo where nothing is
// owed. A copy that is being fed or made is owed all it needs. Others are owed it as long as they have missed no more than retain_for_absent
// bytes, and while those whose nodes are away keep their places (follower_loss_hold).
//
// A follower keeps what its owner says that others need, for it may own next and have to feed them.
func (r *replica) owed(upTo uint64) uint64 {
	if r.copy.Role() != partition.Owner {
		return min(upTo, r.keep)
	}
	for _, f := range r.feeds {
		at, going := f.needs()
		if at >= upTo || !going && !r.awaits(f) {
			continue
		}
		upTo = at
	}
	return upTo
}

// awaits reports whether the log is kept for a copy that is not being fed.
func (r *replica) awaits(f *feed) bool {
	until, away := r.m.keptUntil(f.Node)
	return f.missed < r.m.tunables.Load().RetainForAbsent && !(away && r.now() >= until)
}

// away lets go of what is kept for a copy whose node is away, once it is not kept any longer.
func (r *replica) away(m away) {
	if !slices.ContainsFunc(r.feeds, func(f *feed) bool { return f.Node == m.node }) {
		return
	}
	until, ok := r.m.keptUntil(m.node)
	if !ok {
		return
	}
	r.box.After(time.Duration(max(0, until-r.now()))*time.Millisecond, call{func() {
		if r.side != nil && r.phase >= warm && r.save.at > 0 {
			r.side.retain(r)
		}
	}})
}

// needs is the position from which a copy needs the log; going says that it is being fed or made now.
func (f *feed) needs() (at uint64, going bool) {
	if g := f.image; g != nil && g.export != nil {
		return g.export.Position(), true // it goes on from there
	}
	if g := f.kept; g != nil {
		return g.export.Position(), false
	}
	return f.Durable(), f.Standing()
}

// reachable is how many admitted copies there is a way to, this one included, but for those that cannot take what is sent to them.
func (r *replica) reachable() int {
	n := 1
	for _, f := range r.feeds {
		if f.up && !f.learner && !f.doubted && f.reason == "" {
			n++
		}
	}
	return n
}

// isolation is why an owner hands nothing out of a queue.
type isolation uint8

const (
	inTouch isolation = iota
	apart             // it reaches fewer copies than a confirm needs, or they have not said since that they follow
	outdone           // it knows that another was chosen; until its role is another, or its epoch
)

// reach notes whether enough copies can be reached, each time that it may have changed. With too few nothing is handed out, from then on: the others
// may have been told that nobody listens here and choose another owner within milliseconds, who waits for no claims from here. The design lets an
// owner go on for liveness_ttl (design 2 §2); docs/PROTOCOL.md has the schedule that speaks against it.
func (r *replica) reach() {
	switch {
	case r.alone == outdone && r.copy.Role() == partition.Owner:
	case r.copy.Role() != partition.Owner, r.broken() == "" && !r.outnumbered() && (r.alone == inTouch || r.followed()):
		if r.alone != inTouch {
			r.alone = inTouch
			r.getAgain() // who asked meanwhile comes before consumers
			r.box.Touch()
		}
	default:
		r.alone = apart
	}
}

// followed reports whether as many copies as a confirm needs have said, since they can be reached again, that they follow in this epoch. A way
// to them is not enough: they may follow another owner by now, who has settled what this one would deliver.
func (r *replica) followed() bool {
	n := 1
	for _, f := range r.feeds {
		if f.up && !f.learner && !f.doubted && !f.sealed && f.Standing() {
			n++
		}
	}
	return n >= int(r.w) || len(r.feeds) == 0
}

// outnumbered reports whether so many of the copies in reach have said that they were sealed that another owner may have been chosen. Publishes are not
// refused for that: they wait, and the next owner takes them, be it this one.
func (r *replica) outnumbered() bool {
	n, sealed := r.reachable(), 0
	for _, f := range r.feeds {
		if f.up && !f.learner && !f.doubted && f.reason == "" && f.sealed {
			sealed++
		}
	}
	return sealed > 0 && n-sealed < int(r.w)
}

// cutOff reports whether an owner must not hand out what is in a queue: it reaches too few copies, knows that another was chosen, or is fenced, since where its lease is over an operator may have had another chosen. What is confirmed of a stream may be read all the same.
func (r *replica) cutOff() bool {
	r.wakes()
	return r.alone != inTouch || r.fenced() != nil
}

// halts is how often the node has stood still.
func (m *Manager) halts() uint16 {
	if m.env.Pulse == nil {
		return 0
	}
	return m.env.Pulse.Halts(m.env.Clock.Mono())
}

// wakes looks whether the node has stood still since the other copies said that they follow. Another owner may have been chosen: they are asked anew,
// and until as many as a confirm needs have answered nothing is handed out.
func (r *replica) wakes() {
	halts := r.m.halts()
	if halts == r.halts {
		return
	}
	r.halts = halts
	if r.copy.Role() != partition.Owner || r.w <= 1 || len(r.feeds) == 0 {
		return
	}
	for _, f := range r.feeds {
		f.pause()
		r.keepImage(f)
		r.probe(f)
	}
	if r.alone == inTouch {
		r.alone = apart
	}
}

// hears notes which epoch another copy is in. Where that is a later one than this copy's, which owns, another owner was chosen and the catalog has
// not said so here yet: what this one would deliver the other may have handed out, and had it settled.
func (r *replica) hears(epoch uint64) {
	if r.copy.Role() == partition.Owner && epoch > r.copy.Epoch() {
		r.alone = outdone
	}
}

// saysLater tells a node that goes by an earlier epoch which one this copy is in. It is no word of how far the log goes.
func (r *replica) saysLater(node string) {
	r.sendCopy(node, protocol.Standing{Partition: r.id, Epoch: r.copy.Epoch(), From: r.m.env.Local})
}

// tellsFormer tells the node that owned before, where that was another, that this copy has gone on to a later epoch: it may hear this node, and
// nobody that it would learn it from.
func (r *replica) tellsFormer() {
	for _, s := range slices.Backward(r.want.Starts) {
		if s.Epoch < r.copy.Epoch() {
			if s.Node != r.want.Owner.Node && s.Node != r.m.env.Local.Node {
				r.saysLater(s.Node)
			}
			return
		}
	}
}

// broken says why nothing can be confirmed at present, as far as that is known: fewer copies can be reached than a confirm needs. New
// publishes are refused then: refused beats unknown (design 2 §6).
func (r *replica) broken() string {
	if r.w <= 1 || len(r.feeds) == 0 {
		return ""
	}
	if n := r.reachable(); n < int(r.w) {
		return fmt.Sprintf("%d of the %d copies that a confirm needs can be reached", n, r.w)
	}
	return ""
}

var errNoImages = errors.New("this log cannot be sent as an image")
