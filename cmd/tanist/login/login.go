// Package login finds the passwords that the verbs need. They are never arguments, since those are seen in process lists.
package login

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Password is what a user logs in with: $TANIST_PASSWORD, guest for guest, else asked for on a terminal. It fails where there is none of these.
func Password(user string) (string, error) {
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

// NewPassword is the password that a user gets: from $TANIST_NEW_PASSWORD, asked for twice on a terminal, else the first line of in.
// It is never an argument, since those are seen in process lists.
func NewPassword(user string, in io.Reader) (string, error) {
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
