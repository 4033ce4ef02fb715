package check

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// Short forms in which the histories below read as scripts. Message n has the digest 100 + n.
func declared(r string) Event { return Event{Kind: Declared, Resource: r} }
func streamed(r string) Event { return Event{Kind: Declared, Resource: r, Stream: true} }
func opened(s uint64) Event   { return Event{Kind: Opened, Session: s} }
func closed(s uint64) Event   { return Event{Kind: Closed, Session: s} }
func lost(s uint64) Event     { return Event{Kind: Lost, Session: s} }
func crash() Event            { return Event{Kind: Crashed} }
func restart() Event          { return Event{Kind: Restarted} }

func pub(m uint64, to ...string) Event {
	return Event{Kind: Publish, Session: 1, Lane: 1, Message: m, Digest: 100 + m, Targets: to}
}
func ended(m uint64, o Outcome) Event { return Event{Kind: Resolved, Message: m, Outcome: o} }
func ok(m uint64) Event               { return ended(m, Confirmed) }

func got(r string, session, m uint64) Event {
	return Event{Kind: Delivered, Resource: r, Session: session, Message: m, Digest: 100 + m}
}

func again(r string, session, m uint64) Event {
	e := got(r, session, m)
	e.Redelivered = true
	return e
}

func gotAt(r string, session, m, offset uint64) Event {
	e := got(r, session, m)
	e.Offset, e.HasOffset = offset, true
	return e
}

func reads(r string, reader, m, offset uint64) Event {
	e := gotAt(r, 1, m, offset)
	e.Reader = reader
	return e
}

func from(r string, reader, offset uint64) Event {
	return Event{Kind: Attached, Resource: r, Session: 1, Reader: reader, Offset: offset, HasOffset: true}
}

func resumes(r string, reader uint64, name string) Event {
	return Event{Kind: Attached, Resource: r, Session: 1, Reader: reader, Cursor: name}
}

func settle(r string, session, m uint64, s Settlement) Event {
	return Event{Kind: Settle, Resource: r, Session: session, Message: m, Settlement: s}
}
func kept(r string, m uint64) Event { return Event{Kind: Settled, Resource: r, Message: m} }
func drained(r string) Event        { return Event{Kind: Drained, Resource: r} }
func readAll(r string, reader uint64) Event {
	return Event{Kind: Drained, Resource: r, Reader: reader}
}
func of(k Kind, r string) Event       { return Event{Kind: k, Resource: r} }
func counts(r string, n uint64) Event { return Event{Kind: Counted, Resource: r, Count: n} }
func moves(r string, to uint64) Event {
	return Event{Kind: CursorSent, Resource: r, Cursor: "c", Offset: to}
}

func movedTo(r string, to uint64) Event {
	return Event{Kind: CursorKept, Resource: r, Cursor: "c", Offset: to}
}

func owned(r string, epoch uint64, owner, cause string) Event {
	return Event{Kind: Owned, Resource: r, Epoch: epoch, Owner: owner, Cause: cause}
}

func with(e Event, f func(*Event)) Event {
	f(&e)
	return e
}

func dead(to string) func(*Event) { return func(e *Event) { e.DeadLetter = to } }
func accepted(e *Event)           { e.Settlement = Accept }
func lossy(e *Event)              { e.Lossy = true }
func ordered(e *Event)            { e.Ordered = true }
func lane2(e *Event)              { e.Lane = 2 }
func flipped(e *Event)            { e.Digest++ }

// script is a history with the rule that it breaks, or "" if it is good.
type script struct {
	name   string
	breaks Rule
	events []Event
}

func queue(rest ...Event) []Event { return append([]Event{opened(1), declared("q")}, rest...) }
func log(rest ...Event) []Event   { return append([]Event{opened(1), streamed("s")}, rest...) }

