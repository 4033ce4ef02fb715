// Package config gathers a node's settings: the built-in defaults, then a TOML file, then environment variables, then flags, each
// above the one before. Every setting is described once, in the table of settings.go; documents, flags, `tanist config` and error
// messages are made of that table. Nothing that runs a node may come in.
package config

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// Config is the effective configuration of a node.
type Config struct {
	Name string
	Data string

	AMQP, AMQPS   string // addresses to listen on, host:port; empty: not at all
	Admin, Admins string

	Mesh          string                             // address for other nodes; empty: alone
	Advertise     struct{ Mesh, AMQP, Admin string } // host or host:port; empty: as listened on
	Zone          string
	Join          string // mesh address of a member
	JoinToken     string // a secret
	JoinTokenFile string
	MeshTLS       struct{ Cert, Key, CA string } // PEM files

	TLS struct{ Cert, Key, CA string } // PEM files

	Log struct{ Level, Format string }

	Limits struct {
		Connections, ConnectionsPerUser, Channels, Consumers, Queues int
		Frame, Message                                               int64 // bytes
	}

	Memory struct{ Publish, Partition, Consumer int64 } // bytes

	Disk struct{ File, Low, High int64 } // bytes

	ConfirmTimeout time.Duration
}

// Source says where the value of a setting came from.
type Source string

// Effective is one setting as it is in force.
type Effective struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Unit    string `json:"unit,omitempty"`
	Source  Source `json:"source"` // "default", "file PATH", "environment TANIST_…" or "flag --…"
	Doc     string `json:"doc"`
}

// Input is where settings are read from. All of it may be empty.
type Input struct {
	File    string // path of a TOML file; empty: none
	Environ []string
	Flags   map[string]string // by key, only those that were given
}

// Load makes the effective configuration. An error names the setting, where it was found and what would be right.
func Load(in Input) (*Config, []Effective, error) {
	c := &Config{}
	state := make([]Effective, len(settings))
	for i, s := range settings {
		if err := s.set(c, s.Default); err != nil {
			return nil, nil, fmt.Errorf("default of %s: %w", s.Key, err)
		}
		state[i] = Effective{Key: s.Key, Value: s.Default, Default: s.Default, Unit: s.Unit, Source: "default", Doc: s.Doc}
	}
	file, err := readFile(in.File)
	if err != nil {
		return nil, nil, err
	}
	env, err := readEnviron(in.Environ)
	if err != nil {
		return nil, nil, err
	}
	for _, layer := range []struct {
		values map[string]string
		source func(Setting) Source
	}{
		{file, func(Setting) Source { return Source("file " + in.File) }},
		{env, func(s Setting) Source { return Source("environment " + s.Env()) }},
		{in.Flags, func(s Setting) Source { return Source("flag --" + s.Flag()) }},
	} {
		for i, s := range settings {
			v, ok := layer.values[s.Key]
			if !ok {
				continue
			}
			src := layer.source(s)
			if err := s.set(c, v); err != nil {
				return nil, nil, fmt.Errorf("%s: %s = %q: %w", src, s.Key, s.shown(v), err)
			}
			state[i].Value, state[i].Source = s.shown(v), src
		}
	}
	if err := c.check(); err != nil {
		return nil, nil, err
	}
	return c, state, nil
}

// shown is a value as people may see it.
func (s Setting) shown(v string) string {
	if s.Secret && v != "" {
		return "(secret)"
	}
	return v
}

// check holds what concerns more than one setting.
func (c *Config) check() error {
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		return fmt.Errorf("tls.cert and tls.key go together: set both or neither")
	}
	if (c.AMQPS != "" || c.Admins != "") && c.TLS.Cert == "" {
		return fmt.Errorf("amqps and admins need a certificate: set tls.cert and tls.key to PEM files")
	}
	if c.TLS.CA != "" && c.TLS.Cert == "" {
		return fmt.Errorf("tls.ca has no use without tls.cert and tls.key")
	}
	if c.AMQP == "" && c.AMQPS == "" {
		return fmt.Errorf("neither amqp nor amqps has an address: no client could connect")
	}
	if err := c.checkMesh(); err != nil {
		return err
	}
	if c.Disk.High < c.Disk.Low {
		return fmt.Errorf("disk.high (%d) is below disk.low (%d): publishers would be blocked and let go at once", c.Disk.High, c.Disk.Low)
	}
	return nil
}

// checkMesh holds what concerns the settings of a cluster.
func (c *Config) checkMesh() error {
	own := 0
	for _, f := range []string{c.MeshTLS.Cert, c.MeshTLS.Key, c.MeshTLS.CA} {
		if f != "" {
			own++
		}
	}
	switch {
	case own != 0 && own != 3:
		return fmt.Errorf("mesh_cert, mesh_key and mesh_ca go together: set all or none")
	case c.Mesh == "" && (c.Join != "" || own > 0):
		return fmt.Errorf("a node that has others listens for them: set mesh to an address, such as :5680")
	case c.JoinToken != "" && c.JoinTokenFile != "":
		return fmt.Errorf("join_token and join_token_file: set one of them")
	case c.Join == "" && (c.JoinToken != "" || c.JoinTokenFile != ""):
		return fmt.Errorf("a join token without join: set join to the mesh address of a member")
	case c.Mesh != "" && c.Advertise.Mesh == "":
		host, _, _ := net.SplitHostPort(c.Mesh)
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			return fmt.Errorf("mesh listens on every address: set mesh_advertise to the host name or address at which other nodes reach this one")
		}
	}
	return nil
}

// readFile flattens a TOML file into keys as in the table of settings.
func readFile(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	var tree map[string]any
	if _, err := toml.Decode(string(text), &tree); err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	out := map[string]string{}
	if err := flatten("", tree, out); err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	keys := make([]string, 0, len(out))
	for k := range out {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if find(k) == nil {
			return nil, fmt.Errorf("configuration file %s: unknown key %q%s", path, k, suggest(k, keyOf))
		}
	}
	return out, nil
}

func flatten(prefix string, tree map[string]any, out map[string]string) error {
	for name, v := range tree {
		key := prefix + name
		switch v := v.(type) {
		case map[string]any:
			if err := flatten(key+".", v, out); err != nil {
				return err
			}
		case string:
			out[key] = v
		case int64, bool:
			out[key] = fmt.Sprint(v)
		default:
			return fmt.Errorf("key %q: want a string or a whole number", key)
		}
	}
	return nil
}

const envPrefix = "TANIST_"

// notSettings are variables with our prefix that are read elsewhere.
var notSettings = []string{"TANIST_CONFIG", "TANIST_URL", "TANIST_ADMIN_URL", "TANIST_USER", "TANIST_PASSWORD", "TANIST_NEW_PASSWORD"}

func readEnviron(environ []string) (map[string]string, error) {
	out := map[string]string{}
	for _, e := range environ {
		name, v, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(notSettings, name) {
			continue
		}
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Env() == name })
		if i < 0 {
			return nil, fmt.Errorf("environment: unknown variable %s%s", name, suggest(name, Setting.Env))
		}
		out[settings[i].Key] = v
	}
	return out, nil
}
