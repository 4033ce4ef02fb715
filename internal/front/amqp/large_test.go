package amqp

import "testing"

// Only so many connections have large memory waiting, and each gives its place back.
func TestLargeMemoryIsBounded(t *testing.T) {
	var l large
	for range mostLarge {
		if !l.follow(false, outputKept+1) {
			t.Fatal("a connection that writes much got none")
		}
	}
	if l.follow(false, outputKept+1) {
		t.Error("one connection too many")
	}
	if !l.follow(true, outputKept+1) {
		t.Error("a connection that had it lost it")
	}
	if l.follow(true, outputKept) {
		t.Error("a connection that writes little kept it")
	}
	if !l.follow(false, outputKept+1) {
		t.Error("a place that was given back is taken")
	}
	for range mostLarge {
		l.follow(true, 0)
	}
	if n := l.held.Load(); n != 0 {
		t.Errorf("%d places are held, and nobody has one", n)
	}
}

// What is lent is empty, and what is too large is not kept.
func TestLargeMemoryIsLentEmpty(t *testing.T) {
	var l large
	if l.take() != nil {
		t.Error("memory that nobody gave")
	}
	l.give(make([]byte, 1, outputLarge+1))
	if l.take() != nil {
		t.Error("memory that is too large was kept")
	}
	l.give(make([]byte, 1<<20))
	if b := l.take(); len(b) != 0 { // the pool may have lost it
		t.Errorf("lent with %d bytes in it", len(b))
	}
}
