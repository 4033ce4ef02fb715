// Package dev is `tanist dev`: a cluster of processes on this machine, and what can be done to each of them. It runs the program's own binary and
// asks over the admin API; it knows nothing of what is inside a node.
package dev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/login"
	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

// Bounds of a local cluster. Admin and mesh ports stand as far above AMQP's as is usual.
const (
	mostNodes     = 9
	adminAbove    = 10000
	meshAbove     = 20000
	startTimeout  = time.Minute      // for a node to become ready
	lateAfter     = 3 * time.Second  // when it is said for what it waits
	stopTimeout   = 20 * time.Second // for one to stop, before it is ended at once
	vacateTimeout = 3 * time.Second  // for the addresses of one that was killed to be free
	tokenLife     = "10m"
	defaultData   = "tanist-dev" // where a cluster is unless --data says otherwise
)

// New makes the verb.
func New() *cobra.Command {
	var data string
	var nodes, port int
	c := &cobra.Command{
		Use: "dev [-- SERVE FLAGS]", Short: "Run a cluster of three nodes on this machine, for trying it out",
		Long: `Runs a cluster on loopback, each node a process of its own: the first begins it, the others join with tokens made for them. It prints where
everything is, and runs until Ctrl-C, which stops all nodes in order; the next start goes on with the same data. From another terminal, over
the same --data, "kill N", "stop N", "cont N" and "start N" do to node N what happens to nodes. What follows "--" is given to every
"tanist serve". Each node's log is in its directory. When a node goes down, others take over the
queues and streams that it owned.`,
		Example: "  tanist dev\n  tanist dev kill 2\n  tanist dev start 2\n  tanist dev --nodes 5 --data /tmp/five --base-port 6000 -- --log-level debug",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && c.ArgsLenAtDash() != 0 {
				return fmt.Errorf("flags for serve follow --")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			d, err := open(data)
			if err != nil {
				return err
			}
			return d.run(c, nodes, port, args)
		},
	}
	c.PersistentFlags().StringVar(&data, "data", defaultData, "directory of the cluster; each node has one of its own in it")
	c.Flags().IntVar(&nodes, "nodes", 3, "nodes of a new cluster, 1 to 9")
	c.Flags().IntVar(&port, "base-port", 5672, "AMQP port of the first node of a new cluster; the others follow, admin is 10000 above and mesh 20000; 0: any that are free")
	c.AddCommand(newSignal(&data, "kill", "End node N at once, as kill -9 does", syscall.SIGKILL, stateGone, "is killed; `tanist dev start %s` starts it again"),
		newSignal(&data, "stop", "Halt the process of node N where it is (SIGSTOP)", syscall.SIGSTOP, stateHalted, "is halted; `tanist dev cont %s` lets it go on"),
		newSignal(&data, "cont", "Let the process of node N go on (SIGCONT)", syscall.SIGCONT, stateRuns, "goes on"),
		newStart(&data), newStatus(&data))
	return c
}

// process names a node by its number or name.
func (d *Cluster) node(arg string) (*Node, error) {
	i, err := strconv.Atoi(strings.TrimPrefix(arg, "n"))
	if err != nil || i < 1 || i > len(d.Nodes) {
		return nil, fmt.Errorf("no node %q; %s has n1 to n%d", arg, d.dir, len(d.Nodes))
	}
	return d.Nodes[i-1], nil
}

// argument names a node of this cluster to the verbs, wherever its directory is.
func (d *Cluster) argument(n *Node) string {
	if usual, err := filepath.Abs(defaultData); err == nil && usual == d.dir {
		return strconv.Itoa(n.number())
	}
	return fmt.Sprintf("%d --data %s", n.number(), d.dir)
}

