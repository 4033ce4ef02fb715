package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// The folder quarantine of a data directory holds what was cut from copies that were once owners (design 2 §5 step 5): messages that a
// client may believe in, although nobody has confirmed them. A file holds one end:
//
//	0   8 B  "TANISTCE"
//	8   u32  format version
//	12  u32  checksum, CRC-32C of bytes 0-11, and from 16 on
//	16  u64  incarnation, u32 index of the partition, u32 0
//	32  u64  epoch whose history began where the cut was, u64 position of the cut, u64 position where the log had ended
//	56       batches, byte for byte as they were in the log
//
// Nothing reads it but people. The oldest go when there are more than MaxEnds files, or they take more than MaxEndBytes.
const (
	quarantineFolder  = "quarantine"
	quarantineMagic   = "TANISTCE"
	quarantineVersion = 1
	quarantineHeader  = 56

	// MaxEnds and MaxEndBytes bound what is kept of cut ends.
	MaxEnds     = 64
	MaxEndBytes = 256 << 20
)

// End is a cut end of a partition's log: its batches from From to To, which the history of Epoch does not have.
type End struct {
	Partition ident.Partition
	Epoch     uint64
	From, To  uint64 // positions
	Batches   []batch.Batch
}

type keeping struct {
	end  End
	done func(kept bool)
}

// Keep keeps a cut end in a file of its own, and calls done once, on this archive's loop, with whether it is durable. One that was kept
// already, before a crash came between, is replaced.
func (a *Archive) Keep(end End, done func(kept bool)) { a.box.Post(keeping{end, done}) }

func (a *Archive) keepEnd(m keeping) {
	name, err := writeEnd(a.env.FS, a.env.Dir, m.end, MaxEndBytes)
	if err != nil {
		trace.Error(a.env.Trace, "quarantine.failed", slog.String("partition", m.end.Partition.String()), slog.String("error", err.Error()))
	} else {
		trace.Warn(a.env.Trace, "quarantine.kept", slog.String("partition", m.end.Partition.String()), slog.Uint64("epoch", m.end.Epoch),
			slog.Uint64("from", m.end.From), slog.Uint64("to", m.end.To), slog.String("file", name))
	}
	m.done(err == nil)
	a.countAside()
}

func appendEnd(b []byte, e *End) []byte {
	le := binary.LittleEndian
	b = append(b, quarantineMagic...)
	b = le.AppendUint32(b, quarantineVersion)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, e.Partition.Incarnation)
	b = le.AppendUint64(b, uint64(e.Partition.Index))
	for _, n := range []uint64{e.Epoch, e.From, e.To} {
		b = le.AppendUint64(b, n)
	}
	for _, x := range e.Batches {
		b = append(b, x.Bytes()...)
	}
	le.PutUint32(b[12:], crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[16:]))
	return b
}

// ErrEnd is returned for a file of the quarantine that is not whole, or not of a format that this program knows.
var ErrEnd = errors.New("not a whole cut end")

// ParseEnd reads a file of the quarantine. Batches refer to p. An error is ErrEnd.
func ParseEnd(p []byte) (End, error) {
	le := binary.LittleEndian
	if len(p) < quarantineHeader || string(p[:8]) != quarantineMagic || le.Uint32(p[8:]) != quarantineVersion ||
		le.Uint32(p[12:]) != crc32.Update(crc32.Checksum(p[:12], castagnoli), castagnoli, p[16:]) || le.Uint32(p[28:]) != 0 {
		return End{}, ErrEnd
	}
	e := End{
		Partition: ident.Partition{Incarnation: le.Uint64(p[16:]), Index: le.Uint32(p[24:])},
		Epoch:     le.Uint64(p[32:]), From: le.Uint64(p[40:]), To: le.Uint64(p[48:]),
	}
	for rest := p[quarantineHeader:]; len(rest) > 0; {
		b, err := batch.Parse(rest)
		if err != nil {
			return End{}, fmt.Errorf("%w: %w", ErrEnd, err)
		}
		e.Batches, rest = append(e.Batches, b), rest[b.Size():]
	}
	return e, nil
}

// endName is a name that sorts by number, so that the oldest come first.
func endName(number uint64, e *End) string {
	return fmt.Sprintf("%08d-%d-%d-epoch%d-%d-%d.cut", number, e.Partition.Incarnation, e.Partition.Index, e.Epoch, e.From, e.To)
}

// writeEnd writes an end, after what has to go for it: most is how many bytes all of them may take.
func writeEnd(fsys vfs.FS, dir string, e End, most int64) (name string, err error) {
	folder := path.Join(dir, quarantineFolder)
	if err := fsys.MkdirAll(folder); err != nil {
		return "", err
	}
	body := appendEnd(nil, &e)
	have, err := ends(fsys, dir)
	if err != nil {
		return "", err
	}
	number, total := uint64(1), int64(len(body))
	for _, f := range have {
		number = max(number, f.number+1)
		total += f.size
	}
	name = endName(number, &e)
	left := len(have)
	for _, f := range have {
		_, same, _ := strings.Cut(f.name, "-")
		if left < MaxEnds && total <= most && !strings.HasSuffix(name, "-"+same) {
			continue
		}
		if err := fsys.Remove(path.Join(folder, f.name)); err != nil {
			return "", err
		}
		total -= f.size
		left--
	}
	f, err := fsys.Create(path.Join(folder, name))
	if err != nil {
		return "", err
	}
	_, err = f.WriteAt(body, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return name, errors.Join(fsys.SyncDir(folder), fsys.SyncDir(dir))
}

type endFile struct {
	name   string
	number uint64
	size   int64
}

// ends are the files of the quarantine, the oldest first.
func ends(fsys vfs.FS, dir string) (out []endFile, err error) {
	folder := path.Join(dir, quarantineFolder)
	names, err := fsys.List(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		f := endFile{name: n}
		if _, err := fmt.Sscanf(n, "%d-", &f.number); err != nil || !strings.HasSuffix(n, ".cut") {
			continue // not ours
		}
		if f.size, err = sizeOf(fsys, path.Join(folder, n)); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b endFile) int { return compareNumbers(a.number, b.number) })
	return out, nil
}

func sizeOf(fsys vfs.FS, name string) (size int64, err error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return 0, err
	}
	size, err = f.Size()
	return size, errors.Join(err, f.Close())
}

// readEnd reads one file.
func readEnd(fsys vfs.FS, dir, name string) (e End, err error) {
	f, err := fsys.OpenRead(path.Join(dir, quarantineFolder, name))
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, err := io.ReadAll(io.NewSectionReader(f, 0, MaxEndBytes))
	if err != nil {
		return e, err
	}
	return ParseEnd(p)
}

// Ends reads what is kept of cut ends in a data directory, the oldest first; what is not whole is left out, and counted. It is for a
// node that does not run. The error is the file system's, of all files that could not be read; list holds the others.
func Ends(fsys vfs.FS, dir string) (list []End, broken int, err error) {
	files, err := ends(fsys, dir)
	for _, f := range files {
		e, failed := readEnd(fsys, dir, f.name)
		switch {
		case errors.Is(failed, ErrEnd):
			broken++
		case failed != nil:
			err = errors.Join(err, failed)
		default:
			list = append(list, e)
		}
	}
	return list, broken, err
}
