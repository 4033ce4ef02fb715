package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Subject is a broker of several nodes that can be killed and started again. Nodes are numbered from 0.
type Subject interface {
	Name() string
	URLs() []string
	// Owners tells which node leads each resource; -1 where none does.
	Owners(ctx context.Context, names []string) ([]int, error)
	// Controller is the node that decides on changes of owner; -1 for a broker that has no such node.
	Controller(ctx context.Context) (int, error)
	// Kill ends a node's process with SIGKILL, Halt stops it where it is and Resume lets it go on. None waits until that is so.
	Kill(node int) error
	Halt(node int) error
	Resume(node int) error
	// Start starts a node again and returns once it takes clients.
	Start(ctx context.Context, node int) error
	// Whole returns nil if all nodes run and every copy of the resources is there and level with its owner's, else what is missing.
	Whole(ctx context.Context, names []string) error
	// Epochs are those of the resources; nil for a broker that tells none.
	Epochs(ctx context.Context, names []string) ([]uint64, error)
	// Story tells of each change of owner of the resources what is known; nothing for a broker that keeps no evidence.
	Story(ctx context.Context, names []string) ([]Transition, error)
}

// Transition is what the bench reads of the evidence of a change of owner. Times are in microseconds since 1970, 0 where not known.
type Transition struct {
	ID           string `json:"id"`
	Resource     string `json:"resource"`
	Outcome      string `json:"outcome"`
	Cause        string `json:"cause"`
	Suspected    int64  `json:"suspected_us"`
	Recorded     int64  `json:"recorded_us"`
	Sealed       int64  `json:"sealed_us"`
	Chosen       int64  `json:"chosen_us"`
	Committed    int64  `json:"committed_us"`
	Serving      int64  `json:"serving_us"`
	FirstConfirm int64  `json:"first_confirm_us"`
	Cuts         []Cut  `json:"cuts"`
}

// Cut is what a copy dropped to follow the new history: its entries from one position to another.
type Cut struct {
	Node string `json:"node"`
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Controlled is another broker's cluster on this machine: its processes are those that listen at its addresses, and a command tells the
// rest of it. To the command's words is added one of
//
//	leader NAME...   prints the number, from 1, of the node that leads each resource, a line each; 0 where none does
//	again N          starts node N, and ends once it takes clients
//	whole            ends with success if all nodes run and every copy is online, else says what is missing
//
// tools/rabbitmq-cluster is such a command for RabbitMQ.
type Controlled struct {
	urls    []string
	command []string
	pids    []int
}

// NewControlled makes a subject of another broker.
func NewControlled(urls []string, command string) (*Controlled, error) {
	c := &Controlled{urls: urls, command: strings.Fields(command)}
	if len(c.command) == 0 {
		return nil, errors.New("the other broker needs a command that tells who leads and starts its nodes, such as `tools/rabbitmq-cluster control DIR`")
	}
	probes, err := Listeners(urls)
	if err != nil {
		return nil, err
	}
	for _, p := range probes {
		c.pids = append(c.pids, p.PID)
	}
	return c, nil
}

func (c *Controlled) ask(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.command[0], append(c.command[1:len(c.command):len(c.command)], args...)...)
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &failed, os.Environ()
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", strings.Join(c.command, " "), args[0], err, strings.TrimSpace(failed.String()+out.String()))
	}
	return out.String(), nil
}

// Name is its first address.
func (c *Controlled) Name() string { return strings.TrimPrefix(Redact(c.urls[0]), "amqp://") }

// URLs are the addresses of its nodes.
func (c *Controlled) URLs() []string { return c.urls }

// Owners asks the command.
func (c *Controlled) Owners(ctx context.Context, names []string) ([]int, error) {
	text, err := c.ask(ctx, append([]string{"leader"}, names...)...)
	if err != nil {
		return nil, err
	}
	var out []int
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || n > len(c.urls) {
			return nil, fmt.Errorf("%s leader printed %q: no number of a node", strings.Join(c.command, " "), word)
		}
		out = append(out, n-1)
	}
	if len(out) != len(names) {
		return nil, fmt.Errorf("%s leader printed %d lines for %d names", strings.Join(c.command, " "), len(out), len(names))
	}
	return out, nil
}

// Controller is none.
func (c *Controlled) Controller(context.Context) (int, error) { return -1, nil }

// Kill ends a node.
func (c *Controlled) Kill(node int) error { return syscall.Kill(c.pids[node], syscall.SIGKILL) }

// Halt stops a node's process.
func (c *Controlled) Halt(node int) error { return syscall.Kill(c.pids[node], syscall.SIGSTOP) }

// Resume lets it go on.
func (c *Controlled) Resume(node int) error { return syscall.Kill(c.pids[node], syscall.SIGCONT) }

// Start has the command start a node, and finds its process.
func (c *Controlled) Start(ctx context.Context, node int) error {
	if _, err := c.ask(ctx, "again", strconv.Itoa(node+1)); err != nil {
		return err
	}
	probes, err := Listeners(c.urls[node : node+1])
	if err != nil {
		return err
	}
	c.pids[node] = probes[0].PID
	return nil
}

// Whole asks the command.
func (c *Controlled) Whole(ctx context.Context, _ []string) error {
	_, err := c.ask(ctx, "whole")
	return err
}

// Epochs are not told.
func (c *Controlled) Epochs(context.Context, []string) ([]uint64, error) { return nil, nil }

// Story is not told.
func (c *Controlled) Story(context.Context, []string) ([]Transition, error) { return nil, nil }
