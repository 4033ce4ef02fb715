package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/port/vfs"
)

// The folder identity of a data directory says who the node is to others. It holds one file, so that it changes in one piece: it is
// written aside, synced and renamed. It holds private keys: only the node's own user may read it.
const (
	identityFolder = "identity"
	identityFile   = "node.json"
	identityFormat = 1
	identityLimit  = 4 << 20 // bytes; a certificate and a few hundred peers are far less
)

// identity is that file.
type identity struct {
	Format  int           `json:"format"`
	Cluster ident.StoreID `json:"cluster"`
	Node    string        `json:"node"`
	Store   ident.StoreID `json:"store"`
	// Joined says that the node was taken into a cluster that was there, and waits for its catalog where it has none yet.
	Joined bool `json:"joined"`
	// Material is the node's certificate, its key and the authorities, in PEM; "" where the operator brings them.
	Material string `json:"material,omitempty"`
	// Authority is what the node that begins a cluster writes into the first catalog. Members get it from there.
	Authority *authority `json:"authority,omitempty"`
	// Peers are the other nodes as they were known last: who to ask for the catalog after a restart.
	Peers []knownPeer `json:"peers,omitempty"`
}

type authority struct {
	Certificate string `json:"certificate"` // PEM
	Key         string `json:"key,omitempty"`
}

type knownPeer struct {
	Node    string        `json:"node"`
	Store   ident.StoreID `json:"store"`
	Address string        `json:"address"`
}

// errIdentity is wrapped by what is wrong with the folder.
var errIdentity = errors.New("the node's identity")

func identityPath(dir string) string { return path.Join(dir, identityFolder, identityFile) }

// readIdentity reads the file; nil if there is none. A damaged one is an error that says what to do.
func readIdentity(fsys vfs.FS, dir string) (id *identity, err error) {
	name := identityPath(dir)
	f, err := fsys.OpenRead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errIdentity, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, identityLimit))
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", errIdentity, name, err)
	}
	id = &identity{}
	if err := json.Unmarshal(text, id); err != nil || id.Format == 0 {
		return nil, fmt.Errorf("%w: %s is damaged (%v); put it back from a backup; a node that is alone makes it anew: "+
			"move it away and start once without --mesh", errIdentity, name, err)
	}
	if id.Format > identityFormat {
		return nil, fmt.Errorf("%w: %s has format %d, this program knows %d; run the version of tanist that wrote it, or a later one",
			errIdentity, name, id.Format, identityFormat)
	}
	return id, nil
}

// write makes the file durable in one piece.
func (id *identity) write(fsys vfs.FS, dir string) error {
	id.Format = identityFormat
	text, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("%w: %w", errIdentity, err)
	}
	if err := replaceFile(fsys, identityPath(dir), append(text, '\n')); err != nil {
		return fmt.Errorf("%w: %w", errIdentity, err)
	}
	return fsys.SyncDir(dir)
}

// replaceFile writes a file aside, and then gives it its name. Its folder is made if missing.
func replaceFile(fsys vfs.FS, name string, text []byte) error {
	folder, aside := path.Dir(name), name+".new"
	if err := fsys.MkdirAll(folder); err != nil {
		return err
	}
	if err := fsys.Remove(aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(aside)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", aside, err)
	}
	if err := fsys.Rename(aside, name); err != nil {
		return err
	}
	return fsys.SyncDir(folder)
}

// is checks that the identity is that of a node over a store.
func (id *identity) is(local ident.Instance, dir string) error {
	switch {
	case id.Store != local.Store:
		return fmt.Errorf("%w: %s is that of store %v, and this directory holds store %v; one of the two was copied from elsewhere: "+
			"put back the one that belongs here", errIdentity, identityPath(dir), id.Store, local.Store)
	case id.Node != local.Node:
		return fmt.Errorf("%w: %s is that of node %q; start it with --name %s", errIdentity, identityPath(dir), id.Node, id.Node)
	}
	return nil
}

// member reports whether the node has others in its cluster, as far as it knew last.
func (id *identity) member() bool { return id.Joined || len(id.Peers) > 0 }

func (id *identity) peers() (out []mesh.Peer) {
	for _, p := range id.Peers {
		out = append(out, mesh.Peer{Node: p.Node, Store: p.Store, Address: p.Address})
	}
	return out
}

func (id *identity) setPeers(list []mesh.Peer) {
	id.Peers = nil
	for _, p := range list {
		if p.Node != id.Node {
			id.Peers = append(id.Peers, knownPeer{p.Node, p.Store, p.Address})
		}
	}
}

func (id *identity) catalogAuthority() catalog.Authority {
	if id.Authority == nil {
		return catalog.Authority{}
	}
	return catalog.Authority{Certificate: id.Authority.Certificate, Key: id.Authority.Key}
}
