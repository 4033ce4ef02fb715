package session_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tanist/tanist/internal/front/amqp/amqptest"
	"github.com/tanist/tanist/internal/front/amqp/session"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// FuzzFeed feeds an open connection what a client might send, whole and in pieces. Either way it must write frames that can be read and
// in the end give back everything that was held. (When a redelivery comes depends on how the input is cut, so the answers may differ.)
func FuzzFeed(f *testing.F) {
	files, err := filepath.Glob("testdata/scripts/*")
	if err != nil || len(files) == 0 {
		f.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var in []byte
		client := false
		for _, line := range strings.Split(string(text), "\n") {
			switch {
			case strings.HasPrefix(line, "client"):
				client = true
			case line == "----":
				client = false
			case client && strings.HasPrefix(line, "1 "):
				in = append(in, frameOf(&testing.T{}, line)...)
			}
		}
		f.Add(in, uint8(7))
	}
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		feedAll(t, in, len(in))
		feedAll(t, in, int(step)+1)
	})
}

func feedAll(t *testing.T, in []byte, step int) {
	w := &world{t: t, b: amqptest.New()}
	w.run(&datadriven.TestData{Cmd: "open"})
	for len(in) > 0 {
		n := min(step, len(in))
		w.c.Feed(in[:n], w.at)
		in = in[n:]
	}
	var o session.Output
	w.c.Flush(w.at)
	w.c.Take(&o)
	for p := o.Bytes; len(p) > 0; {
		_, n, err := wire.ParseFrame(p, 1<<20)
		if err != nil || n == 0 {
			t.Fatalf("a broken frame was written: %v", err)
		}
		p = p[n:]
	}
	w.c.Abandon()
	if s := w.b.Last(); !s.Closed || s.Held() != 0 {
		t.Fatalf("closed %v, still holding %d", s.Closed, s.Held())
	}
}
