package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Process is a broker of ours, started for a measurement over a directory of its own.
type Process struct {
	program, dir string
	name         string // of a node among several
	amqp, admin  string
	mesh         string // empty: it stays alone
	flags, env   []string
	cmd          *exec.Cmd
	ended        chan error
	log          *os.File
}

// startTimeout bounds how long a broker may take to be ready.
const startTimeout = 2 * time.Minute

// NewProcess chooses ports and starts nothing. dir is made if missing.
func NewProcess(program, dir string) (*Process, error) {
	p := &Process{program: program, dir: dir}
	for _, to := range []*string{&p.amqp, &p.admin, &p.mesh} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all are kept until all are chosen
		*to = l.Addr().String()
	}
	p.flags = []string{
		"serve", "--data", filepath.Join(dir, "data"), "--amqp", p.amqp, "--admin", p.admin, "--limits-queues", "1000000",
	}
	return p, os.MkdirAll(dir, 0o700)
}

// Wipe deletes what the process had stored. It is over by then.
func (p *Process) Wipe() error { return os.RemoveAll(filepath.Join(p.dir, "data")) }

// URL is the AMQP address.
func (p *Process) URL() string { return "amqp://guest:guest@" + p.amqp + "/" }

// Probe tells the costs of the process that runs now.
func (p *Process) Probe() Probe {
	return Probe{PID: p.cmd.Process.Pid, Metrics: "http://" + p.admin + "/metrics"}
}

// Start starts the process and returns how long it took until a client could open a connection and a channel, and until every queue and
// stream was ready.
func (p *Process) Start(ctx context.Context) (accepting, ready time.Duration, err error) {
	p.log, err = os.OpenFile(filepath.Join(p.dir, "bench.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, 0, err
	}
	p.cmd = exec.Command(p.program, p.flags...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = append(environment(), p.env...)
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		return 0, 0, err
	}
	p.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan error) { ended <- cmd.Wait() }(p.cmd, p.ended)
	err = p.poll(ctx, func() error {
		conn, _, err := connect(p.URL(), "start")
		if err == nil {
			accepting = time.Since(began)
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	err = p.poll(ctx, func() error {
		resp, err := http.Get("http://" + p.admin + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		ready = time.Since(began)
		return nil
	})
	return accepting, ready, err
}

// environment is ours without settings of a node.
func environment() (out []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "TANIST_") {
			out = append(out, e)
		}
	}
	return out
}

func (p *Process) poll(ctx context.Context, ask func() error) error {
	deadline := time.Now().Add(startTimeout)
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case end := <-p.ended:
			p.ended <- end
			return fmt.Errorf("the broker ended: %v; its log is %s", end, p.log.Name())
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the broker is not ready after %s: %w; its log is %s", startTimeout, err, p.log.Name())
		}
		if !wait(ctx, time.Millisecond) {
			return errors.New("interrupted")
		}
	}
}

// Signal sends the process a signal.
func (p *Process) Signal(signal syscall.Signal) error {
	if p.cmd == nil {
		return errors.New("the broker does not run")
	}
	return p.cmd.Process.Signal(signal)
}

// Stop ends the process: with SIGTERM and patience, or with SIGKILL.
func (p *Process) Stop(kill bool) error {
	if p.cmd == nil {
		return nil
	}
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	_ = p.cmd.Process.Signal(signal) // of one that has ended already: seen below
	err := <-p.ended
	p.cmd = nil
	_ = p.log.Close() // nothing of ours is in it
	if kill {
		return nil
	}
	return err
}