var queueScripts = []script{
	{"published, confirmed, delivered, accepted", "", queue(
		pub(1, "q"), ok(1), got("q", 1, 1), settle("q", 1, 1, Accept), kept("q", 1), of(Quiet, ""), drained("q"))},
	{"unconfirmed and gone with a crash", "", queue(pub(1, "q"), crash(), restart(), drained("q"))},
	{"unknown and there all the same", "", queue(
		pub(1, "q"), ended(1, Unknown), got("q", 1, 1), settle("q", 1, 1, Accept), drained("q"))},
	{"delivered again after a crash", "", queue(
		pub(1, "q"), ok(1), got("q", 1, 1), crash(), opened(2), got("q", 2, 1), settle("q", 2, 1, Accept), drained("q"))},
	{"an unconfirmed accept undone by a crash", "", queue(
		pub(1, "q"), ok(1), got("q", 1, 1), settle("q", 1, 1, Accept), crash(), opened(2), got("q", 2, 1),
		settle("q", 2, 1, Accept), drained("q"))},
	{"an accept given after the crash, which never arrived", "", queue(
		pub(1, "q"), ok(1), got("q", 1, 1), crash(), settle("q", 1, 1, Accept), opened(2), got("q", 2, 1),
		settle("q", 2, 1, Accept), drained("q"))},
	{"an unconfirmed accept lost with the node that took it", "", queue(
		pub(1, "q"), ok(1), opened(2), got("q", 2, 1), settle("q", 2, 1, Accept), closed(2), lost(2), again("q", 1, 1),
		settle("q", 1, 1, Accept), drained("q"))},
	{"an accept confirmed by a later owner, after somebody else had let go of the message", "", queue(
		pub(1, "q"), ok(1), opened(2), got("q", 2, 1), settle("q", 2, 1, Accept), Event{Kind: Disturbed}, again("q", 1, 1),
		settle("q", 1, 1, Requeue), again("q", 1, 1), with(kept("q", 1), accepted), of(Quiet, ""), drained("q"))},
	{"a reject of one who was cut off, answered after somebody else's accept", "", []Event{
		opened(1), declared("d"), with(declared("q"), dead("d")), pub(1, "q"), ok(1), opened(2), got("q", 2, 1), settle("q", 2, 1, Reject),
		{Kind: Disturbed},
		again("q", 1, 1), settle("q", 1, 1, Accept), with(kept("q", 1), accepted),
		with(kept("q", 1), func(e *Event) { e.Settlement = Reject }), of(Quiet, ""), drained("d"), drained("q"),
	}},
	{"what was held is released with a lost node", "", queue(
		pub(1, "q"), ok(1), opened(2), got("q", 2, 1), lost(2), again("q", 1, 1), settle("q", 1, 1, Accept), drained("q"))},
	{"requeued and delivered again", "", queue(
		pub(1, "q"), ok(1), got("q", 1, 1), settle("q", 1, 1, Requeue), again("q", 1, 1), settle("q", 1, 1, Accept), drained("q"))},
	{"released by the end of a session", "", queue(
		pub(1, "q"), ok(1), opened(2), got("q", 2, 1), closed(2), again("q", 1, 1), settle("q", 1, 1, Accept), drained("q"))},
	{"refused and absent", "", queue(pub(1, "q"), ended(1, Refused), of(Quiet, ""), drained("q"))},
	{"given again under its number", "", queue(
		pub(1, "q"), crash(), opened(2), Event{Kind: Again, Session: 2, Message: 1}, ok(1), gotAt("q", 2, 1, 0),
		settle("q", 2, 1, Accept), of(Quiet, ""), drained("q"))},
	{"purged", "", queue(pub(1, "q"), ok(1), of(Purge, "q"), of(Purged, "q"), drained("q"), counts("q", 0))},
	{"deleted with messages", "", queue(pub(1, "q"), ok(1), of(Deleted, "q"), drained("q"))},
	{"expired", "", []Event{opened(1), with(declared("q"), lossy), pub(1, "q"), ok(1), drained("q")}},
	{"dead-lettered after a reject", "", []Event{
		opened(1), declared("d"), with(declared("q"), dead("d")), pub(1, "q"), ok(1), got("q", 1, 1), settle("q", 1, 1, Reject),
		got("d", 1, 1), settle("d", 1, 1, Accept), drained("d"), drained("q"),
	}},
	{"counted", "", queue(pub(1, "q"), ok(1), pub(2, "q"), counts("q", 1), counts("q", 2))},
	{"offsets in order of the channel", "", queue(pub(1, "q"), pub(2, "q"), gotAt("q", 1, 2, 1), gotAt("q", 1, 1, 0))},
	{"another channel in between", "", queue(
		pub(1, "q"), with(pub(2, "q"), lane2), pub(3, "q"), gotAt("q", 1, 2, 0), gotAt("q", 1, 1, 1), gotAt("q", 1, 3, 2))},

	{"confirmed and gone", RuleLost, queue(pub(1, "q"), ok(1), crash(), drained("q"))},
	{"confirmed for two, missing in one", RuleLost, []Event{
		opened(1), declared("q"), declared("p"), pub(1, "q", "p"), ok(1), got("q", 1, 1), settle("q", 1, 1, Accept), drained("q"),
		drained("p"),
	}},
	{"requeued and gone", RuleLost, queue(pub(1, "q"), ok(1), got("q", 1, 1), settle("q", 1, 1, Requeue), drained("q"))},
	{"held over a crash and gone", RuleLost, queue(pub(1, "q"), ok(1), got("q", 1, 1), crash(), drained("q"))},
	{"delivered and then gone, as if it had never been durable", RuleUnconfirmed, queue(
		pub(1, "q"), got("q", 1, 1), crash(), drained("q"))},
	{"rejected and not dead-lettered", RuleLost, []Event{
		opened(1), declared("d"), with(declared("q"), dead("d")), pub(1, "q"), ok(1), got("q", 1, 1), settle("q", 1, 1, Reject),
		drained("d"), drained("q"),
	}},
	{"refused and delivered", RuleRefused, queue(pub(1, "q"), ended(1, Refused), got("q", 1, 1))},
	{"delivered and then refused", RuleRefused, queue(pub(1, "q"), got("q", 1, 1), ended(1, Refused))},
	{"two outcomes", RuleOutcome, queue(pub(1, "q"), ok(1), ended(1, Unknown))},
	{"the same outcome twice", RuleOutcome, queue(pub(1, "q"), ok(1), ok(1))},
	{"an outcome of nothing", RuleOutcome, queue(ok(1))},
	{"no outcome", RuleOutcome, queue(pub(1, "q"), of(Quiet, ""))},
	{"given again under its number and appended twice", RuleDuplicate, queue(
		pub(1, "q"), ok(1), gotAt("q", 1, 1, 0), settle("q", 1, 1, Requeue), Event{Kind: Again, Session: 1, Message: 1}, ok(1),
		with(gotAt("q", 1, 1, 1), func(e *Event) { e.Redelivered = true }))},
	{"given again and without an outcome", RuleOutcome, queue(pub(1, "q"), ok(1), Event{Kind: Again, Session: 1, Message: 1}, of(Quiet, ""))},
	{"appended twice", RuleDuplicate, queue(
		pub(1, "q"), ok(1), gotAt("q", 1, 1, 0), settle("q", 1, 1, Requeue),
		with(gotAt("q", 1, 1, 1), func(e *Event) { e.Redelivered = true }))},
	{"accepted, confirmed, and back after a crash", RuleSettled, queue(
		pub(1, "q"), ok(1), got("q", 1, 1), settle("q", 1, 1, Accept), kept("q", 1), crash(), opened(2), got("q", 2, 1))},
	{"accepted through a node that goes on, and back when another is lost", RuleSettled, queue(
		pub(1, "q"), ok(1), opened(2), got("q", 1, 1), settle("q", 1, 1, Accept), lost(2), again("q", 1, 1))},
	{"accepted, confirmed, and back when its node is lost", RuleSettled, queue(
		pub(1, "q"), ok(1), opened(2), got("q", 2, 1), settle("q", 2, 1, Accept), kept("q", 1), lost(2), again("q", 1, 1))},
	{"an accept, then the answer to a reject of one who was cut off, and delivered again", RuleSettled, queue(
		pub(1, "q"), ok(1), opened(2), got("q", 2, 1), settle("q", 2, 1, Reject), Event{Kind: Disturbed}, again("q", 1, 1),
		settle("q", 1, 1, Accept), with(kept("q", 1), accepted), with(kept("q", 1), func(e *Event) { e.Settlement = Reject }), again("q", 1, 1))},
	{"an accept confirmed by a later owner, and delivered again", RuleSettled, queue(
		pub(1, "q"), ok(1), opened(2), got("q", 2, 1), settle("q", 2, 1, Accept), Event{Kind: Disturbed}, again("q", 1, 1),
		settle("q", 1, 1, Requeue), again("q", 1, 1), with(kept("q", 1), accepted), again("q", 1, 1))},
	{"accepted, confirmed, and back after a second word of the same session", RuleSettled, queue(
		pub(1, "q"), ok(1), opened(2), got("q", 1, 1), Event{Kind: Disturbed}, again("q", 2, 1), settle("q", 2, 1, Requeue), again("q", 1, 1),
		settle("q", 1, 1, Accept), with(kept("q", 1), accepted), settle("q", 1, 1, Requeue), again("q", 1, 1))},
	{"held through a node that goes on, and given to another", RuleHeld, queue(
		pub(1, "q"), ok(1), opened(2), opened(3), got("q", 1, 1), lost(2), again("q", 3, 1))},
	{"accepted and back in the same run", RuleSettled, queue(
		pub(1, "q"), ok(1), got("q", 1, 1), settle("q", 1, 1, Accept), again("q", 1, 1))},
	{"purged and back", RuleSettled, queue(
		pub(1, "q"), ok(1), of(Purge, "q"), of(Purged, "q"), crash(), opened(2), got("q", 2, 1))},
	{"held by two", RuleHeld, queue(pub(1, "q"), ok(1), opened(2), got("q", 1, 1), again("q", 2, 1))},
	{"again without saying so", RuleFlag, queue(
		pub(1, "q"), ok(1), got("q", 1, 1), settle("q", 1, 1, Requeue), got("q", 1, 1))},
	{"never published", RulePhantom, queue(got("q", 1, 1))},
	{"published to another queue", RulePhantom, []Event{opened(1), declared("q"), declared("p"), pub(1, "p"), got("q", 1, 1)}},
	{"other bytes", RuleBytes, queue(pub(1, "q"), ok(1), with(got("q", 1, 1), flipped))},
	{"offsets against the channel", RuleOrder, queue(pub(1, "q"), pub(2, "q"), gotAt("q", 1, 2, 0), gotAt("q", 1, 1, 1))},
	{"first deliveries against the channel", RuleOrder, []Event{
		opened(1), with(declared("q"), ordered), pub(1, "q"), pub(2, "q"), got("q", 1, 2), got("q", 1, 1),
	}},
	{"one place for two messages", RuleMoved, queue(pub(1, "q"), pub(2, "q"), gotAt("q", 1, 1, 0), gotAt("q", 1, 2, 0))},
	{"counts too few", RuleCounters, queue(pub(1, "q"), ok(1), counts("q", 0))},
	{"counts what was settled", RuleCounters, queue(
		pub(1, "q"), ok(1), got("q", 1, 1), settle("q", 1, 1, Accept), kept("q", 1), counts("q", 1))},
}

