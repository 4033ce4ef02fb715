package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
)

// TestSettingsOfTheClusterAreDocumented: what an operator reads is what is allowed.
func TestSettingsOfTheClusterAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range catalog.AllTunables() {
		row := fmt.Sprintf("| `%s` | `%s` | %s | %s |\n", s.Name, s.Default, s.Allowed, s.About)
		if !strings.Contains(string(doc), row) {
			t.Errorf("docs/OPERATIONS.md lacks the row\n%s", row)
		}
	}
}
