package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tanist.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaultsLoad(t *testing.T) {
	c, eff, err := Load(Input{})
	if err != nil {
		t.Fatal(err)
	}
	if c.AMQP != ":5672" || c.Limits.Message != 16<<20 || c.ConfirmTimeout != 30*time.Second || c.Disk.High != 768<<20 {
		t.Errorf("defaults: %+v", c)
	}
	if len(eff) != len(settings) {
		t.Fatalf("%d effective settings, want %d", len(eff), len(settings))
	}
	for _, e := range eff {
		if e.Source != "default" || e.Doc == "" {
			t.Errorf("%s: source %q, doc %q", e.Key, e.Source, e.Doc)
		}
	}
}

func TestLayers(t *testing.T) {
	path := write(t, "name = \"file\"\nconfirm_timeout = \"5s\"\n[limits]\nchannels = 7\nmessage = \"1MiB\"\n")
	c, eff, err := Load(Input{
		File: path, Environ: []string{"TANIST_NAME=env", "TANIST_LIMITS_CHANNELS=8", "HOME=x", "TANIST_URL=amqp://x"},
		Flags: map[string]string{"limits.channels": "9"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "env" || c.Limits.Channels != 9 || c.Limits.Message != 1<<20 || c.ConfirmTimeout != 5*time.Second {
		t.Errorf("layers: %+v", c)
	}
	want := map[string]Source{
		"name": "environment TANIST_NAME", "limits.channels": "flag --limits-channels", "limits.message": Source("file " + path),
		"amqp": "default",
	}
	for _, e := range eff {
		if w, ok := want[e.Key]; ok && e.Source != w {
			t.Errorf("%s: source %q, want %q", e.Key, e.Source, w)
		}
	}
}

func TestErrorsNameTheMistake(t *testing.T) {
	for name, c := range map[string]struct {
		in   Input
		want []string
	}{
		"unknown key":      {Input{File: write(t, "nmae = \"x\"\n")}, []string{`unknown key "nmae"`, `did you mean "name"`}},
		"unknown in table": {Input{File: write(t, "[limits]\nchanels = 3\n")}, []string{`unknown key "limits.chanels"`, `"limits.channels"`}},
		"wrong table":      {Input{File: write(t, "channels = 3\n")}, []string{`unknown key "channels"`, `"limits.channels"`}},
		"far from any":     {Input{File: write(t, "zzzzzzzzzzzz = 3\n")}, []string{"unknown key", "tanist config"}},
		"not TOML":         {Input{File: write(t, "name = \n")}, []string{"configuration file", "tanist.toml"}},
		"missing file":     {Input{File: "/nowhere/x.toml"}, []string{"configuration file", "no such file"}},
		"wrong type":       {Input{File: write(t, "name = [1]\n")}, []string{`key "name"`}},
		"unknown variable": {Input{Environ: []string{"TANIST_AMPQ=x"}}, []string{"TANIST_AMPQ", `"TANIST_AMQP"`}},
		"number":           {Input{Flags: map[string]string{"limits.channels": "0"}}, []string{"flag --limits-channels", "1 to 65535"}},
		"size":             {Input{Flags: map[string]string{"limits.message": "1GiB"}}, []string{"1KiB to 16MiB"}},
		"no size":          {Input{Flags: map[string]string{"limits.message": "big"}}, []string{"64KiB"}},
		"duration":         {Input{Flags: map[string]string{"confirm_timeout": "3"}}, []string{"100ms to 1h"}},
		"address":          {Input{Flags: map[string]string{"amqp": "5672"}}, []string{"host:port"}},
		"port":             {Input{Flags: map[string]string{"amqp": ":99999"}}, []string{`port "99999": want a number from 0 (any free port) to 65535`}},
		"word":             {Input{Flags: map[string]string{"log.level": "loud"}}, []string{"debug, info"}},
		"name":             {Input{Flags: map[string]string{"name": "a b"}}, []string{"letters"}},
		"no data":          {Input{Flags: map[string]string{"data": ""}}, []string{"empty"}},
		"half of TLS":      {Input{Flags: map[string]string{"tls.cert": "x"}}, []string{"go together"}},
		"TLS without":      {Input{Flags: map[string]string{"amqps": ":5671"}}, []string{"tls.cert"}},
		"lonely CA":        {Input{Flags: map[string]string{"tls.ca": "x"}}, []string{"tls.ca"}},
		"no listener":      {Input{Flags: map[string]string{"amqp": ""}}, []string{"no client could connect"}},
		"marks crossed":    {Input{Flags: map[string]string{"disk.low": "1GiB"}}, []string{"disk.high"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Load(c.in)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
}

// TestDocumented holds the table of settings in docs/OPERATIONS.md against the settings. It prints the table if that is wrong.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| setting | default | bounds | meaning |\n|---|---|---|---|\n")
	for _, s := range Settings() {
		value := "none"
		if s.Default != "" {
			value = "`" + s.Default + "`"
		}
		table.WriteString("| `" + s.Key + "` | " + value + " | " + s.Bounds + " | " + s.Doc + " |\n")
	}
	if !strings.Contains(string(text), table.String()) {
		t.Errorf("docs/OPERATIONS.md lacks this table:\n%s", table.String())
	}
}