func newSignal(data *string, use, short string, signal syscall.Signal, becomes, said string) *cobra.Command {
	return &cobra.Command{
		Use: use + " N", Short: short, Args: cobra.ExactArgs(1), Example: "  tanist dev " + use + " 2",
		RunE: func(c *cobra.Command, args []string) error {
			d, err := Load(*data)
			if err != nil {
				return err
			}
			n, err := d.node(args[0])
			if err != nil {
				return err
			}
			if !n.alive() {
				return fmt.Errorf("%s does not run; `tanist dev start %s` starts it", n.Name, d.argument(n))
			}
			if err := syscall.Kill(n.PID, signal); err != nil {
				return fmt.Errorf("%s (process %d): %w", n.Name, n.PID, err)
			}
			if !n.await(becomes, stopTimeout) {
				return fmt.Errorf("%s (process %d) was sent %v and still %s", n.Name, n.PID, signal, n.state())
			}
			if strings.Contains(said, "%s") {
				said = fmt.Sprintf(said, d.argument(n))
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s (process %d) %s\n", n.Name, n.PID, said)
			return err
		},
	}
}

func newStart(data *string) *cobra.Command {
	return &cobra.Command{
		Use: "start N", Short: "Start node N again", Args: cobra.ExactArgs(1),
		Example: "  tanist dev start 2",
		RunE: func(c *cobra.Command, args []string) error {
			d, err := Load(*data)
			if err != nil {
				return err
			}
			n, err := d.node(args[0])
			if err != nil {
				return err
			}
			if n.alive() {
				return fmt.Errorf("%s runs already, as process %d", n.Name, n.PID)
			}
			join, token, err := d.place(c.Context(), n)
			if err != nil {
				return err
			}
			if join != "" {
				fmt.Fprintf(c.OutOrStdout(), "%s has no data: it takes its place in the cluster anew\n", n.Name)
			}
			if err := d.launch(n, join, token); err != nil {
				return err
			}
			if err := n.awaitReady(c.Context(), c.ErrOrStderr()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s runs as process %d\n", n.Name, n.PID)
			return err
		},
	}
}

func newStatus(data *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "status", Short: "Show the cluster's processes and addresses", Args: cobra.NoArgs,
		Example: "  tanist dev status",
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := Load(*data)
			if err != nil {
				return err
			}
			return d.print(c.OutOrStdout(), asJSON)
		},
	}
	show.JSONFlag(c, &asJSON)
	return c
}

// print shows the nodes.
func (d *Cluster) print(w io.Writer, asJSON bool) error {
	type shown struct {
		Name  string `json:"name"`
		PID   int    `json:"pid"`
		State string `json:"state"`
		AMQP  string `json:"amqp"`
		Admin string `json:"admin"`
		Data  string `json:"data"`
		Log   string `json:"log"`
	}
	out, rows := []shown{}, [][]string{}
	for _, n := range d.Nodes {
		s := shown{n.Name, n.PID, n.state(), "amqp://" + n.AMQP, "http://" + n.Admin, n.data(), n.log()}
		if s.State == stateGone {
			s.PID = 0
		}
		out = append(out, s)
		rows = append(rows, []string{s.Name, show.PID(s.PID), s.State, s.AMQP, s.Admin, s.Log})
	}
	if asJSON {
		return show.JSON(w, out)
	}
	return show.Table(w, "NODE PROCESS STATE AMQP ADMIN LOG", rows)
}

// run has the cluster up until the command ends.
func (d *Cluster) run(c *cobra.Command, nodes, port int, flags []string) error {
	start := time.Now()
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.plan(c, nodes, port, flags); err != nil {
		return err
	}
	err = d.up(c.Context())
	if err == nil {
		w := c.OutOrStdout()
		if err := d.print(w, false); err != nil {
			return err
		}
		fmt.Fprintf(w, "Ready after %s: take any node. User guest, password guest, also for the console at an admin address in a browser. Ctrl-C stops all of them.\n", time.Since(start).Round(time.Millisecond))
		d.watch(c.Context(), w)
		fmt.Fprintln(w, "Stopping.")
	}
	if c.Context().Err() != nil {
		err = nil // it was interrupted
	}
	return errors.Join(err, d.down())
}

