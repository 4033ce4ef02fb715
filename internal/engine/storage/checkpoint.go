package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
)

// A checkpoint is what every file begins with: all that the store knows, as of the end of the file before. Numbers are uvarints,
// except in tails; strings and bytes have a length before them.
//
//	boot counter | generation of the scrub, place of the scrub
//	number of full files; for each: generation, place of its footer
//	bytes: the consensus log, as a frame of entries has it
//	number of copies; for each, in order of partition:
//	  partition | tail | promise | role epoch | role | head | damage
//	  number of spans; for each: generation, first, end, offset, end offset, time, last time, bytes, records
//	  2 snapshots, the newest and the one being written; for each: 1 and tail, version, number of pages, and for each page:
//	    number, generation, place, size; or 0
//	  0, or 1 and how far the image came that it is being made of, as a frame says it
func (s *Store) encodeCheckpoint() []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := binary.AppendUvarint(nil, s.identity.boot)
	p = binary.AppendUvarint(p, uint64(s.w.scrub.Generation))
	p = binary.AppendUvarint(p, uint64(s.w.scrub.At))
	full := s.files[:len(s.files)-1]
	p = binary.AppendUvarint(p, uint64(len(full)))
	for _, f := range full {
		p = binary.AppendUvarint(binary.AppendUvarint(p, uint64(f.generation)), uint64(f.footerAt))
	}
	p = layout.AppendBytes(p, s.meta.encode())
	all := s.sorted()
	p = binary.AppendUvarint(p, uint64(len(all)))
	for _, c := range all {
		c.mu.Lock()
		p = c.checkpoint(p)
		c.mu.Unlock()
	}
	return p
}

func (c *Copy) checkpoint(p []byte) []byte {
	p = layout.AppendTail(layout.AppendPart(p, c.part), c.logged)
	for _, v := range []uint64{c.promise, c.roleEpoch, uint64(c.role), c.head} {
		p = binary.AppendUvarint(p, v)
	}
	p = layout.AppendBytes(p, []byte(c.damaged))
	p = binary.AppendUvarint(p, uint64(len(c.spans)))
	for _, sp := range c.spans {
		for _, v := range []uint64{
			uint64(sp.file.generation), sp.first, sp.end, sp.offset, sp.endOff, uint64(sp.time), uint64(sp.lastTime), uint64(sp.bytes),
			sp.records,
		} {
			p = binary.AppendUvarint(p, v)
		}
	}
	for _, sn := range []*snapshot{c.snap, c.pending} {
		if sn == nil {
			p = append(p, 0)
			continue
		}
		p = layout.AppendTail(append(p, 1), sn.at)
		p = binary.AppendUvarint(p, uint64(sn.version))
		p = binary.AppendUvarint(p, uint64(len(sn.pages)))
		for _, x := range sn.pages {
			for _, v := range []uint64{uint64(x.number), uint64(x.file.generation), uint64(x.at), uint64(x.size)} {
				p = binary.AppendUvarint(p, v)
			}
		}
	}
	if in := c.importing(); in != nil {
		return in.encode(append(p, 1), false)
	}
	return append(p, 0)
}

// restoreCheckpoint takes a checkpoint as the state to replay from. byGeneration are the files that were found; a copy that needs
// another is damaged. The full files that it counts are put down as listed.
func (s *Store) restoreCheckpoint(body []byte, byGeneration map[uint32]*logFile, listed map[uint32]bool) error {
	d := layout.Decoder{P: body}
	boot := d.Uvarint()
	s.w.scrub = layout.Place{Generation: uint32(d.Uvarint()), At: int64(d.Uvarint())}
	s.copies, s.meta = map[ident.Partition]*Copy{}, metaLog{}
	for range d.Uvarint() {
		if d.Bad {
			return layout.ErrBody
		}
		generation, at := uint32(d.Uvarint()), int64(d.Uvarint())
		listed[generation] = true
		if f := byGeneration[generation]; f != nil {
			f.footerAt = at
		}
	}
	if err := s.applyMeta(bytes.Clone(d.Bytes())); err != nil {
		return err
	}
	n := d.Uvarint()
	for range n {
		if d.Bad {
			return layout.ErrBody
		}
		c := &Copy{s: s}
		c.restore(&d, byGeneration)
		s.copies[c.part] = c
	}
	s.identity.boot = max(s.identity.boot, boot)
	if d.Bad || len(d.P) > 0 {
		return layout.ErrBody
	}
	return nil
}

func (c *Copy) restore(d *layout.Decoder, byGeneration map[uint32]*logFile) {
	c.part, c.logged = d.Part(), d.Tail()
	c.promise, c.roleEpoch, c.role, c.head = d.Uvarint(), d.Uvarint(), partition.Role(d.Uvarint()), d.Uvarint()
	c.damaged = string(d.Bytes())
	file := func() *logFile {
		generation := uint32(d.Uvarint())
		f := byGeneration[generation]
		if f == nil {
			f = &logFile{name: fmt.Sprintf("missing file of generation %d", generation), generation: generation, footed: true}
		}
		return f
	}
	for range d.Uvarint() {
		if d.Bad {
			return
		}
		sp := span{file: file()}
		sp.first, sp.end, sp.offset, sp.endOff = d.Uvarint(), d.Uvarint(), d.Uvarint(), d.Uvarint()
		sp.time, sp.lastTime, sp.bytes, sp.records = int64(d.Uvarint()), int64(d.Uvarint()), int64(d.Uvarint()), d.Uvarint()
		c.spans = append(c.spans, sp)
		c.bytes += sp.bytes
		c.records += sp.records
	}
	c.snap, c.pending = restoreSnapshot(d, file), restoreSnapshot(d, file)
	if d.U8() != 0 {
		in, _ := readImporting(d)
		c.imaging = &imaging{in: &in}
	}
}

func restoreSnapshot(d *layout.Decoder, file func() *logFile) *snapshot {
	if d.U8() == 0 {
		return nil
	}
	sn := &snapshot{at: d.Tail(), version: uint32(d.Uvarint())}
	for range d.Uvarint() {
		if d.Bad {
			return sn
		}
		p := page{number: uint32(d.Uvarint()), file: file()}
		p.at, p.size = int64(d.Uvarint()), uint32(d.Uvarint())
		sn.pages = append(sn.pages, p)
	}
	return sn
}
