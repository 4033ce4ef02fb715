package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/internal/config"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/node"
	"github.com/tanist/tanist/internal/port/certs"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/trace"
)

func newServe() *cobra.Command {
	var f configFlags
	c := &cobra.Command{
		Use: "serve", SuggestFor: []string{"start", "run", "server", "broker", "up"}, Short: "Run a node", Args: cobra.NoArgs,
		Long: `Runs a node until SIGTERM or Ctrl-C; a second one ends it at once, which loses nothing that was confirmed. With nothing set it is a durable
broker over ./tanist-data that takes AMQP clients on port 5672 and answers operators on 127.0.0.1:15672. User guest with password guest
may log in from this machine only. "tanist config --docs" explains every setting.`,
		Example: "  tanist serve\n  tanist serve --data /var/lib/tanist --admin 127.0.0.1:8080\n  tanist serve --config /etc/tanist.toml",
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, _, err := f.load()
			if err != nil {
				return err
			}
			return serve(c, cfg)
		},
	}
	f.add(c)
	return c
}

func serve(c *cobra.Command, cfg *config.Config) error {
	if abs, err := filepath.Abs(cfg.Data); err == nil {
		cfg.Data = abs
	}
	sink := trace.Log(slog.New(logHandler(cfg, c.ErrOrStderr())))
	opt := node.ServeOptions{Version: version(), Trace: sink, Alone: true}
	if cfg.TLS.Cert != "" {
		files, err := certs.Open(cfg.TLS.Cert, cfg.TLS.Key, cfg.TLS.CA, clock.System(), func(err error) {
			trace.Error(sink, "tls.reload.failed", slog.Any("error", err))
		})
		if err != nil {
			return fmt.Errorf("%w; tls.cert, tls.key and tls.ca are PEM files that the node can read", err)
		}
		opt.TLS = files.Config()
	}
	opt.Listening = func(a node.Addresses) { listening(c.OutOrStdout(), cfg, opt.TLS, a) }
	err := node.Serve(c.Context(), cfg, opt)
	switch {
	case errors.Is(err, storage.ErrInUse):
		return fmt.Errorf("%w; stop the other process, or give this one a directory of its own with --data", err)
	case errors.Is(err, catalog.ErrMalformed):
		return fmt.Errorf("%w; if another build of tanist wrote %s, run that build, or give this one a directory of its own with --data; if not, "+
			"`tanist inspect` says what is damaged", err, cfg.Data)
	case errors.Is(err, storage.ErrNewer):
		return fmt.Errorf("%w; run the version of tanist that wrote it, or a later one", err)
	}
	return err
}

func logHandler(cfg *config.Config, w io.Writer) slog.Handler {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		level = slog.LevelInfo // the settings were checked: not reached
	}
	opt := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "json" {
		return slog.NewJSONHandler(w, opt)
	}
	return slog.NewTextHandler(w, opt)
}

// listening says where clients and operators find the node. A program that starts one may wait for the last line.
func listening(w io.Writer, cfg *config.Config, t *tls.Config, a node.Addresses) {
	fmt.Fprintf(w, "Tanist %s, node %s, process %d, data in %s\n", version(), cfg.Name, os.Getpid(), cfg.Data)
	for _, l := range []struct{ what, scheme, address string }{
		{"AMQP clients", "amqp://", a.AMQP},
		{"AMQP clients, TLS", "amqps://", a.AMQPS},
		{"console and API", "http://", a.Admin},
		{"console and API, TLS", "https://", a.Admins},
		{"other nodes", "", a.Mesh},
	} {
		if l.address != "" {
			fmt.Fprintf(w, "%-20s %s%s\n", l.what, l.scheme, reachable(l.address))
		}
	}
	fmt.Fprintf(w, "Ready after %s. Ctrl-C stops it.\n", a.Took.Round(time.Millisecond))
}

// reachable is a listening address as a client on this machine would write it.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port) + " (and every other address of this machine)"
	}
	return address
}