var streamScripts = []script{
	{"read twice from the head", "", log(
		pub(1, "s"), ok(1), pub(2, "s"), ok(2), from("s", 1, 0), reads("s", 1, 1, 0), reads("s", 1, 2, 1),
		crash(), opened(1), from("s", 2, 0), reads("s", 2, 1, 0), reads("s", 2, 2, 1), readAll("s", 2))},
	{"a cursor resumes", "", log(
		pub(1, "s"), pub(2, "s"), resumes("s", 1, "c"), reads("s", 1, 1, 0), moves("s", 1), movedTo("s", 1), crash(),
		opened(1), resumes("s", 2, "c"), reads("s", 2, 2, 1))},
	{"a cursor falls back beside an owner that was replaced and is cut off", "", log(
		pub(1, "s"), resumes("s", 1, "c"), reads("s", 1, 1, 0), moves("s", 1), movedTo("s", 1), Event{Kind: Disturbed}, opened(2),
		resumes("s", 2, "c"), reads("s", 2, 1, 0))},
	{"a cursor is moved by who left it, before who resumes there begins", "", log(
		pub(1, "s"), resumes("s", 1, "c"), reads("s", 1, 1, 0), resumes("s", 2, "c"), moves("s", 1), movedTo("s", 1), reads("s", 2, 1, 0))},
	{"a cursor resumes before an unconfirmed move", "", log(
		pub(1, "s"), resumes("s", 1, "c"), reads("s", 1, 1, 0), moves("s", 1), crash(), opened(1), resumes("s", 2, "c"),
		reads("s", 2, 1, 0))},
	{"retention", "", []Event{
		opened(1), with(streamed("s"), lossy), pub(1, "s"), ok(1), pub(2, "s"), ok(2), from("s", 1, 0), reads("s", 1, 2, 1),
		readAll("s", 1),
	}},

	{"a confirmed record is gone", RuleLost, log(
		pub(1, "s"), ok(1), pub(2, "s"), ok(2), from("s", 1, 0), reads("s", 1, 1, 0), readAll("s", 1))},
	{"a record that was read is gone", RuleUnconfirmed, log(
		pub(1, "s"), from("s", 1, 0), reads("s", 1, 1, 0), crash(), opened(1), from("s", 2, 0), readAll("s", 2))},
	{"an offset has another record", RuleMoved, log(
		pub(1, "s"), pub(2, "s"), from("s", 1, 0), reads("s", 1, 1, 0), from("s", 2, 0), reads("s", 2, 2, 0))},
	{"a record has another offset", RuleDuplicate, log(pub(1, "s"), from("s", 1, 0), reads("s", 1, 1, 0), reads("s", 1, 1, 1))},
	{"other bytes", RuleBytes, log(pub(1, "s"), from("s", 1, 0), with(reads("s", 1, 1, 0), flipped))},
	{"a gap", RuleReader, log(pub(1, "s"), pub(2, "s"), from("s", 1, 0), reads("s", 1, 1, 0), reads("s", 1, 2, 2))},
	{"twice for one reader", RuleReader, log(pub(1, "s"), from("s", 1, 0), reads("s", 1, 1, 0), reads("s", 1, 1, 0))},
	{"begins elsewhere", RuleReader, log(pub(1, "s"), from("s", 1, 0), reads("s", 1, 1, 3))},
	{"order of a channel", RuleOrder, log(pub(1, "s"), pub(2, "s"), from("s", 1, 0), reads("s", 1, 2, 0), reads("s", 1, 1, 1))},
	{"a cursor falls back", RuleCursor, log(
		pub(1, "s"), resumes("s", 1, "c"), reads("s", 1, 1, 0), moves("s", 1), movedTo("s", 1), crash(), opened(1),
		resumes("s", 2, "c"), reads("s", 2, 1, 0))},
	{"a cursor skips", RuleCursor, log(
		pub(1, "s"), pub(2, "s"), pub(3, "s"), resumes("s", 1, "c"), reads("s", 1, 1, 0), moves("s", 1), resumes("s", 2, "c"),
		reads("s", 2, 3, 2))},
	{"refused and read", RuleRefused, log(pub(1, "s"), ended(1, Refused), from("s", 1, 0), reads("s", 1, 1, 0))},
}

