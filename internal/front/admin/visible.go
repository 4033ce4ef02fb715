package admin

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible is a name as it can be told apart from any other, on a page or a terminal: what cannot be seen, would move the text beside it, or
// is no text, is written as \x1b or \u202e. Names of queues are any bytes that a client likes.
func Visible(name string) string {
	var out strings.Builder
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&out, `\x%02x`, name[i])
		case r == ' ' || unicode.IsPrint(r):
			out.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&out, `\x%02x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		i += n
	}
	return out.String()
}
