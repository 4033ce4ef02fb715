package value

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestEqual(t *testing.T) {
	tab := func(fs ...Field) Value { return Of(Table(fs)) }
	a, b := Field{"a", Of(1)}, Field{"b", Of("x")}
	for _, c := range []struct {
		x, y Value
		want bool
	}{
		{Of(1), Of(int64(1)), true},
		{Of(1), Of(1.0), true},
		{Of(1.0), Of(1), true},
		{Of(1), Of(1.5), false},
		{Of(1), Of("1"), false},
		{Of(1), Of(true), false},
		{Of(nil), Value{}, true},
		{Of(nil), Of(0), false},
		{Of(math.NaN()), Of(math.NaN()), false},
		{Of("a"), Of("a"), true},
		{Of([]Value{Of(1), Of(2)}), Of([]Value{Of(1.0), Of(2)}), true},
		{Of([]Value{Of(1), Of(2)}), Of([]Value{Of(2), Of(1)}), false},
		{tab(a, b), tab(b, a), true},
		{tab(a, b), tab(a), false},
		{tab(a), tab(Field{"a", Of(2)}), false},
		{tab(a), tab(Field{"c", Of(1)}), false},
		{Value{Kind: Time, Int: 5}, Of(5), false},
		{Value{Kind: Time, Int: 5}, Value{Kind: Time, Int: 5}, true},
	} {
		if got := c.x.Equal(c.y); got != c.want {
			t.Errorf("%s = %s: %v, want %v", c.x.Text(), c.y.Text(), got, c.want)
		}
	}
}

func TestText(t *testing.T) {
	for want, v := range map[string]Value{
		"none": {}, "true": Of(true), "false": Of(false), "-3": Of(-3), "0.5": Of(0.5), `"a\x00"`: Of("a\x00"), "a list": Of([]Value{}),
		"a table": Of(Table{}), "7": {Kind: Time, Int: 7},
	} {
		if got := v.Text(); got != want {
			t.Errorf("%+v reads %s, want %s", v, got, want)
		}
	}
}

func draw(t *rapid.T, depth int) Value {
	kind := rapid.IntRange(0, int(Map)).Draw(t, "kind")
	if depth == 0 {
		kind = min(kind, int(Time))
	}
	switch Kind(kind) {
	case Bool:
		return Of(rapid.Bool().Draw(t, "bool"))
	case Int:
		return Of(rapid.IntRange(-2, 2).Draw(t, "int"))
	case Float:
		return Of(float64(rapid.IntRange(-4, 4).Draw(t, "float")) / 2)
	case String:
		return Of(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "string"))
	case Time:
		return Value{Kind: Time, Int: int64(rapid.IntRange(0, 2).Draw(t, "time"))}
	case List:
		var l []Value
		for range rapid.IntRange(0, 3).Draw(t, "len") {
			l = append(l, draw(t, depth-1))
		}
		return Of(l)
	case Map:
		var m Table
		for _, n := range []string{"a", "b", "c"} {
			if rapid.Bool().Draw(t, n) {
				m = append(m, Field{n, draw(t, depth-1)})
			}
		}
		return Of(m)
	}
	return Value{}
}

func TestEqualIsAnEquivalence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := draw(t, 2), draw(t, 2), draw(t, 2)
		if !a.Equal(a) {
			t.Fatalf("%+v is not itself", a)
		}
		if a.Equal(b) != b.Equal(a) {
			t.Fatalf("%+v and %+v are equal one way only", a, b)
		}
		if a.Equal(b) && b.Equal(c) && !a.Equal(c) {
			t.Fatalf("%+v, %+v, %+v: not transitive", a, b, c)
		}
		if len(a.Table) > 1 {
			turned := a
			turned.Table = append(append(Table{}, a.Table[1:]...), a.Table[0])
			if !a.Equal(turned) {
				t.Fatalf("the order of %+v matters", a)
			}
		}
	})
}
