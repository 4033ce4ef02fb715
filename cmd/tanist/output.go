package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/show"
)

func jsonFlag(c *cobra.Command, to *bool) { show.JSONFlag(c, to) }

func printJSON(w io.Writer, v any) error { return show.JSON(w, v) }

func table(w io.Writer, header string, rows [][]string) error { return show.Table(w, header, rows) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// plural is a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
