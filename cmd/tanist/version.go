package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what is known of how the program was made.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // the commit, where it was built from a checkout
	Time     string `json:"time,omitempty"`     // of the commit
	Modified bool   `json:"modified"`           // the checkout differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print the version of this program, and what it was built from", Args: cobra.NoArgs,
		Long:    `Prints the version of this program. That of a running node is in tanist status, and on every node's first line.`,
		Example: "  tanist version\n  tanist version --json",
		RunE: func(c *cobra.Command, _ []string) error {
			b := built()
			if asJSON {
				return printJSON(c.OutOrStdout(), b)
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "tanist %s, %s, %s\n", b.Version, b.Go, b.Platform)
			return err
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// version is the module's, or the commit's where it was built from a checkout.
func version() string { return built().Version }

func built() build {
	b := build{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	switch v := info.Main.Version; {
	case v != "" && v != "(devel)":
		b.Version = v
	case len(b.Revision) >= 12:
		b.Version = "0-" + b.Revision[:12]
	default:
		b.Version = "0-devel"
	}
	return b
}
