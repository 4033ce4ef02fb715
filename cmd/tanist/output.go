package main

import (
	"io"

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

func plural(n int, noun string) string { return show.Plural(n, noun) }
