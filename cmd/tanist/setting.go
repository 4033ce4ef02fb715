package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

func newSetting() *cobra.Command {
	c := &cobra.Command{
		Use: "setting", SuggestFor: []string{"settings", "set", "tune"}, Short: "Show and change the settings of the whole cluster",
		Long: `Shows and changes the settings that hold for the whole cluster and change while it runs: how long a lost follower keeps its place, and the
like. They are kept with the cluster and count at once on every node. Those of one node are its own: tanist config shows them.`,
	}
	c.AddCommand(newSettingList(), newSettingGet(), newSettingSet(), newSettingReset())
	return c
}

// settingNames completes the name of a setting.
func settingNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return admin.SettingNames(), cobra.ShellCompDirectiveNoFileComp
}

func newSettingList() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "list", Short: "List all settings, with what is allowed", Args: cobra.NoArgs,
		Example: "  tanist setting list",
		RunE: f.with(func(c *cobra.Command, api *client.Client, _ []string) error {
			row := func(s admin.SettingAnswer) []string { return []string{s.Name, s.Value, s.Default, s.Allowed, s.About} }
			return answer(c, &f, rows("SETTING VALUE DEFAULT ALLOWED MEANING", row))(api.Settings(c.Context()))
		}),
	}
	f.add(c)
	return c
}

func newSettingGet() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "get NAME", Short: "Print the value of a setting", Args: cobra.ExactArgs(1), ValidArgsFunction: settingNames,
		Example: "  tanist setting get follower_loss_hold",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			all, err := api.Settings(c.Context())
			if err != nil {
				return err
			}
			i := slices.IndexFunc(all, func(s admin.SettingAnswer) bool { return s.Name == args[0] })
			if i < 0 {
				return fmt.Errorf("no setting %q: there are %s", args[0], strings.Join(admin.SettingNames(), ", "))
			}
			return answer(c, &f, func(w io.Writer, s admin.SettingAnswer) error {
				_, err := fmt.Fprintln(w, s.Value)
				return err
			})(all[i], nil)
		}),
	}
	f.add(c)
	return c
}

func newSettingSet() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "set NAME VALUE", Short: "Set a setting, at once and for all nodes", Args: cobra.ExactArgs(2), ValidArgsFunction: settingNames,
		Example: "  tanist setting set follower_loss_hold 30m\n  tanist setting set rebalance off",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			return answer(c, &f, saySetting)(api.PutSetting(c.Context(), args[0], args[1]))
		}),
	}
	f.add(c)
	return c
}

func newSettingReset() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "reset NAME", Short: "Let a setting have its default again", Args: cobra.ExactArgs(1), ValidArgsFunction: settingNames,
		Example: "  tanist setting reset follower_loss_hold",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			return answer(c, &f, saySetting)(api.ResetSetting(c.Context(), args[0]))
		}),
	}
	f.add(c)
	return c
}

// saySetting says how a setting stands now.
func saySetting(w io.Writer, s admin.SettingAnswer) error {
	note := ""
	if !s.Set {
		note = ", its default"
	}
	_, err := fmt.Fprintf(w, "%s is %s%s\n", s.Name, s.Value, note)
	return err
}
