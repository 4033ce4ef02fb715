package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must(err error) {
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
}

func main() {
	c, err := amqp.Dial("amqp://guest:guest@127.0.0.1:5672/")
	must(err)
	ch, err := c.Channel()
	must(err)
	n, _ := strconv.Atoi(os.Args[2])
	switch os.Args[1] {
	case "pub":
		_, err = ch.QueueDeclare("q", true, false, false, false, nil)
		must(err)
		_, err = ch.QueueDeclare("s", true, false, false, false, amqp.Table{"x-queue-type": "stream"})
		must(err)
		must(ch.Confirm(false))
		start := time.Now()
		body := make([]byte, 1024)
		var last *amqp.DeferredConfirmation
		for i := range n {
			for _, k := range []string{"q", "s"} {
				last, err = ch.PublishWithDeferredConfirmWithContext(context.Background(), "", k, false, false, amqp.Publishing{Body: append([]byte(fmt.Sprintf("%d ", i)), body...)})
				must(err)
			}
		}
		fmt.Println("acked", last.Wait(), time.Since(start))
	case "con":
		must(ch.Qos(500, 0, false))
		d, err := ch.Consume("q", "", false, false, false, false, nil)
		must(err)
		ds, err := ch.Consume("s", "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
		must(err)
		start := time.Now()
		a, b := 0, 0
		for a < n || b < n {
			select {
			case m := <-d:
				a++
				must(m.Ack(false))
			case m := <-ds:
				b++
				must(m.Ack(false))
			case <-time.After(3 * time.Second):
				fmt.Println("timeout", a, b)
				os.Exit(1)
			}
		}
		fmt.Println("got", a, b, time.Since(start))
	}
	c.Close()
}
