package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The limits of design 4.
const (
	maxFunction = 70
	maxFile     = 600
	maxPackage  = 25
)

// largeFunctions may be longer than maxFunction. Key: folder/file.go:Function.
var largeFunctions = map[string]string{}

// largeFiles may be longer than maxFile.
var largeFiles = map[string]string{}

// sleepers are test files that may call time.Sleep.
var sleepers = map[string]string{}

// source is one parsed file.
type source struct {
	path      string // from the root, with slashes
	dir       string
	test      bool
	generated bool
	text      []byte
	file      *ast.File
}

var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// load parses every Go file below the root.
func load(t *testing.T, set *token.FileSet, root string) []*source {
	t.Helper()
	var out []*source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "tanist-data") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		out = append(out, &source{
			path: rel, dir: filepath.ToSlash(filepath.Dir(rel)), test: strings.HasSuffix(rel, "_test.go"),
			generated: generatedLine.Match(text), text: text, file: f,
		})
		return nil
	})
	if err != nil {
		t.Fatalf("reading the tree: %v", err)
	}
	if len(out) < 10 {
		t.Fatalf("only %d Go files below %s: the test looks in the wrong place", len(out), root)
	}
	return out
}

func TestTidy(t *testing.T) {
	set := token.NewFileSet()
	files := load(t, set, "../..")
	for name, rule := range map[string]func(*testing.T, *token.FileSet, []*source){
		"imports": imports, "purity": purity, "size": size, "comments": comments, "words": words, "sleep": sleep,
	} {
		t.Run(name, func(t *testing.T) { rule(t, set, files) })
	}
}

func imports(t *testing.T, set *token.FileSet, files []*source) {
	for _, s := range files {
		for _, i := range s.file.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			why := ""
			switch to, ours := strings.CutPrefix(path, module); {
			case s.test && !pure(s.dir) && !within(s.dir, "e2e"):
				// Tests outside the pure rooms may use what they like, simulated ports above all.
			case ours && s.test:
				if within(s.dir, "e2e") {
					why = forbids(s.dir, to)
				}
			case ours:
				why = forbids(s.dir, to)
			case !strings.Contains(strings.Split(path, "/")[0], "."):
				if !s.test {
					why = forbidsStd(s.dir, path)
				}
			case !s.test:
				why = forbidsExternal(s.dir, path)
			}
			if why != "" {
				t.Errorf("%s: imports %s: %s", set.Position(i.Pos()), path, why)
			}
		}
	}
}

