package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/client"
)

func newPolicy() *cobra.Command {
	var f adminFlags
	var vhost string
	var u admin.WishesUpdate
	c := &cobra.Command{
		Use: "policy RESOURCE", SuggestFor: []string{"replicas", "copies", "durability", "grow", "shrink"}, Args: cobra.ExactArgs(1),
		Short: "Show or change how many copies a queue or stream has, and how many confirm",
		Long: `Without flags, shows what is wished of a queue or stream and how far that is carried out. With --policy it confirms from then on when as many
copies have a message on disk as the policy says; with --copies it is given more copies or fewer. Both are wishes, which are kept: its owner
carries them out one step after the other, without stopping anything, as nodes allow; tanist wait healthy waits for it. What was published
before a policy is lowered is still confirmed by as many copies as before.

The policies: local_durable (a queue's owner alone confirms), majority_durable, all_durable, and replica_durable(N), where N copies confirm, or all
where there are fewer.`,
		Example: "  tanist policy orders\n  tanist policy orders --policy all_durable\n  tanist policy orders --copies 5",
		RunE: f.with(func(c *cobra.Command, api *client.Client, args []string) error {
			if c.Flags().Changed("copies") && u.Copies == 0 {
				return fmt.Errorf("--copies 0: want a number from 1")
			}
			if u != (admin.WishesUpdate{}) {
				if _, err := api.SetWishes(c.Context(), vhost, args[0], u); err != nil {
					return err
				}
			}
			all, err := api.Resources(c.Context(), vhost, args[0])
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return fmt.Errorf("no queue or stream %q in virtual host %q; `tanist status` lists them", args[0], vhost)
			}
			parts, err := api.Partitions(c.Context(), vhost, args[0])
			if err != nil {
				return err
			}
			if f.json {
				r := all[0]
				return printJSON(c.OutOrStdout(), admin.Wishes{VHost: r.VHost, Resource: r.Name, Incarnation: r.Incarnation, Policy: r.Policy, Copies: r.Copies})
			}
			return printPolicy(c.OutOrStdout(), all[0], parts, time.Now())
		}),
	}
	f.add(c)
	p := c.Flags()
	p.StringVar(&vhost, "vhost", catalog.DefaultVHost, "virtual host")
	p.StringVar(&u.Policy, "policy", "", "how many copies confirm: local_durable, replica_durable(N), majority_durable or all_durable")
	p.Uint32Var(&u.Copies, "copies", 0, "how many copies there are to be, the owner's among them")
	p.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "replicas" { // as others call them
			name = "copies"
		}
		return pflag.NormalizedName(name)
	})
	policies := cobra.FixedCompletions([]string{"local_durable", "majority_durable", "all_durable", "replica_durable(2)"}, cobra.ShellCompDirectiveNoFileComp)
	if err := c.RegisterFlagCompletionFunc("policy", policies); err != nil {
		panic(err) // the flag is there
	}
	return c
}

// printPolicy says what is wished, and of each partition what there is yet to do and whom that waits for.
func printPolicy(w io.Writer, r admin.Resource, parts []admin.Partition, now time.Time) error {
	fmt.Fprintf(w, "%s: %s on %s\n", admin.Visible(r.Name), r.Policy, plural(r.Copies, "copy"))
	for _, p := range parts {
		state := "it is so"
		if left := strings.Join(p.Changing, "; "); left != "" {
			state = admin.Visible(left)
		}
		if _, err := fmt.Fprintf(w, "  partition %d: %d of %s confirm: %s\n", p.Partition, p.W, plural(p.E, "copy"), state); err != nil {
			return err
		}
		for _, line := range policyNotes(r, p, now) {
			if _, err := fmt.Fprintf(w, "    %s\n", admin.Visible(line)); err != nil {
				return err
			}
		}
	}
	return nil
}

// policyNotes says where a policy asks for more copies than there are, and for which followers a change waits.
func policyNotes(r admin.Resource, p admin.Partition, now time.Time) (out []string) {
	wished, err := quorum.Parse(r.Policy)
	if err != nil {
		return nil
	}
	if have := max(p.E, r.Copies); wished.Rule == quorum.Replica && wished.N > have {
		out = append(out, fmt.Sprintf("%s counts no further than there are copies: of %d it is all; for more: tanist policy %s --copies %d",
			r.Policy, have, control.Quoted(r.Name), wished.N))
	}
	needs := quorum.W(wished, p.E, ident.Kind(p.Kind))
	if have, err := quorum.Parse(p.Policy); err != nil || have == wished || needs <= p.E-len(p.Held) {
		return out
	}
	for _, h := range p.Held {
		out = append(out, fmt.Sprintf("with %s %d of %d have to hold everything first, and it waits: %s", r.Policy, needs, p.E, heldText(h, now)))
	}
	return out
}
