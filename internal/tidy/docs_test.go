package tidy

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A document is a text whose commands, paths and names are held against the tree.
type document struct {
	name  string
	spans []span
}

// span is what a document sets as code: a piece of a line between backquotes, or a line of a block.
type span struct {
	line int
	text string
}

var inline = regexp.MustCompile("`([^`]+)`")

// documents are the texts for readers: README and docs.
func documents(t *testing.T) (out []document) {
	t.Helper()
	names, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(names) < 5 {
		t.Fatalf("docs: %v, %v", names, err)
	}
	for _, name := range append(names, "../../README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, read(filepath.Base(name), string(text)))
	}
	return out
}

func read(name, text string) document {
	d := document{name: name}
	block := false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			block = !block
		case block:
			d.spans = append(d.spans, span{i + 1, strings.TrimSpace(line)})
		case strings.HasPrefix(line, "    "):
			d.spans = append(d.spans, span{i + 1, strings.TrimSpace(line)})
		default:
			for _, m := range inline.FindAllStringSubmatch(line, -1) {
				text := m[1]
				if strings.HasPrefix(line, "|") {
					text = strings.ReplaceAll(text, `\|`, "|") // within a table
				}
				d.spans = append(d.spans, span{i + 1, text})
			}
		}
	}
	return d
}

// tree is what documents may speak of.
type tree struct {
	root  string
	paths []string // of all files and folders, from the root
	funcs map[string][]string
	texts map[string]string // of Go files, shell scripts and what tests read, by path
}

