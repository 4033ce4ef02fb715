package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/tanist/tanist/internal/config"
	"github.com/tanist/tanist/internal/node"
	"github.com/tanist/tanist/internal/port/trace"
)

func main() {
	cfg, _, err := config.Load(config.Input{Flags: map[string]string{"data": os.Args[1], "amqp": "127.0.0.1:5672"}})
	if err != nil {
		panic(err)
	}
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err = node.Serve(ctx, cfg, node.ServeOptions{Version: "x", Trace: trace.Log(slog.New(slog.NewTextHandler(os.Stderr, nil))), Listening: func(a node.Addresses) { fmt.Printf("%+v\n", a) }})
	fmt.Println("end", err)
}
