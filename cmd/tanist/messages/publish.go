package messages

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tanist/tanist/cmd/tanist/inspect"
	"github.com/tanist/tanist/cmd/tanist/show"
	"github.com/tanist/tanist/internal/core/units"
)

type publishOptions struct {
	amqpFlags
	declare              declareFlags
	exchange, key        string
	count, inFlight      int
	size, contentType    string
	rate                 float64
	headers              []string
	priority             uint8
	ttl, delay           time.Duration
	transient, mandatory bool
	producer             string
	firstSequence        int64
	from                 string
	waitsFor             func(ctx context.Context, queue, ca string) string
}

// NewPublish makes the verb publish. waitsFor says in one line what a queue waits for that confirms nothing; it is given the PEM file of --ca.
func NewPublish(waitsFor func(ctx context.Context, queue, ca string) string) *cobra.Command {
	o := publishOptions{waitsFor: waitsFor}
	c := &cobra.Command{
		Use: "publish QUEUE [BODY…]", SuggestFor: []string{"send", "put", "produce"}, Short: "Publish messages and wait for their confirms", Args: cobra.MinimumNArgs(1),
		Long: `Publishes each BODY, or each line of standard input if there is none, or made-up bodies with --size, and waits until the broker has
confirmed every one. The exit code is 0 only if it did. A QUEUE that is not there is an error; so is a message that an --exchange routes to no
queue or stream, with --mandatory.

With --from it publishes the messages of a file that tanist inspect --export wrote, with their properties, to QUEUE and to nothing else that they
were routed to; those that were settled are left out, and so is what bound them to their first publisher: user id, x-producer and x-sequence.
With a --producer it can be repeated: what was stored is not stored again.`,
		Example: `  tanist publish --declare queue hello world
  tanist publish --declare stream log < app.log
  tanist publish jobs --count 100000 --size 1KiB
  tanist publish jobs --from jobs.json --producer recovered`,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0], args[1:]) },
	}
	o.amqpFlags.add(c)
	o.declare.add(c)
	p := c.Flags()
	p.StringVar(&o.exchange, "exchange", "", "exchange (default: the one that routes to QUEUE by name)")
	p.StringVar(&o.key, "key", "", "routing key (default QUEUE)")
	p.IntVar(&o.count, "count", 1, "publish each body this often")
	p.StringVar(&o.size, "size", "", "publish a made-up body of this size, such as 1KiB, instead of BODY or standard input")
	p.IntVar(&o.inFlight, "in-flight", 1000, "most messages waiting for their confirm")
	p.Float64Var(&o.rate, "rate", 0, "messages a second; 0 is as fast as possible")
	p.StringVar(&o.contentType, "content-type", "", "content type")
	p.StringArrayVar(&o.headers, "header", nil, "header, as NAME=VALUE; may be repeated")
	p.Uint8Var(&o.priority, "priority", 0, "priority")
	p.DurationVar(&o.ttl, "ttl", 0, "time to live of each message; 0 is for ever")
	p.DurationVar(&o.delay, "delay", 0, "deliver no sooner than after this time (x-delay)")
	p.BoolVar(&o.transient, "transient", false, "publish without delivery mode persistent")
	p.BoolVar(&o.mandatory, "mandatory", false, "fail if no queue or stream takes a message (default where there is no --exchange)")
	p.StringVar(&o.producer, "producer", "", "name of the producer: with it, a message published again under the same number is stored once")
	p.StringVar(&o.from, "from", "", "publish the messages of this file, which tanist inspect --export wrote; - is standard input")
	p.Int64Var(&o.firstSequence, "first-sequence", 1, "number of the first message of the producer")
	return c
}

// tally counts outcomes.
type tally struct {
	Published int64   `json:"published"`
	Confirmed int64   `json:"confirmed"`
	Nacked    int64   `json:"nacked"`
	Returned  int64   `json:"returned"`
	Seconds   float64 `json:"seconds"`
	// LongestWait is how long the slowest of the outcomes took to come, in seconds.
	LongestWait float64 `json:"longest_wait_seconds"`
}

