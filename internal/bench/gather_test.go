package bench

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

func TestWhatGathersIsWrittenInOrderAndInFewerWrites(t *testing.T) {
	near, far := net.Pipe() // a write takes until it is read
	g := gather(near)
	const n, size = 2000, 1000
	var want, got bytes.Buffer
	done := make(chan error, 1)
	reads := 0
	go func() {
		buf := make([]byte, 1<<20)
		for got.Len() < n*size {
			k, err := far.Read(buf)
			if err != nil {
				done <- err
				return
			}
			reads++
			got.Write(buf[:k])
		}
		done <- nil
	}()
	for i := range n {
		b := bytes.Repeat([]byte{byte(i)}, size)
		want.Write(b)
		if k, err := g.Write(b); k != size || err != nil {
			t.Fatalf("write %d: %d, %v", i, k, err)
		}
		clear(b) // the writer's again
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Error("what arrived is not what was written")
	}
	if reads == n {
		t.Errorf("%d writes for %d", reads, n)
	}
}

func TestAWriteAfterTheEndFails(t *testing.T) {
	near, far := net.Pipe()
	g := gather(near)
	go func(far net.Conn) { _, _ = io.Copy(io.Discard, far) }(far) // ends with far, not with the next of that name
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	near, far = net.Pipe()
	g = gather(near)
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 * gatherMost { // the error comes with a later write than the one that met it, and frees one that waits
		if _, err := g.Write([]byte("x")); err != nil {
			return
		}
	}
	t.Error("no write failed")
}
