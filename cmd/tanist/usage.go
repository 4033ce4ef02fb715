package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tanist/tanist/internal/config"
)

// otherNames are what flags are called by other programs.
var otherNames = map[string]string{
	"port": "amqp", "listen": "amqp", "host": "url", "data-dir": "data", "dir": "data", "datadir": "data",
	"username": "user", "management-port": "admin", "admin-port": "admin", "http": "admin", "cert": "tls-cert", "key": "tls-key", "cacert": "ca",
	"type": "declare", "durable": "declare", "routing-key": "key", "ack": "settle", "limit": "count", "n": "count", "log": "log-level",
}

// wrongFlag says which flag may have been meant, and where the flags are explained.
func wrongFlag(c *cobra.Command, err error) error {
	help := fmt.Sprintf("`%s --help` explains its flags", c.CommandPath())
	if word, ok := negative(err); ok {
		return fmt.Errorf("%s looks like a flag, since it begins with a dash; where it is meant as an argument, write -- before it: %s … -- %s", word, c.CommandPath(), word)
	}
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !unknown {
		return fmt.Errorf("%w; %s", err, help)
	}
	known := slices.Collect(maps.Keys(otherNames))
	c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	slices.Sort(known)
	near := config.Nearest(name, known)
	if other, ok := otherNames[near]; ok {
		near = other
	}
	if c.Flags().Lookup(near) == nil {
		near = ""
	}
	switch {
	case name == "password":
		return fmt.Errorf("%w: passwords are no arguments, since those can be seen; set TANIST_PASSWORD, or TANIST_NEW_PASSWORD for a new one", err)
	case near != "":
		return fmt.Errorf("%w; did you mean --%s? %s", err, near, help)
	}
	return fmt.Errorf("%w; %s", err, help)
}

// negative gives the word that was taken for a flag and is a number below 0, such as -5 or -1m.
func negative(err error) (word string, ok bool) {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return "", false
	}
	word = unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		word = short
	}
	return "-" + word, word != "" && (word[0] >= '0' && word[0] <= '9' || word[0] == '.')
}

// unknownCommand says which command of c may have been meant, and where they are listed.
func unknownCommand(c *cobra.Command, name string) error {
	meant := c.SuggestionsFor(name)
	slices.Sort(meant)
	hint := fmt.Sprintf("`%s --help` lists the commands", c.CommandPath())
	if meant = slices.Compact(meant); len(meant) > 0 {
		hint = fmt.Sprintf("did you mean %s? %s", strings.Join(meant, " or "), hint)
	}
	return fmt.Errorf("unknown command %q; %s", c.CommandPath()+" "+name, hint)
}

// explainArguments has every command that gets too few or too many arguments say how it is called, and every group of commands refuse
// one that it does not have.
func explainArguments(c *cobra.Command) {
	for _, sub := range c.Commands() {
		explainArguments(sub)
	}
	switch {
	case c.HasSubCommands() && c.RunE != nil: // it does something by itself, too
		check := c.Args
		c.Args = func(c *cobra.Command, args []string) error {
			if check(c, args) == nil {
				return nil
			}
			return unknownCommand(c, args[0])
		}
	case c.HasSubCommands():
		c.Args = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(c, args[0])
		}
		c.DisableFlagsInUseLine = true
		if c.HasParent() && c.RunE == nil { // asked without a word that says what, which is no success: scripts go by the exit code
			c.RunE = func(c *cobra.Command, _ []string) error {
				var names []string
				for _, sub := range c.Commands() {
					names = append(names, sub.Name())
				}
				return fmt.Errorf("%s: say what: %s; `%s --help` tells more", c.CommandPath(), strings.Join(names, ", "), c.CommandPath())
			}
			break
		}
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	case c.Args != nil:
		check := c.Args
		c.Args = func(c *cobra.Command, args []string) error {
			if check(c, args) == nil {
				return nil
			}
			return fmt.Errorf("got %s; want: %s", plural(len(args), "argument"), c.UseLine())
		}
	}
}
