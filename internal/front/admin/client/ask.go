package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/front/admin"
)

// maxAnswer bounds what is read of one answer.
const maxAnswer = 1 << 30

// Error is a refusal by the node.
type Error struct {
	Status int
	admin.FailureText
}

func (e *Error) Error() string { return e.Message }

// Unreachable is returned when no node answered at the address.
type Unreachable struct {
	Base  string
	Cause error
	// Sent says that a change was on its way, so that it may have been made, or may still be: look before it is asked for again. A read is safe
	// to repeat, and so is a change that was not sent.
	Sent bool
}

func (e *Unreachable) Error() string {
	if e.Sent {
		return fmt.Sprintf("%s took the request and gave no answer (%v): it may have been carried out; look, at another node if this one hangs, before you repeat it", e.Base, e.Cause)
	}
	return fmt.Sprintf("no node answers at %s (%v); is `tanist serve` running, and is this its admin address (--admin-url)?", e.Base, e.Cause)
}

// Unwrap gives what the network said.
func (e *Unreachable) Unwrap() error { return e.Cause }

// do asks for something, and reads the answer into a value; nil: there is none to read.
func (c *Client) do(ctx context.Context, method, path string, body, into any) error {
	var text []byte
	var err error
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	if method == http.MethodGet {
		text, err = c.read(ctx, path)
	} else {
		text, err = c.change(ctx, method, path, text)
	}
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s%s answered what is not Tanist's: %w", c.bases[c.at.Load()], path, err)
	}
	return nil
}

// read asks the node that answered last, and one more whenever another second is over or one says that it cannot tell. The first answer counts.
func (c *Client) read(ctx context.Context, path string) ([]byte, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel() // which ends the requests that nobody waits for any more
	type reply struct {
		at   int
		text []byte
		err  error
	}
	replies := make(chan reply, len(c.bases))
	begin, asked, heard := int(c.at.Load()), 0, 0
	next := time.NewTimer(c.patience)
	defer next.Stop()
	ask := func() {
		at := (begin + asked) % len(c.bases)
		asked++
		go func() {
			text, err := c.ask(within, c.bases[at], http.MethodGet, path, nil)
			replies <- reply{at, text, err}
		}()
		next.Reset(c.patience)
	}
	ask()
	var failed error
	for {
		select {
		case r := <-replies:
			heard++
			if !another(r.err) || ctx.Err() != nil {
				c.at.Store(int32(r.at))
				return r.text, r.err
			}
			var refused *Error
			if failed == nil || errors.As(r.err, &refused) { // a node that says why knows more than the network
				failed = r.err
			}
			if asked < len(c.bases) {
				ask()
			} else if heard == asked {
				return nil, failed
			}
		case <-next.C:
			if asked < len(c.bases) {
				ask()
			}
		}
	}
}

// another reports whether another node may know what one could not tell.
func another(err error) bool {
	var gone *Unreachable
	var refused *Error
	return errors.As(err, &gone) || errors.As(err, &refused) && refused.Retry && refused.Status >= http.StatusInternalServerError
}

// change sends a change to one node: where there are several, to one that has just answered, and to the next only as long as it was not sent.
func (c *Client) change(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	if len(c.bases) > 1 {
		if _, err := c.read(ctx, "/livez"); err != nil {
			return nil, err
		}
	}
	var failed error
	begin := int(c.at.Load())
	for i := range c.bases {
		at := (begin + i) % len(c.bases)
		text, err := c.ask(ctx, c.bases[at], method, path, body)
		var gone *Unreachable
		if !errors.As(err, &gone) || gone.Sent || ctx.Err() != nil {
			c.at.Store(int32(at))
			return text, err
		}
		failed = err
	}
	return nil, failed
}

// ask asks one node.
func (c *Client) ask(ctx context.Context, base, method, path string, body []byte) ([]byte, error) {
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(method != http.MethodGet) }})
	req, err := http.NewRequestWithContext(traced, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.SetBasicAuth(c.user, c.password)
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		var untrusted *tls.CertificateVerificationError
		if errors.As(err, &untrusted) {
			return nil, fmt.Errorf("the certificate of %s is not accepted (%w); --ca FILE names the authority that signed it", base, untrusted.Err)
		}
		return nil, &Unreachable{Base: base, Cause: err, Sent: sent.Load()}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &Unreachable{Base: base, Cause: err, Sent: sent.Load()}
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, c.refusal(resp, text)
	}
	return text, nil
}

func (c *Client) refusal(resp *http.Response, text []byte) error {
	var f admin.Failure
	if err := json.Unmarshal(text, &f); err != nil || f.Error.Message == "" {
		return fmt.Errorf("%s: %s: is this a Tanist node's admin address, and does it want https://?", resp.Request.URL, resp.Status)
	}
	if resp.StatusCode == http.StatusUnauthorized && f.Error.Message == "wrong user or password" {
		f.Error.Message += fmt.Sprintf(" for %q; --user and $TANIST_PASSWORD say who asks", c.user)
	}
	return &Error{Status: resp.StatusCode, FailureText: f.Error}
}
