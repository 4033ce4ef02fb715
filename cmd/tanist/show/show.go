// Package show has the forms that verbs print in.
package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/front/admin"
)

// JSONFlag adds --json.
func JSONFlag(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "json", false, "print JSON")
}

// JSON prints a value for programs. The error is the writer's.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Table prints rows under a header, in columns. Cells may hold names of any bytes: they are made visible. The error is the writer's.
func Table(w io.Writer, header string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(strings.Fields(header), "\t"))
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = admin.Visible(cell)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// Plural is a count with its noun.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// PID shows a process; 0 is none, or one that is not known.
func PID(pid int) string {
	if pid == 0 {
		return "-"
	}
	return strconv.Itoa(pid)
}

// Word is one of two words.
func Word(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}

// Exit is an error that ends the program with a code of its own, whose text was already printed, or needs none.
type Exit int

// Error is for whoever prints it all the same.
func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }
