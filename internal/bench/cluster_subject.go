package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"time"
)

// A Cluster is a Subject: what clients cannot see of it is read from its nodes' HTTP API.
var _ Subject = (*Cluster)(nil)

// apiTimeout bounds an answer of a node's API.
const apiTimeout = 10 * time.Second

// errNotThere is returned for a path that a node does not know.
var errNotThere = errors.New("not known to the node")

// node and partition are what the bench reads of GET /api/v1/nodes and /api/v1/partitions.
type node struct {
	Name       string
	Live       bool
	Controller bool
}

type partition struct {
	Resource, Owner, State, Reason string
	Epoch                          uint64
	Followers                      []string
	Copies                         []struct {
		Node, Role, Health string
		Position, Lag      uint64
	}
}

// Name is the product's.
func (c *Cluster) Name() string { return "tanist" }

// URLs are the addresses of its nodes.
func (c *Cluster) URLs() []string { return c.Target().URLs }

// get asks the first node that answers.
func (c *Cluster) get(ctx context.Context, path string, into any) (err error) {
	err = errors.New("no node runs")
	for i, p := range c.nodes {
		if p.cmd == nil || c.halted[i] {
			continue
		}
		if err = p.get(ctx, path, into); err == nil {
			return nil
		}
	}
	return err
}

// get asks this node's API.
func (p *Process) get(ctx context.Context, path string, into any) error {
	ctx, stop := context.WithTimeout(ctx, apiTimeout)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+path, nil)
	if err != nil {
		return err
	}
	req.SetBasicAuth("guest", "guest")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s: %w", path, errNotThere)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// number is a node's, by its name; -1 for none.
func (c *Cluster) number(name string) int {
	return slices.IndexFunc(c.nodes, func(p *Process) bool { return p.name == name })
}

// partitionsOf is the only partition of each of some resources, in their order.
func (c *Cluster) partitionsOf(ctx context.Context, names []string) ([]partition, error) {
	var list []partition
	if err := c.get(ctx, "/api/v1/partitions", &list); err != nil {
		return nil, err
	}
	at := map[string]*partition{}
	for i := range list {
		at[list[i].Resource] = &list[i]
	}
	out := make([]partition, len(names))
	for i, n := range names {
		if at[n] == nil {
			return nil, fmt.Errorf("no queue or stream %s", n)
		}
		out[i] = *at[n]
	}
	return out, nil
}

// Owners asks the API.
func (c *Cluster) Owners(ctx context.Context, names []string) (out []int, err error) {
	ps, err := c.partitionsOf(ctx, names)
	for _, p := range ps {
		out = append(out, c.number(p.Owner))
	}
	return out, err
}

// Epochs asks the API.
func (c *Cluster) Epochs(ctx context.Context, names []string) (out []uint64, err error) {
	ps, err := c.partitionsOf(ctx, names)
	for _, p := range ps {
		out = append(out, p.Epoch)
	}
	return out, err
}

// Controller asks the API.
func (c *Cluster) Controller(ctx context.Context) (int, error) {
	var list []node
	if err := c.get(ctx, "/api/v1/nodes", &list); err != nil {
		return -1, err
	}
	for _, n := range list {
		if n.Controller {
			return c.number(n.Name), nil
		}
	}
	return -1, errors.New("no node is the controller")
}

// Whole asks the API. A copy counts if it is sound and has all that its owner has.
func (c *Cluster) Whole(ctx context.Context, names []string) error {
	var list []node
	if err := c.get(ctx, "/api/v1/nodes", &list); err != nil {
		return err
	}
	for _, n := range list {
		if !n.Live {
			return fmt.Errorf("%s is not live", n.Name)
		}
	}
	ps, err := c.partitionsOf(ctx, names)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if err := p.whole(min(3, len(c.nodes))); err != nil {
			return fmt.Errorf("%s: %w", p.Resource, err)
		}
	}
	return nil
}

// whole says what a partition lacks of so many level copies.
func (p *partition) whole(copies int) error {
	if p.State != "serving" {
		return fmt.Errorf("it is %s: %s", p.State, p.Reason)
	}
	if len(p.Followers)+1 < copies {
		return fmt.Errorf("%d of %d copies", len(p.Followers)+1, copies)
	}
	for _, c := range p.Copies {
		switch {
		case c.Node == p.Owner && c.Role != "owner", c.Node != p.Owner && c.Role != "follower":
			return fmt.Errorf("the copy on %s is %s", c.Node, c.Role)
		case c.Health != "ok":
			return fmt.Errorf("the copy on %s: %s", c.Node, c.Health)
		case c.Lag > 0:
			return fmt.Errorf("the copy on %s is %d entries behind", c.Node, c.Lag)
		}
	}
	return nil
}

// Story asks the API for what the nodes keep of transitions.
func (c *Cluster) Story(ctx context.Context, names []string) (out []Transition, err error) {
	var list []Transition
	if err := c.get(ctx, "/api/v1/transitions?n=4096", &list); errors.Is(err, errNotThere) {
		return nil, nil // a program that keeps no evidence
	} else if err != nil {
		return nil, err
	}
	for _, t := range list {
		if slices.Contains(names, t.Resource) {
			out = append(out, t)
		}
	}
	return out, nil
}

// Kill ends a node. It is waited for when it is started again.
func (c *Cluster) Kill(node int) error { return c.nodes[node].Signal(syscall.SIGKILL) }

// Halt stops a node's process where it is.
func (c *Cluster) Halt(node int) error {
	c.halted[node] = true
	return c.nodes[node].Signal(syscall.SIGSTOP)
}

// Resume lets it go on.
func (c *Cluster) Resume(node int) error {
	c.halted[node] = false
	return c.nodes[node].Signal(syscall.SIGCONT)
}

// Start starts a node again.
func (c *Cluster) Start(ctx context.Context, node int) error {
	if err := c.nodes[node].Stop(true); err != nil {
		return err
	}
	_, _, err := c.nodes[node].Start(ctx)
	return err
}
