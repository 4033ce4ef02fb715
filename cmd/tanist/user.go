package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/login"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

func newUser() *cobra.Command {
	c := &cobra.Command{Use: "user", Short: "Add, change, delete and list users"}
	c.AddCommand(newUserAdd(), newUserPasswd(), newUserDelete(), newUserList())
	return c
}

func newUserAdd() *cobra.Command {
	var f adminFlags
	var roles []string
	c := &cobra.Command{
		Use: "add NAME", Short: "Create a user, or change one's password and roles", Args: cobra.ExactArgs(1),
		Long: `Creates a user. The password comes from $TANIST_NEW_PASSWORD, from the terminal, or from the first line of standard input.
A new user may do nothing until "tanist permission set" says what.`,
		Example: "  tanist user add app < password.txt\n  tanist user add grafana --role monitoring",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			password, err := login.NewPassword(args[0], c.InOrStdin())
			if err != nil {
				return err
			}
			u := admin.UserUpdate{Name: args[0], Password: &password}
			if c.Flags().Changed("role") {
				u.Roles = &roles
			}
			if err := api.PutUser(c.Context(), u); err != nil {
				return err
			}
			return done(c, f.json, "user %s is set; next: tanist permission set %s --vhost / --configure '.*' --write '.*' --read '.*'", args[0], args[0])
		}),
	}
	f.add(c)
	c.Flags().StringSliceVar(&roles, "role", nil, "administrator or monitoring, for the admin port; may be repeated")
	return c
}

func newUserPasswd() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "passwd NAME", Short: "Change a user's password", Args: cobra.ExactArgs(1),
		Example: "  tanist user passwd app\n  tanist user passwd app < password.txt",
		Long:    "Changes a password, which comes from $TANIST_NEW_PASSWORD, from the terminal, or from the first line of standard input.",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			users, err := api.Users(c.Context())
			if err != nil {
				return err
			}
			known := false
			for _, u := range users {
				known = known || u.Name == args[0]
			}
			if !known {
				return fmt.Errorf("no user %q; `tanist user list` shows them, `tanist user add %s` creates one", args[0], args[0])
			}
			password, err := login.NewPassword(args[0], c.InOrStdin())
			if err != nil {
				return err
			}
			if err := api.PutUser(c.Context(), admin.UserUpdate{Name: args[0], Password: &password}); err != nil {
				return err
			}
			return done(c, f.json, "the password of %s is changed", args[0])
		}),
	}
	f.add(c)
	return c
}

func newUserDelete() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "delete NAME", Short: "Delete a user with the user's permissions", Args: cobra.ExactArgs(1),
		Example: "  tanist user delete guest",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			if err := api.DeleteUser(c.Context(), args[0]); err != nil {
				return err
			}
			return done(c, f.json, "user %s is deleted", args[0])
		}),
	}
	f.add(c)
	return c
}

func newUserList() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "list", Short: "List users and their roles", Args: cobra.NoArgs,
		Example: "  tanist user list",
		RunE: f.with(func(c *cobra.Command, api *client.Client, _ []string) error {
			row := func(u admin.UserAnswer) []string { return []string{u.Name, orDash(strings.Join(u.Roles, ","))} }
			return answer(c, &f, rows("NAME ROLES", row))(api.Users(c.Context()))
		}),
	}
	f.add(c)
	return c
}

// done says that a change was made.
func done(c *cobra.Command, asJSON bool, format string, a ...any) error {
	if asJSON {
		return printJSON(c.OutOrStdout(), map[string]bool{"done": true})
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), format+"\n", a...)
	return err
}
