// Command tanist is the broker and everything an operator needs beside it: one file for each verb. Verbs speak to a running node over
// AMQP or the admin API, as any other client would; only serve, inspect, recover and sim know what is inside.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tanist/tanist/cmd/tanist/benches"
	"github.com/tanist/tanist/cmd/tanist/dev"
	"github.com/tanist/tanist/cmd/tanist/inspect"
	"github.com/tanist/tanist/cmd/tanist/messages"
	"github.com/tanist/tanist/cmd/tanist/recovery"
	"github.com/tanist/tanist/cmd/tanist/show"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	root := newRoot()
	err := root.ExecuteContext(ctx)
	var code show.Exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(os.Stderr, "tanist:", err)
	return 1
}

// endings are the signals that end a verb in order. A terminal that closes is one, unless whoever started the program has said that it is to
// outlive it (nohup).
func endings() []os.Signal {
	all := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "tanist",
		Short: "A durable message broker for AMQP 0-9-1 clients",
		Long: `Tanist is a durable message broker of queues and streams for the clients of RabbitMQ (AMQP 0-9-1).

Start one with nothing set up:   tanist serve
Try it from another terminal:    tanist publish --declare queue hello world
                                 tanist consume hello --count 1

Exit codes: 0 done, or yes; 1 it failed, and standard error says why; 2 what was inspected is damaged; 10 no, the answer of a question (attention,
check, wait, plan). Completion for your shell: tanist completion --help.`,
		Version: version(), SilenceUsage: true, SilenceErrors: true,
	}
	root.SetVersionTemplate("tanist {{.Version}}\n")
	root.SetFlagErrorFunc(wrongFlag)
	root.AddGroup(&cobra.Group{ID: "node", Title: "Run and look after a node:"},
		&cobra.Group{ID: "client", Title: "Use a broker:"}, &cobra.Group{ID: "access", Title: "Who may do what:"},
		&cobra.Group{ID: "proof", Title: "Measure and prove:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("node", newServe(), dev.New(), newStatus(), newList(), newCursor(), newAttention(), newTimeline(), newEvidence(), newWait(), newCheck(), newPlan(), newAcceptLoss(), newDelete(), newDeleted(), newJoinToken(), newNode(), newSetting(), newPolicy(), newConfig(), newVersion(), inspect.New(), recovery.New())
	add("client", messages.NewPublish(waitsFor), messages.NewConsume())
	add("proof", benches.New(), newSim())
	add("access", newUser(), newVHost(), newPermission())
	root.SetCompletionCommandGroupID("node")
	root.InitDefaultCompletionCmd()
	explainArguments(root)
	completeArguments(root)
	return root
}
