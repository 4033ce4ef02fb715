package tidy

import (
	"slices"
	"strings"
)

const module = "github.com/tanist/tanist/"

// pureStd is what the pure rooms may import of the standard library: computation only.
var pureStd = []string{
	"bytes", "cmp", "crypto/sha256", "crypto/subtle", "encoding/base64", "encoding/binary", "encoding/hex", "encoding/json", "errors",
	"fmt", "hash", "hash/crc32", "hash/maphash", "iter", "maps", "math", "math/big", "math/bits", "path", "regexp", "regexp/syntax", "slices",
	"sort", "strconv", "strings", "time", "unicode", "unicode/utf8", "unsafe",
}

// external is what each layer may import beyond the standard library and the project, by prefix of the folder.
var external = []struct {
	folder string
	allow  []string
}{
	{"internal/core/", nil},
	{"internal/front/amqp/wire", nil},
	{"internal/front/amqp/session", nil},
	{"internal/port/vfs", []string{"golang.org/x/sys/"}}, // io_uring is not in std
	{"internal/port/", nil},
	{"internal/config", []string{"github.com/BurntSushi/toml"}},
	{"internal/engine/consensus", []string{"go.etcd.io/raft/v3", "google.golang.org/protobuf/"}}, // raft's messages are protobuf
	{"internal/engine/mesh", []string{"google.golang.org/grpc", "google.golang.org/protobuf/"}},
	{"internal/engine/passwords", []string{"golang.org/x/crypto/"}},
	{"internal/engine/", nil},
	{"internal/front/admin", []string{"github.com/prometheus/"}},
	{"internal/front/", nil},
	{"internal/node", nil},
	{"internal/bench/account", nil},
	{"internal/bench", []string{"github.com/rabbitmq/amqp091-go", "github.com/HdrHistogram/hdrhistogram-go"}},
	{"cmd/", []string{"github.com/spf13/", "github.com/rabbitmq/amqp091-go", "golang.org/x/term"}},
	{"sim", nil},
	{"check", nil},
	{"e2e", []string{"github.com/rabbitmq/amqp091-go"}},
	{"tools/protogen", []string{"github.com/bufbuild/protocompile", "google.golang.org/protobuf/"}}, // no outside compiler
	{"tools/", nil},
}

// pure reports whether a folder is held to core's rules.
func pure(dir string) bool {
	return within(dir, "internal/core") || within(dir, "internal/front/amqp/wire") || within(dir, "internal/front/amqp/session") ||
		within(dir, "internal/bench/account")
}

func within(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

// room is the folder that a rule speaks of: the first three elements below internal/engine and internal/front, else two.
func room(dir string) string {
	parts := strings.Split(dir, "/")
	n := 2
	if strings.HasPrefix(dir, "internal/") {
		n = 3
	}
	return strings.Join(parts[:min(n, len(parts))], "/")
}

// forbids says why a file in dir may not import path, a folder of the project; empty means that it may.
func forbids(dir, to string) string {
	switch {
	case room(dir) == room(to) && !pure(dir):
		return ""
	case within(dir, "internal/core"):
		if !within(to, "internal/core") {
			return "core imports lower core only"
		}
	case within(dir, "internal/port") && !within(to, "internal/port"):
		return "a port imports the standard library only"
	case pure(dir):
		if !within(to, "internal/core") && !within(to, "internal/front/amqp/wire") {
			return "the pure rooms of front/amqp and bench import core and wire only"
		}
	case within(dir, "internal/engine"):
		if within(to, "internal/engine") {
			return "an engine never imports another engine; name a small interface"
		}
		if !within(to, "internal/core") && !within(to, "internal/port") {
			return "an engine imports core and ports only"
		}
	case within(dir, "internal/front"):
		if within(to, "internal/front") {
			return "a front imports no other front"
		}
		if !within(to, "internal/core") && !within(to, "internal/port") {
			return "a front imports core and ports only"
		}
	case within(dir, "internal/config"):
		if !within(to, "internal/core/units") {
			return "config imports nothing of the project but how numbers are written"
		}
	case within(dir, "internal/bench") && !within(to, "internal/bench"):
		return "a benchmark speaks to a broker from outside only"
	case within(dir, "check"):
		if !within(to, "internal/core") {
			return "check imports core's values only"
		}
	default:
		return forbidsAbove(dir, to)
	}
	return ""
}

// forbidsAbove judges the layers that see nearly everything.
func forbidsAbove(dir, to string) string {
	switch {
	case within(to, "internal/front/amqp") && !within(dir, "internal/node") && !within(dir, "tools") && !within(dir, "cmd"):
		return "nothing outside front/amqp but node knows AMQP"
	case within(dir, "internal/node"):
		if within(to, "sim") || within(to, "cmd") || within(to, "internal/bench") {
			return "node stands below sim, cmd and bench"
		}
	case within(dir, "sim"):
		if within(to, "cmd") || within(to, "e2e") || within(to, "internal/front") {
			return "sim imports node, ports, core and check"
		}
	case within(dir, "e2e"):
		if within(to, "internal/engine") || within(to, "internal/node") {
			return "e2e knows the broker from outside only"
		}
	}
	return ""
}

// forbidsStd says why a pure room may not import a package of the standard library.
func forbidsStd(dir, path string) string {
	if pure(dir) && !slices.Contains(pureStd, path) {
		return "a pure room may not import " + path + ": it is not plain computation"
	}
	return ""
}

// forbidsExternal says why a folder may not import another module.
func forbidsExternal(dir, path string) string {
	for _, e := range external {
		if !within(dir, strings.TrimSuffix(e.folder, "/")) {
			continue
		}
		for _, a := range e.allow {
			if strings.HasPrefix(path, a) {
				return ""
			}
		}
		return "this layer may not import " + path + "; see the list of external modules in the tidy test"
	}
	return "no rule names this folder; add it to the tidy test"
}
