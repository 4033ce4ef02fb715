package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

// completePatience is how long a shell waits for names at most.
const completePatience = 2 * time.Second

// completeArguments has the shell offer what the arguments of each verb may be: names that a node knows where the argument is one, and files
// nowhere but where a file is meant. It goes by how the verb says that it is called.
func completeArguments(c *cobra.Command) {
	for _, sub := range c.Commands() {
		completeArguments(sub)
	}
	if c.HasSubCommands() || c.ValidArgsFunction != nil || len(c.ValidArgs) > 0 || c.Name() == "inspect" {
		return
	}
	names := namesFor(c)
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if names == nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return known(c, names), cobra.ShellCompDirectiveNoFileComp
	}
}

// lookup asks a node for the names that an argument may have.
type lookup func(ctx context.Context, api *client.Client) ([]string, error)

// namesFor says what the first argument of a verb names; nil: nothing that a node knows.
func namesFor(c *cobra.Command) lookup {
	_, argument, _ := strings.Cut(c.Use, " ")
	argument, _, _ = strings.Cut(strings.Trim(argument, "[]"), " ")
	switch argument = strings.TrimRight(argument, "]"); argument {
	case "RESOURCE", "QUEUE", "STREAM":
		return func(ctx context.Context, api *client.Client) ([]string, error) {
			all, err := api.Resources(ctx, "", "")
			return each(all, func(r admin.Resource) string { return r.Name }), err
		}
	case "ID":
		return func(ctx context.Context, api *client.Client) ([]string, error) {
			all, err := api.Transitions(ctx, "", "", 20)
			var ids []string
			for _, e := range all {
				ids = append(ids, e.ID)
			}
			return ids, err
		}
	}
	switch parent := c.Parent().Name(); {
	case argument == "NODE", argument == "NAME" && parent == "node":
		return func(ctx context.Context, api *client.Client) ([]string, error) {
			all, err := api.Nodes(ctx)
			return each(all, func(n admin.Node) string { return n.Name }), err
		}
	case argument == "USER", argument == "NAME" && parent == "user" && c.Name() != "add":
		return func(ctx context.Context, api *client.Client) ([]string, error) {
			all, err := api.Users(ctx)
			return each(all, func(u admin.UserAnswer) string { return u.Name }), err
		}
	}
	return nil
}

func each[T any](all []T, name func(T) string) (out []string) {
	for _, x := range all {
		out = append(out, name(x))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// known asks for names as the verb itself would, but never for a password: a shell that completes a line is no place for it. What cannot be
// found out is not offered.
func known(c *cobra.Command, names lookup) []string {
	f := adminFlags{}
	for name, to := range map[string]*string{"admin-url": &f.url, "user": &f.user, "ca": &f.ca} {
		if flag := c.Flags().Lookup(name); flag != nil {
			*to = flag.Value.String()
		}
	}
	if _, given := os.LookupEnv("TANIST_PASSWORD"); !given && first(f.user, os.Getenv("TANIST_USER"), "guest") != "guest" {
		return nil
	}
	api, err := f.client()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.Context(), completePatience)
	defer cancel()
	found, err := names(ctx, api)
	if err != nil {
		return nil
	}
	return found
}
