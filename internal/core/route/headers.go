package route

import (
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/value"
)

// rule is a binding of a headers exchange, made ready to match.
type rule struct {
	entry
	any  bool
	want value.Table // by name
}

// newRule reads x-match: all (the default), any, all-with-x, any-with-x. Fields whose names begin with x- count only with the
// latter two, and x-match itself never.
func newRule(e entry) rule {
	r := rule{entry: e}
	match, _ := e.binding.Args.Get("x-match")
	base, withX := strings.CutSuffix(match.Str, "-with-x")
	r.any = base == "any"
	for _, f := range e.binding.Args {
		if f.Name != "x-match" && (withX || !strings.HasPrefix(f.Name, "x-")) {
			r.want = append(r.want, f)
		}
	}
	sortByName(r.want)
	return r
}

func sortByName(t value.Table) {
	slices.SortFunc(t, func(a, b value.Field) int { return strings.Compare(a.Name, b.Name) })
}

// matches applies a rule to headers that are sorted by name, in one walk over both: a client may send thousands of either. A field without
// a value asks only that the header be there.
func (r *rule) matches(headers value.Table) bool {
	for _, f := range r.want {
		for len(headers) > 0 && headers[0].Name < f.Name {
			headers = headers[1:]
		}
		ok := len(headers) > 0 && headers[0].Name == f.Name
		if ok && f.Value.Kind != value.Null {
			ok = headers[0].Value.Equal(f.Value)
		}
		if ok == r.any {
			return r.any
		}
	}
	return !r.any
}
