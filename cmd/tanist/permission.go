package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/front/admin/client"
)

func newPermission() *cobra.Command {
	c := &cobra.Command{
		Use: "permission", Short: "Set, clear and list what users may do in virtual hosts",
		Long: `A permission is three regular expressions on the names of queues, streams and exchanges: what a user may configure (declare,
delete), write (publish to, bind) and read (consume, bind from). An empty one matches nothing; '.*' matches everything. A queue is published
to by its name through the default exchange, which is called amq.default here.`,
	}
	c.AddCommand(newPermissionSet(), newPermissionClear(), newPermissionList())
	return c
}

func newPermissionSet() *cobra.Command {
	var f adminFlags
	var p catalog.Permission
	c := &cobra.Command{
		Use: "set USER", Short: "Set what a user may do in a virtual host", Args: cobra.ExactArgs(1),
		Example: "  tanist permission set app --vhost / --configure '^app-' --write '^app-' --read '.*'",
		RunE: func(c *cobra.Command, args []string) error {
			p.User = args[0]
			if given := c.Flags().Changed; !given("configure") && !given("write") && !given("read") {
				return fmt.Errorf("say what %s may do in %s: --configure, --write, --read, each '.*' or another regular expression; one that is not given matches nothing", p.User, p.VHost)
			}
			api, err := f.client()
			if err != nil {
				return err
			}
			if err := api.PutPermission(c.Context(), p); err != nil {
				return err
			}
			return done(c, f.json, "permissions of %s in %s are now: configure %s, write %s, read %s", p.User, p.VHost,
				pattern(p.Configure), pattern(p.Write), pattern(p.Read))
		},
	}
	f.add(c)
	c.Flags().StringVar(&p.VHost, "vhost", "/", "virtual host")
	c.Flags().StringVar(&p.Configure, "configure", "", "regular expression of names that may be declared and deleted")
	c.Flags().StringVar(&p.Write, "write", "", "regular expression of names that may be published to")
	c.Flags().StringVar(&p.Read, "read", "", "regular expression of names that may be consumed from")
	return c
}

// pattern is a regular expression of a permission as people read it.
func pattern(p string) string {
	if p == "" {
		return "nothing"
	}
	return "'" + p + "'"
}

func newPermissionClear() *cobra.Command {
	var f adminFlags
	var vhost string
	c := &cobra.Command{
		Use: "clear USER", Short: "Take away a user's permissions in a virtual host", Args: cobra.ExactArgs(1),
		Example: "  tanist permission clear app\n  tanist permission clear app --vhost test",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			if err := api.DeletePermission(c.Context(), args[0], vhost); err != nil {
				return err
			}
			return done(c, f.json, "%s has no permissions in %s any more", args[0], vhost)
		}),
	}
	f.add(c)
	c.Flags().StringVar(&vhost, "vhost", "/", "virtual host")
	return c
}

func newPermissionList() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "list", Short: "List permissions", Args: cobra.NoArgs,
		Example: "  tanist permission list",
		RunE: f.with(func(c *cobra.Command, api *client.Client, _ []string) error {
			row := func(p catalog.Permission) []string {
				return []string{p.User, p.VHost, orDash(p.Configure), orDash(p.Write), orDash(p.Read)}
			}
			return answer(c, &f, rows("USER VHOST CONFIGURE WRITE READ", row))(api.Permissions(c.Context()))
		}),
	}
	f.add(c)
	return c
}
