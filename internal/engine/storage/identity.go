package storage

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/vfs"
)

// The file STORE holds the store's identity in two slots of 4096 bytes, written in turn, so that a torn write leaves the other:
//
//	0   8 B  "TANISTID"
//	8   u32  format version
//	12  u32  checksum, CRC-32C of bytes 0-11 and 16-63
//	16  16 B store id
//	32  u64  boot counter
//	40  u64  flags: 1 = a write or sync failed in this run; 2 = in one before, and the store cools; 4 = it has cooled
//	48  u64  generation of the newest log file whose checkpoint has been synced
//	56  8 B reserved, 0
//
// It is overwritten in place, so that a full disk cannot keep a node from starting. Lost, it is rebuilt from the log
// files, each of which names its store and the boot in which it was begun.
const (
	identityName  = "STORE"
	identityMagic = "TANISTID"
	identitySlot  = 4096
	identityUsed  = 64
	flagFault     = 1
	flagCools     = 2
	flagCooled    = 4
)

type identity struct {
	format uint32
	store  ident.StoreID
	boot   uint64
	flags  uint64
	newest uint32
	slot   int  // to be written next
	broken bool // the other slot holds something, and it is not whole
}

// cools reports whether the next run of the store has to cool: one that ended closed itself, and none has gone on for long enough since.
func (i identity) cools() bool {
	return i.flags&flagFault != 0 || i.flags&flagCools != 0 && i.flags&flagCooled == 0
}

// unknownBoots is more than the runs that a store may have had since the newest boot that can still be read.
const unknownBoots = 1 << 20

func (i identity) encode() []byte {
	p := make([]byte, identitySlot)
	put := binary.LittleEndian
	copy(p, identityMagic)
	put.PutUint32(p[8:], i.format)
	copy(p[16:], i.store[:])
	put.PutUint64(p[32:], i.boot)
	put.PutUint64(p[40:], i.flags)
	put.PutUint64(p[48:], uint64(i.newest))
	put.PutUint32(p[12:], identitySum(p))
	return p
}

func identitySum(p []byte) uint32 {
	return crc32.Update(crc32.Update(0, layout.Castagnoli, p[0:12]), layout.Castagnoli, p[16:identityUsed])
}

func parseIdentity(p []byte) (identity, bool) {
	if len(p) < identityUsed || string(p[:8]) != identityMagic {
		return identity{}, false
	}
	get := binary.LittleEndian
	if get.Uint32(p[12:]) != identitySum(p) {
		return identity{}, false
	}
	return identity{
		format: get.Uint32(p[8:]), store: ident.StoreID(p[16:32]), boot: get.Uint64(p[32:]), flags: get.Uint64(p[40:]),
		newest: uint32(get.Uint64(p[48:])),
	}, true
}

// newer reports whether a slot was written after another. Within a boot, flags are only set and files only added.
func (i identity) newer(o identity) bool {
	return cmp.Or(cmp.Compare(i.boot, o.boot), cmp.Compare(i.flags, o.flags), cmp.Compare(i.newest, o.newest)) > 0
}

// readIdentity gives the newer valid slot of STORE; ok is false where the file is missing or holds none.
func readIdentity(fsys vfs.FS, dir string) (id identity, ok bool, err error) {
	f, err := fsys.OpenRead(path.Join(dir, identityName))
	if errors.Is(err, fs.ErrNotExist) {
		return id, false, nil
	}
	if err != nil {
		return id, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, 2*identitySlot)
	n, err := f.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return id, false, fmt.Errorf("read %s: %w", identityName, err)
	}
	buf = buf[:n]
	broken := false
	for at := 0; at < len(buf); at += identitySlot {
		slot := buf[at:min(at+identitySlot, len(buf))]
		i, valid := parseIdentity(slot)
		broken = broken || !valid && len(bytes.Trim(slot, "\x00")) > 0
		if valid && (!ok || i.newer(id)) {
			id, ok = i, true
			id.slot = 1 - at/identitySlot // the other one
		}
	}
	id.broken = broken
	if ok && id.format > layout.Format {
		return id, ok, fmt.Errorf("%w: format %d, this program knows %d", ErrNewer, id.format, layout.Format)
	}
	return id, ok, nil
}

// writeIdentity records a boot durably. Where there is no whole file yet it is made aside and renamed.
func writeIdentity(fsys vfs.FS, dir string, id *identity, fresh bool) (err error) {
	name := path.Join(dir, identityName)
	if fresh {
		return vfs.Replace(fsys, name, append(id.encode(), id.encode()...))
	}
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(id.encode(), int64(id.slot)*identitySlot); err != nil {
		return fmt.Errorf("write %s: %w", identityName, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", identityName, err)
	}
	id.slot = 1 - id.slot
	return nil
}
