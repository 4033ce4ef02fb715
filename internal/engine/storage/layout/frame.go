// Package layout is how a store's bytes lie: the frames of a log file and the file's header, drawn in docs/FORMATS.md. It encodes and decodes,
// and finds what is broken; it knows neither files nor what a frame's body is for. Only core and computation may come in.
package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/tanist/tanist/internal/core/ident"
)

// A frame, little-endian, on a boundary of 8 bytes (docs/FORMATS.md draws it):
//
//	0   u32 length of the body
//	4   u32 head checksum, CRC-32C of bytes 0-3 and 8-47
//	8   u32 body checksum, CRC-32C
//	12  u8  type
//	13  3 B reserved, 0
//	16  u32 generation
//	20  u32 index of the partition
//	24  u64 sequence, one more than that of the frame before
//	32  u64 syncedBelow: when this was written, all frames of a lower sequence had been synced
//	40  u64 incarnation of the partition; 0 where the frame is of none
//	48  body, padded with zeros to 8 bytes
//
// The head has a checksum of its own so that a broken body still says whose it was.
const (
	FrameHead  = 48
	FrameAlign = 8
	// MaxBody bounds a body: the largest batch with what a frame type adds to it.
	MaxBody = 18 << 20
)

// FrameType says what a body is. Numbers are never used twice.
type FrameType uint8

// The types of frames.
const (
	FrameBatch      FrameType = 1  // a batch that continues its log
	FrameMoved      FrameType = 2  // a batch written before, copied out of a file that is reclaimed
	FrameCreate     FrameType = 3  // a copy comes to be
	FramePromise    FrameType = 4  // u64 epoch
	FrameRole       FrameType = 5  // u64 epoch, u8 role
	FrameCut        FrameType = 6  // tail
	FrameDropHead   FrameType = 7  // u64 position
	FrameDelete     FrameType = 8  // a copy goes for ever
	FramePage       FrameType = 9  // a page of a snapshot that is being written
	FrameSnapshot   FrameType = 10 // ends the pages of a snapshot: it counts
	FramePageMoved  FrameType = 11 // a page written before, copied
	FrameEntries    FrameType = 12 // of the consensus log
	FramePages      FrameType = 13 // pages of a snapshot follow; those before that were not ended do not count
	FrameCheckpoint FrameType = 14 // a part of a checkpoint
	FrameCheckEnd   FrameType = 15 // ends the parts of a checkpoint: it counts
	FrameFooter     FrameType = 16 // a part of the index of a full file
	FrameFooterEnd  FrameType = 17 // ends the index; nothing follows in this file
	FrameRelease    FrameType = 19 // u32 generation of a file that holds nothing live
	FrameDamage     FrameType = 20 // a copy was found damaged: text
	FrameWitness    FrameType = 21 // whose frames the group before this one held
	FrameImport     FrameType = 22 // a batch of an imported image
	FrameChunk      FrameType = 23 // ends a chunk of an imported image; with the last one the copy is what the image was of
	FrameScrub      FrameType = 24 // u32 generation, u64 place: how far the scrub came
	FrameImage      FrameType = 25 // an image is imported: what came of one before does not count
	FrameTypeEnd    FrameType = 26
)

var frameNames = [...]string{
	"", "batch", "batch moved", "create", "promise", "role", "cut", "head drop", "delete", "page", "snapshot", "page moved",
	"consensus entries", "pages", "checkpoint part", "checkpoint", "footer part", "footer", "", "release",
	"damage", "witness", "imported batch", "imported chunk", "scrub", "import",
}

