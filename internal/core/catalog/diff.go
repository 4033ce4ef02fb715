package catalog

import (
	"bytes"
	"fmt"
	"slices"
)

// Diff is what leads from one state to a later one, of which only the end is known: forced deletions that are new, the objects that are
// gone, then those that are new or differ, each before what refers to it. A view of before that applies it is a view of after. An object may have changed several
// times in between; a name that was deleted and declared anew is two changes where its incarnation tells, else one.
func Diff(before, after *State) []Change {
	old, now := before.Changes(), after.Changes()
	had := make(map[string]any, len(old))
	for i := range old {
		had[objectKey(old[i].After)] = old[i].After
	}
	have := make(map[string]struct{}, len(now))
	for i := range now {
		have[objectKey(now[i].After)] = struct{}{}
	}
	var out []Change
	for _, d := range after.view.Deletions() { // before the resources that they tell of go
		if had[objectKey(d)] == nil {
			out = append(out, Change{after.index, nil, d})
		}
	}
	for _, c := range slices.Backward(old) {
		if _, ok := have[objectKey(c.After)]; !ok {
			out = append(out, Change{after.index, c.After, nil})
		}
	}
	for _, c := range now {
		was := had[objectKey(c.After)]
		if _, told := c.After.(*Deletion); told {
			continue // above; it never changes
		}
		if was == nil || !bytes.Equal(encodeObject(was), encodeObject(c.After)) {
			out = append(out, Change{after.index, was, c.After})
		}
	}
	return out
}

// objectKey is what makes an object itself, whatever else of it changes.
func objectKey(object any) string {
	switch o := object.(type) {
	case *Cluster:
		return "cluster"
	case *Setting:
		return "setting " + o.Name
	case *Node:
		return "node " + o.Name
	case *Removed:
		return "removed " + o.Store.String()
	case *Token:
		return "token " + o.ID
	case *Deletion:
		return fmt.Sprintf("deletion %d", o.Incarnation)
	case *VHost:
		return "vhost " + o.Name
	case *User:
		return "user " + o.Name
	case *Permission:
		return fmt.Sprintf("permission %q %q", o.User, o.VHost)
	case *Exchange:
		return fmt.Sprintf("exchange %q %q", o.VHost, o.Name)
	case *Resource:
		return fmt.Sprintf("resource %d", o.Incarnation)
	case *Binding:
		k := keyOf(o)
		return fmt.Sprintf("binding %q %q %q %t %q %q", o.VHost, k.source, k.to.name, k.to.exchange, k.key, k.args)
	}
	panic(fmt.Sprintf("catalog: no key of a %T", object))
}

// encodeObject is an object as in a snapshot.
func encodeObject(object any) []byte {
	c := writer(nil)
	switch o := object.(type) {
	case *Cluster:
		c.cluster(o)
	case *Setting:
		c.setting(o)
	case *Node:
		c.node(o)
	case *Removed:
		c.removed(o)
	case *Token:
		c.token(o)
	case *Deletion:
		c.deletion(o)
	case *VHost:
		c.vhost(o)
	case *User:
		c.user(o)
	case *Permission:
		c.permission(o)
	case *Exchange:
		c.exchange(o)
	case *Resource:
		c.resource(o)
	case *Binding:
		c.binding(o)
	default:
		panic(fmt.Sprintf("catalog: no encoding of a %T", object))
	}
	return c.Buf
}
