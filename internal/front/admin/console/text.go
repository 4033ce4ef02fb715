package console

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tanist/tanist/internal/front/admin"
)

var functions = template.FuncMap{
	"asset": assetURL, "visible": visible, "number": number, "rate": perSecond, "bytes": bytesText, "clock": clock, "took": took, "date": date,
	"day": func(ms int64) string { return date(ms)[:10] }, "hour": func(ms int64) string { return date(ms)[11:] },
	"plural": plural, "toResource": resourceURL, "toTransition": transitionURL, "toTransitions": transitionsURL, "toClients": clientsURL, "toDeletion": deletionURL,
}

// visible is a name as it can be told apart from any other. The template escapes it for HTML.
func visible(name string) string {
	if name == "" {
		return "(no name)"
	}
	return admin.Visible(name)
}

// legible makes a document of what templates gave: text that is none, and what would hide or turn around the text beside it, is written as
// visible writes it. Names are made visible where they stand; this is for every other text that comes from outside.
func legible(document []byte) []byte {
	out := make([]byte, 0, len(document))
	for i := 0; i < len(document); {
		r, n := utf8.DecodeRune(document[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, document[i])
		case r != '\n' && unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, document[i:i+n]...)
		}
		i += n
	}
	return out
}

const thin = "\u202f" // a narrow space between thousands that no line breaks at

// number is a whole number with its thousands apart.
func number(v any) string {
	var digits string
	switch v := v.(type) {
	case int:
		digits = strconv.Itoa(max(v, 0))
	case uint64:
		digits = strconv.FormatUint(v, 10)
	default:
		digits = fmt.Sprint(v)
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + thin + digits[i:]
	}
	return digits
}

// perSecond is a rate, as exact as it is worth.
func perSecond(known bool, v float64) string {
	switch {
	case !known:
		return "–"
	case v < 0.05:
		return "0"
	case v < 10:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	return number(uint64(math.Round(v)))
}

func bytesText(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if u == 0 || v >= 100 {
		return fmt.Sprintf("%.0f%s%s", v, thin, units[u])
	}
	return fmt.Sprintf("%.1f%s%s", v, thin, units[u])
}

// clock is a time of day, which is said in UTC: readers and nodes may live in several zones.
func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// date is a moment, in milliseconds since 1970.
func date(milliseconds int64) string {
	return time.UnixMilli(milliseconds).UTC().Format("2006-01-02 15:04:05")
}

// took is a length of time, given in microseconds.
func took(us int64) string {
	switch v := float64(us); {
	case v < 0:
		return "−" + took(-us)
	case v < 1e3:
		return fmt.Sprintf("%d%sµs", us, thin)
	case v < 1e4:
		return fmt.Sprintf("%.1f%sms", v/1e3, thin)
	case v < 1e6:
		return fmt.Sprintf("%.0f%sms", v/1e3, thin)
	case v < 1e8:
		return fmt.Sprintf("%.2f%ss", v/1e6, thin)
	}
	return fmt.Sprintf("%.0f%ss", float64(us)/1e6, thin)
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// resourceURL is the page of a queue or stream. Names are any bytes: they go into the query, where each has an escape.
func resourceURL(vhost, name string) string {
	return admin.PagesPath + "resource?vhost=" + url.QueryEscape(vhost) + "&name=" + url.QueryEscape(name)
}

func transitionsURL(vhost, name string) string {
	return admin.PagesPath + "transitions?vhost=" + url.QueryEscape(vhost) + "&name=" + url.QueryEscape(name)
}

// clientsURL is the page of clients that consume from a queue or stream, or go by its name.
func clientsURL(resource string) string {
	return admin.PagesPath + "clients?find=" + url.QueryEscape(visible(resource))
}

func deletionURL(vhost, name string) string {
	return admin.PagesPath + "deletion?vhost=" + url.QueryEscape(vhost) + "&name=" + url.QueryEscape(name)
}

func transitionURL(id string) string { return admin.PagesPath + "transition?id=" + url.QueryEscape(id) }
