package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// shellWords stand between the calls of one line.
var shellWords = regexp.MustCompile(` (?:&&|\|\|) `)

// TestEveryVerbHasAnExample fails where a verb that does something shows no call of itself, or one that cannot be made.
func TestEveryVerbHasAnExample(t *testing.T) {
	root := newRoot()
	every(root, func(c *cobra.Command) {
		if c.HasSubCommands() && !runsItself(c) || c.RunE == nil || c.HasParent() && c.Parent().Name() == "completion" {
			return
		}
		own := false
		for line := range strings.Lines(c.Example) {
			for _, piece := range shellWords.Split(strings.TrimSpace(line), -1) {
				args, ok := invocation(piece)
				if wrong := wrongCall(root, args); ok && wrong != "" {
					t.Errorf("%s: example %q: %s", c.CommandPath(), line, wrong)
				}
				own = own || strings.HasPrefix(piece+" ", c.CommandPath()+" ")
			}
		}
		if !own {
			t.Errorf("%s has no example of its own", c.CommandPath())
		}
	})
}

// runsItself reports whether a verb with others below it does something alone, too.
func runsItself(c *cobra.Command) bool { return slices.Contains([]string{"dev", "deleted"}, c.Name()) }

// TestVerbsPrintJSON fails where a verb that prints what it found or did has no --json.
func TestVerbsPrintJSON(t *testing.T) {
	without := []string{"tanist serve", "tanist dev", "tanist dev kill", "tanist dev stop", "tanist dev cont", "tanist dev start"} // they run something, or signal it
	every(newRoot(), func(c *cobra.Command) {
		if c.HasSubCommands() && !runsItself(c) || c.RunE == nil || c.HasParent() && c.Parent().Name() == "completion" {
			return
		}
		if has := c.Flags().Lookup("json") != nil; has == slices.Contains(without, c.CommandPath()) {
			t.Errorf("%s: --json is %v", c.CommandPath(), has)
		}
	})
}

func TestArgumentsAreCompleted(t *testing.T) {
	names := map[string]bool{}
	every(newRoot(), func(c *cobra.Command) {
		if c.HasParent() && !c.HasSubCommands() {
			names[c.CommandPath()] = namesFor(c) != nil
		}
	})
	for path, want := range map[string]bool{
		"tanist status": true, "tanist timeline": true, "tanist evidence": true, "tanist policy": true, "tanist consume": true, "tanist publish": true,
		"tanist list consumers": true, "tanist cursor list": true, "tanist check quorum-critical": true, "tanist node drain": true,
		"tanist user passwd": true, "tanist permission set": true, "tanist plan accept-loss": true, "tanist accept-loss": true, "tanist delete": true,
		"tanist user add": false, "tanist vhost add": false, "tanist config": false, "tanist serve": false,
	} {
		if names[path] != want {
			t.Errorf("%s: names are offered: %v, want %v", path, names[path], want)
		}
	}
}
