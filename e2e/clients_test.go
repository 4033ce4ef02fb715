package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// missing skips a test whose client is not installed, or fails it where E2E_REQUIRE says that it has to be.
func missing(t *testing.T, what, install string) {
	t.Helper()
	if os.Getenv("E2E_REQUIRE") != "" {
		t.Fatalf("%s is not installed: %s", what, install)
	}
	t.Skipf("%s is not installed: %s", what, install)
}

// foreign are programs that publish, consume and settle with clients that are not Go's; each finds out whether it can run here.
var foreign = map[string]func(t *testing.T) func(t *testing.T, b *broker){"Python": pika, "JavaScript": amqplib, "C": rabbitmqC}

// TestForeignClients runs them against a broker that is alone.
func TestForeignClients(t *testing.T) {
	for name, find := range foreign {
		t.Run(name, func(t *testing.T) {
			try := find(t)
			b := newBroker(t)
			b.start()
			try(t, b)
		})
	}
}

// TestForeignClientsOfCluster runs them against each node of a cluster: what they work with is owned by any.
func TestForeignClientsOfCluster(t *testing.T) {
	c := newCluster(t, 3)
	for _, b := range c.nodes {
		for name, find := range foreign {
			t.Run(b.name+"/"+name, func(t *testing.T) { find(t)(t, b) })
		}
	}
}

// pika is a client of Python's.
func pika(t *testing.T) func(*testing.T, *broker) {
	python := ""
	for _, p := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(p, "-c", "import pika").Run() == nil {
			python = p
		}
	}
	if python == "" {
		missing(t, "pika", "apt-get install python3-pika, or pip install pika")
	}
	return func(t *testing.T, b *broker) { perform(t, python, "clients/roundtrip.py", b.url()) }
}

// amqplib is a client of JavaScript's.
func amqplib(t *testing.T) func(*testing.T, *broker) {
	if exec.Command("node", "-e", "require('amqplib')").Run() != nil {
		missing(t, "amqplib", "npm install amqplib, and set NODE_PATH to its node_modules")
	}
	return func(t *testing.T, b *broker) { perform(t, "node", "clients/roundtrip.js", b.url()) }
}

// rabbitmqC are the command line tools of a client of C's.
func rabbitmqC(t *testing.T) func(*testing.T, *broker) {
	for _, tool := range []string{"amqp-declare-queue", "amqp-publish", "amqp-get", "amqp-consume"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, tool, "apt-get install amqp-tools")
		}
	}
	return func(t *testing.T, b *broker) {
		tool := func(name string, args ...string) string {
			t.Helper()
			return perform(t, name, append([]string{"--url", strings.TrimSuffix(b.url(), "/")}, args...)...)
		}
		tool("amqp-declare-queue", "-d", "-q", "c")
		for _, body := range []string{"one", "two", "three"} {
			tool("amqp-publish", "-p", "-r", "c", "-b", body)
		}
		if got := tool("amqp-get", "-q", "c"); got != "one" {
			t.Fatalf("got %q, want %q", got, "one")
		}
		if got := tool("amqp-consume", "-q", "c", "-c", "2", "cat"); got != "twothree" {
			t.Fatalf("consumed %q, want %q", got, "twothree")
		}
	}
}

// perform runs a program to its end and gives what it prints.
func perform(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
