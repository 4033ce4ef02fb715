package catalog

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tanist/tanist/internal/core/value"
)

// canonical encodes a table so that equal tables have equal strings, whatever the order of their fields.
func canonical(t value.Table) string {
	if len(t) == 0 {
		return ""
	}
	c := writer(nil)
	s := sorted(t)
	c.table(&s)
	return string(c.Buf)
}

func sorted(t value.Table) value.Table {
	t = slices.Clone(t)
	slices.SortFunc(t, func(a, b value.Field) int { return strings.Compare(a.Name, b.Name) })
	for i := range t {
		t[i].Value = sortedValue(t[i].Value)
	}
	return t
}

func sortedValue(v value.Value) value.Value {
	switch v.Kind {
	case value.Map:
		v.Table = sorted(v.Table)
	case value.List:
		v.List = slices.Clone(v.List)
		for i := range v.List {
			v.List[i] = sortedValue(v.List[i])
		}
	case value.Float:
		if v.Float >= -1<<53 && v.Float <= 1<<53 && float64(int64(v.Float)) == v.Float {
			return value.Value{Kind: value.Int, Int: int64(v.Float)} // equal, so the same
		}
	}
	return v
}

// EquivalentExchange says whether a declaration matches an exchange that exists: nil, or Inequivalent with the first difference, in
// RabbitMQ's order.
func EquivalentExchange(have, want *Exchange) *Refusal {
	d := difference{&Refusal{Code: Inequivalent, What: "exchange", Name: have.Name, VHost: have.VHost}, false}
	d.text("type", have.Type, want.Type)
	d.bool("durable", have.Durable, want.Durable)
	d.bool("auto_delete", have.AutoDelete, want.AutoDelete)
	d.bool("internal", have.Internal, want.Internal)
	d.text("alternate-exchange", have.Alternate, want.Alternate)
	d.table(have.Args, want.Args)
	return d.result()
}

// EquivalentResource says whether a declaration matches a resource that exists: nil; Locked if it is exclusive to another session;
// or Inequivalent with the first difference, in RabbitMQ's order. Args are compared whole, so they must hold only arguments that
// count, and before Kind, so that the argument which asks for another kind is the one named.
func EquivalentResource(have, want *Resource) *Refusal {
	what := string(have.Kind)
	if have.Exclusive && (want.Home == nil || have.Home == nil || *have.Home != *want.Home) {
		return &Refusal{Code: Locked, What: what, Name: have.Name, VHost: have.VHost}
	}
	d := difference{&Refusal{Code: Inequivalent, What: what, Name: have.Name, VHost: have.VHost}, false}
	d.bool("durable", have.Durable, want.Durable)
	d.bool("auto_delete", have.AutoDelete, want.AutoDelete)
	d.bool("exclusive", have.Exclusive, want.Exclusive)
	d.table(have.Args, want.Args)
	d.text("kind", string(have.Kind), string(want.Kind))
	return d.result()
}

// difference keeps the first of several differences.
type difference struct {
	r     *Refusal
	found bool
}

func (d *difference) result() *Refusal {
	if d.found {
		return d.r
	}
	return nil
}

func (d *difference) text(argument, have, want string) {
	if have != want && !d.found {
		d.found = true
		d.r.Argument, d.r.Have, d.r.Want = argument, have, want
	}
}

func (d *difference) bool(argument string, have, want bool) {
	d.text(argument, strconv.FormatBool(have), strconv.FormatBool(want))
}

func (d *difference) table(have, want value.Table) {
	if d.found || have.Equal(want) {
		return
	}
	var names []string
	for _, f := range slices.Concat(have, want) {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		h, hok := have.Get(name)
		w, wok := want.Get(name)
		if hok != wok || !h.Equal(w) {
			d.differ(name, argText(h, hok), argText(w, wok))
			return
		}
	}
}

// differ records a difference even where both sides read the same.
func (d *difference) differ(argument, have, want string) {
	d.found = true
	d.r.Argument, d.r.Have, d.r.Want = argument, have, want
}

func argText(v value.Value, ok bool) string {
	switch {
	case !ok:
		return "none"
	case v.Kind == value.String:
		return v.Str
	}
	return v.Text()
}
