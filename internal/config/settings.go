package config

import (
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/core/units"
)

// Setting describes one setting.
type Setting struct {
	Key     string // as in the TOML file, dotted
	Default string
	Unit    string
	Bounds  string // for people
	Doc     string // one sentence
	Secret  bool   // its value is never shown

	set func(*Config, string) error
}

// Env is the environment variable of the setting.
func (s Setting) Env() string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(s.Key))
}

// Flag is the name of the setting's flag, without the dashes.
func (s Setting) Flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(s.Key) }

func keyOf(s Setting) string { return s.Key }

// Settings are all settings, in the order of the documents.
func Settings() []Setting { return slices.Clone(settings) }

func find(key string) *Setting {
	if i := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == key }); i >= 0 {
		return &settings[i]
	}
	return nil
}

var settings = []Setting{
	{
		Key: "name", Default: "tanist", Bounds: "1 to 64 of a-z A-Z 0-9 . _ -", set: text(func(c *Config) *string { return &c.Name }, NodeName),
		Doc: "Name of this node. It is recorded with the data; a cluster's nodes have different names.",
	},
	{
		Key: "data", Default: "tanist-data", Bounds: "a directory, made if missing", set: text(func(c *Config) *string { return &c.Data }, notEmpty),
		Doc: "Directory that holds everything this node keeps. One process at a time uses it.",
	},
	{
		Key: "amqp", Default: ":5672", Bounds: "host:port, or empty", set: text(func(c *Config) *string { return &c.AMQP }, address),
		Doc: "Address for AMQP 0-9-1 clients without TLS. Empty: none.",
	},
	{
		Key: "amqps", Default: "", Bounds: "host:port, or empty", set: text(func(c *Config) *string { return &c.AMQPS }, address),
		Doc: "Address for AMQP 0-9-1 clients with TLS, such as :5671. Needs tls.cert and tls.key.",
	},
	{
		Key: "admin", Default: "127.0.0.1:15672", Bounds: "host:port, or empty", set: text(func(c *Config) *string { return &c.Admin }, address),
		Doc: "Address of the console, the admin API, metrics and health over plain HTTP. Empty: none.",
	},
	{
		Key: "admins", Default: "", Bounds: "host:port, or empty", set: text(func(c *Config) *string { return &c.Admins }, address),
		Doc: "Address of the same over HTTPS. Needs tls.cert and tls.key.",
	},
	{
		Key: "mesh", Default: "", Bounds: "host:port, or empty", set: text(func(c *Config) *string { return &c.Mesh }, address),
		Doc: "Address for the other nodes of a cluster, over mutual TLS. Empty: this node stays alone.",
	},
	{
		Key: "mesh_advertise", Default: "", Bounds: "host or host:port", set: text(func(c *Config) *string { return &c.Advertise.Mesh }, advertised),
		Doc: "Where other nodes reach this one; a host alone stands for it with the port of mesh. Needed where mesh listens on every address; then amqp and admin are advertised at the same host.",
	},
	{
		Key: "amqp_advertise", Default: "", Bounds: "host or host:port", set: text(func(c *Config) *string { return &c.Advertise.AMQP }, advertised),
		Doc: "Where clients reach amqp, or amqps where only that leads here from elsewhere, as operators are told; the same rules.",
	},
	{
		Key: "admin_advertise", Default: "", Bounds: "host or host:port", set: text(func(c *Config) *string { return &c.Advertise.Admin }, advertised),
		Doc: "Where operators reach admin, or admins where only that leads here from elsewhere, as they are told; the same rules.",
	},
	{
		Key: "zone", Default: "", Bounds: "up to 64 of a-z A-Z 0-9 . _ -", set: text(func(c *Config) *string { return &c.Zone }, zoneName),
		Doc: "What this node shares its fate with: a rack, a room. Copies are spread over zones first.",
	},
	{
		Key: "join", Default: "", Bounds: "host:port, or empty", set: text(func(c *Config) *string { return &c.Join }, target),
		Doc: "The mesh address of any member of the cluster that this node joins at its first start. A member's restart needs none and ignores it.",
	},
	{
		Key: "join_token", Default: "", Bounds: "what `tanist join-token` prints", Secret: true, set: text(func(c *Config) *string { return &c.JoinToken }, nil),
		Doc: "Lets this node join, once. Process lists show flags: give it as TANIST_JOIN_TOKEN, or by join_token_file.",
	},
	{
		Key: "join_token_file", Default: "", Bounds: "a file", set: text(func(c *Config) *string { return &c.JoinTokenFile }, nil),
		Doc: "File that holds the join token.",
	},
	{
		Key: "mesh_cert", Default: "", Bounds: "a PEM file", set: text(func(c *Config) *string { return &c.MeshTLS.Cert }, nil),
		Doc: "Certificate chain of this node for the mesh, in place of one that the cluster signs; it holds the URI tanist:///node/NAME. All nodes have one, or none. Changed files are taken up without a restart.",
	},
	{
		Key: "mesh_key", Default: "", Bounds: "a PEM file", set: text(func(c *Config) *string { return &c.MeshTLS.Key }, nil),
		Doc: "Private key of mesh_cert.",
	},
	{
		Key: "mesh_ca", Default: "", Bounds: "a PEM file", set: text(func(c *Config) *string { return &c.MeshTLS.CA }, nil),
		Doc: "The authorities that sign the nodes' certificates.",
	},
	{
		Key: "tls.cert", Default: "", Bounds: "a PEM file", set: text(func(c *Config) *string { return &c.TLS.Cert }, nil),
		Doc: "Certificate chain for amqps and admins. Changed files are taken up within seconds, without a restart.",
	},
	{
		Key: "tls.key", Default: "", Bounds: "a PEM file", set: text(func(c *Config) *string { return &c.TLS.Key }, nil),
		Doc: "Private key of tls.cert.",
	},
	{
		Key: "tls.ca", Default: "", Bounds: "a PEM file", set: text(func(c *Config) *string { return &c.TLS.CA }, nil),
		Doc: "If set, TLS clients must show a certificate that one of these authorities signed.",
	},
	{
		Key: "log.level", Default: "info", Bounds: "debug, info, warn, error", set: text(func(c *Config) *string { return &c.Log.Level }, oneOf("debug", "info", "warn", "error")),
		Doc: "Least level that is logged, to standard error.",
	},
	{
		Key: "log.format", Default: "text", Bounds: "text, json", set: text(func(c *Config) *string { return &c.Log.Format }, oneOf("text", "json")),
		Doc: "Format of the log.",
	},
	{
		Key: "limits.connections", Default: "10000", Bounds: "1 to 1000000", set: count(func(c *Config) *int { return &c.Limits.Connections }, 1, 1e6),
		Doc: "Most client connections of this node.",
	},
	{
		Key: "limits.connections_per_user", Default: "10000", Bounds: "1 to 1000000", set: count(func(c *Config) *int { return &c.Limits.ConnectionsPerUser }, 1, 1e6),
		Doc: "Most connections of one user to this node.",
	},
	{
		Key: "limits.channels", Default: "2047", Bounds: "1 to 65535", set: count(func(c *Config) *int { return &c.Limits.Channels }, 1, 65535),
		Doc: "Most channels of one connection.",
	},
	{
		Key: "limits.consumers", Default: "10000", Bounds: "1 to 1000000", set: count(func(c *Config) *int { return &c.Limits.Consumers }, 1, 1e6),
		Doc: "Most consumers of one connection.",
	},
	{
		Key: "limits.queues", Default: "100000", Bounds: "1 to 10000000", set: count(func(c *Config) *int { return &c.Limits.Queues }, 1, 1e7),
		Doc: "Most queues and streams of the cluster.",
	},
	{
		Key: "limits.frame", Default: "128KiB", Unit: "bytes", Bounds: "8KiB to 2MiB", set: size(func(c *Config) *int64 { return &c.Limits.Frame }, 8<<10, 2<<20),
		Doc: "Largest AMQP frame, which is offered to clients at the start of a connection.",
	},
	{
		Key: "limits.message", Default: "16MiB", Unit: "bytes", Bounds: "1KiB to 16MiB", set: size(func(c *Config) *int64 { return &c.Limits.Message }, 1<<10, 16<<20),
		Doc: "Largest message, properties included.",
	},
	{
		Key: "memory.publish", Default: "256MiB", Unit: "bytes", Bounds: "1MiB and up", set: size(func(c *Config) *int64 { return &c.Memory.Publish }, 1<<20, math.MaxInt64),
		Doc: "Most bytes of published messages that are not resolved yet; past it the node stops reading from publishers, and tells them by connection.blocked if it lasts.",
	},
	{
		Key: "memory.partition", Default: "8MiB", Unit: "bytes", Bounds: "64KiB and up", set: size(func(c *Config) *int64 { return &c.Memory.Partition }, 64<<10, math.MaxInt64),
		Doc: "The same for one queue or stream.",
	},
	{
		Key: "memory.consumer", Default: "1MiB", Unit: "bytes", Bounds: "64KiB and up", set: size(func(c *Config) *int64 { return &c.Memory.Consumer }, 64<<10, math.MaxInt64),
		Doc: "Most bytes on their way to one consumer.",
	},
	{
		Key: "disk.file", Default: "128MiB", Unit: "bytes", Bounds: "1MiB to 1GiB", set: size(func(c *Config) *int64 { return &c.Disk.File }, 1<<20, 1<<30),
		Doc: "Size of one log file; files are preallocated. It counts for files made from now on.",
	},
	{
		Key: "disk.low", Default: "512MiB", Unit: "bytes", Bounds: "0 and up", set: size(func(c *Config) *int64 { return &c.Disk.Low }, 0, math.MaxInt64),
		Doc: "Publishers are blocked when fewer bytes than this can be written; settles go on.",
	},
	{
		Key: "disk.high", Default: "768MiB", Unit: "bytes", Bounds: "disk.low and up", set: size(func(c *Config) *int64 { return &c.Disk.High }, 0, math.MaxInt64),
		Doc: "Blocked publishers go on when this many bytes can be written again.",
	},
	{
		Key: "confirm_timeout", Default: "30s", Bounds: "100ms to 1h", set: duration(func(c *Config) *time.Duration { return &c.ConfirmTimeout }, 100*time.Millisecond, time.Hour),
		Doc: "A publish that is not resolved after this long is answered with a nack; its outcome is unknown.",
	},
}

