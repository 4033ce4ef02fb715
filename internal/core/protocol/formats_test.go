package protocol

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// The numbers of kinds that docs/FORMATS.md lists are those that there are.
func TestKindsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/FORMATS.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[kind]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(\d+)(?:–(\d+))?  +[a-z]`).FindAllStringSubmatch(string(text), -1) {
		from, err := strconv.ParseUint(m[1], 10, 8)
		if err != nil {
			t.Fatal(err)
		}
		to := from
		if m[2] != "" {
			if to, err = strconv.ParseUint(m[2], 10, 8); err != nil {
				t.Fatal(err)
			}
		}
		for k := from; k <= to; k++ {
			listed[kind(k)] = true
		}
	}
	known := everyMessage()
	for k := range known {
		if !listed[k] {
			t.Errorf("kind %d (%T) is not listed", k, known[k])
		}
		delete(listed, k)
	}
	if len(listed) > 0 {
		t.Errorf("listed, and not there: %v", fmt.Sprint(listed))
	}
}
