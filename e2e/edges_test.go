package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// publishConfirmed publishes persistent messages and waits for each to be confirmed.
func publishConfirmed(t *testing.T, ch *amqp.Channel, queue string, bodies ...string) {
	t.Helper()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for _, body := range bodies {
		m := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}
		c, err := ch.PublishWithDeferredConfirmWithContext(context.Background(), "", queue, false, false, m)
		if err != nil {
			t.Fatal(err)
		}
		if !outcomeOf(t, fmt.Sprintf("%.40q to %s", body, queue), c) {
			t.Fatalf("%q was not confirmed", body)
		}
	}
}

func declare(t *testing.T, ch *amqp.Channel, queue string, args amqp.Table) {
	t.Helper()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}

// takeAll gets and accepts everything in a queue.
func takeAll(t *testing.T, ch *amqp.Channel, queue string) []string {
	t.Helper()
	var all []string
	for {
		d, ok, err := ch.Get(queue, false)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return all
		}
		all = append(all, string(d.Body))
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGracefulStop shows that SIGTERM closes connections with 320, ends with exit code 0, and keeps what was confirmed and settled.
func TestGracefulStop(t *testing.T) {
	b := newBroker(t)
	b.start()
	conn := b.dial()
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	declare(t, ch, "q", nil)
	publishConfirmed(t, ch, "q", "kept", "taken")
	first, ok, err := ch.Get("q", false)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	second, ok, err := ch.Get("q", false)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := second.Ack(false); err != nil {
		t.Fatal(err)
	}
	_ = first // is held unsettled, and so comes back
	if code := b.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if e := <-closed; e == nil || e.Code != amqp.ConnectionForced {
		t.Fatalf("the connection was closed with %v, want 320", e)
	}
	b.start()
	if got := takeAll(t, b.channel(), "q"); len(got) != 1 || got[0] != "kept" {
		t.Fatalf("after the restart the queue held %q, want only %q", got, "kept")
	}
}

// TestDataDirectoryInUse shows that a second process is refused with one clear error, and that the first goes on.
func TestDataDirectoryInUse(t *testing.T) {
	b := newBroker(t)
	b.start()
	second := newBroker(t)
	second.dir = b.dir
	second.launch()
	if code := second.exit(); code == 0 {
		t.Fatal("a second process on the same directory ended well")
	}
	if text := second.log.String(); !strings.Contains(text, b.dir) || !strings.Contains(text, "in use") {
		t.Fatalf("the error does not say that %s is in use:\n%s", b.dir, text)
	}
	ch := b.channel()
	declare(t, ch, "q", nil)
	publishConfirmed(t, ch, "q", "x")
}

// TestWrongPassword shows that a client is closed as it expects, and that the broker goes on.
func TestWrongPassword(t *testing.T) {
	b := newBroker(t)
	b.start()
	for _, url := range []string{"amqp://guest:wrong@%s/", "amqp://nobody:guest@%s/"} {
		if _, err := amqp.Dial(fmt.Sprintf(url, b.amqp)); !errors.Is(err, amqp.ErrCredentials) {
			t.Errorf("%s: %v, want %v", url, err, amqp.ErrCredentials)
		}
	}
	b.dial()
}

// TestGuestFromLoopbackOnly dials the machine's own address, which is not loopback.
func TestGuestFromLoopbackOnly(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	outside := ""
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			outside = n.IP.String()
		}
	}
	if outside == "" {
		t.Skip("this machine has no address but loopback")
	}
	b := newBroker(t)
	_, port, err := net.SplitHostPort(b.amqp)
	if err != nil {
		t.Fatal(err)
	}
	b.amqp = net.JoinHostPort("0.0.0.0", port)
	b.start()
	if _, err := amqp.Dial("amqp://guest:guest@" + net.JoinHostPort(outside, port) + "/"); !errors.Is(err, amqp.ErrCredentials) {
		t.Errorf("guest from %s: %v, want %v", outside, err, amqp.ErrCredentials)
	}
	if c, err := amqp.Dial("amqp://guest:guest@" + net.JoinHostPort("127.0.0.1", port) + "/"); err != nil {
		t.Errorf("guest from loopback: %v", err)
	} else {
		_ = c.Close()
	}
}

// TestUnknownConfigurationKey shows that a typing error is refused and named.
func TestUnknownConfigurationKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tanist.toml")
	if err := os.WriteFile(file, []byte("amqpp = \":5672\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := run(t, "serve", "--data", filepath.Join(t.TempDir(), "data"), "--config", file)
	if code == 0 || !strings.Contains(out, "amqpp") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
}

// TestOversizedMessage shows that a message over the limit ends one channel or connection and harms nothing else.
func TestOversizedMessage(t *testing.T) {
	b := newBroker(t, "--limits-message", "64KiB")
	b.start()
	ch, other := b.channel(), b.channel()
	declare(t, ch, "q", nil)
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	big := amqp.Publishing{Body: make([]byte, 1<<20)}
	if err := ch.PublishWithContext(context.Background(), "", "q", false, false, big); err == nil {
		if e := <-closed; e == nil || e.Code != amqp.ContentTooLarge && e.Code != amqp.PreconditionFailed {
			t.Fatalf("closed with %v", e)
		}
	}
	publishConfirmed(t, other, "q", "small")
	if got := takeAll(t, other, "q"); len(got) != 1 {
		t.Fatalf("the queue held %d messages, want the small one", len(got))
	}
}

// TestNewerDataDirectory gives the store's identity, as docs/FORMATS.md draws it, a format that this program cannot know.
func TestNewerDataDirectory(t *testing.T) {
	b := newBroker(t)
	b.start()
	declare(t, b.channel(), "q", nil)
	if code := b.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	path := filepath.Join(b.dir, "STORE")
	id, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.Clone(id)
	for slot := 0; slot+64 <= len(id); slot += 4096 {
		p := id[slot:]
		binary.LittleEndian.PutUint32(p[8:], 99)
		table := crc32.MakeTable(crc32.Castagnoli)
		binary.LittleEndian.PutUint32(p[12:], crc32.Update(crc32.Update(0, table, p[:12]), table, p[16:64]))
	}
	if err := os.WriteFile(path, id, 0o600); err != nil {
		t.Fatal(err)
	}
	b.launch()
	if code := b.exit(); code == 0 {
		t.Fatal("a directory of a newer version was taken")
	}
	if text := b.log.String(); !strings.Contains(text, "newer version") {
		t.Fatalf("the error does not speak of a newer version:\n%s", text)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, id) {
		t.Fatalf("the directory was changed: %v", err)
	}
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	if _, err := b.channel().QueueDeclarePassive("q", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}
