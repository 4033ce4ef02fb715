package authz

import (
	"fmt"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

func viewOf(objects ...any) *catalog.View {
	v := catalog.NewView()
	for _, o := range objects {
		v.Apply([]catalog.Change{{After: o}})
	}
	return v
}

func TestRightsOnNames(t *testing.T) {
	v := viewOf(
		&catalog.Permission{User: "ada", VHost: "/", Configure: "^ada-.*$", Write: "orders", Read: ""},
		&catalog.Permission{User: "root", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"},
		&catalog.Permission{User: "pub", VHost: "/", Write: "^amq\\.default$"},
		&catalog.Permission{User: "odd", VHost: "/", Configure: "(", Write: "^$", Read: "^(a|b)$"},
	)
	c := New(v)
	for _, x := range []struct {
		user, vhost string
		right       Right
		name        string
		want        bool
	}{
		{"ada", "/", Configure, "ada-1", true},
		{"ada", "/", Configure, "x-ada-1", false},
		{"ada", "/", Write, "my-orders-too", true}, // a pattern matches anywhere unless it says otherwise
		{"ada", "/", Write, "order", false},
		{"ada", "/", Read, "ada-1", false}, // the empty pattern matches nothing
		{"ada", "/", Read, "", false},      // not even the default exchange, which is matched by its own name
		{"ada", "other", Configure, "ada-1", false},
		{"bob", "/", Configure, "ada-1", false},
		{"root", "/", Write, "", true},
		{"root", "/", Read, "x", true},
		{"root", "other", Read, "x", false},
		{"pub", "/", Write, "", true},
		{"pub", "/", Write, "amq.direct", false},
		{"odd", "/", Configure, "(", false}, // a pattern that cannot be compiled grants nothing
		{"odd", "/", Write, "x", false},
		{"odd", "/", Write, "", false},
		{"odd", "/", Read, "b", true},
		{"odd", "/", Read, "ab", false},
	} {
		for range 2 { // decided, then remembered
			if got := c.Allowed(x.user, x.vhost, x.right, x.name); got != x.want {
				t.Errorf("%s may %s %q in %s: %v, want %v", x.user, x.right, x.name, x.vhost, got, x.want)
			}
		}
	}
}

func TestChangedPermissionCountsAtOnce(t *testing.T) {
	before := &catalog.Permission{User: "ada", VHost: "/", Read: ".*"}
	v := viewOf(before)
	c := New(v)
	if !c.Allowed("ada", "/", Read, "q") || !c.Login("ada", "/") {
		t.Fatal("not allowed")
	}
	after := &catalog.Permission{User: "ada", VHost: "/", Read: "^x"}
	v.Apply([]catalog.Change{{Before: before, After: after}})
	if c.Allowed("ada", "/", Read, "q") || !c.Allowed("ada", "/", Read, "x") {
		t.Fatal("the old permission still counts")
	}
	v.Apply([]catalog.Change{{Before: after}})
	if c.Allowed("ada", "/", Read, "x") || c.Login("ada", "/") {
		t.Fatal("a permission that was removed still counts")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	v := viewOf(&catalog.Permission{User: "ada", VHost: "/", Read: "7$"})
	c := New(v)
	for i := range 3 * maxCached {
		name := fmt.Sprint(i)
		if got := c.Allowed("ada", "/", Read, name); got != (i%10 == 7) {
			t.Fatalf("%s: %v", name, got)
		}
	}
	if len(c.grants) > maxCached {
		t.Fatalf("%d verdicts kept", len(c.grants))
	}
	if n := testing.AllocsPerRun(100, func() { c.Allowed("ada", "/", Read, "7") }); n != 0 {
		t.Fatalf("%v allocations for a name asked before", n)
	}
}

func TestValidate(t *testing.T) {
	if err := Validate(&catalog.Permission{Configure: ".*", Write: "", Read: "^a(b|c)$"}); err != nil {
		t.Error(err)
	}
	for _, p := range []catalog.Permission{{Configure: "("}, {Write: "*"}, {Read: "[a"}} {
		if Validate(&p) == nil {
			t.Errorf("%+v was taken", p)
		}
	}
}

func TestWhoFromWhere(t *testing.T) {
	if FromHere(Guest, false) || !FromHere(Guest, true) || !FromHere("ada", false) {
		t.Error("guest comes from this machine only, others from anywhere")
	}
	for _, x := range []struct {
		roles       []string
		read, write bool
	}{
		{[]string{Administrator}, true, true},
		{[]string{Monitoring}, true, false},
		{[]string{Monitoring, Administrator}, true, true},
		{[]string{"other"}, false, false},
		{nil, false, false},
	} {
		if MayRead(x.roles) != x.read || MayAdminister(x.roles) != x.write {
			t.Errorf("%v: read %v, administer %v", x.roles, MayRead(x.roles), MayAdminister(x.roles))
		}
	}
}

func TestNodeIsItsIdentity(t *testing.T) {
	v := viewOf(&catalog.Cluster{ID: ident.StoreID{1}}, &catalog.Node{Name: "n1"})
	for _, x := range []struct {
		id   Identity
		v    *catalog.View
		want bool
	}{
		{Identity{ident.StoreID{1}, "n1"}, v, true},
		{Identity{ident.StoreID{2}, "n1"}, v, false},
		{Identity{ident.StoreID{1}, "n2"}, v, false},
		{Identity{Node: "n1"}, viewOf(&catalog.Node{Name: "n1"}), false},
	} {
		if got := x.id.Member(x.v); got != x.want {
			t.Errorf("%+v is a member: %v", x.id, got)
		}
	}
}
