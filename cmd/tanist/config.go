package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tanist/tanist/internal/config"
)

// configFlags are the flags of all settings, and of the file.
type configFlags struct {
	file  string
	flags *pflag.FlagSet
}

func (f *configFlags) add(c *cobra.Command) {
	f.flags = c.Flags()
	f.flags.StringVar(&f.file, "config", "", "TOML file with settings (default $TANIST_CONFIG, else none)")
	for _, s := range config.Settings() {
		usage := strings.TrimSuffix(s.Doc, ".") + " (" + s.Bounds + ")"
		f.flags.String(s.Flag(), s.Default, usage)
	}
}

func (f *configFlags) load() (*config.Config, []config.Effective, error) {
	in := config.Input{File: first(f.file, os.Getenv("TANIST_CONFIG")), Environ: os.Environ(), Flags: map[string]string{}}
	for _, s := range config.Settings() {
		if f.flags.Changed(s.Flag()) {
			in.Flags[s.Key] = f.flags.Lookup(s.Flag()).Value.String()
		}
	}
	return config.Load(in)
}

func newConfig() *cobra.Command {
	var f configFlags
	var asJSON, docs bool
	c := &cobra.Command{
		Use: "config", Short: "Print the settings in force and where each comes from", Args: cobra.NoArgs,
		Example: "  tanist config\n  tanist config --config /etc/tanist.toml\n  tanist config --docs",
		Long: `Prints every setting as "tanist serve" with the same file, environment and flags would use it, and where it comes from.
Later ones win: defaults, the TOML file (--config or $TANIST_CONFIG), environment variables, flags.`,
		RunE: func(c *cobra.Command, _ []string) error {
			_, effective, err := f.load()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), effective)
			}
			var rows [][]string
			for i, e := range effective {
				row := []string{e.Key, orDash(e.Value), string(e.Source)}
				if docs {
					s := config.Settings()[i]
					row = append(row, s.Env(), fmt.Sprintf("%s (%s)", s.Doc, s.Bounds))
				}
				rows = append(rows, row)
			}
			header := "SETTING VALUE SOURCE"
			if docs {
				header += " VARIABLE MEANING"
			}
			return table(c.OutOrStdout(), header, rows)
		},
	}
	f.add(c)
	jsonFlag(c, &asJSON)
	c.Flags().BoolVar(&docs, "docs", false, "also print each setting's environment variable and meaning")
	return c
}
