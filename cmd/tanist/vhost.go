package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/front/admin/client"
)

func newVHost() *cobra.Command {
	c := &cobra.Command{Use: "vhost", Short: "Add, delete and list virtual hosts"}
	c.AddCommand(newVHostAdd(), newVHostDelete(), newVHostList())
	return c
}

func newVHostAdd() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "add NAME", Short: "Create a virtual host", Args: cobra.ExactArgs(1),
		Example: "  tanist vhost add test",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			if err := api.PutVHost(c.Context(), args[0]); err != nil {
				return err
			}
			return done(c, f.json, "virtual host %s is there; users need permissions in it: tanist permission set USER --vhost %s …", args[0], args[0])
		}),
	}
	f.add(c)
	return c
}

func newVHostDelete() *cobra.Command {
	var f adminFlags
	var sure bool
	c := &cobra.Command{
		Use: "delete NAME", Short: "Delete a virtual host with every queue and stream in it", Args: cobra.ExactArgs(1),
		Example: "  tanist vhost delete test --with-all-messages",
		RunE: func(c *cobra.Command, args []string) error {
			if !sure {
				return errors.New("this deletes every message in the virtual host; repeat it with --with-all-messages")
			}
			api, err := f.client()
			if err != nil {
				return err
			}
			if err := api.DeleteVHost(c.Context(), args[0]); err != nil {
				return err
			}
			return done(c, f.json, "virtual host %s is deleted", args[0])
		},
	}
	f.add(c)
	c.Flags().BoolVar(&sure, "with-all-messages", false, "yes, delete what is in it")
	return c
}

func newVHostList() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "list", Short: "List virtual hosts", Args: cobra.NoArgs,
		Example: "  tanist vhost list",
		RunE: f.with(func(c *cobra.Command, api *client.Client, _ []string) error {
			return answer(c, &f, rows("NAME", func(v catalog.VHost) []string { return []string{v.Name} }))(api.VHosts(c.Context()))
		}),
	}
	f.add(c)
	return c
}
