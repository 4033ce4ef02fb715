package main

import (
	"errors"

	"github.com/spf13/cobra"
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
		RunE: func(c *cobra.Command, args []string) error {
			api, err := f.client()
			if err != nil {
				return err
			}
			if err := api.PutVHost(c.Context(), args[0]); err != nil {
				return err
			}
			return done(c, f.json, "virtual host %s is there; users need permissions in it: tanist permission set USER --vhost %s …", args[0], args[0])
		},
	}
	f.add(c)
	return c
}

func newVHostDelete() *cobra.Command {
	var f adminFlags
	var sure bool
	c := &cobra.Command{
		Use: "delete NAME", Short: "Delete a virtual host with every queue and stream in it", Args: cobra.ExactArgs(1),
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
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := f.client()
			if err != nil {
				return err
			}
			vhosts, err := api.VHosts(c.Context())
			if err != nil {
				return err
			}
			if f.json {
				return printJSON(c.OutOrStdout(), vhosts)
			}
			var rows [][]string
			for _, v := range vhosts {
				rows = append(rows, []string{v.Name})
			}
			return table(c.OutOrStdout(), "NAME", rows)
		},
	}
	f.add(c)
	return c
}