var ownerScripts = []script{
	{"a restart has an epoch of its own", "", queue(
		owned("q", 1, "n/1", "created"), crash(), restart(), owned("q", 2, "n/2", "restart"), owned("q", 2, "n/2", ""))},
	{"a fault that may take an owner away", "", queue(owned("q", 1, "n/1", ""), Event{Kind: Disturbed}, owned("q", 2, "n/2", ""))},
	{"a doubted owner is replaced", "", queue(
		owned("q", 1, "n/1", ""), Event{Kind: Disturbed}, Event{Kind: Doubted, Owner: "n/1"}, owned("q", 2, "m/1", ""))},
	{"an accept of a session that was cut off is heard after the message went to another", "", queue(
		pub(1, "q"), ok(1), opened(2), got("q", 1, 1), Event{Kind: Disturbed}, settle("q", 1, 1, Accept), got("q", 2, 1),
		settle("q", 2, 1, Requeue), Event{Kind: Calm}, counts("q", 0), drained("q"))},
	{"a second word on what one session had twice, after the first was confirmed", "", queue(
		pub(1, "q"), ok(1), opened(2), got("q", 1, 1), Event{Kind: Disturbed}, again("q", 2, 1), settle("q", 2, 1, Requeue), again("q", 1, 1),
		settle("q", 1, 1, Accept), with(kept("q", 1), accepted), settle("q", 1, 1, Requeue), Event{Kind: Calm}, counts("q", 0), drained("q"))},
	{"damage that was injected", "", queue(
		pub(1, "q"), ok(1), Event{Kind: Injected}, of(Damaged, "q"), drained("q"))},
	{"a settle that was damaged", "", queue(
		pub(1, "q"), ok(1), got("q", 1, 1), settle("q", 1, 1, Accept), kept("q", 1), crash(), Event{Kind: Injected}, of(Damaged, "q"),
		opened(2), got("q", 2, 1))},
	{"totals", "", queue(Event{Kind: Totals, Admitted: 6, Confirmed: 3, Refused: 2, Unknown: 1})},

	{"an epoch falls", RuleEpoch, queue(owned("q", 2, "n/1", ""), restart(), owned("q", 1, "n/2", "restart"))},
	{"a restarted owner keeps its epoch", RuleEpoch, queue(owned("q", 1, "n/1", ""), restart(), owned("q", 1, "n/2", "restart"))},
	{"an epoch rises without a restart", RuleCause, queue(owned("q", 1, "n/1", ""), owned("q", 2, "n/1", "whim"))},
	{"an epoch rises without a cause", RuleCause, queue(owned("q", 1, "n/1", ""), restart(), owned("q", 2, "n/2", ""))},
	{"a requeued message is gone, and the accept before it went with its session's node", RuleLost, queue(
		pub(1, "q"), ok(1), opened(2), got("q", 2, 1), Event{Kind: Disturbed}, settle("q", 2, 1, Accept), lost(2), got("q", 1, 1),
		settle("q", 1, 1, Requeue), Event{Kind: Calm}, drained("q"))},
	{"a session that stood still requeues what another has accepted since, and that was confirmed", "", queue(
		pub(1, "q"), ok(1), opened(2), got("q", 1, 1), Event{Kind: Disturbed}, again("q", 2, 1), settle("q", 2, 1, Accept), kept("q", 1),
		settle("q", 1, 1, Requeue), Event{Kind: Calm}, drained("q"))},
	{"such a requeue undoes it", RuleSettled, queue(
		pub(1, "q"), ok(1), opened(2), got("q", 1, 1), Event{Kind: Disturbed}, again("q", 2, 1), settle("q", 2, 1, Accept), kept("q", 1),
		settle("q", 1, 1, Requeue), Event{Kind: Calm}, again("q", 2, 1))},
	{"an epoch rises when all is calm", RuleCause, queue(
		owned("q", 1, "n/1", ""), Event{Kind: Disturbed}, Event{Kind: Calm}, owned("q", 2, "n/2", ""))},
	{"another owner is replaced than the one that was doubted", RuleCause, queue(
		owned("q", 1, "n/1", ""), Event{Kind: Disturbed}, Event{Kind: Doubted, Owner: "o/1"}, owned("q", 2, "m/1", ""))},
	{"an owner is replaced that is not doubted any more", RuleCause, queue(
		owned("q", 1, "n/1", ""), Event{Kind: Disturbed}, Event{Kind: Doubted, Owner: "n/1"}, Event{Kind: Calm}, owned("q", 2, "m/1", ""))},
	{"damage from nowhere", RuleDamage, queue(of(Damaged, "q"))},
	{"totals that do not add up", RuleCounters, queue(Event{Kind: Totals, Admitted: 6, Confirmed: 3})},
	{"an undeclared resource", RuleHistory, []Event{got("x", 1, 1)}},
	{"a settle from nowhere", RuleHistory, queue(pub(1, "q"), settle("q", 1, 1, Accept))},
	{"an unknown kind of event", RuleHistory, []Event{{Kind: "what"}}},
}

