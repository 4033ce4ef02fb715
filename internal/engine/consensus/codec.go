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
//	          the data of a normal entry: nothing (a leader's first), or uvarints raft id, boot and sequence of the proposer, command
//	snapshot: uvarint length, raft's ConfState in protobuf | the catalog's snapshot

var errMalformed = errors.New("malformed")

// header names a proposal, so that the run which made it knows its outcome, and no other run takes it for its own.
type header struct{ id, boot, seq uint64 }

func encodeProposal(h header, cmd []byte) []byte {
	b := make([]byte, 0, 3*binary.MaxVarintLen64+len(cmd))
	b = binary.AppendUvarint(b, h.id)
	b = binary.AppendUvarint(b, h.boot)
	b = binary.AppendUvarint(b, h.seq)
	return append(b, cmd...)
}

func decodeProposal(b []byte) (h header, cmd []byte, err error) {
	for _, v := range []*uint64{&h.id, &h.boot, &h.seq} {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return h, nil, errMalformed
		}
		*v, b = x, b[n:]
	}
	return h, b, nil
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

func encodeSnapshot(conf *raftpb.ConfState, state []byte) []byte {
	c, err := proto.MarshalOptions{Deterministic: true}.Marshal(conf)
	if err != nil {
		panic(fmt.Sprintf("consensus: a list of numbers cannot be encoded: %v", err))
	}
	b := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen32+len(c)+len(state)), uint64(len(c)))
	return append(append(b, c...), state...)
}

func decodeSnapshot(b []byte) (*raftpb.ConfState, []byte, error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, errMalformed
	}
	b = b[n:]
	conf := &raftpb.ConfState{}
	if err := proto.Unmarshal(b[:size], conf); err != nil {
		return nil, nil, err
	}
	return conf, b[size:], nil
}

func marshalContext(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func unmarshalContext(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func unmarshal(b []byte, m proto.Message) error { return proto.Unmarshal(b, m) }

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
