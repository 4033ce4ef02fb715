// Package messages is what speaks AMQP as any other client does: `tanist publish` and `tanist consume`. Nothing of the admin API and nothing of a node's
// inside may come in.
package messages

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/login"
	"github.com/tanist/tanist/cmd/tanist/show"
)

// amqpFlags say which broker to speak to.
type amqpFlags struct {
	url, ca string
	json    bool
}

func (f *amqpFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.url, "url", "", "broker, as amqp://USER@HOST:PORT/VHOST or amqps://… (default $TANIST_URL, else guest on 127.0.0.1:5672); the password is best left to $TANIST_PASSWORD")
	p.StringVar(&f.ca, "ca", "", "PEM file of the authority of an amqps address")
	show.JSONFlag(c, &f.json)
}

// address is the URL with a password in it, for the client library only.
func (f *amqpFlags) address() (string, error) {
	text := cmp.Or(f.url, os.Getenv("TANIST_URL"), "amqp://guest@127.0.0.1:5672/")
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "amqp" && u.Scheme != "amqps" {
		return "", errors.New("the broker's address (--url, $TANIST_URL) is no URL such as amqp://guest@127.0.0.1:5672/ or amqps://USER@HOST/VHOST") // not shown: it may hold a password
	}
	if u.User == nil {
		u.User = url.User(cmp.Or(os.Getenv("TANIST_USER"), "guest"))
	}
	if _, ok := u.User.Password(); !ok {
		p, err := login.Password(u.User.Username())
		if err != nil {
			return "", err
		}
		u.User = url.UserPassword(u.User.Username(), p)
	}
	return u.String(), nil
}

// dial connects and opens a channel.
func (f *amqpFlags) dial(product string) (*amqp.Connection, *amqp.Channel, error) {
	address, err := f.address()
	if err != nil {
		return nil, nil, err
	}
	config := amqp.Config{Heartbeat: 20 * time.Second, Locale: "en_US", Properties: amqp.Table{"product": product, "connection_name": product}}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, nil, err
		}
		config.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		if !config.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, nil, fmt.Errorf("%s: no certificate in PEM form", f.ca)
		}
	}
	conn, err := amqp.DialConfig(address, config)
	if err != nil {
		return nil, nil, explain(address, err)
	}
	ch, err := conn.Channel()
	if err != nil {
		_ = conn.Close()
		return nil, nil, explain(address, err)
	}
	return conn, ch, nil
}

// explain adds the likely next step to what the client library says. The address is shown without its password.
func explain(address string, err error) error {
	u, perr := url.Parse(address)
	if perr != nil {
		return err
	}
	var known *amqp.Error
	var untrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		return fmt.Errorf("the certificate of %s is not accepted (%v); --ca FILE names the authority that signed it", u.Host, untrusted.Err)
	case errors.As(err, &plain):
		return fmt.Errorf("%s does not speak TLS (%v); is its address amqp://…, or another port?", u.Host, err)
	case errors.Is(err, amqp.ErrCredentials):
		return fmt.Errorf("%s: wrong user or password for %q; set TANIST_PASSWORD (guest may only connect from the broker's own machine)", u.Host, u.User.Username())
	case errors.As(err, &known) && known.Server:
		return serverError(known)
	case known != nil, hungUp(err):
		return fmt.Errorf("%s does not answer as an AMQP broker does (%v); does it want TLS (amqps://…), or is it another port?", u.Host, err)
	default:
		return fmt.Errorf("no broker answers at %s (%v); is `tanist serve` running, and is this its AMQP address (--url)?", u.Host, err)
	}
}

// hungUp reports whether somebody took the connection and ended it. The client library may notice that as it writes.
func hungUp(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE}, func(e error) bool { return errors.Is(err, e) })
}

// serverError is a refusal by the broker with the likely next step.
func serverError(e *amqp.Error) error {
	if !e.Server { // the library's own words for a connection that broke
		return fmt.Errorf("the connection was lost: %s; what was not confirmed may or may not be stored", e.Reason)
	}
	next := ""
	switch {
	case e.Code == amqp.NotFound && strings.Contains(e.Reason, "no exchange"):
		next = "; clients make exchanges (exchange.declare), this program does not"
	case e.Code == amqp.NotFound:
		next = "; --declare queue or --declare stream makes it first"
	case e.Code == amqp.AccessRefused:
		next = "; `tanist permission list` shows who may do what"
	case e.Code == amqp.NotAllowed && strings.Contains(e.Reason, "vhost"):
		next = "; `tanist vhost list` shows which there are, `tanist permission set USER --vhost VHOST …` lets a user in"
	case e.Code == amqp.PreconditionFailed && strings.Contains(e.Reason, "inequivalent"):
		next = "; `tanist status NAME` shows how it was declared"
	}
	return fmt.Errorf("the broker refused: %d %s%s", e.Code, e.Reason, next)
}

// refused makes a clear error of one by the client library on a channel.
func refused(err error) error {
	var known *amqp.Error
	if errors.As(err, &known) && known.Server {
		return serverError(known)
	}
	return err
}

// declareFlags make a queue or stream first.
type declareFlags struct {
	kind string
	args []string
}

func (f *declareFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.kind, "declare", "", "declare it first: queue, stream, or memory (a queue that is not durable)")
	c.Flags().StringArrayVar(&f.args, "argument", nil, "argument of the declaration, as NAME=VALUE, such as x-max-length=1000; may be repeated")
}

func (f *declareFlags) run(ch *amqp.Channel, name string) error {
	args, err := arguments(f.args)
	if err != nil {
		return err
	}
	switch f.kind {
	case "":
		if len(args) > 0 {
			return errors.New("--argument needs --declare")
		}
		return nil
	case "queue":
	case "stream":
		args["x-queue-type"] = "stream"
	case "memory":
	default:
		return fmt.Errorf("--declare %s: want queue, stream or memory", f.kind)
	}
	_, err = ch.QueueDeclare(name, f.kind != "memory", false, false, false, args)
	return refused(err)
}

// arguments reads NAME=VALUE; whole numbers and true and false are taken as such.
func arguments(list []string) (amqp.Table, error) {
	out := amqp.Table{}
	for _, a := range list {
		name, v, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q: want NAME=VALUE", a)
		}
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			out[name] = n
		} else if v == "true" || v == "false" {
			out[name] = v == "true"
		} else {
			out[name] = v
		}
	}
	return out, nil
}
