// Package identity keeps the file that says who a node is to others: its cluster, its name and store, its certificate, and the peers that it
// knew last. It reads the file, writes it in one piece, and tells one that is damaged or another's. It decides nothing about membership.
package identity

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/port/trust"
	"github.com/tanist/tanist/internal/port/vfs"
)

// The folder identity of a data directory says who the node is to others. It holds one file, so that it changes in one piece: it is
// written aside, synced and renamed. It holds private keys: only the node's own user may read it.
const (
	folder = "identity"
	file   = "node.json"
	format = 1
	limit  = 4 << 20 // bytes; a certificate and a few hundred peers are far less
)

// File is that file.
type File struct {
	Format  int           `json:"format"`
	Cluster ident.StoreID `json:"cluster"`
	Node    string        `json:"node"`
	Store   ident.StoreID `json:"store"`
	// Joined says that the node was taken into a cluster that was there, and waits for its catalog where it has none yet.
	Joined bool `json:"joined"`
	// Material is the node's certificate, its key and the authorities, in PEM; "" where the operator brings them.
	Material string `json:"material,omitempty"`
	// Authority is what the node that begins a cluster writes into the first catalog. Members get it from there.
	Authority *Authority `json:"authority,omitempty"`
	// Generation is the lowest of the catalog that the node takes part in while it has none; zero: the first.
	Generation ident.Generation `json:"generation,omitzero"`
	// Superseded says that the catalog was recovered without this node: it does not start again before its own is put aside.
	Superseded *Superseded `json:"superseded,omitempty"`
	// Peers are the other nodes as they were known last: who to ask for the catalog after a restart.
	Peers []Peer `json:"peers,omitempty"`
}

// Authority is the cluster's authority; Key is empty where the node has only its certificate.
type Authority struct {
	Certificate string `json:"certificate"` // PEM
	Key         string `json:"key,omitempty"`
}

// Superseded is who said that it goes by a later generation of the catalog than this node, by which one, and when.
type Superseded struct {
	By         string           `json:"by"`
	Generation ident.Generation `json:"generation"`
	At         int64            `json:"at"` // milliseconds since 1970
}

// Peer is another node of the cluster. Address is where its mesh was reached last.
type Peer struct {
	Node    string        `json:"node"`
	Store   ident.StoreID `json:"store"`
	Address string        `json:"address"`
}

// ErrUnusable is wrapped by every error that is about the folder: damaged, of another store or node, of a later format, or not to be written. A
// retry does not help; the text says what does.
var ErrUnusable = errors.New("the node's identity")

// Path is the file's name in a data directory.
func Path(dir string) string { return path.Join(dir, folder, file) }

// Read reads the file; nil if there is none. A damaged one is an error that says what to do.
func Read(fsys vfs.FS, dir string) (id *File, err error) {
	name := Path(dir)
	f, err := fsys.OpenRead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, limit))
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", ErrUnusable, name, err)
	}
	id = &File{}
	if err := json.Unmarshal(text, id); err != nil || id.Format == 0 {
		return nil, fmt.Errorf("%w: %s is damaged (%v); put it back from a backup, or move it away and start "+
			"the node once without --mesh: one that is alone makes it anew, a member is told what else to do", ErrUnusable, name, err)
	}
	if id.Format > format {
		return nil, fmt.Errorf("%w: %s has format %d, this program knows %d; run the version of tanist that wrote it, or a later one",
			ErrUnusable, name, id.Format, format)
	}
	return id, nil
}

// Write makes the file durable in one piece. An error is ErrUnusable; a retry is safe.
func (id *File) Write(fsys vfs.FS, dir string) error {
	id.Format = format
	text, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	err = fsys.MkdirAll(path.Join(dir, folder))
	if err == nil {
		err = vfs.Replace(fsys, Path(dir), append(text, '\n'))
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return nil
}

// Is checks that the identity is that of a node over a store.
func (id *File) Is(local ident.Instance, dir string) error {
	switch {
	case id.Store != local.Store:
		return fmt.Errorf("%w: %s is that of store %v, and this directory holds store %v; one of the two was copied from elsewhere: "+
			"put back the one that belongs here", ErrUnusable, Path(dir), id.Store, local.Store)
	case id.Node != local.Node:
		return fmt.Errorf("%w: %s is that of node %q; start it with --name %s", ErrUnusable, Path(dir), id.Node, id.Node)
	}
	return nil
}

// Member reports whether the node has others in its cluster, as far as it knew last.
func (id *File) Member() bool { return id.Joined || len(id.Peers) > 0 }

// MeshPeers are the peers as the mesh takes them.
func (id *File) MeshPeers() (out []mesh.Peer) {
	for _, p := range id.Peers {
		out = append(out, mesh.Peer{Node: p.Node, Store: p.Store, Address: p.Address})
	}
	return out
}

// SetPeers takes other peers in place of those known; the node itself is none. It writes nothing.
func (id *File) SetPeers(list []mesh.Peer) {
	id.Peers = nil
	for _, p := range list {
		if p.Node != id.Node {
			id.Peers = append(id.Peers, Peer{p.Node, p.Store, p.Address})
		}
	}
}

// CatalogAuthority is the authority as the catalog keeps it; zero where the node has none.
func (id *File) CatalogAuthority() catalog.Authority {
	if id.Authority == nil {
		return catalog.Authority{}
	}
	return catalog.Authority{Certificate: id.Authority.Certificate, Key: id.Authority.Key}
}

// Sign gives the node a certificate of an authority that is at hand.
func (id *File) Sign(a *trust.Authority) error {
	key, err := trust.NewKey()
	if err != nil {
		return err
	}
	request, err := trust.NewRequest(id.Node, key)
	if err != nil {
		return err
	}
	der, err := a.Issue(rand.Reader, id.Node, request, time.Now())
	if err != nil {
		return err
	}
	material, err := trust.NewMaterial([][]byte{der}, key, [][]byte{a.Certificate()})
	if err != nil {
		return err
	}
	return id.Hold(material)
}

// Hold keeps a certificate with its key in the identity.
func (id *File) Hold(m *trust.Material) error {
	text, err := m.Encode()
	id.Material = string(text)
	return err
}