func (o *publishOptions) run(c *cobra.Command, queue string, bodies []string) error {
	if o.inFlight < 1 || o.count < 1 {
		return errors.New("--in-flight and --count are at least 1")
	}
	if !c.Flags().Changed("mandatory") {
		o.mandatory = o.exchange == "" // who names a queue means that it is there
	}
	headers, err := arguments(o.headers)
	if err != nil {
		return err
	}
	if o.delay > 0 {
		headers["x-delay"] = o.delay.Milliseconds()
	}
	next, done, err := o.messages(c, bodies, headers)
	if err != nil {
		return err
	}
	defer done()
	conn, ch, err := o.dial("tanist publish")
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := o.declare.run(ch, queue); err != nil {
		return err
	}
	p := &publisher{o: o, ch: ch, key: cmp.Or(o.key, queue), began: time.Now(), slow: time.NewTicker(time.Second), queue: queue}
	defer p.slow.Stop()
	err = p.run(c.Context(), next)
	p.tally.Seconds = time.Since(p.began).Seconds()
	if o.json {
		if jerr := show.JSON(c.OutOrStdout(), p.tally); jerr != nil {
			return jerr
		}
	} else {
		fmt.Fprintf(c.OutOrStdout(), "published %d, confirmed %d", p.tally.Published, p.tally.Confirmed)
		if p.tally.Nacked > 0 {
			fmt.Fprintf(c.OutOrStdout(), ", nacked %d", p.tally.Nacked)
		}
		if p.tally.Returned > 0 {
			fmt.Fprintf(c.OutOrStdout(), ", returned %d", p.tally.Returned)
		}
		fmt.Fprintf(c.OutOrStdout(), " in %.2f s", p.tally.Seconds)
		if p.tally.LongestWait > 0 {
			fmt.Fprintf(c.OutOrStdout(), ", the slowest after %.3f s", p.tally.LongestWait)
		}
		fmt.Fprintln(c.OutOrStdout())
	}
	if err != nil {
		return err
	}
	return p.incomplete()
}

// ofMessages are flags that say how messages are, which those of a file know themselves.
var ofMessages = []string{"size", "count", "content-type", "header", "priority", "ttl", "delay", "transient"}

// messages gives one message after another; nil ends them. done lets go of where they come from.
func (o *publishOptions) messages(c *cobra.Command, bodies []string, headers amqp.Table) (next func() (*amqp.Publishing, error), done func(), err error) {
	done = func() {}
	if o.from == "" {
		bodies, err := o.bodies(c.InOrStdin(), bodies)
		return func() (*amqp.Publishing, error) {
			body, err := bodies()
			if body == nil || err != nil {
				return nil, err
			}
			return o.message(body, headers), nil
		}, done, err
	}
	for _, name := range ofMessages {
		if c.Flags().Changed(name) || len(bodies) > 0 {
			return nil, done, fmt.Errorf("--from publishes messages as they were: no BODY, and none of --%s", strings.Join(ofMessages, ", --"))
		}
	}
	if o.from == "-" {
		return inspect.Messages(c.InOrStdin()), done, nil
	}
	f, err := os.Open(o.from)
	if err != nil {
		return nil, done, err
	}
	return inspect.Messages(f), func() { _ = f.Close() }, nil // it was only read
}