// up starts what does not run: first those that have a place in the cluster, or the one that begins it, then those that join.
func (d *Cluster) up(ctx context.Context) error {
	var members, fresh []*Node
	for _, n := range d.Nodes {
		if n.known() {
			members = append(members, n)
		} else {
			fresh = append(fresh, n)
		}
	}
	if len(members) == 0 {
		members, fresh = fresh[:1], fresh[1:]
	}
	for _, n := range members {
		if n.alive() {
			continue
		}
		if err := d.launch(n, "", ""); err != nil {
			return err
		}
	}
	for _, n := range members {
		if err := n.awaitReady(ctx, io.Discard); err != nil {
			return err
		}
	}
	for _, n := range fresh {
		token, err := members[0].token(ctx, n.Name)
		if err != nil {
			return err
		}
		if err := d.launch(n, members[0].Mesh, token); err != nil {
			return err
		}
	}
	for _, n := range fresh {
		if err := n.awaitReady(ctx, io.Discard); err != nil {
			return err
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return members[0].awaitVotes(ctx, len(d.Nodes))
}

// awaitVotes waits until as many nodes vote on the catalog as should: before that the cluster could not lose the one that began it.
func (n *Node) awaitVotes(ctx context.Context, nodes int) error {
	want := min(nodes, control.MaxVoters)
	want -= 1 - want%2
	api, err := n.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		votes := 0
		list, err := api.Nodes(ctx)
		for _, x := range list {
			if x.Votes {
				votes++
			}
		}
		if err == nil && votes >= want {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes vote on the catalog (%w); `tanist node list` shows them", votes, want, errors.Join(err, ctx.Err()))
		}
	}
}

// client speaks to the node's admin port.
func (n *Node) client() (*client.Client, error) {
	user := cmp.Or(os.Getenv("TANIST_USER"), "guest")
	password, err := login.Password(user)
	if err != nil {
		return nil, err
	}
	return client.New("http://"+n.Admin, user, password, "")
}

// token has a member make a token.
func (n *Node) token(ctx context.Context, node string) (string, error) {
	api, err := n.client()
	if err != nil {
		return "", err
	}
	var t admin.Token
	nodes, err := api.Nodes(ctx)
	switch {
	case err != nil:
	case slices.ContainsFunc(nodes, func(x admin.Node) bool { return x.Name == node }):
		t, err = api.ReplaceNode(ctx, node, tokenLife) // its data directory is gone: it takes its own place anew
	default:
		t, err = api.JoinToken(ctx, admin.TokenRequest{Node: node, TTL: tokenLife})
	}
	return t.Token, err
}

// place says how a node gets into the cluster: nothing where it has its place, or begins the cluster; else a member to join, and a token.
func (d *Cluster) place(ctx context.Context, n *Node) (join, token string, err error) {
	if n.known() {
		return "", "", nil
	}
	begun := false
	for _, m := range d.Nodes {
		if m == n || !m.known() {
			continue
		}
		if begun = true; m.state() != stateRuns {
			continue
		}
		if token, err = m.token(ctx, n.Name); err == nil {
			return m.Mesh, token, nil
		}
	}
	if begun {
		return "", "", errors.Join(err, fmt.Errorf("%s has no data, and joins a cluster of which no node answers: start another one first", n.Name))
	}
	return "", "", nil
}

// down stops what runs, the last first.
func (d *Cluster) down() error {
	var failed error
	for i := len(d.Nodes) - 1; i >= 0; i-- {
		n := d.Nodes[i]
		if err := n.reload(d); err != nil || !n.alive() {
			failed = errors.Join(failed, err)
			continue
		}
		_ = syscall.Kill(n.PID, syscall.SIGTERM) // it may be gone by now
		_ = syscall.Kill(n.PID, syscall.SIGCONT) // a halted one hears nothing
		if !n.await(stateGone, stopTimeout) {
			_ = syscall.Kill(n.PID, syscall.SIGKILL)
			failed = errors.Join(failed, fmt.Errorf("%s did not stop within %v and was ended; its log is %s", n.Name, stopTimeout, n.log()))
		}
	}
	return failed
}

func (n *Node) data() string { return filepath.Join(n.dir, "data") }

func (n *Node) log() string { return filepath.Join(n.dir, "log") }
