package amqp_test

import (
	"sync"
	"testing"

	client "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/internal/front/amqp/amqptest"
)

// BenchmarkConfirmedPublish publishes 1 KiB with confirms over four sockets with a real client, against a broker in memory: what the
// front, the kernel and the client cost together.
func BenchmarkConfirmedPublish(b *testing.B) {
	_, url := serve(b, amqptest.New(), nil)
	const clients = 4
	b.SetBytes(1024)
	var all sync.WaitGroup
	body := make([]byte, 1024)
	b.ResetTimer()
	for range clients {
		_, ch := dial(b, url)
		if err := ch.Confirm(false); err != nil {
			b.Fatal(err)
		}
		const window = 1000
		acks := ch.NotifyPublish(make(chan client.Confirmation, window))
		all.Go(func() {
			waiting := 0
			for range b.N / clients {
				if waiting == window {
					<-acks
					waiting--
				}
				if err := ch.PublishWithContext(b.Context(), "amq.fanout", "orders", false, false, client.Publishing{Body: body}); err != nil {
					b.Error(err)
					return
				}
				waiting++
			}
			for ; waiting > 0; waiting-- {
				<-acks
			}
		})
	}
	all.Wait()
}