func plant(t *testing.T, root string) *tree {
	t.Helper()
	w := &tree{root: root, funcs: map[string][]string{}, texts: map[string]string{}}
	declared := regexp.MustCompile(`(?m)^func (?:Test|Benchmark|Fuzz|Example)\w*`)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if base := d.Name(); rel != "." && (base == ".git" || base == ".tools" || base == "node_modules" || strings.HasPrefix(base, "tanist-")) {
				return filepath.SkipDir
			}
			w.paths = append(w.paths, rel)
			return nil
		}
		w.paths = append(w.paths, rel)
		if within(rel, "docs") || !d.Type().IsRegular() {
			return nil
		}
		switch ext := path.Ext(rel); {
		case ext == "" || slices.Contains([]string{".go", ".mod", ".txt", ".txtar", ".sh", ".yaml", ".proto", ".py", ".html", ".def"}, ext):
			text, err := os.ReadFile(name)
			if err != nil || len(text) > 1<<20 {
				return err
			}
			if rel != "internal/tidy/docs_test.go" { // it has names that are not there
				w.texts[rel] = string(text)
			}
			if strings.HasSuffix(rel, "_test.go") {
				for _, f := range declared.FindAllString(string(text), -1) {
					w.funcs[path.Dir(rel)] = append(w.funcs[path.Dir(rel)], strings.TrimPrefix(f, "func "))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// has reports whether some text below a folder has a word.
func (w *tree) has(folder, word string) bool {
	for p, text := range w.texts {
		if (folder == "" || within(p, folder)) && strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// TestDocsNameWhatIsThere fails where a document tells a reader to run a test that is not there, or names a file, a metric or a variable that
// the tree does not have. The verbs and flags of the program are held the same way by its own tests.
func TestDocsNameWhatIsThere(t *testing.T) {
	w := plant(t, "../..")
	commands, paths := 0, 0
	for _, d := range documents(t) {
		for _, s := range d.spans {
			wrong, kind := w.judge(s.text)
			switch kind {
			case aCommand:
				commands++
			case aPath:
				paths++
			}
			if wrong != "" {
				t.Errorf("%s:%d: `%s`: %s", d.name, s.line, s.text, wrong)
			}
		}
	}
	if commands < 80 || paths < 80 {
		t.Errorf("only %d commands and %d paths were found: the test reads the documents wrongly", commands, paths)
	}
}

type kind int

const (
	other kind = iota
	aCommand
	aPath
	aName
)

var (
	pathLike   = regexp.MustCompile(`^(?:internal|cmd|core|engine|front|port|sim|check|e2e|tools|docs|test|bench|node|\.ci)/[\w./{},-]+$`)
	testLike   = regexp.MustCompile(`^\./(?:internal|cmd|sim|check|e2e|tools)\b`) // what follows "go test" in the command before it
	nameLike   = regexp.MustCompile(`^((?:core|engine|front|port|internal)/[\w/]+)\.([A-Z]\w*(?:\.[A-Z]\w*)?)$`)
	fileLike   = regexp.MustCompile(`^\w[\w-]*\.(?:go|mod|proto|txt|txtar|md)$`)
	wordLike   = regexp.MustCompile(`^(?:[a-z]+(?:_[a-z0-9]+)+|[a-z]+(?:\.[a-z]+)+|[A-Z][a-z]+(?:[A-Z][a-z]*)*|[a-z]+(?:[A-Z][a-z]+)+|x(?:-[a-z]+)+)$`) // settings, events, methods, names of Go, arguments
	metricLike = regexp.MustCompile(`^tanist_\w+$`)
	envLike    = regexp.MustCompile(`^(?:E2E|SIM|EXPLORE)_[A-Z0-9_]+(?:=\S*)?$`)
)

// named are words that documents may use although the tree has them nowhere, with the reason.
var named = map[string]string{
	"jobs.wait":                            "an example's queue",
	"jobs.failed":                          "an example's queue",
	"x-stream-filter-size-bytes-per-chunk": "an argument that is ignored",
}

// judge says what is wrong with a span; empty where nothing is, or nothing can be said.
func (w *tree) judge(text string) (wrong string, k kind) {
	fields := strings.Fields(text)
	for len(fields) > 0 && strings.Contains(fields[0], "=") && !strings.HasPrefix(fields[0], "-") {
		if name, _, _ := strings.Cut(fields[0], "="); envLike.MatchString(name) && !w.has("", name) {
			return "nothing reads " + name, aName
		}
		fields = fields[1:]
	}
	switch {
	case len(fields) > 1 && fields[0] == "go" && fields[1] == "test", len(fields) > 1 && testLike.MatchString(fields[0]):
		return w.judgeTest(fields), aCommand
	case len(fields) != 1:
		return "", other
	case nameLike.MatchString(fields[0]):
		m := nameLike.FindStringSubmatch(fields[0])
		return w.judgeName("internal/"+strings.TrimPrefix(m[1], "internal/"), m[2]), aName
	case pathLike.MatchString(fields[0]):
		return w.judgePath(fields[0]), aPath
	case fileLike.MatchString(fields[0]):
		if !slices.ContainsFunc(w.paths, func(p string) bool { return path.Base(p) == fields[0] }) {
			return "no file has this name", aPath
		}
		return "", aPath
	case metricLike.MatchString(fields[0]):
		stem := strings.TrimPrefix(fields[0], "tanist_")
		for _, end := range []string{"", "_sum", "_count", "_bucket"} {
			stem, ok := strings.CutSuffix(stem, end)
			if ok && (w.has("internal/front/admin", `"`+stem+`"`) || w.has("internal/front/admin", `"tanist_`+stem+`"`)) {
				return "", aName
			}
		}
		return "no such metric", aName
	case wordLike.MatchString(fields[0]):
		if named[fields[0]] == "" && !w.has("", fields[0]) {
			return "nothing in the tree has this name", aName
		}
		return "", aName
	}
	return "", other
}

// judgePath takes a path from the root, or one that leaves internal out.
func (w *tree) judgePath(p string) string {
	for _, one := range spread(p) {
		one = strings.TrimSuffix(strings.TrimSuffix(one, "..."), "/")
		if !slices.Contains(w.paths, one) && !slices.Contains(w.paths, "internal/"+one) {
			return "no such file or folder: " + one
		}
	}
	return ""
}

// judgeName takes a name that a package declares, or a method or field behind its type.
func (w *tree) judgeName(dir, name string) string {
	kind, member, ok := strings.Cut(name, ".")
	declared := `(?m)^(?:func|type|var|const|\t)\s*` + kind + `\b`
	if ok {
		declared = `(?m)^func \(\w+ \*?` + kind + `\) ` + member + `\b`
	}
	re := regexp.MustCompile(declared)
	for p, text := range w.texts {
		if path.Dir(p) == dir && re.MatchString(text) {
			return ""
		}
	}
	return dir + " has no " + name
}

// spread makes a/{b,c} into a/b and a/c.
func spread(p string) []string {
	before, rest, ok := strings.Cut(p, "{")
	if !ok {
		return []string{p}
	}
	inside, after, _ := strings.Cut(rest, "}")
	var out []string
	for _, x := range strings.Split(inside, ",") {
		out = append(out, spread(before+x+after)...)
	}
	return out
}

// judgeTest takes the words of "go test": its folders, and what -run, -bench and -fuzz are to match in them.
func (w *tree) judgeTest(fields []string) string {
	var dirs []string
	var patterns [][2]string // prefix of a function, what it is to match
	words := quoted(strings.Join(fields, " "))
	for i, f := range words {
		switch {
		case strings.HasPrefix(f, "./"):
			found := w.below(strings.TrimPrefix(f, "./"))
			if len(found) == 0 {
				return "no package " + f
			}
			dirs = append(dirs, found...)
		case i+1 < len(words) && f == "-run":
			patterns = append(patterns, [2]string{"Test", words[i+1]})
		case i+1 < len(words) && f == "-bench":
			patterns = append(patterns, [2]string{"Benchmark", words[i+1]})
		case i+1 < len(words) && f == "-fuzz":
			patterns = append(patterns, [2]string{"Fuzz", words[i+1]})
		}
	}
	bench := slices.ContainsFunc(patterns, func(p [2]string) bool { return p[0] != "Test" })
	for _, p := range patterns {
		if p[1] == "." || bench && p[0] == "Test" {
			continue // -run ^$ or the like: only what is measured runs
		}
		for _, one := range alternatives(p[1]) {
			if wrong := w.matches(dirs, p[0], one); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

// below are the folders with Go files that an argument such as internal/front/... means.
func (w *tree) below(arg string) (out []string) {
	dir, deep := strings.CutSuffix(arg, "...")
	dir = strings.TrimSuffix(dir, "/")
	for p := range w.texts {
		at := path.Dir(p)
		if path.Ext(p) == ".go" && (at == dir || deep && (dir == "." || dir == "" || within(at, dir))) && !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out
}

func (w *tree) matches(dirs []string, prefix, pattern string) string {
	first, second, nested := strings.Cut(pattern, "/")
	re, err := regexp.Compile(first)
	if err != nil {
		return err.Error()
	}
	for _, dir := range dirs {
		for _, f := range w.funcs[dir] {
			if (strings.HasPrefix(f, prefix) || prefix == "Test" && !strings.HasPrefix(f, "Benchmark")) && re.MatchString(f) {
				if nested {
					return w.nested(dirs, second)
				}
				return ""
			}
		}
	}
	return fmt.Sprintf("no function of %s matches %q", strings.Join(dirs, ", "), first)
}

// nested looks for the name of a test within a test: a text in the package, or a file that its tests read.
func (w *tree) nested(dirs []string, pattern string) string {
	for _, one := range alternatives(strings.Trim(pattern, "()^$")) {
		one = strings.Trim(one, "^$")
		found := false
		for p, text := range w.texts {
			for _, dir := range dirs {
				found = found || within(path.Dir(p), dir) && (strings.HasSuffix(p, "_test.go") && strings.Contains(strings.ReplaceAll(text, " ", "_"), one) ||
					strings.Contains(p, "testdata/") && strings.Contains(path.Base(p), one))
			}
		}
		if !found {
			return fmt.Sprintf("no test within a test of %s is called %q", strings.Join(dirs, ", "), one)
		}
	}
	return ""
}

// alternatives splits a pattern at the bars that stand in no brackets.
func alternatives(p string) (out []string) {
	depth, from := 0, 0
	for i, r := range p {
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '|':
			if depth == 0 {
				out, from = append(out, p[from:i]), i+1
			}
		}
	}
	return append(out, p[from:])
}

// quoted splits words as a shell does, as far as documents need it.
func quoted(s string) (out []string) {
	for _, m := range regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`).FindAllStringSubmatch(s, -1) {
		out = append(out, m[1]+m[2]+m[3])
	}
	return out
}

// TestRoomsAreDescribed fails where a package of the product is in no row of the architecture's rooms.
func TestRoomsAreDescribed(t *testing.T) {
	text, err := os.ReadFile("../../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rooms, _ := strings.Cut(string(text), "## Rooms")
	rooms, _, _ = strings.Cut(rooms, "\n## ")
	for _, dir := range plant(t, "../..").below("...") {
		if dir == "internal/tidy" || within(dir, "tools") || dir == "internal/front/amqp/amqptest" || strings.Contains(dir, "testdata") {
			continue // for the house itself and for tests
		}
		base := regexp.QuoteMeta(path.Base(dir))
		if !regexp.MustCompile("[`/{,]" + base + "[`,}]").MatchString(rooms) {
			t.Errorf("no row of the rooms in docs/ARCHITECTURE.md names %s", dir)
		}
	}
}

func TestDocumentsAreJudged(t *testing.T) {
	w := plant(t, "../..")
	for text, wrong := range map[string]bool{
		"go test ./internal/tidy -run 'Docs|Judged'":         false,
		"go test ./internal/tidy -run 'Docs|NeverWasThere'":  true,
		"go test ./internal/was/never":                       true,
		"go test ./internal/front/... -run NeverWas":         true,
		"core/control.Choose":                                false,
		"core/control.Chose":                                 true,
		"core/evidence.Became.Merge":                         false,
		"core/evidence.Became.Part":                          true,
		"go test ./cmd/tanist -run 'Scripts/(first|never1)'": true,
		"go test ./cmd/tanist -run 'Scripts/(first|help)'":   false,
		"SIM_NEVER=1 go test ./sim":                          true,
		"./internal/tidy -run NeverWas":                      true,
		"core/batch":                                         false,
		"core/bitch":                                         true,
		"port/{vfs,clock}":                                   false,
		"port/{vfs,clocks}":                                  true,
		"never_was.go":                                       true,
		"tanist_connections":                                 false,
		"tanist_never":                                       true,
		"follower_loss_hold":                                 false,
		"follower_lost_hold":                                 true,
	} {
		if got, _ := w.judge(text); (got != "") != wrong {
			t.Errorf("%s: %q, wrong is %v", text, got, wrong)
		}
	}
}
