package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const mib = 1 << 20

// smallDisk mounts a file system of its own, or skips the test where that is not allowed.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size), "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small file system here (TestLowDisk covers the marks): %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Logf("umount: %v: %s", err, out)
		}
	})
	return dir
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}

// fill writes a file of zeros of about the given size; 0 means as much as there is room for.
func fill(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for n := int64(0); size == 0 || n < size; n += int64(len(block)) {
		if _, err := f.Write(block); err != nil {
			if size == 0 && errors.Is(err, syscall.ENOSPC) {
				return
			}
			t.Fatal(err)
		}
	}
}

// blocking is a publisher that is told when it is blocked.
type blocking struct {
	*amqp.Channel
	blocked chan amqp.Blocking
}

func blockable(b *broker) *blocking {
	b.t.Helper()
	conn := b.dial()
	p := &blocking{blocked: conn.NotifyBlocked(make(chan amqp.Blocking, 16))}
	ch, err := conn.Channel()
	if err != nil {
		b.t.Fatal(err)
	}
	p.Channel = ch
	return p
}

// until waits for the broker to say that publishers are blocked, or that they are not any more.
func (p *blocking) until(t *testing.T, active bool) amqp.Blocking {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case s := <-p.blocked:
			if s.Active == active {
				return s
			}
		case <-deadline:
			t.Fatalf("no word of blocked = %v", active)
		}
	}
}

// settlesGoOn shows that a message can be taken and settled while publishers are blocked.
func settlesGoOn(t *testing.T, b *broker, queue string) {
	t.Helper()
	ch := b.channel()
	d, ok, err := ch.Get(queue, false)
	if err != nil || !ok {
		t.Fatalf("get while publishers are blocked: %v %v", ok, err)
	}
	if err := d.Ack(false); err != nil {
		t.Fatal(err)
	}
	b.await("the settle to be confirmed", func() error {
		all, err := b.resources()
		if err == nil && all[queue].Unsettled > 0 {
			err = fmt.Errorf("%d unsettled", all[queue].Unsettled)
		}
		return err
	})
}

// TestLowDisk lowers the room that is left below disk.low by a file beside the broker's, on the disk that there is.
func TestLowDisk(t *testing.T) {
	room := t.TempDir()
	now := free(t, room)
	if now < 400*mib {
		t.Skipf("only %d MiB are free", now/mib)
	}
	// Other processes write too: the marks are far from what they may do while the test runs.
	low, high := now-200*mib, now-150*mib
	b := newBroker(t, "--disk-file", "4MiB", "--disk-low", fmt.Sprint(low), "--disk-high", fmt.Sprint(high))
	b.start()
	p := blockable(b)
	declare(t, p.Channel, "q", nil)
	publishConfirmed(t, p.Channel, "q", "one", "two", "three")
	ballast := filepath.Join(room, "ballast")
	fill(t, ballast, 300*mib)
	publishAnyway(t, b)
	if s := p.until(t, true); s.Reason == "" {
		t.Error("blocked without a reason")
	}
	settlesGoOn(t, b, "q")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	p.until(t, false)
	publishConfirmed(t, p.Channel, "q", "four")
}

// publishAnyway publishes on a connection of its own, so that the broker has a reason to say that it is blocked. Nothing waits for it.
func publishAnyway(t *testing.T, b *broker) {
	t.Helper()
	ch := b.channel()
	if err := ch.PublishWithContext(context.Background(), "", "q", false, false, amqp.Publishing{Body: []byte("while blocked")}); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk fills a small disk by publishing, then to its last byte, kills the broker, starts it on the full disk, and frees it
// by consuming.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, 96*mib)
	b := newBroker(t, "--disk-file", "1MiB", "--disk-low", "16MiB", "--disk-high", "24MiB")
	b.dir = filepath.Join(dir, "data")
	b.start()
	p := blockable(b)
	declare(t, p.Channel, "q", nil)
	if err := p.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirms := p.NotifyPublish(make(chan amqp.Confirmation, 4096))
	confirmed := publishUntilBlocked(t, p, confirms)
	t.Logf("%d messages of 64 KiB were confirmed before publishers were blocked", confirmed)
	settlesGoOn(t, b, "q")

	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast, 0)
	settlesGoOn(t, b, "q")
	b.kill()
	b.start() // on a full disk
	settlesGoOn(t, b, "q")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	left := takeAll(t, b.channel(), "q")
	if len(left)+3 < confirmed {
		t.Fatalf("%d messages were confirmed, 3 settled, and %d came", confirmed, len(left))
	}
	again := blockable(b)
	b.await("publishers to go on", func() error {
		var o struct {
			Blocked string `json:"blocked"`
		}
		if err := b.get("/api/v1/overview", &o); err != nil {
			return err
		}
		if o.Blocked != "" {
			return errors.New(o.Blocked)
		}
		return nil
	})
	publishConfirmed(t, again.Channel, "q", "there is room again")
}

// publishUntilBlocked publishes until the broker blocks, and counts what it confirmed.
func publishUntilBlocked(t *testing.T, p *blocking, confirms <-chan amqp.Confirmation) (confirmed int) {
	t.Helper()
	body := make([]byte, 64<<10)
	waiting := 0
	deadline := time.After(patience)
	for {
		if waiting < 16 {
			if err := p.PublishWithContext(context.Background(), "", "q", false, false, amqp.Publishing{Body: body}); err != nil {
				t.Fatal(err)
			}
			waiting++
			continue
		}
		select {
		case c := <-confirms:
			waiting--
			if c.Ack {
				confirmed++
			}
		case s := <-p.blocked:
			if s.Active {
				return confirmed
			}
		case <-deadline:
			t.Fatalf("not blocked after %d messages on a disk of 96 MiB", confirmed)
		}
	}
}
