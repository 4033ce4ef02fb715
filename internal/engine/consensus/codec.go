package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/port/trace"
)

// What is in the log:
//
//	entry:    u8 raft's type of entry | raft's data
//	          the data of a normal entry: nothing (a leader's first), or a proposal
//	proposal: uvarints raft id, boot, sequence and oldest open sequence of the proposer | command
//	snapshot: uvarint length, raft's ConfState in protobuf | uvarint length, ledger | the catalog's snapshot
//	ledger:   uvarint count of proposers, each uvarints raft id, boot, floor, count, so many sequences above the floor;
//	          uvarint count of removed members, so many raft ids; all ascending;
//	          only where the catalog was recovered: uvarint count of recoveries, so many, oldest first
//	recovery: uvarints number of the generation that it made, index and term of its entry, milliseconds since 1970 | strings node, reason |
//	          twice, for the voters given up and for those that follow: uvarint count, so many uvarint raft id and string name
//	string:   uvarint length, bytes
//
// What goes between members is u8 kind and:
//
//	0 raft:    raft's message in protobuf
//	1 removed: uvarints raft id of the receiver, of the sender; index up to which the sender has applied
//	2 present: uvarints raft id of the receiver, of the sender

var errMalformed = errors.New("malformed")

// Kinds of message between members.
const (
	kindRaft    = 0
	kindRemoved = 1 // the receiver was removed
	kindPresent = 2 // the sender hears of no leader, and asks whether it is still a member
)

// header names a proposal. The run that made it knows its outcome by it; every member applies it once by it.
type header struct {
	id, boot, seq uint64
	low           uint64 // oldest sequence of that run which has no outcome yet; what is below never comes into force any more
}

func encodeProposal(h header, cmd []byte) []byte {
	b := make([]byte, 0, 4*binary.MaxVarintLen64+len(cmd))
	return append(appendUvarints(b, h.id, h.boot, h.seq, h.low), cmd...)
}

func decodeProposal(b []byte) (h header, cmd []byte, err error) {
	cmd, err = readUvarints(b, &h.id, &h.boot, &h.seq, &h.low)
	return h, cmd, err
}

func appendUvarints(b []byte, vs ...uint64) []byte {
	for _, v := range vs {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func readUvarints(b []byte, vs ...*uint64) ([]byte, error) {
	for _, v := range vs {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errMalformed
		}
		*v, b = x, b[n:]
	}
	return b, nil
}

func encodeMessage(m *raftpb.Message) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend([]byte{kindRaft}, m)
}

func encodeEntry(e *raftpb.Entry) catalog.LogEntry {
	data := append(make([]byte, 0, 1+len(e.GetData())), byte(e.GetType()))
	return catalog.LogEntry{Index: e.GetIndex(), Term: e.GetTerm(), Data: append(data, e.GetData()...)}
}

func decodeEntry(e catalog.LogEntry) (*raftpb.Entry, error) {
	if len(e.Data) == 0 || e.Data[0] > byte(raftpb.EntryConfChangeV2) {
		return nil, errMalformed
	}
	return &raftpb.Entry{
		Type: raftpb.EntryType(e.Data[0]).Enum(), Index: new(e.Index), Term: new(e.Term), Data: e.Data[1:],
	}, nil
}

func encodeSnapshot(conf *raftpb.ConfState, l *ledger, state []byte) []byte {
	c, err := proto.MarshalOptions{Deterministic: true}.Marshal(conf)
	if err != nil {
		panic(fmt.Sprintf("consensus: a list of numbers cannot be encoded: %v", err))
	}
	book := l.encode()
	b := make([]byte, 0, 2*binary.MaxVarintLen32+len(c)+len(book)+len(state))
	b = append(binary.AppendUvarint(b, uint64(len(c))), c...)
	b = append(binary.AppendUvarint(b, uint64(len(book))), book...)
	return append(b, state...)
}

func decodeSnapshot(b []byte) (*raftpb.ConfState, *ledger, []byte, error) {
	var parts [2][]byte
	for i := range parts {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, nil, nil, errMalformed
		}
		parts[i], b = b[n:n+int(size)], b[n+int(size):]
	}
	conf := &raftpb.ConfState{}
	if err := proto.Unmarshal(parts[0], conf); err != nil {
		return nil, nil, nil, err
	}
	l, err := decodeLedger(parts[1])
	return conf, l, b, err
}

// The context of a read names the run that asks, so that an answer to an earlier run is not taken for one to this.
func marshalContext(boot, n uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, boot), n)
}

// unmarshalContext gives 0 for what another run asked.
func unmarshalContext(b []byte, boot uint64) uint64 {
	if len(b) != 16 || binary.BigEndian.Uint64(b) != boot {
		return 0
	}
	return binary.BigEndian.Uint64(b[8:])
}

// logger turns raft's own log into events; what is below a warning is dropped. Raft panics where going on would break its promises,
// and so does this.
type logger struct{ sink trace.Sink }

func (l logger) warn(s string) {
	trace.Warn(l.sink, "consensus.raft", slog.String("text", s))
}

func (logger) Debug(...any)                  {}
func (logger) Debugf(string, ...any)         {}
func (logger) Info(...any)                   {}
func (logger) Infof(string, ...any)          {}
func (l logger) Warning(v ...any)            { l.warn(fmt.Sprint(v...)) }
func (l logger) Warningf(f string, v ...any) { l.warn(fmt.Sprintf(f, v...)) }
func (l logger) Error(v ...any)              { l.warn(fmt.Sprint(v...)) }
func (l logger) Errorf(f string, v ...any)   { l.warn(fmt.Sprintf(f, v...)) }
func (logger) Fatal(v ...any)                { panic(fmt.Sprint(v...)) }
func (logger) Fatalf(f string, v ...any)     { panic(fmt.Sprintf(f, v...)) }
func (logger) Panic(v ...any)                { panic(fmt.Sprint(v...)) }
func (logger) Panicf(f string, v ...any)     { panic(fmt.Sprintf(f, v...)) }
