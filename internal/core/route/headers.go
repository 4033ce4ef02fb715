package route

import (
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/value"
)

// rule is a binding of a headers exchange, made ready to match.
type rule struct {
	entry
	any  bool
	want value.Table
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
	return r
}

func changeRule(l *[]rule, e entry, gone bool) int {
	i, found := slices.BinarySearchFunc(*l, e, func(a rule, b entry) int { return catalog.CompareBindings(a.binding, b.binding) })
	switch {
	case gone && found:
		*l = slices.Delete(*l, i, i+1)
		return -1
	case !gone && !found:
		*l = slices.Insert(*l, i, newRule(e))
		return 1
	}
	return 0
}

// matches applies a rule. A field without a value asks only that the header be there.
func (r *rule) matches(headers value.Table) bool {
	for _, f := range r.want {
		v, ok := headers.Get(f.Name)
		if ok && f.Value.Kind != value.Null {
			ok = v.Equal(f.Value)
		}
		if ok == r.any {
			return r.any
		}
	}
	return !r.any
}