// String is the type's name, as inspect prints it.
func (t FrameType) String() string {
	if int(t) < len(frameNames) {
		return frameNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Castagnoli is the table of every checksum.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Frame is a decoded head with its body. The body refers to the bytes that it was read from.
type Frame struct {
	Typ         FrameType
	Generation  uint32
	Part        ident.Partition
	Sequence    uint64
	SyncedBelow uint64
	Body        []byte
	Size        int    // on disk, padding included
	bodySum     uint32 // as the head has it
	Length      int    // of the body, also where the body is not at hand
}

// Errors of parsing a frame. The bytes are no frame, or not a whole one.
var (
	ErrFrameShort = errors.New("storage: the bytes end inside a frame")
	ErrFrameHead  = errors.New("storage: no frame starts here")
	ErrFrameBody  = errors.New("storage: a frame's body does not match its checksum")
)

// SizeOf is what a frame with such a body takes on disk, in bytes.
func SizeOf(body int) int { return (FrameHead + body + FrameAlign - 1) &^ (FrameAlign - 1) }

var emptyHead [FrameHead]byte

// AppendFrame appends a frame whose body is given in parts.
func AppendFrame(dst []byte, f Frame, body ...[]byte) []byte {
	at := len(dst)
	n := 0
	sum := uint32(0)
	for _, b := range body {
		n += len(b)
		sum = crc32.Update(sum, Castagnoli, b)
	}
	dst = append(dst, emptyHead[:]...)
	h := dst[at:] // in place: the checksum would have an array of its own allocated
	put := binary.LittleEndian
	put.PutUint32(h[0:], uint32(n))
	put.PutUint32(h[8:], sum)
	h[12] = byte(f.Typ)
	put.PutUint32(h[16:], f.Generation)
	put.PutUint32(h[20:], f.Part.Index)
	put.PutUint64(h[24:], f.Sequence)
	put.PutUint64(h[32:], f.SyncedBelow)
	put.PutUint64(h[40:], f.Part.Incarnation)
	put.PutUint32(h[4:], headSum(h))
	for _, b := range body {
		dst = append(dst, b...)
	}
	for (len(dst)-at)%FrameAlign != 0 {
		dst = append(dst, 0)
	}
	return dst
}

func headSum(h []byte) uint32 {
	return crc32.Update(crc32.Update(0, Castagnoli, h[0:4]), Castagnoli, h[8:FrameHead])
}

// ParseHead decodes a head. It returns ErrFrameShort for too few bytes and ErrFrameHead for anything that is no head.
func ParseHead(p []byte) (Frame, error) {
	if len(p) < FrameHead {
		return Frame{}, ErrFrameShort
	}
	get := binary.LittleEndian
	n := get.Uint32(p)
	typ := FrameType(p[12])
	if n > MaxBody || typ == 0 || typ >= FrameTypeEnd || get.Uint32(p[4:]) != headSum(p) {
		return Frame{}, ErrFrameHead
	}
	return Frame{
		Typ: typ, Generation: get.Uint32(p[16:]), Sequence: get.Uint64(p[24:]), SyncedBelow: get.Uint64(p[32:]),
		Part: ident.Partition{Incarnation: get.Uint64(p[40:]), Index: get.Uint32(p[20:])},
		Size: SizeOf(int(n)), bodySum: get.Uint32(p[8:]), Length: int(n),
	}, nil
}

// ParseFrame decodes the frame at the front of p. With ErrFrameBody the head is true and the body is not: size says where
// the next frame starts.
func ParseFrame(p []byte) (Frame, error) {
	f, err := ParseHead(p)
	if err != nil {
		return f, err
	}
	if len(p) < f.Size {
		return f, ErrFrameShort
	}
	f.Body = p[FrameHead : FrameHead+f.Length : FrameHead+f.Length]
	if crc32.Checksum(f.Body, Castagnoli) != f.bodySum {
		return f, ErrFrameBody
	}
	return f, nil
}

// A file header, at offset 0, padded with zeros to 4096 bytes:
//
//	0   8 B  "TANISTLG"
//	8   u32  format version
//	12  u32  checksum, CRC-32C of bytes 0-11 and 16-103
//	16  16 B store id
//	32  u32  generation
//	36  u32  reserved, 0
//	40  u64  sequence of the first frame
//	48  u64  boot counter of the run that began it
//	56  48 B reserved, 0
const (
	HeaderSize  = 4096
	HeaderUsed  = 104
	headerMagic = "TANISTLG"
	// Format is the version of the files that this program writes.
	Format = 1
)

// Place is where a frame begins: a file and an offset in it.
type Place struct {
	Generation uint32
	At         int64
}

// FileHeader is a decoded header.
type FileHeader struct {
	Format     uint32
	Store      ident.StoreID
	Generation uint32
	First      uint64
	Boot       uint64
}

// Encode gives the whole header, HeaderSize bytes.
func (h FileHeader) Encode() []byte {
	p := make([]byte, HeaderSize)
	put := binary.LittleEndian
	copy(p, headerMagic)
	put.PutUint32(p[8:], h.Format)
	copy(p[16:], h.Store[:])
	put.PutUint32(p[32:], h.Generation)
	put.PutUint64(p[40:], h.First)
	put.PutUint64(p[48:], h.Boot)
	put.PutUint32(p[12:], headerSum(p))
	return p
}

func headerSum(p []byte) uint32 {
	return crc32.Update(crc32.Update(0, Castagnoli, p[0:12]), Castagnoli, p[16:HeaderUsed])
}

// ErrNewer is returned for what a later version of the program wrote. Not worth a retry.
var ErrNewer = errors.New("storage: the data directory was written by a newer version")

var errFileHeader = errors.New("storage: the file has no valid header")

// ParseFileHeader decodes a header. It returns ErrNewer for one of a later format.
func ParseFileHeader(p []byte) (FileHeader, error) {
	if len(p) < HeaderUsed || string(p[:8]) != headerMagic {
		return FileHeader{}, errFileHeader
	}
	get := binary.LittleEndian
	if get.Uint32(p[12:]) != headerSum(p) {
		return FileHeader{}, errFileHeader
	}
	h := FileHeader{
		Format: get.Uint32(p[8:]), Store: ident.StoreID(p[16:32]), Generation: get.Uint32(p[32:]),
		First: get.Uint64(p[40:]), Boot: get.Uint64(p[48:]),
	}
	if h.Format > Format {
		return h, fmt.Errorf("%w: format %d, this program knows %d", ErrNewer, h.Format, Format)
	}
	return h, nil
}
