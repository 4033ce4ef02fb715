package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/show"
)

// Cluster is a local cluster as its directory keeps it.
type Cluster struct {
	dir string

	Nodes []*Node  `json:"nodes"`
	Flags []string `json:"flags,omitempty"` // for every serve
}

// Node is one node's process. A process id alone proves nothing, since the system gives it again: Began goes with it.
type Node struct {
	dir string

	Name  string `json:"name"`
	AMQP  string `json:"amqp"`
	Admin string `json:"admin"`
	Mesh  string `json:"mesh"`
	PID   int    `json:"pid"`
	Began string `json:"began"` // boot of the machine and time of the process' start
}

const fileName = "dev.json"

// open reads the directory, or begins one.
func open(dir string) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d := &Cluster{dir: dir}
	if err := d.read(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return d, nil
}

// Load reads the directory of a cluster that is there. It fails where there is none; a retry helps once one has been started.
func Load(dir string) (*Cluster, error) {
	d := &Cluster{dir: dir}
	if abs, err := filepath.Abs(dir); err == nil {
		d.dir = abs
	}
	err := d.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no local cluster in %s; `tanist dev` begins one, --data says where another is", d.dir)
	}
	return d, err
}

func (d *Cluster) read() error {
	text, err := os.ReadFile(filepath.Join(d.dir, fileName))
	if err != nil {
		return err
	}
	d.Nodes = nil
	if err := json.Unmarshal(text, d); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(d.dir, fileName), err)
	}
	for _, n := range d.Nodes {
		n.dir = filepath.Join(d.dir, n.Name)
	}
	return nil
}