func TestScripts(t *testing.T) {
	for _, s := range slices.Concat(queueScripts, streamScripts, ownerScripts) {
		c := New()
		for _, e := range s.events {
			c.Observe(e)
		}
		switch {
		case s.breaks == "" && c.Failed():
			t.Errorf("%s: a good history fails: %v", s.name, c.Verdict())
		case s.breaks != "" && !c.Failed():
			t.Errorf("%s: passes, should break %q", s.name, s.breaks)
		case s.breaks != "" && c.Violations()[0].Rule != s.breaks:
			t.Errorf("%s: should break %q: %v", s.name, s.breaks, c.Verdict())
		}
	}
}

// TestEveryRuleHasAScript keeps a rule from being added that nothing shows to work.
func TestEveryRuleHasAScript(t *testing.T) {
	rules := []Rule{
		RuleLost, RuleMoved, RuleBytes, RuleEpoch, RuleCause, RuleUnconfirmed, RuleSettled, RuleFlag, RuleHeld, RuleOutcome,
		RuleRefused, RuleDuplicate, RulePhantom, RuleOrder, RuleReader, RuleCursor, RuleCounters, RuleDamage, RuleHistory,
	}
	for _, r := range rules {
		if !slices.ContainsFunc(slices.Concat(queueScripts, streamScripts, ownerScripts), func(s script) bool { return s.breaks == r }) {
			t.Errorf("no script breaks %q", r)
		}
	}
}

