package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tanist": main})
}

// TestScripts runs the program as a user would: the scripts read as prose. Each gets addresses that nobody uses.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			amqp, admin := free(t), free(t)
			e.Vars = append(e.Vars, "AMQP="+amqp, "ADMIN="+admin, "MESH="+free(t), "AMQP2="+free(t), "ADMIN2="+free(t), "MESH2="+free(t), "TANIST_URL=amqp://guest@"+amqp+"/", "TANIST_ADMIN_URL=http://"+admin)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"await": await, "corrupt": corrupt, "awaitdev": awaitDev, "until": until, "owner": owner},
	})
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// corrupt turns one bit in the middle of what matches a pattern and is largest in use: its first 64 KiB are left alone.
func corrupt(ts *testscript.TestScript, _ bool, args []string) {
	names, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		ts.Check(err)
		block := make([]byte, 1<<20)
		n, _ := f.ReadAt(block, 0)
		last := -1
		for i, b := range block[:n] {
			if b != 0 {
				last = i
			}
		}
		if last >= 0 {
			block[last/2] ^= 1
			_, err = f.WriteAt(block[last/2:last/2+1], int64(last/2))
			ts.Check(err)
		}
		ts.Check(f.Close())
	}
}