func text(field func(*Config) *string, ok func(string) error) func(*Config, string) error {
	return func(c *Config, v string) error {
		if ok != nil {
			if err := ok(v); err != nil {
				return err
			}
		}
		*field(c) = v
		return nil
	}
}

var nodeNames = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)

// NodeName says what is wrong with a node's name: it has 1 to 64 letters, digits, dots, dashes or underscores. nil: nothing.
func NodeName(v string) error {
	if !nodeNames.MatchString(v) {
		return fmt.Errorf("want 1 to 64 letters, digits, dots, dashes or underscores")
	}
	return nil
}

func notEmpty(v string) error {
	if v == "" {
		return fmt.Errorf("must not be empty")
	}
	return nil
}

func address(v string) error {
	if v == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("want host:port, such as 127.0.0.1:5672 or :5672")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q: want a number from 0 (any free port) to 65535", port)
	}
	return nil
}

// target is an address to reach somebody at.
func target(v string) error {
	if err := address(v); err != nil || v == "" {
		return err
	}
	if host, port, _ := net.SplitHostPort(v); host == "" || port == "0" {
		return fmt.Errorf("want the host and the port of a node, such as 10.0.0.1:5680")
	}
	return nil
}

// advertised is an address, or a host alone.
func advertised(v string) error {
	if v == "" || !strings.Contains(v, ":") || net.ParseIP(v) != nil {
		return nil
	}
	if target(v) != nil {
		return fmt.Errorf("want a host such as broker-1.example, or host:port")
	}
	return nil
}

