// Package value holds typed values and tables as declarations and headers exchanges need them: the arguments of a queue, of a
// binding, of a consumer. It is not AMQP's encoding, which lives in front/amqp/wire; widths of numbers are forgotten here,
// so that equality is what a person would call equal.
package value

import (
	"slices"
	"strconv"
)

// Kind says which field of a Value counts.
type Kind uint8

// The kinds of value.
const (
	Null Kind = iota
	Bool      // Int is 0 or 1
	Int
	Float
	String // also byte strings
	Time   // Int is seconds since 1970
	List
	Map
)

// Value is one typed value. Treat it as immutable.
type Value struct {
	Kind  Kind    `json:"k"`
	Int   int64   `json:"i,omitempty"`
	Float float64 `json:"f,omitempty"`
	Str   string  `json:"s,omitempty"`
	List  []Value `json:"l,omitempty"`
	Table Table   `json:"t,omitempty"`
}

// Field is one entry of a table.
type Field struct {
	Name  string `json:"n"`
	Value Value  `json:"v"`
}

// Table is fields in the order given. Names do not repeat.
type Table []Field

// Of makes a Value of a Go bool, int, int64, float64, string, Table or []Value; of anything else Null.
func Of(v any) Value {
	switch v := v.(type) {
	case bool:
		if v {
			return Value{Kind: Bool, Int: 1}
		}
		return Value{Kind: Bool}
	case int:
		return Value{Kind: Int, Int: int64(v)}
	case int64:
		return Value{Kind: Int, Int: v}
	case float64:
		return Value{Kind: Float, Float: v}
	case string:
		return Value{Kind: String, Str: v}
	case Table:
		return Value{Kind: Map, Table: v}
	case []Value:
		return Value{Kind: List, List: v}
	}
	return Value{}
}

// Equal compares values deeply; the order of a table's fields does not matter. A Float equals an Int of the same number.
func (v Value) Equal(o Value) bool {
	if v.Kind != o.Kind {
		if v.Kind == Int && o.Kind == Float {
			return float64(v.Int) == o.Float
		}
		return v.Kind == Float && o.Kind == Int && v.Float == float64(o.Int)
	}
	switch v.Kind {
	case Float:
		return v.Float == o.Float
	case String:
		return v.Str == o.Str
	case List:
		return slices.EqualFunc(v.List, o.List, Value.Equal)
	case Map:
		return v.Table.Equal(o.Table)
	default:
		return v.Int == o.Int
	}
}

// Text is the value as an error message shows it.
func (v Value) Text() string {
	switch v.Kind {
	case Bool:
		return strconv.FormatBool(v.Int != 0)
	case Int, Time:
		return strconv.FormatInt(v.Int, 10)
	case Float:
		return strconv.FormatFloat(v.Float, 'g', -1, 64)
	case String:
		return strconv.Quote(v.Str)
	case List:
		return "a list"
	case Map:
		return "a table"
	default:
		return "none"
	}
}

// Get is the value of a name.
func (t Table) Get(name string) (Value, bool) {
	for _, f := range t {
		if f.Name == name {
			return f.Value, true
		}
	}
	return Value{}, false
}

// Equal compares two tables; the order of fields does not matter.
func (t Table) Equal(o Table) bool {
	if len(t) != len(o) {
		return false
	}
	for _, f := range t {
		v, ok := o.Get(f.Name)
		if !ok || !v.Equal(f.Value) {
			return false
		}
	}
	return true
}
