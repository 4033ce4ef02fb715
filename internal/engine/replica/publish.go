package replica

import (
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
)

// publish admits a gateway's records, or holds them back.
func (r *replica) publish(m protocol.Publish) {
	in := r.inlet(&m.To)
	if in == nil {
		return // of a stream that has ended: the gateway sends it again
	}
	if r.asked != nil && len(r.asked.held) > 0 || !r.mayAdmit() {
		w := r.asks()
		w.held = append(w.held, m)
		return
	}
	r.admit(in, &m)
}

// mayAdmit reports whether records are taken now. A queue with a limit does not know its length before the claims are in.
func (r *replica) mayAdmit() bool {
	return r.staged < maxStaged && r.closing() == "" && !r.fencePasses() && r.m.held.Load() == nil && (r.phase == serving || !r.side.limited())
}

// admitHeld goes on with what was held back, in the order that it came.
func (r *replica) admitHeld() {
	w := r.asked
	if w == nil || len(w.held) == 0 {
		return
	}
	for len(w.held) > 0 && r.mayAdmit() && r.copy.Open() {
		m := w.held[0]
		w.held[0] = protocol.Publish{}
		w.held = w.held[1:]
		if in := r.inlet(&m.To); in != nil {
			r.admit(in, &m)
		}
		r.touch()
	}
	if len(w.held) == 0 {
		w.held = nil
	}
}

// admit judges records and puts those that are new into the next batch.
func (r *replica) admit(in *inlet, m *protocol.Publish) {
	repeated, ok := in.source.Admit(m.First, m.Count)
	if !ok {
		in.reply.Send(protocol.PublishExpected{Partition: r.id, Stream: in.stream, Expect: in.source.Expect()})
		return
	}
	short, cause := r.shut()
	if short == "" && repeated == 0 && len(m.Runs) == 1 && m.Runs[0].Producer == in.source.Producer && !r.side.limited() &&
		len(m.Records) <= batch.MaxSize/2 {
		r.take(batch.Run{Kind: batch.KindRecord, Count: m.Count, Producer: in.source.Producer, First: m.First}, m.Records)
		in.source.Taken(m.First+uint64(m.Count), r.end())
		return
	}
	r.stirred = true
	a := admission{r: r, in: in, repeated: repeated, short: short, cause: cause}
	a.each(m)
	in.source.Taken(m.First+uint64(m.Count), a.at)
	in.told = true
}

// end is the position after everything that was put into the log or the next batch.
func (r *replica) end() uint64 {
	p := r.copy.Tail().Position
	if r.builder != nil {
		p += uint64(r.builder.Count())
	}
	return p
}

// take puts a run of records into the next batch.
func (r *replica) take(run batch.Run, records []byte) {
	r.add(run, records)
	r.staged += int64(len(records))
	r.built += int64(len(records))
	r.producers.Stage(run, r.end())
}

// admission judges the records of one publish one by one: where some were taken before, have their own producer, or may be too many.
type admission struct {
	r        *replica
	in       *inlet
	repeated uint32
	short    string // why nothing new can be confirmed, and so nothing is admitted,
	cause    protocol.Cause
	at       uint64 // the position that must be confirmed for all to be
	records  []byte
	run      batch.Run
	from, to int // the bytes of run
}

func (a *admission) each(m *protocol.Publish) {
	a.records = m.Records
	number, index, at := m.First, uint32(0), 0
	for _, run := range m.Runs {
		for n := range uint64(run.Count) {
			h, _, rest, err := batch.ParseRecord(m.Records[at:])
			if err != nil || index == m.Count {
				a.flush()
				a.refuse(number, m.Count-index, protocol.CauseOther, "malformed record", false)
				return
			}
			seq := number
			if run.Producer != a.in.source.Producer {
				seq = run.First + n
			}
			end := len(m.Records) - len(rest)
			if a.one(run.Producer, seq, number, index < a.repeated, h) {
				a.take(run.Producer, seq, at, end)
			}
			at = end
			number++
			index++
		}
	}
	a.flush()
}

// one judges one record and reports whether it is to be stored: seq is its producer's number, number the gateway's.
func (a *admission) one(producer, seq, number uint64, repeated bool, h batch.RecordHeader) bool {
	r := a.r
	if a.run.Count > 0 && a.run.Producer == producer && seq != a.run.First+uint64(a.run.Count) {
		a.flush() // the table must know what comes before
	}
	verdict, at := partition.New, uint64(0)
	if producer != 0 {
		verdict, at = r.producers.Judge(producer, seq)
	}
	switch {
	case verdict == partition.Duplicate:
		r.m.duplicates.Add(1)
		a.at = max(a.at, at)
	case verdict == partition.Absent, verdict == partition.New && repeated:
		a.refuse(number, 1, protocol.CauseOther, "refused before", false)
	case verdict == partition.Unsure:
		a.refuse(number, 1, protocol.CauseOther, "its number is too old to say whether it is stored", true)
	case verdict == partition.UnknownNamed:
		a.refuse(number, 1, protocol.CauseOther, "unknown producer: it was silent for so long that it was forgotten", false)
	case a.short != "":
		a.refuse(number, 1, a.cause, a.short, false)
		a.refuseNamed(producer, seq)
	case !r.side.admit(h):
		a.refuse(number, 1, protocol.CauseFull, "the queue is full", false)
		a.refuseNamed(producer, seq)
	default:
		return true
	}
	return false
}

// take adds a record to the run in hand, or begins another.
func (a *admission) take(producer, seq uint64, from, to int) {
	if a.run.Count > 0 && a.run.Producer == producer && a.to == from && to-a.from <= batch.TargetSize/2 {
		a.run.Count++
		a.to = to
		return
	}
	a.flush()
	a.run = batch.Run{Kind: batch.KindRecord, Count: 1, Producer: producer, First: seq}
	a.from, a.to = from, to
}

func (a *admission) flush() {
	if a.run.Count > 0 {
		a.r.take(a.run, a.records[a.from:a.to])
		a.at = max(a.at, a.r.end())
		a.run.Count = 0
	}
}

func (a *admission) refuse(number uint64, count uint32, cause protocol.Cause, reason string, unknown bool) {
	a.in.reply.Send(protocol.PublishRefused{
		Partition: a.r.id, Stream: a.in.stream, First: number, Count: count, Cause: cause, Reason: reason, Unknown: unknown,
	})
}

// refuseNamed logs that a named producer's number was refused: later ones may be stored, and it must then not pass for a duplicate.
func (a *admission) refuseNamed(producer, seq uint64) {
	if !partition.Named(producer) {
		return
	}
	a.flush()
	a.r.producers.Refuse(producer, seq)
	body := partition.AppendPairs(nil, []partition.Forgotten{{ID: producer, Last: seq}})
	a.r.add(batch.Run{Kind: batch.KindEvent, Count: 1}, batch.AppendEvent(nil, partition.EventRefused, body))
}
