package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

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
	password, err := loginPassword(user)
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

// loginPassword is the password to log in with.
func loginPassword(user string) (string, error) {
	if p, ok := os.LookupEnv("TANIST_PASSWORD"); ok {
		return p, nil
	}
	if user == "guest" {
		return "guest", nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return "", fmt.Errorf("no password for %s: set TANIST_PASSWORD", user)
	}
	return prompt(fmt.Sprintf("Password of %s: ", user))
}

func prompt(text string) (string, error) {
	fmt.Fprint(os.Stderr, text)
	p, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(os.Stderr)
	return string(p), err
}

// newPassword is the password that a user gets: from $TANIST_NEW_PASSWORD, asked for twice on a terminal, else the first line of in.
// It is never an argument, since those are seen in process lists.
func newPassword(user string, in io.Reader) (string, error) {
	if p, ok := os.LookupEnv("TANIST_NEW_PASSWORD"); ok {
		return p, nil
	}
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p, err := prompt(fmt.Sprintf("New password of %s: ", user))
		if err != nil {
			return "", err
		}
		again, err := prompt("Once more: ")
		if err == nil && p != again {
			err = errors.New("the two passwords differ")
		}
		return p, err
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", fmt.Errorf("no password for %s: give it on standard input or in TANIST_NEW_PASSWORD", user)
	}
	return line, nil
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}