// bodies gives one body after another; nil ends them.
func (o *publishOptions) bodies(in io.Reader, given []string) (func() ([]byte, error), error) {
	if o.size != "" {
		n, err := units.ParseSize(o.size)
		if err != nil {
			return nil, fmt.Errorf("--size: %w", err)
		}
		if len(given) > 0 {
			return nil, errors.New("give --size or bodies, not both")
		}
		given = []string{string(bytes.Repeat([]byte{'x'}, int(min(n, 1<<30))))}
	}
	i, repeat := 0, o.count
	if len(given) > 0 {
		return func() ([]byte, error) {
			if i == len(given)*repeat {
				return nil, nil
			}
			i++
			return append([]byte{}, given[(i-1)/repeat]...), nil
		}, nil
	}
	r := bufio.NewReaderSize(in, 64<<10)
	var line []byte
	left := 0
	return func() ([]byte, error) {
		if left > 0 {
			left--
			return line, nil
		}
		text, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(text) == 0 {
			return nil, nil
		}
		line, left = bytes.TrimRight(text, "\r\n"), repeat-1
		if line == nil {
			line = []byte{}
		}
		return line, nil
	}, nil
}

type publisher struct {
	o     *publishOptions
	ch    *amqp.Channel
	key   string
	tally tally
	began time.Time
	sent  []time.Time // when each was that has no outcome yet, in the order of publishing

	firstReturn amqp.Return

	slow   *time.Ticker // when to look whether an outcome is late
	queue  string
	waited bool // it has been said that one is

	confirms chan amqp.Confirmation
	returns  chan amqp.Return
	closed   chan *amqp.Error
}

func (p *publisher) run(ctx context.Context, next func() (*amqp.Publishing, error)) error {
	if err := p.ch.Confirm(false); err != nil {
		return refused(err)
	}
	p.confirms = p.ch.NotifyPublish(make(chan amqp.Confirmation, p.o.inFlight))
	p.returns = p.ch.NotifyReturn(make(chan amqp.Return, p.o.inFlight))
	p.closed = p.ch.NotifyClose(make(chan *amqp.Error, 1))
	show := progress(&p.tally)
	defer show.stop()
	for {
		m, err := next()
		if err != nil {
			return err
		}
		if m == nil {
			break
		}
		for p.tally.Published-p.tally.Confirmed-p.tally.Nacked >= int64(p.o.inFlight) {
			if err := p.wait(ctx); err != nil {
				return err
			}
		}
		if err := p.pace(ctx); err != nil {
			return err
		}
		if err := p.send(ctx, m); err != nil {
			return p.why(err)
		}
		show.tick()
	}
	for p.tally.Published > p.tally.Confirmed+p.tally.Nacked {
		if err := p.wait(ctx); err != nil {
			return err
		}
		show.tick()
	}
	p.drainReturns()
	return nil
}

// message is one with a body, as the flags say.
func (o *publishOptions) message(body []byte, headers amqp.Table) *amqp.Publishing {
	m := &amqp.Publishing{Headers: headers, ContentType: o.contentType, Priority: o.priority, Body: body, DeliveryMode: amqp.Persistent}
	if o.transient {
		m.DeliveryMode = amqp.Transient
	}
	if o.ttl > 0 {
		m.Expiration = strconv.FormatInt(o.ttl.Milliseconds(), 10)
	}
	return m
}

func (p *publisher) send(ctx context.Context, m *amqp.Publishing) error {
	if p.o.producer != "" {
		headers := amqp.Table{"x-producer": p.o.producer, "x-sequence": p.o.firstSequence + p.tally.Published}
		maps.Copy(headers, m.Headers)
		m.Headers = headers
	}
	p.tally.Published++
	p.sent = append(p.sent, time.Now())
	return p.ch.PublishWithContext(ctx, p.o.exchange, p.key, p.o.mandatory, false, *m)
}

// count takes one confirm; ok false says that there will be none.
func (p *publisher) count(c amqp.Confirmation, ok bool) error {
	switch {
	case !ok:
		return p.why(errors.New("the channel was closed"))
	case c.Ack:
		p.tally.Confirmed++
	default:
		p.tally.Nacked++
	}
	p.waited = false
	if len(p.sent) > 0 { // outcomes come in the order of publishing
		p.tally.LongestWait = max(p.tally.LongestWait, time.Since(p.sent[0]).Seconds())
		p.sent = p.sent[1:]
	}
	return nil
}

