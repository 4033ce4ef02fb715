package archive

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"time"

	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// The file evidence/records of a data directory: a header, and frames on boundaries of 8 bytes. Later frames of a transition replace
// earlier ones.
//
//	header   0   8 B  "TANISTEV"
//	         8   u32  format version
//	         12  u32  checksum, CRC-32C of bytes 0-11 and 16-31
//	         16  16 B store id
//	frame    0   u32  length of the record
//	         4   u32  checksum, CRC-32C of bytes 0-3 and of the record
//	         8        record, as core/evidence encodes it; zeros up to the boundary
//
// It is written aside, synced and renamed where it is made, and where it has grown to more than twice of what it has to hold; between that
// frames are added. What is not a frame is passed over when it is read: nothing follows from it but that a record is missing, which the
// other nodes have.
const (
	folder     = "evidence"
	name       = folder + "/records"
	magic      = "TANISTEV"
	version    = 1
	headerSize = 32
	frameSize  = 8
	maxRecord  = 1 << 20
	maxFile    = 64 << 20 // never reached: see evidence.DefaultBytes
	step       = 256 << 10
	slack      = 1 << 20
	// againAfter is how long a disk that failed is left alone: until then records are in memory, and on the other nodes.
	againAfter = 30 * time.Second
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// file is the file; it belongs to one loop.
type file struct {
	fs    vfs.FS
	dir   string
	store ident.StoreID
	clock clock.Clock

	f      vfs.File // nil: to be made
	end    int64
	room   int64 // that is allocated
	live   int64 // what it held when it was made
	failed bool
	at     time.Duration // when it did
	newer  bool          // a later version of the program wrote it, or it is closed: it is left alone
}

// errNewer is returned for a file that a later version of the program wrote.
var errNewer = errors.New("the file has a format that this program does not know; it is left as it is")

func appendHeader(b []byte, store ident.StoreID) []byte {
	at := len(b)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = append(b, 0, 0, 0, 0)
	b = append(b, store[:]...)
	h := b[at:]
	binary.LittleEndian.PutUint32(h[12:], crc32.Update(crc32.Checksum(h[:12], castagnoli), castagnoli, h[16:headerSize]))
	return b
}

// validHeader reports whether p begins with the header of a file in a format that is known.
func validHeader(p []byte) bool {
	return len(p) >= headerSize && string(p[:8]) == magic && binary.LittleEndian.Uint32(p[8:]) == version &&
		binary.LittleEndian.Uint32(p[12:]) == crc32.Update(crc32.Checksum(p[:12], castagnoli), castagnoli, p[16:headerSize])
}

func appendFrame(b []byte, e *evidence.Evidence) []byte {
	at := len(b)
	b = evidence.Append(append(b, make([]byte, frameSize)...), e)
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-frameSize))
	binary.LittleEndian.PutUint32(b[at+4:], frameSum(b[at:]))
	return append(b, make([]byte, -(len(b)-at)&(frameSize-1))...)
}

func frameSum(p []byte) uint32 {
	return crc32.Update(crc32.Checksum(p[:4], castagnoli), castagnoli, p[frameSize:])
}

// parse reads the bytes of a file: the records, where the last frame ends, and how many bytes were neither frame nor zero.
func parse(p []byte) (records []*evidence.Evidence, end, broken int64) {
	if !validHeader(p) {
		return nil, 0, int64(len(p))
	}
	at := headerSize
	end = headerSize
	for at+frameSize <= len(p) {
		n := int(binary.LittleEndian.Uint32(p[at:]))
		if n > 0 && n <= min(maxRecord, len(p)-at-frameSize) &&
			frameSum(p[at:at+frameSize+n]) == binary.LittleEndian.Uint32(p[at+4:]) {
			if e, err := evidence.Parse(p[at+frameSize : at+frameSize+n]); err == nil {
				records = append(records, e)
				at += frameSize + n
				at += -at & (frameSize - 1)
				end = int64(at)
				continue
			}
		}
		if binary.LittleEndian.Uint64(p[at:]) != 0 {
			broken += frameSize
		}
		at += frameSize
	}
	return records, end, broken
}

