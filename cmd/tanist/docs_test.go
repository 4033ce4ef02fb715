package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tanist/tanist/internal/config"
	"github.com/tanist/tanist/internal/core/catalog"
)

var (
	inText   = regexp.MustCompile("`([^`]+)`")
	variable = regexp.MustCompile(`TANIST_[A-Z][A-Z_]*[A-Z]`)
)

// documented calls each with every piece of code of the documents: what stands between backquotes, and the lines of blocks.
func documented(t *testing.T, each func(where, code string)) {
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
		block := false
		for line := range strings.Lines(string(text)) {
			switch {
			case strings.HasPrefix(line, "```"):
				block = !block
			case block, strings.HasPrefix(line, "    "):
				before, _, _ := strings.Cut(line, " # ")
				each(filepath.Base(name), strings.TrimSpace(before))
			default:
				for _, m := range inText.FindAllStringSubmatch(line, -1) {
					each(filepath.Base(name), strings.ReplaceAll(m[1], `\|`, "|"))
				}
			}
		}
	}
}

// invocation is what follows the program's name in a piece of code that calls it.
func invocation(code string) (args []string, ok bool) {
	code = strings.TrimPrefix(code, "$ ")
	for _, name := range []string{"tanist ", "go run ./cmd/tanist ", "./tanist "} {
		if rest, ok := strings.CutPrefix(code, name); ok {
			return strings.Fields(rest), true
		}
	}
	return nil, false
}

// wrongCall says which verb or flag of a call is not there; empty where all are.
func wrongCall(root *cobra.Command, args []string) string {
	c := root
	for i, a := range args {
		switch sub := under(c, a); {
		case sub != nil:
			c = sub
			continue
		case a == "--":
			return ""
		case strings.HasPrefix(a, "-") && len(a) > 1:
			name, _, _ := strings.Cut(strings.TrimRight(a, ",.;:…)]|"), "=")
			if hasFlag(c, name) {
				continue
			}
			return c.CommandPath() + " has no " + name
		case i == 0, c.HasSubCommands() && c.Use == c.Name():
			if a == "help" || strings.ToUpper(a) == a || strings.ContainsAny(a, "…[<|") { // stands for any of them
				return ""
			}
			return c.CommandPath() + " has no verb " + a
		}
	}
	return ""
}

func under(c *cobra.Command, name string) *cobra.Command {
	for _, sub := range c.Commands() {
		if sub.Name() == name {
			return sub
		}
	}
	return nil
}

func hasFlag(c *cobra.Command, word string) bool {
	if word == "--help" || word == "--version" {
		return true
	}
	name, long := strings.CutPrefix(word, "--")
	if !long {
		return c.Flags().ShorthandLookup(strings.TrimPrefix(word, "-")[:1]) != nil
	}
	return c.Flags().Lookup(name) != nil || c.InheritedFlags().Lookup(name) != nil || c.PersistentFlags().Lookup(name) != nil
}

// every calls do with a command and all below it.
func every(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		every(sub, do)
	}
}

// TestDocsCallWhatIsThere fails where a document calls a verb with a word or a flag that it does not have, or names a flag, a variable or a
// setting that nobody knows.
func TestDocsCallWhatIsThere(t *testing.T) {
	root := newRoot()
	flags := map[string]bool{"--help": true, "--version": true}
	every(root, func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { flags["--"+f.Name] = true })
		}
	})
	variables := []string{"TANIST_CONFIG", "TANIST_URL", "TANIST_ADMIN_URL", "TANIST_USER", "TANIST_PASSWORD", "TANIST_NEW_PASSWORD"}
	for _, s := range config.Settings() {
		variables = append(variables, s.Env())
	}
	calls := 0
	documented(t, func(where, code string) {
		if args, ok := invocation(code); ok {
			calls++
			if wrong := wrongCall(root, args); wrong != "" {
				t.Errorf("%s: `%s`: %s", where, code, wrong)
			}
			if len(args) > 3 && args[0] == "setting" && slices.Contains([]string{"set", "get", "reset"}, args[1]) && !tunable(args[2]) {
				t.Errorf("%s: `%s`: no such setting", where, code)
			}
		} else if word, _, _ := strings.Cut(code, " "); strings.HasPrefix(word, "--") && len(word) > 2 && where != "TESTING.md" {
			if word, _, _ = strings.Cut(word, "="); !flags[word] {
				t.Errorf("%s: `%s`: no verb has this flag", where, code)
			}
		}
		for _, name := range variable.FindAllString(code, -1) {
			if !slices.Contains(variables, name) {
				t.Errorf("%s: `%s`: nothing reads %s", where, code, name)
			}
		}
	})
	if calls < 60 {
		t.Errorf("only %d calls were found: the test reads the documents wrongly", calls)
	}
}

func tunable(name string) bool {
	return slices.ContainsFunc(catalog.AllTunables(), func(x catalog.Tunable) bool { return x.Name == name })
}

func TestCallsAreJudged(t *testing.T) {
	root := newRoot()
	for code, wrong := range map[string]bool{
		"status jobs --json":               false,
		"status jobs --jason":              true,
		"statu jobs":                       true,
		"setting set follower_loss_hold":   false,
		"setting put x":                    true,
		"dev --nodes 5 -- --log-level x":   false,
		"dev --node 5":                     true,
		"bench throughput --vs \"$other\"": false,
		"VERB --help":                      false,
	} {
		if got := wrongCall(root, strings.Fields(code)); (got != "") != wrong {
			t.Errorf("%s: %q, wrong is %v", code, got, wrong)
		}
	}
}