// wait takes one event.
func (p *publisher) wait(ctx context.Context) error {
	select {
	case c, ok := <-p.confirms:
		if err := p.count(c, ok); err != nil {
			return err
		}
	case r, ok := <-p.returns:
		if ok {
			p.returned(r)
		}
	case <-p.slow.C:
		p.late(ctx)
	case <-ctx.Done():
		return errors.New("interrupted; what was not confirmed may or may not be stored")
	}
	return nil
}

const (
	lateAfter = 3 * time.Second
	// askFor bounds asking what a queue waits for: publishing waits meanwhile.
	askFor = 2 * time.Second
)

// late says once for each wait what the first message without an outcome waits for, as far as the admin API tells.
func (p *publisher) late(ctx context.Context) {
	if p.waited || len(p.sent) == 0 || time.Since(p.sent[0]) < lateAfter {
		return
	}
	p.waited = true
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	fmt.Fprintf(os.Stderr, "no confirm for %s of %s: %s\n", time.Since(p.sent[0]).Round(time.Second), show.Plural(len(p.sent), "message"), p.o.waitsFor(ctx, p.queue, p.o.ca))
}

func (p *publisher) returned(r amqp.Return) {
	if p.tally.Returned == 0 {
		p.firstReturn = r
	}
	p.tally.Returned++
}

// incomplete is the error of a run that went through and where not every message was confirmed and taken.
func (p *publisher) incomplete() error {
	switch r := p.firstReturn; {
	case p.tally.Returned > 0 && r.Exchange == "":
		return fmt.Errorf("returned: %d %s: there is no queue or stream %q; --declare queue or --declare stream makes it first", r.ReplyCode, r.ReplyText, r.RoutingKey)
	case p.tally.Returned > 0:
		return fmt.Errorf("returned: %d %s: exchange %q has no binding for the routing key %q (--key)", r.ReplyCode, r.ReplyText, r.Exchange, r.RoutingKey)
	case p.tally.Confirmed < p.tally.Published:
		return errors.New("not every message was confirmed; nacked ones were refused or their outcome is not known")
	}
	return nil
}

func (p *publisher) drainReturns() {
	for {
		select {
		case r, ok := <-p.returns:
			if !ok {
				return
			}
			p.returned(r)
		default:
			return
		}
	}
}

// why prefers the broker's reason for closing.
func (p *publisher) why(err error) error {
	select {
	case e, ok := <-p.closed:
		if ok && e != nil {
			return serverError(e)
		}
	default:
	}
	return refused(err)
}

// pace waits for the next message's time, taking confirms meanwhile.
func (p *publisher) pace(ctx context.Context) error {
	if p.o.rate <= 0 {
		return nil
	}
	due := time.Duration(float64(p.tally.Published) / p.o.rate * float64(time.Second))
	timer := time.NewTimer(due - time.Since(p.began))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case c, ok := <-p.confirms:
			if err := p.count(c, ok); err != nil {
				return err
			}
		case <-p.slow.C:
			p.late(ctx)
		case <-ctx.Done():
			return errors.New("interrupted; what was not confirmed may or may not be stored")
		}
	}
}

// meter shows rates on a terminal once a second.
type meter struct {
	t    *tally
	on   bool
	last time.Time
	seen int64
}

func progress(t *tally) *meter {
	return &meter{t: t, on: term.IsTerminal(int(os.Stderr.Fd())), last: time.Now()}
}

func (m *meter) tick() {
	if !m.on || m.t.Published%64 != 0 {
		return
	}
	if d := time.Since(m.last); d >= time.Second {
		fmt.Fprintf(os.Stderr, "\rconfirmed %d, %.0f a second   ", m.t.Confirmed, float64(m.t.Confirmed-m.seen)/d.Seconds())
		m.last, m.seen = time.Now(), m.t.Confirmed
	}
}

func (m *meter) stop() {
	if m.on && m.seen > 0 {
		fmt.Fprintln(os.Stderr)
	}
}