// update changes the file in one piece, and d to what it says. Several commands may do so at the same time.
func (d *Cluster) update(change func()) error {
	unlock, err := flock(filepath.Join(d.dir, "dev.update"), true)
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.read(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	change()
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	name := filepath.Join(d.dir, fileName)
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// lock keeps a second cluster out of the directory.
func (d *Cluster) lock() (unlock func(), err error) {
	unlock, err = flock(filepath.Join(d.dir, "dev.lock"), false)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("`tanist dev` runs over %s already; choose another directory with --data", d.dir)
	}
	return unlock, err
}

func flock(name string, wait bool) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		if err = syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// plan says which nodes a new cluster has, and where they listen. One that is there keeps its own; one of which nothing has begun is planned
// anew, since its addresses may have been taken.
func (d *Cluster) plan(c *cobra.Command, nodes, port int, flags []string) error {
	if nodes < 1 || nodes > mostNodes {
		return fmt.Errorf("--nodes %d: want 1 to %d", nodes, mostNodes)
	}
	if port != 0 && (port < 1 || port+nodes+meshAbove > 65535) {
		return fmt.Errorf("--base-port %d: want 0, or 1 to %d: mesh ports are %d above", port, 65535-meshAbove-nodes, meshAbove)
	}
	begun := slices.ContainsFunc(d.Nodes, func(n *Node) bool { return n.known() || n.alive() })
	if begun && (c.Flags().Changed("nodes") && nodes != len(d.Nodes) ||
		c.Flags().Changed("base-port") && port != 0 && d.Nodes[0].AMQP != loopback(port)) {
		return fmt.Errorf("the cluster in %s has %s, the first at %s, and keeps them: leave out --nodes and --base-port, or begin another with --data",
			d.dir, show.Plural(len(d.Nodes), "node"), d.Nodes[0].AMQP)
	}
	fresh := make([]*Node, 0, nodes)
	if !begun {
		var free []string
		if port == 0 {
			var err error
			if free, err = freeAddresses(3 * nodes); err != nil {
				return err
			}
		}
		for i := range nodes {
			n := &Node{Name: "n" + strconv.Itoa(i+1)}
			if port == 0 {
				n.AMQP, n.Admin, n.Mesh = free[3*i], free[3*i+1], free[3*i+2]
			} else {
				n.AMQP, n.Admin, n.Mesh = loopback(port+i), loopback(port+i+adminAbove), loopback(port+i+meshAbove)
			}
			n.dir = filepath.Join(d.dir, n.Name)
			fresh = append(fresh, n)
		}
	}
	return d.update(func() {
		if !begun {
			d.Nodes = fresh
		}
		d.Flags = flags
	})
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freeAddresses are addresses that nobody uses now. They are all taken at once, so that no two are the same.
func freeAddresses(n int) (out []string, err error) {
	for range n {
		ln, e := net.Listen("tcp", "127.0.0.1:0")
		if e != nil {
			return nil, e
		}
		defer func() { err = errors.Join(err, ln.Close()) }()
		out = append(out, ln.Addr().String())
	}
	return out, nil
}

// launch starts a node's process, and joins the cluster with it if a member is named.
func (d *Cluster) launch(n *Node, join, token string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := n.vacate(); err != nil {
		return err
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"serve", "--name", n.Name, "--data", n.data(), "--amqp", n.AMQP, "--admin", n.Admin, "--mesh", n.Mesh}
	if join != "" {
		args = append(args, "--join", join)
	}
	cmd := exec.Command(exe, append(args, d.Flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "TANIST_JOIN") })
	if token != "" {
		cmd.Env = append(cmd.Env, "TANIST_JOIN_TOKEN="+token) // flags are seen in process lists
	}
	// In a session of its own: Ctrl-C is for the one that stops the nodes in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	pid := cmd.Process.Pid
	began, _ := processBegan(pid)
	go func() { _ = cmd.Wait() }() // how it ended is seen by who watches it
	name := n.Name
	return d.update(func() {
		for i, x := range d.Nodes {
			if x.Name == name {
				x.PID, x.Began = pid, began
				*n = *x
				d.Nodes[i] = n
			}
		}
	})
}

// vacate waits a little for the node's addresses: a process that was killed holds them until its last thread has gone.
func (n *Node) vacate() error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for end := time.Now().Add(vacateTimeout); ; <-tick.C {
		if err := n.vacant(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// vacant fails where something else listens at the node's addresses: it would be taken for the node.
func (n *Node) vacant() error {
	for _, address := range []string{n.AMQP, n.Admin, n.Mesh} {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("%s: %w; stop what uses the address, or begin a cluster elsewhere with --data and --base-port", n.Name, err)
		}
		if err := ln.Close(); err != nil {
			return err
		}
	}
	return nil
}

// reload takes what another command wrote of the node.
func (n *Node) reload(d *Cluster) error {
	now := &Cluster{dir: d.dir}
	if err := now.read(); err != nil {
		return err
	}
	for _, x := range now.Nodes {
		if x.Name == n.Name {
			n.PID, n.Began = x.PID, x.Began
		}
	}
	return nil
}

func (n *Node) number() int {
	i, _ := strconv.Atoi(strings.TrimPrefix(n.Name, "n")) // its name is one that plan gave
	return i
}

// known says whether the node has a place in a cluster.
func (n *Node) known() bool {
	_, err := os.Stat(filepath.Join(n.data(), "identity", "node.json"))
	return err == nil
}

// States of a process.
const (
	stateRuns   = "runs"
	stateHalted = "halted"
	stateGone   = "gone"
)

// state is what the node's process does.
func (n *Node) state() string {
	began, letter := processBegan(n.PID)
	switch {
	case n.PID == 0 || began != n.Began || letter == "Z" || letter == "X":
		return stateGone
	case letter == "T":
		return stateHalted
	}
	return stateRuns
}

func (n *Node) alive() bool { return n.state() != stateGone }

// processBegan tells a process from any other that had or will have its number, and says in which state it is.
func processBegan(pid int) (began, letter string) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	boot, err2 := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || err2 != nil {
		return "", ""
	}
	// The name stands in parentheses, and may hold any.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", ""
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[19], fields[0]
}

const lookEvery = 20 * time.Millisecond

// await waits until the process is in a state.
func (n *Node) await(state string, most time.Duration) bool {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for end := time.Now().Add(most); n.state() != state; <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// awaitReady waits until the node takes clients, or fails with the end of its log. Where that takes long it says once for what it waits: a node
// whose cluster has no majority waits for the others.
func (n *Node) awaitReady(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	late := time.NewTimer(lateAfter)
	defer late.Stop()
	var why error
	for {
		switch now := n.ready(ctx); {
		case now == nil:
			return nil
		case why == nil || ctx.Err() == nil: // else it was the end of the wait that ended it
			why = now
		}
		if !n.alive() {
			return fmt.Errorf("%s ended; its log %s says last:\n%s", n.Name, n.log(), tail(n.log()))
		}
		select {
		case <-tick.C:
		case <-late.C:
			fmt.Fprintf(w, "%s runs as process %d, and is not ready yet: %v; where other nodes are down, start them too\n", n.Name, n.PID, why)
		case <-ctx.Done():
			return fmt.Errorf("%s runs, and is not ready: %w; its log is %s", n.Name, why, n.log())
		}
	}
}

func (n *Node) ready(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Admin+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return err
}

// tail is the end of a log.
func tail(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "\n")
}

// watch says when a node's process ends, begins or halts, until ctx ends.
func (d *Cluster) watch(ctx context.Context, w io.Writer) {
	said := map[string]string{}
	for _, n := range d.Nodes {
		said[n.Name] = fmt.Sprint(n.PID, n.state())
	}
	tick := time.NewTicker(10 * lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, n := range d.Nodes {
			if n.reload(d) != nil {
				continue // the next look tells
			}
			now := fmt.Sprint(n.PID, n.state())
			if now == said[n.Name] {
				continue
			}
			said[n.Name] = now
			switch n.state() {
			case stateGone:
				fmt.Fprintf(w, "%s (process %d) has ended; `tanist dev start %s` starts it again\n", n.Name, n.PID, d.argument(n))
			case stateHalted:
				fmt.Fprintf(w, "%s (process %d) is halted; `tanist dev cont %s` lets it go on\n", n.Name, n.PID, d.argument(n))
			default:
				fmt.Fprintf(w, "%s (process %d) runs\n", n.Name, n.PID)
			}
		}
	}
}
