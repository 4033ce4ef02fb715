// Package authz decides who may do what: rights on names in a virtual host, where guest may come from, who may use the admin port.
// It knows users and permissions as values of the catalog. Passwords and certificates are checked elsewhere; they may not come in.
package authz

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// Right is one of the three that a permission gives.
type Right uint8

// The rights.
const (
	Configure Right = iota // declare and delete
	Write                  // publish to, bind to
	Read                   // consume from, purge, bind from
)

// String is the right's name.
func (r Right) String() string { return [...]string{"configure", "write", "read"}[r] }

// Roles of a user on the admin port.
const (
	Administrator = catalog.Administrator
	Monitoring    = "monitoring"
)

// Guest is the user of a fresh cluster. It may log in from the same machine only.
const Guest = "guest"

// DefaultExchange is the name by which patterns see the exchange "".
const DefaultExchange = "amq.default"

// anything is the usual pattern of who may do everything.
const anything = ".*"

// maxCached bounds the compiled patterns that are kept.
const maxCached = 4096

// Checker decides with compiled patterns. It is not safe for concurrent use: each loop keeps its own.
type Checker struct {
	compiled map[string]*regexp.Regexp // nil: matches nothing
	grants   map[grant]bool
	view     *catalog.View
}

type grant struct {
	permission *catalog.Permission
	right      Right
	name       string
}

// New makes a checker over a view that its caller keeps up to date.
func New(view *catalog.View) *Checker {
	return &Checker{compiled: map[string]*regexp.Regexp{}, grants: map[grant]bool{}, view: view}
}

// Allowed reports whether a user has a right on a name in a virtual host. It allocates nothing for a name asked before.
func (c *Checker) Allowed(user, vhost string, right Right, name string) bool {
	p := c.view.Permission(user, vhost)
	if p == nil {
		return false
	}
	if [...]string{p.Configure, p.Write, p.Read}[right] == anything {
		return true // nothing has to be remembered of each name
	}
	if name == "" {
		name = DefaultExchange
	}
	g := grant{p, right, name}
	ok, known := c.grants[g]
	if !known {
		ok = c.match(p, right, name)
		if len(c.grants) >= maxCached {
			clear(c.grants)
		}
		c.grants[g] = ok
	}
	return ok
}

// Login reports whether a user may open a virtual host: it has any permission there, though it be empty.
func (c *Checker) Login(user, vhost string) bool { return c.view.Permission(user, vhost) != nil }

func (c *Checker) match(p *catalog.Permission, right Right, name string) bool {
	pattern := [...]string{p.Configure, p.Write, p.Read}[right]
	re, ok := c.compiled[pattern]
	if !ok {
		re, _ = compile(pattern) // a pattern that cannot be compiled was refused by Validate, and grants nothing
		if len(c.compiled) >= maxCached {
			clear(c.compiled)
		}
		c.compiled[pattern] = re
	}
	return re != nil && re.MatchString(name)
}

// compile makes a pattern's expression. As RabbitMQ has it: a pattern matches anywhere in a name unless it says ^ or $, and the
// empty pattern, which stands for "^$", matches no name.
func compile(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil
	}
	return regexp.Compile(pattern)
}

// Validate checks a permission's patterns, before they are proposed to the catalog.
func Validate(p *catalog.Permission) error {
	for right, pattern := range []string{p.Configure, p.Write, p.Read} {
		if _, err := compile(pattern); err != nil {
			return fmt.Errorf("%s pattern %q: %w", Right(right), pattern, err)
		}
	}
	return nil
}

// FromHere reports whether a user may log in from where it comes: guest only from this machine.
func FromHere(user string, loopback bool) bool { return user != Guest || loopback }

// MayRead reports whether a user with these roles may read on the admin port.
func MayRead(roles []string) bool { return slices.Contains(roles, Monitoring) || MayAdminister(roles) }

// MayAdminister reports whether a user with these roles may change things on the admin port.
func MayAdminister(roles []string) bool { return slices.Contains(roles, Administrator) }

// Identity is what a node's certificate says that it is: a node is its certificate's identity, bound to one cluster (design 6,
// "Security"). How a certificate says it, and that it may be believed, is port/trust's business; where the certificate is bound by its
// authority alone, Cluster is that of the authority.
type Identity struct {
	Cluster ident.StoreID
	Node    string
}

// Member reports whether an identity is that of a member of the catalog's cluster.
func (i Identity) Member(v *catalog.View) bool {
	k := v.Cluster()
	return k != nil && k.ID == i.Cluster && v.Node(i.Node) != nil
}
