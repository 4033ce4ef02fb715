package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pair is a quick connection and the other end of it, a plain one.
func pair(t *testing.T) (quick net.Conn, plain *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	q := Quick(s)
	t.Cleanup(func() { _, _ = c.Close(), q.Close() })
	if _, ok := q.(*conn); !ok {
		t.Fatalf("%T is not quick", q)
	}
	return q, c.(*net.TCPConn)
}

// Much more goes through than the system takes at a time, both ways at once, and arrives as it was sent.
func TestAllArrivesInOrder(t *testing.T) {
	q, p := pair(t)
	sent := make([]byte, 16<<20)
	for i := range sent {
		sent[i] = byte(i ^ i>>8 ^ i>>16)
	}
	var all sync.WaitGroup
	for _, w := range []net.Conn{q, p} {
		all.Go(func() {
			if n, err := w.Write(sent); n != len(sent) || err != nil {
				t.Errorf("%T wrote %d bytes (%v)", w, n, err)
			}
		})
	}
	for _, r := range []net.Conn{q, p} {
		all.Go(func() {
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%T read something else (%v)", r, err)
			}
		})
	}
	all.Wait()
}

// What is tried is written as far as there is room, in order with what is written otherwise, and nothing waits.
func TestTriesDoNotWait(t *testing.T) {
	q, p := pair(t)
	try := q.(interface{ TryWrite([]byte) (int, error) }).TryWrite
	if n, err := try(nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
	var sent []byte
	for full := false; !full; {
		b := bytes.Repeat([]byte{byte(len(sent) >> 16)}, 1<<16)
		n, err := try(b)
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, b[:n]...)
		full = n < len(b)
	}
	rest := []byte("and the rest")
	ended := make(chan error, 1)
	go func() {
		_, err := q.Write(rest)
		ended <- err
	}()
	got := make([]byte, len(sent)+len(rest))
	if _, err := io.ReadFull(p, got); err != nil || !bytes.Equal(got, append(sent, rest...)) {
		t.Errorf("read something else (%v)", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := try(rest); !errors.Is(err, net.ErrClosed) {
		t.Errorf("tried when closed: %v", err)
	}
}

func TestTheOthersEndIsEOF(t *testing.T) {
	q, p := pair(t)
	if _, err := p.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(q); string(got) != "last" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if n, err := q.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d, %v", n, err)
	}
	if n, err := q.Read(nil); n != 0 || err != nil {
		t.Errorf("nothing to read into: %d, %v", n, err)
	}
}

func TestErrorsAreThoseOfAConnection(t *testing.T) {
	q, p := pair(t)
	if err := q.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err := q.Read(make([]byte, 1))
	var op *net.OpError
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &op) || op.Op != "read" || !op.Timeout() {
		t.Errorf("past a deadline: %#v", err)
	}
	if err := q.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.SetLinger(0), p.Close()); err != nil { // a reset
		t.Fatal(err)
	}
	_, err = q.Read(make([]byte, 1))
	if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) || op.Op != "read" || op.Addr == nil {
		t.Errorf("reset by the other: %v", err)
	}
	for err = nil; err == nil; {
		_, err = q.Write([]byte("x"))
	}
	if !errors.Is(err, syscall.EPIPE) || !errors.As(err, &op) || op.Op != "write" {
		t.Errorf("written after a reset: %v", err)
	}
}

// Close ends a read that waits, and a write that has written a part.
func TestCloseEndsWhatWaits(t *testing.T) {
	q, _ := pair(t)
	ended := make(chan error, 2)
	go func() {
		_, err := q.Read(make([]byte, 1))
		ended <- err
	}()
	go func() {
		n, err := q.Write(make([]byte, 64<<20))
		if n == 64<<20 {
			err = errors.New("all was written, and nobody read it")
		}
		ended <- err
	}()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
}

func TestOthersStayAsTheyAre(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if Quick(a) != a {
		t.Error("a pipe was made quick")
	}
}

// BenchmarkRoundTrip shows what a request and an answer cost.
func BenchmarkRoundTrip(b *testing.B) {
	for _, quick := range []bool{false, true} {
		b.Run(map[bool]string{false: "plain", true: "quick"}[quick], func(b *testing.B) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer ln.Close()
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			s, err := ln.Accept()
			if err != nil {
				b.Fatal(err)
			}
			if quick {
				c, s = Quick(c), Quick(s)
			}
			defer c.Close()
			go func() {
				_, _ = io.Copy(struct{ io.Writer }{s}, struct{ io.Reader }{s}) // until c closes
				_ = s.Close()
			}()
			p := make([]byte, 100)
			b.ReportAllocs()
			for range b.N {
				if _, err := c.Write(p); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