// read reads the file and opens it for what is to be added. broken is how many bytes could not be read as what they should be: the file
// is made anew then, at the next write.
func (f *file) read() (records []*evidence.Evidence, broken int64, err error) {
	p, err := contents(f.fs, f.dir)
	if err != nil || p == nil {
		f.newer = errors.Is(err, errNewer)
		return nil, 0, err
	}
	records, end, broken := parse(p)
	if broken > 0 || end < headerSize || len(p) == maxFile {
		return records, broken, nil
	}
	if f.f, err = f.fs.Open(path.Join(f.dir, name)); err != nil {
		return nil, 0, err
	}
	f.end, f.room, f.live = end, int64(len(p)), end/2
	return records, 0, nil
}

// contents is what the file holds; nil where there is none.
func contents(fsys vfs.FS, dir string) ([]byte, error) {
	in, err := fsys.OpenRead(path.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(io.NewSectionReader(in, 0, maxFile))
	if err = errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	if len(p) >= headerSize && string(p[:8]) == magic && binary.LittleEndian.Uint32(p[8:]) > version {
		return nil, errNewer
	}
	return p, nil
}

// Records reads what a data directory holds of evidence, as it was written: of a transition the last record counts, and those without an
// id say only what became of one. broken is how many bytes could not be read. Nothing is changed. The
// error is the file system's, or says that a later version of the program wrote the file; of no file there are no records.
func Records(fsys vfs.FS, dir string) (records []*evidence.Evidence, broken int64, err error) {
	p, err := contents(fsys, dir)
	if err != nil || p == nil {
		return nil, 0, err
	}
	records, _, broken = parse(p)
	return records, broken, nil
}

// write adds records, or makes the file anew of all, where it is not there, has failed, or has grown. After an error nothing is known of
// what was written: the next one that is not refused makes the file anew.
func (f *file) write(list []*evidence.Evidence, all func() []*evidence.Evidence) error {
	if f.newer || f.failed && f.clock.Mono() < f.at+againAfter {
		return nil
	}
	var b []byte
	for _, e := range list {
		b = appendFrame(b, e)
	}
	var err error
	if f.f == nil || f.end+int64(len(b)) > 2*f.live+slack {
		err = f.make(all())
	} else {
		err = f.add(b)
	}
	return f.outcome(err)
}

// outcome takes note of how a write went.
func (f *file) outcome(err error) error {
	f.failed = err != nil
	if f.failed {
		f.at = f.clock.Mono()
		if f.f != nil {
			err = errors.Join(err, f.f.Close())
		}
		f.f = nil
	}
	return err
}

// close ends the use of the file.
func (f *file) close(sink trace.Sink) {
	if f.f == nil {
		return
	}
	if err := f.f.Close(); err != nil {
		trace.Warn(sink, "evidence.close.failed", slog.String("error", err.Error()))
	}
	f.f, f.newer = nil, true
}

func (f *file) add(b []byte) error {
	if need := f.end + int64(len(b)); need > f.room {
		room := (need + step - 1) / step * step
		if err := f.f.Preallocate(room); err != nil {
			return err
		}
		f.room = room
	}
	if _, err := f.f.WriteAt(b, f.end); err != nil {
		return err
	}
	f.end += int64(len(b))
	if f.room-f.end < step/2 {
		if err := f.f.Preallocate(f.room + step); err == nil { // else there is room for some: that it is used up is said then
			f.room += step
		}
	}
	return f.f.Sync()
}

// ready makes the file where there is none, so that what is decided while the disk is full has its room.
func (f *file) ready() error {
	if f.f != nil || f.newer {
		return nil
	}
	return f.outcome(f.make(nil))
}

// make writes the file anew.
func (f *file) make(all []*evidence.Evidence) (err error) {
	if f.f != nil {
		err = f.f.Close()
		f.f = nil
		if err != nil {
			return err
		}
	}
	at := path.Join(f.dir, name)
	if err := f.fs.MkdirAll(path.Join(f.dir, folder)); err != nil {
		return err
	}
	if err := f.fs.Remove(at + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f.f, err = f.fs.Create(at + ".new"); err != nil {
		return err
	}
	b := appendHeader(nil, f.store)
	for _, e := range all {
		b = appendFrame(b, e)
	}
	f.end, f.room, f.live = 0, 0, int64(len(b))
	if err := f.add(b); err != nil {
		return err
	}
	if err := f.fs.Rename(at+".new", at); err != nil {
		return err
	}
	return errors.Join(f.fs.SyncDir(path.Join(f.dir, folder)), f.fs.SyncDir(f.dir))
}
