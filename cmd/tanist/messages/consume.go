package messages

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"
)

type consumeOptions struct {
	amqpFlags
	declare          declareFlags
	count, prefetch  int
	settle           string
	offset, cursor   string
	priority         int
	exclusive, quiet bool
	idle             time.Duration
}

// NewConsume makes the verb consume.
func NewConsume() *cobra.Command {
	var o consumeOptions
	c := &cobra.Command{
		Use: "consume QUEUE", SuggestFor: []string{"get", "receive", "read", "subscribe"}, Short: "Consume messages and print them", Args: cobra.ExactArgs(1),
		Long: `Prints the body of each message on a line of its own, or with --json one object a line, and settles it. It goes on until
interrupted, until --count messages came, or until none came for --idle.`,
		Example: `  tanist consume hello --count 1
  tanist consume log --offset first --idle 1s
  tanist consume log --cursor reports`,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	o.amqpFlags.add(c)
	o.declare.add(c)
	p := c.Flags()
	p.IntVar(&o.count, "count", 0, "end after this many messages; 0 is never")
	p.DurationVar(&o.idle, "idle", 0, "end when no message came for this long; 0 is never")
	p.IntVar(&o.prefetch, "prefetch", 256, "most messages unsettled at a time")
	p.StringVar(&o.settle, "settle", "accept", "accept, reject, requeue, or none (leave them unsettled until the end)")
	p.StringVar(&o.offset, "offset", "", "of a stream, where to start: first, last, next, an offset, a time as 2006-01-02T15:04:05Z, or an interval as 1h")
	p.StringVar(&o.cursor, "cursor", "", "of a stream, a durable cursor: go on where its last settled message was")
	p.IntVar(&o.priority, "priority", 0, "consumer priority")
	p.BoolVar(&o.exclusive, "exclusive", false, "be the only consumer, or fail")
	p.BoolVar(&o.quiet, "quiet", false, "print only the counts, on standard error")
	return c
}

// start reads --offset into what AMQP clients give as x-stream-offset.
func (o *consumeOptions) start() (any, error) {
	switch o.offset {
	case "first", "last", "next":
		return o.offset, nil
	}
	if n, err := strconv.ParseInt(o.offset, 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	if at, err := time.Parse(time.RFC3339, o.offset); err == nil {
		return at, nil
	}
	if d, err := time.ParseDuration(o.offset); err == nil && d > 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s", nil
	}
	return nil, fmt.Errorf("--offset %q: want first, last, next, a number, a time as 2006-01-02T15:04:05Z, or an interval as 1h", o.offset)
}

func (o *consumeOptions) arguments() (amqp.Table, error) {
	args := amqp.Table{}
	if o.offset != "" {
		v, err := o.start()
		if err != nil {
			return nil, err
		}
		args["x-stream-offset"] = v
	}
	if o.cursor != "" {
		args["x-cursor"] = o.cursor
	}
	if o.priority != 0 {
		args["x-priority"] = int32(o.priority)
	}
	return args, nil
}

func (o *consumeOptions) run(c *cobra.Command, queue string) error {
	args, err := o.arguments()
	if err != nil {
		return err
	}
	settle, ok := settlements[o.settle]
	if !ok {
		return fmt.Errorf("--settle %q: want accept, reject, requeue or none", o.settle)
	}
	conn, ch, err := o.dial("tanist consume")
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := o.declare.run(ch, queue); err != nil {
		return err
	}
	if o.prefetch < 1 {
		return errors.New("--prefetch is at least 1")
	}
	if o.count > 0 {
		o.prefetch = min(o.prefetch, o.count)
	}
	if err := ch.Qos(o.prefetch, 0, false); err != nil {
		return refused(err)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	cancelled := ch.NotifyCancel(make(chan string, 1))
	ds, err := ch.Consume(queue, consumerTag, false, o.exclusive, false, false, args)
	if err != nil {
		return refused(err)
	}
	n := 0
	var held []amqp.Delivery
	defer func() {
		if o.quiet {
			fmt.Fprintf(os.Stderr, "consumed %d\n", n)
		}
	}()
	idle := &idleTimer{after: o.idle}
	for o.count == 0 || n < o.count {
		select {
		case d, ok := <-ds:
			if !ok {
				return ended(closed, cancelled)
			}
			if err := o.show(c.OutOrStdout(), d); err != nil {
				return err
			}
			n++
			// Settling one fetches another: the last ones wait, so that nothing is fetched beyond the count.
			if o.count > 0 && n+o.prefetch > o.count {
				held = append(held, d)
				continue
			}
			if err := settle(d); err != nil {
				return refused(err)
			}
		case <-idle.channel():
			return o.finish(ch, held, settle)
		case <-c.Context().Done():
			return o.finish(ch, held, settle)
		}
	}
	return o.finish(ch, held, settle)
}

const consumerTag = "tanist"

// finish ends the consumer and then settles what was held back.
func (o *consumeOptions) finish(ch *amqp.Channel, held []amqp.Delivery, settle func(amqp.Delivery) error) error {
	if err := ch.Cancel(consumerTag, false); err != nil {
		return refused(err)
	}
	for _, d := range held {
		if err := settle(d); err != nil {
			return refused(err)
		}
	}
	return nil
}

// ended says why a broker ended the consumer.
func ended(closed chan *amqp.Error, cancelled chan string) error {
	select {
	case <-cancelled:
		return errors.New("the broker ended the consumer: the queue or stream was deleted, or its node is gone")
	case e := <-closed:
		if e != nil {
			return serverError(e)
		}
	}
	return nil
}

var settlements = map[string]func(amqp.Delivery) error{
	"accept":  func(d amqp.Delivery) error { return d.Ack(false) },
	"reject":  func(d amqp.Delivery) error { return d.Nack(false, false) },
	"requeue": func(d amqp.Delivery) error { return d.Nack(false, true) },
	"none":    func(amqp.Delivery) error { return nil },
}

// idleTimer is made anew for each wait; without a limit it never fires.
type idleTimer struct{ after time.Duration }

func (i *idleTimer) channel() <-chan time.Time {
	if i.after <= 0 {
		return nil
	}
	return time.After(i.after)
}

// message is a delivery as --json prints it.
type message struct {
	Body        *string    `json:"body,omitempty"`
	Binary      []byte     `json:"body_base64,omitempty"` // where it is not UTF-8
	Exchange    string     `json:"exchange"`
	Key         string     `json:"key"`
	Redelivered bool       `json:"redelivered"`
	Offset      *int64     `json:"offset,omitempty"` // of a stream
	Headers     amqp.Table `json:"headers,omitempty"`
	ContentType string     `json:"content_type,omitempty"`
	MessageID   string     `json:"message_id,omitempty"`
	Correlation string     `json:"correlation_id,omitempty"`
	ReplyTo     string     `json:"reply_to,omitempty"`
	Expiration  string     `json:"expiration,omitempty"`
	Priority    uint8      `json:"priority,omitempty"`
}

func (o *consumeOptions) show(w io.Writer, d amqp.Delivery) error {
	switch {
	case o.quiet:
		return nil
	case !o.json:
		_, err := w.Write(append(d.Body, '\n'))
		return err
	}
	m := message{
		Exchange: d.Exchange, Key: d.RoutingKey, Redelivered: d.Redelivered, Headers: d.Headers, ContentType: d.ContentType,
		MessageID: d.MessageId, Correlation: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, Priority: d.Priority,
	}
	if utf8.Valid(d.Body) {
		s := string(d.Body)
		m.Body = &s
	} else {
		m.Binary = d.Body
	}
	if at, ok := d.Headers["x-stream-offset"].(int64); ok {
		m.Offset = &at
	}
	return json.NewEncoder(w).Encode(m)
}
