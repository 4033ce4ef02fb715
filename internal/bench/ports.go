package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Listeners are probes of the processes that listen at the addresses, which are of this machine. It needs the right to look at them:
// that of the same user, or of root.
func Listeners(urls []string) ([]Probe, error) {
	var out []Probe
	for _, u := range urls {
		parsed, err := amqp.ParseURI(u)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Redact(u), err)
		}
		pid, err := listener(parsed.Port)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Redact(u), err)
		}
		out = append(out, Probe{PID: pid})
	}
	return out, nil
}

// listener is the process that listens on a TCP port.
func listener(port int) (int, error) {
	sockets := map[string]bool{} // as /proc/PID/fd shows them
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" { // listening
				continue
			}
			if _, at, _ := strings.Cut(f[1], ":"); at == fmt.Sprintf("%04X", port) {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return 0, errors.New("no process of this machine listens there")
	}
	descriptors, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, err
	}
	for _, d := range descriptors {
		if to, err := os.Readlink(d); err == nil && sockets[to] { // others are gone by now, or another user's
			return strconv.Atoi(strings.Split(d, "/")[2])
		}
	}
	return 0, errors.New("the process that listens there is another user's")
}
