package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAMQP091 runs the integration tests of rabbitmq/amqp091-go, as its module ships them, against a broker that is alone, and against
// each node of a cluster of three.
func TestAMQP091(t *testing.T) {
	suite := newSuite(t)
	t.Run("alone", func(t *testing.T) {
		b := newBroker(t)
		b.start()
		suite.run(t, b)
	})
	t.Run("cluster", func(t *testing.T) {
		for i, b := range newCluster(t, 3).nodes {
			if i == 0 || !testing.Short() {
				t.Run(b.name, func(t *testing.T) { suite.run(t, b) })
			}
		}
	})
}

// suite is the built tests of the module.
type suite struct {
	dir, binary string
	skips       []string
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	s := &suite{dir: copyModule(t, "github.com/rabbitmq/amqp091-go")}
	s.skips = readSkips(t, s.dir)
	s.binary = filepath.Join(s.dir, "suite.test")
	build := exec.Command("go", "test", "-tags", "integration", "-c", "-o", s.binary, ".")
	build.Dir = s.dir
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the suite: %v\n%s", err, out)
	}
	return s
}

// races are tests that race with themselves, and why: on a busy machine they may fail whatever a broker does. They are run again then, at most
// raceAgain times, and must pass once. That what they wait for comes soon is held by a test here.
var races = map[string]string{
	"TestDeclareArgsRejectToDeadLetterQueue": "gives up after ten gets on one channel, which take half a millisecond; meanwhile another thread of the test " +
		"has to be handed the message and reject it. TestDeadLettersComeSoon measures the broker's part",
}

const raceAgain = 3

// start runs tests of the suite to their end.
func (s *suite) start(b *broker, args ...string) ([]byte, error) {
	cmd := exec.Command(s.binary, append([]string{"-test.timeout", "5m", "-test.v"}, args...)...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "AMQP_URL="+b.url())
	return cmd.CombinedOutput()
}

// raced runs what failed again if nothing but races did, and reports whether all of it has passed since.
func (s *suite) raced(t *testing.T, b *broker, out []byte) bool {
	t.Helper()
	failed := regexp.MustCompile(`(?m)^--- FAIL: (\S+)`).FindAllSubmatch(out, -1)
	for _, m := range failed {
		name := string(m[1])
		if races[name] == "" || !s.passes(b, name) {
			return false
		}
		t.Logf("%s failed and passed when it was run again: it %s", name, races[name])
	}
	return len(failed) > 0 && !strings.Contains(string(out), "\npanic: ")
}

// passes reports whether a test passes alone.
func (s *suite) passes(b *broker, name string) bool {
	for range raceAgain {
		if out, err := s.start(b, "-test.run", "^"+name+"$"); err == nil && strings.Contains(string(out), "--- PASS: "+name) {
			return true
		}
	}
	return false
}

func (s *suite) run(t *testing.T, b *broker) {
	t.Helper()
	began := time.Now()
	out, err := s.start(b, "-test.run", "^Test", "-test.skip", "^("+strings.Join(s.skips, "|")+")$")
	passed := regexp.MustCompile(`(?m)^--- PASS`).FindAll(out, -1)
	for _, line := range regexp.MustCompile(`(?m)^ *--- SKIP.*$`).FindAll(out, -1) {
		t.Errorf("skipped and not listed with a reason: %s", line)
	}
	if err != nil && !s.raced(t, b, out) {
		fatal(t, "%v\n%s", err, failures(string(out)))
	}
	if len(passed) < 100 {
		t.Fatalf("only %d tests were run", len(passed))
	}
	t.Logf("%d tests passed in %v, %d are skipped for the reasons in amqp091_skips.txt", len(passed), time.Since(began).Round(time.Second), len(s.skips))
}

// failures leaves out what passed.
func failures(out string) string {
	var b strings.Builder
	block := ""
	for _, line := range strings.SplitAfter(out, "\n") {
		if strings.HasPrefix(line, "=== RUN") {
			block = ""
		}
		block += line
		if strings.HasPrefix(line, "--- FAIL") || strings.HasPrefix(line, "panic") || strings.HasPrefix(line, "FAIL") {
			b.WriteString(block)
			block = ""
		}
	}
	b.WriteString(block)
	s := b.String()
	return s[max(0, len(s)-32<<10):]
}

// copyModule copies a module of the module cache, which is read-only, to where its tests can be built.
func copyModule(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "module")
	if err := os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(out)))); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o755) // so that the temporary directory can be removed
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// readSkips reads the names that are skipped, and demands that each has a reason and is a test.
func readSkips(t *testing.T, module string) []string {
	t.Helper()
	f, err := os.Open("amqp091_skips.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tests := testNames(t, module)
	var skips []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, _ := strings.Cut(line, " ")
		if strings.TrimSpace(reason) == "" {
			t.Errorf("%s is skipped without a reason", name)
		}
		if !slices.Contains(tests, name) {
			t.Errorf("%s is skipped and is no test", name)
		}
		skips = append(skips, name)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for name := range races {
		if !slices.Contains(tests, name) || slices.Contains(skips, name) {
			t.Errorf("%s is said to race with itself, and is skipped or no test", name)
		}
	}
	return skips
}

func testNames(t *testing.T, module string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(module, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}