func zoneName(v string) error {
	if v != "" && NodeName(v) != nil {
		return fmt.Errorf("want up to 64 letters, digits, dots, dashes or underscores")
	}
	return nil
}

func oneOf(words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("want one of %s", strings.Join(words, ", "))
		}
		return nil
	}
}

func count(field func(*Config) *int, low, high int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("want a whole number from %d to %d", low, high)
		}
		*field(c) = n
		return nil
	}
}

func size(field func(*Config) *int64, low, high int64) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := units.ParseSize(v)
		if err != nil {
			return err
		}
		if n < low || n > high {
			if high == math.MaxInt64 {
				return fmt.Errorf("want at least %s", units.FormatSize(low))
			}
			return fmt.Errorf("want %s to %s", units.FormatSize(low), units.FormatSize(high))
		}
		*field(c) = n
		return nil
	}
}

func duration(field func(*Config) *time.Duration, low, high time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < low || d > high {
			return fmt.Errorf("want a duration from %s to %s, such as 30s", low, high)
		}
		*field(c) = d
		return nil
	}
}

// Nearest is the known word that is nearest to the one given; empty if none is near.
func Nearest(word string, known []string) string {
	best, distance := "", len(word)/2+1
	for _, k := range known {
		if d := edits(strings.ToLower(word), strings.ToLower(k)); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// suggest names the known word nearest to the one given, as the end of an error message.
func suggest(word string, of func(Setting) string) string {
	best, distance := "", len(word)/2+2
	for _, s := range settings {
		known := of(s)
		d := edits(strings.ToLower(word), strings.ToLower(known))
		if tail := known[strings.LastIndexByte(known, '.')+1:]; strings.EqualFold(word, tail) {
			d = 1
		}
		if d < distance {
			best, distance = known, d
		}
	}
	if best == "" {
		return "; `tanist config` lists the known ones"
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