func TestVerdictNamesTheRecord(t *testing.T) {
	c := New()
	for _, e := range queue(pub(7, "q"), ok(7), drained("q")) {
		c.Observe(e)
	}
	if err := c.Verdict(); err == nil || !strings.Contains(err.Error(), "q: message 7 is gone") {
		t.Fatalf("verdict: %v", err)
	}
}

func TestViolationsAreBounded(t *testing.T) {
	c := New()
	c.Observe(declared("q"))
	for m := range uint64(1000) {
		c.Observe(got("q", 1, m))
	}
	if len(c.Violations()) != maxViolations || !strings.Contains(c.Verdict().Error(), "1000 broken promises") {
		t.Fatalf("%d kept: %v", len(c.Violations()), c.Verdict())
	}
}

func TestHistoriesAreWrittenAndRead(t *testing.T) {
	var b bytes.Buffer
	events := queue(pub(1, "q"), ok(1), drained("q"))
	if err := Write(&b, events); err != nil {
		t.Fatal(err)
	}
	c, err := Read(&b)
	if err != nil || c.Events() != uint64(len(events)) || !c.Failed() {
		t.Fatalf("%v, %d events, failed %v", err, c.Events(), c.Failed())
	}
	if _, err := Read(strings.NewReader("{")); err == nil {
		t.Fatal("half an event was read")
	}
}