// impure are the names of package time that read or wait for a clock.
var impure = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func purity(t *testing.T, set *token.FileSet, files []*source) {
	for _, s := range files {
		if s.test || !pure(s.dir) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a goroutine in a pure room", set.Position(n.Pos()))
			case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
				t.Errorf("%s: a channel in a pure room", set.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(impure, n.Sel.Name) {
					t.Errorf("%s: time.%s in a pure room: times arrive as values", set.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
}

func size(t *testing.T, set *token.FileSet, files []*source) {
	count := map[string]int{}
	used := map[string]bool{}
	for _, s := range files {
		if !s.test {
			count[s.dir]++
		}
		if s.generated {
			continue
		}
		if n := strings.Count(string(s.text), "\n"); n > maxFile {
			used[s.path] = true
			if largeFiles[s.path] == "" {
				t.Errorf("%s: %d lines, at most %d", s.path, n, maxFile)
			}
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
			key := s.path + ":" + f.Name.Name
			if n > maxFunction {
				used[key] = true
				if largeFunctions[key] == "" {
					t.Errorf("%s: function %s has %d lines, at most %d", set.Position(f.Pos()), f.Name.Name, n, maxFunction)
				}
			}
		}
	}
	for dir, n := range count {
		if n > maxPackage {
			t.Errorf("%s: %d files in one package, at most %d", dir, n, maxPackage)
		}
	}
	for _, list := range []map[string]string{largeFunctions, largeFiles} {
		for key := range list {
			if !used[key] {
				t.Errorf("the exception for %s is no longer needed: take it off the list", key)
			}
		}
	}
}

func comments(t *testing.T, _ *token.FileSet, files []*source) {
	commented := map[string]bool{}
	for _, s := range files {
		if s.test {
			continue
		}
		doc := s.file.Doc != nil && (strings.HasPrefix(s.file.Doc.Text(), "Package ") || s.file.Name.Name == "main")
		commented[s.dir] = commented[s.dir] || doc
	}
	for dir, ok := range commented {
		if !ok {
			t.Errorf("%s: no package comment that says what the room is for", dir)
		}
	}
}

// banned are texts that may not appear in a file of the project. They are put together here so that this file has none.
var banned = []struct{ text, why string }{
	{"TO" + "DO", "nothing is left for later in a comment: file an issue or do it"},
	{"FIX" + "ME", "nothing is left for later in a comment: file an issue or do it"},
	{"/wo" + "rk/", "a path of one machine"},
	{"/ro" + "ot/", "a path of one machine"},
	{"/ho" + "me/", "a path of one machine"},
}

func words(t *testing.T, _ *token.FileSet, files []*source) {
	for _, s := range files {
		for i, line := range strings.Split(string(s.text), "\n") {
			for _, b := range banned {
				if strings.Contains(line, b.text) {
					t.Errorf("%s:%d: %q: %s", s.path, i+1, b.text, b.why)
				}
			}
		}
	}
	for _, dir := range []string{"../../docs", "../../.ci", "../.."} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Errorf("reading %s: %v", dir, err)
			continue
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || strings.HasSuffix(e.Name(), ".go") || e.Name() == "go.sum" || e.Name() == "tanist" || strings.HasSuffix(e.Name(), ".test") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Errorf("reading %s: %v", e.Name(), err)
			}
			for _, b := range banned {
				if strings.Contains(string(text), b.text) {
					t.Errorf("%s: %q: %s", e.Name(), b.text, b.why)
				}
			}
		}
	}
}

func sleep(t *testing.T, set *token.FileSet, files []*source) {
	for _, s := range files {
		if !s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if c, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := c.X.(*ast.Ident); ok && x.Name == "time" && c.Sel.Name == "Sleep" && sleepers[s.path] == "" {
					t.Errorf("%s: time.Sleep in a test: wait for the event, or use virtual time", set.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

// TestRules shows that the rules bite: each planted fault must be named.
func TestRules(t *testing.T) {
	for _, c := range []struct{ dir, to, want string }{
		{"internal/core/queue", "internal/port/clock", "lower core only"},
		{"internal/engine/replica", "internal/engine/storage", "another engine"},
		{"internal/engine/storage", "internal/node", "core and ports"},
		{"internal/front/admin", "internal/engine/gateway", "core and ports"},
		{"internal/front/admin", "internal/front/amqp", "no other front"},
		{"internal/port/vfs", "internal/core/ident", "standard library"},
		{"internal/front/amqp/session", "internal/port/clock", "core and wire"},
		{"sim", "internal/front/amqp/wire", "knows AMQP"},
		{"check", "internal/node", "core's values"},
		{"internal/engine/storage", "internal/core/batch", ""},
		{"internal/node", "internal/front/amqp", ""},
		{"internal/front/amqp", "internal/front/amqp/wire", ""},
	} {
		if got := forbids(c.dir, c.to); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s importing %s: got %q, want something with %q", c.dir, c.to, got, c.want)
		}
	}
	for _, path := range []string{"os", "net", "sync", "log/slog", "math/rand", "io"} {
		if forbidsStd("internal/core/queue", path) == "" {
			t.Errorf("core may import %s", path)
		}
	}
	if got := forbidsExternal("internal/core/queue", "go.etcd.io/raft/v3"); got == "" {
		t.Error("core may import raft")
	}
	if got := forbidsExternal("internal/engine/consensus", "go.etcd.io/raft/v3/raftpb"); got != "" {
		t.Errorf("consensus may not import raft: %s", got)
	}
}
