package catalog

import "github.com/tanist/tanist/internal/core/ident"

// DefaultVHost is the virtual host of a fresh cluster.
const DefaultVHost = "/"

// Administrator is the role of users who may change everything by the admin port. One of them is always left.
const Administrator = "administrator"

// Bootstrap is what the catalog of a fresh cluster begins with: its id, the virtual host "/", and the user guest, an administrator who
// may do everything there. hash is that of guest's password.
func Bootstrap(id ident.StoreID, hash string) []Item {
	const guest, everything = "guest", ".*"
	return []Item{
		InitCluster(id),
		CreateVHost(DefaultVHost),
		PutUser(User{Name: guest, Hash: hash, Roles: []string{Administrator}}),
		PutPermission(Permission{User: guest, VHost: DefaultVHost, Configure: everything, Write: everything, Read: everything}),
	}
}
