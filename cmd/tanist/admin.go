package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/login"
	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

// adminFlags say which node's admin API to ask, and as whom.
type adminFlags struct {
	url, user, ca string
	json          bool
}

func (f *adminFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.url, "admin-url", "", "admin address of a node, or of several with commas between: the first that answers is asked (default $TANIST_ADMIN_URL, else http://127.0.0.1:15672)")
	p.StringVar(&f.user, "user", "", "user to log in as (default $TANIST_USER, else guest); the password is taken from $TANIST_PASSWORD or asked for")
	p.StringVar(&f.ca, "ca", "", "PEM file of the authority of an https address")
	jsonFlag(c, &f.json)
}

func (f *adminFlags) client() (*client.Client, error) {
	url := first(f.url, os.Getenv("TANIST_ADMIN_URL"), "http://127.0.0.1:15672")
	user := first(f.user, os.Getenv("TANIST_USER"), "guest")
	password, err := login.Password(user)
	if err != nil {
		return nil, err
	}
	return client.New(url, user, password, f.ca)
}

// with is what a verb runs that asks a node: do has a client of the node that the flags name.
func (f *adminFlags) with(do func(c *cobra.Command, api *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		api, err := f.client()
		if err != nil {
			return err
		}
		return do(c, api, args)
	}
}

// answer prints what a node answered, as JSON where that is asked for, or gives the error that came instead.
func answer[T any](c *cobra.Command, f *adminFlags, text func(io.Writer, T) error) func(T, error) error {
	return func(v T, err error) error {
		switch {
		case err != nil:
			return err
		case f.json:
			return printJSON(c.OutOrStdout(), v)
		}
		return text(c.OutOrStdout(), v)
	}
}

// question prints an answer as answer does, and ends with exitNo where it is no.
func question[T any](c *cobra.Command, f *adminFlags, text func(io.Writer, T) error, no func(T) bool) func(T, error) error {
	return func(v T, err error) error {
		if err = answer(c, f, text)(v, err); err == nil && no(v) {
			err = show.Exit(exitNo)
		}
		return err
	}
}

// rows is how a list is printed as a table.
func rows[T any](header string, row func(T) []string) func(io.Writer, []T) error {
	return func(w io.Writer, all []T) error {
		var lines [][]string
		for _, x := range all {
			lines = append(lines, row(x))
		}
		return table(w, header, lines)
	}
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// waitsFor says what a queue waits for: in its own words where the admin API can be asked without a question to the user.
func waitsFor(ctx context.Context, queue, ca string) string {
	hint := fmt.Sprintf("tanist status %s says what it waits for", control.Quoted(queue))
	if _, ok := os.LookupEnv("TANIST_PASSWORD"); !ok && first(os.Getenv("TANIST_USER"), "guest") != "guest" {
		return hint
	}
	api, err := (&adminFlags{ca: ca}).client()
	if err != nil {
		return hint
	}
	parts, err := api.Partitions(ctx, "", queue)
	if err != nil {
		return hint
	}
	for _, p := range parts {
		switch {
		case p.State != admin.Serving && p.Reason != "":
			return fmt.Sprintf("%s is %s: %s", admin.Visible(queue), p.State, admin.Visible(p.Reason))
		case p.Reason != "":
			return admin.Visible(p.Reason)
		}
	}
	return hint
}
