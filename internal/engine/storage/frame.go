package storage

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
	frameHead  = 48
	frameAlign = 8
	// maxBody bounds a body: the largest batch with what a frame type adds to it.
	maxBody = 18 << 20
)

// frameType says what a body is. Numbers are never used twice.
type frameType uint8

const (
	frameBatch      frameType = 1  // a batch that continues its log
	frameMoved      frameType = 2  // a batch written before, copied out of a file that is reclaimed
	frameCreate     frameType = 3  // a copy comes to be
	framePromise    frameType = 4  // u64 epoch
	frameRole       frameType = 5  // u64 epoch, u8 role
	frameCut        frameType = 6  // tail
	frameDropHead   frameType = 7  // u64 position
	frameDelete     frameType = 8  // a copy goes for ever
	framePage       frameType = 9  // a page of a snapshot that is being written
	frameSnapshot   frameType = 10 // ends the pages of a snapshot: it counts
	framePageMoved  frameType = 11 // a page written before, copied
	frameEntries    frameType = 12 // of the consensus log
	framePages      frameType = 13 // pages of a snapshot follow; those before that were not ended do not count
	frameCheckpoint frameType = 14 // a part of a checkpoint
	frameCheckEnd   frameType = 15 // ends the parts of a checkpoint: it counts
	frameFooter     frameType = 16 // a part of the index of a full file
	frameFooterEnd  frameType = 17 // ends the index; nothing follows in this file
	frameRelease    frameType = 19 // u32 generation of a file that holds nothing live
	frameDamage     frameType = 20 // a copy was found damaged: text
	frameWitness    frameType = 21 // whose frames the group before this one held
	frameImport     frameType = 22 // a batch of an imported image
	frameChunk      frameType = 23 // ends a chunk of an imported image; with the last one the copy is what the image was of
	frameScrub      frameType = 24 // u32 generation, u64 place: how far the scrub came
	frameImage      frameType = 25 // an image is imported: what came of one before does not count
	frameTypeEnd    frameType = 26
)

var frameNames = [...]string{
	"", "batch", "batch moved", "create", "promise", "role", "cut", "head drop", "delete", "page", "snapshot", "page moved",
	"consensus entries", "pages", "checkpoint part", "checkpoint", "footer part", "footer", "", "release",
	"damage", "witness", "imported batch", "imported chunk", "scrub", "import",
}

// String is the type's name, as inspect prints it.
func (t frameType) String() string {
	if int(t) < len(frameNames) {
		return frameNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is a decoded head with its body. The body refers to the bytes that it was read from.
type frame struct {
	typ         frameType
	generation  uint32
	part        ident.Partition
	sequence    uint64
	syncedBelow uint64
	body        []byte
	size        int    // on disk, padding included
	bodySum     uint32 // as the head has it
	length      int    // of the body, also where the body is not at hand
}

// Errors of parsing a frame. The bytes are no frame, or not a whole one.
var (
	errFrameShort = errors.New("storage: the bytes end inside a frame")
	errFrameHead  = errors.New("storage: no frame starts here")
	errFrameBody  = errors.New("storage: a frame's body does not match its checksum")
)

func framed(body int) int { return (frameHead + body + frameAlign - 1) &^ (frameAlign - 1) }

var emptyHead [frameHead]byte

// appendFrame appends a frame whose body is given in parts.
func appendFrame(dst []byte, f frame, body ...[]byte) []byte {
	at := len(dst)
	n := 0
	sum := uint32(0)
	for _, b := range body {
		n += len(b)
		sum = crc32.Update(sum, castagnoli, b)
	}
	dst = append(dst, emptyHead[:]...)
	h := dst[at:] // in place: the checksum would have an array of its own allocated
	put := binary.LittleEndian
	put.PutUint32(h[0:], uint32(n))
	put.PutUint32(h[8:], sum)
	h[12] = byte(f.typ)
	put.PutUint32(h[16:], f.generation)
	put.PutUint32(h[20:], f.part.Index)
	put.PutUint64(h[24:], f.sequence)
	put.PutUint64(h[32:], f.syncedBelow)
	put.PutUint64(h[40:], f.part.Incarnation)
	put.PutUint32(h[4:], headSum(h))
	for _, b := range body {
		dst = append(dst, b...)
	}
	for (len(dst)-at)%frameAlign != 0 {
		dst = append(dst, 0)
	}
	return dst
}

func headSum(h []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, h[0:4]), castagnoli, h[8:frameHead])
}

// parseHead decodes a head. It returns errFrameShort for too few bytes and errFrameHead for anything that is no head.
func parseHead(p []byte) (frame, error) {
	if len(p) < frameHead {
		return frame{}, errFrameShort
	}
	get := binary.LittleEndian
	n := get.Uint32(p)
	typ := frameType(p[12])
	if n > maxBody || typ == 0 || typ >= frameTypeEnd || get.Uint32(p[4:]) != headSum(p) {
		return frame{}, errFrameHead
	}
	return frame{
		typ: typ, generation: get.Uint32(p[16:]), sequence: get.Uint64(p[24:]), syncedBelow: get.Uint64(p[32:]),
		part: ident.Partition{Incarnation: get.Uint64(p[40:]), Index: get.Uint32(p[20:])},
		size: framed(int(n)), bodySum: get.Uint32(p[8:]), length: int(n),
	}, nil
}

// parseFrame decodes the frame at the front of p. With errFrameBody the head is true and the body is not: size says where
// the next frame starts.
func parseFrame(p []byte) (frame, error) {
	f, err := parseHead(p)
	if err != nil {
		return f, err
	}
	if len(p) < f.size {
		return f, errFrameShort
	}
	f.body = p[frameHead : frameHead+f.length : frameHead+f.length]
	if crc32.Checksum(f.body, castagnoli) != f.bodySum {
		return f, errFrameBody
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
	headerSize  = 4096
	headerUsed  = 104
	headerMagic = "TANISTLG"
	// Format is the version of the files that this program writes.
	Format = 1
)

type place struct {
	generation uint32
	at         int64
}

type fileHeader struct {
	format     uint32
	store      ident.StoreID
	generation uint32
	first      uint64
	boot       uint64
}

func (h fileHeader) encode() []byte {
	p := make([]byte, headerSize)
	put := binary.LittleEndian
	copy(p, headerMagic)
	put.PutUint32(p[8:], h.format)
	copy(p[16:], h.store[:])
	put.PutUint32(p[32:], h.generation)
	put.PutUint64(p[40:], h.first)
	put.PutUint64(p[48:], h.boot)
	put.PutUint32(p[12:], headerSum(p))
	return p
}

func headerSum(p []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, p[0:12]), castagnoli, p[16:headerUsed])
}

var errFileHeader = errors.New("storage: the file has no valid header")

// parseFileHeader decodes a header. It returns ErrNewer for one of a later format.
func parseFileHeader(p []byte) (fileHeader, error) {
	if len(p) < headerUsed || string(p[:8]) != headerMagic {
		return fileHeader{}, errFileHeader
	}
	get := binary.LittleEndian
	if get.Uint32(p[12:]) != headerSum(p) {
		return fileHeader{}, errFileHeader
	}
	h := fileHeader{
		format: get.Uint32(p[8:]), store: ident.StoreID(p[16:32]), generation: get.Uint32(p[32:]),
		first: get.Uint64(p[40:]), boot: get.Uint64(p[48:]),
	}
	if h.format > Format {
		return h, fmt.Errorf("%w: format %d, this program knows %d", ErrNewer, h.format, Format)
	}
	return h, nil
}
