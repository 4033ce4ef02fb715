package e2e

import (
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

// TestPython publishes, consumes and settles with pika, on queues and streams.
func TestPython(t *testing.T) {
	python := ""
	for _, p := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(p, "-c", "import pika").Run() == nil {
			python = p
		}
	}
	if python == "" {
		missing(t, "pika", "apt-get install python3-pika, or pip install pika")
	}
	b := newBroker(t)
	b.start()
	if out, err := exec.Command(python, "clients/roundtrip.py", b.url()).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestJavaScript publishes, consumes and settles with amqplib.
func TestJavaScript(t *testing.T) {
	if exec.Command("node", "-e", "require('amqplib')").Run() != nil {
		missing(t, "amqplib", "npm install amqplib, and set NODE_PATH to its node_modules")
	}
	b := newBroker(t)
	b.start()
	if out, err := exec.Command("node", "clients/roundtrip.js", b.url()).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestC publishes and gets with the command line tools of rabbitmq-c.
func TestC(t *testing.T) {
	for _, tool := range []string{"amqp-declare-queue", "amqp-publish", "amqp-get", "amqp-consume"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, tool, "apt-get install amqp-tools")
		}
	}
	b := newBroker(t)
	b.start()
	tool := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, append([]string{"--url", strings.TrimSuffix(b.url(), "/")}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
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
