"""Publishes to a queue and a stream with confirms, consumes and settles, with pika: a client that is not Go's."""
import sys

import pika

parameters = pika.URLParameters(sys.argv[1])
connection = pika.BlockingConnection(parameters)
channel = connection.channel()
channel.confirm_delivery()
for queue in ("pika", "pika-stream"):
    channel.queue_delete(queue)

channel.queue_declare("pika", durable=True)
for n in range(20):
    channel.basic_publish("", "pika", b"message %d" % n, pika.BasicProperties(delivery_mode=2, headers={"n": n}), mandatory=True)
try:
    channel.basic_publish("", "nowhere", b"x", mandatory=True)
    sys.exit("a message without a queue was not returned")
except pika.exceptions.UnroutableError:
    pass

got = 0
for method, properties, body in channel.consume("pika", inactivity_timeout=30):
    assert method is not None, "nothing came for 30 seconds"
    assert body == b"message %d" % got and properties.headers["n"] == got, (got, properties, body)
    channel.basic_ack(method.delivery_tag)
    got += 1
    if got == 20:
        break
channel.cancel()
assert channel.queue_declare("pika", passive=True).method.message_count == 0

channel.queue_declare("pika-stream", durable=True, arguments={"x-queue-type": "stream"})
for n in range(20):
    channel.basic_publish("", "pika-stream", b"record %d" % n)
channel.basic_qos(prefetch_count=10)
for reader in range(2):
    got = 0
    for method, properties, body in channel.consume(
        "pika-stream", inactivity_timeout=30, arguments={"x-stream-offset": 5}
    ):
        assert method is not None, "nothing came for 30 seconds"
        assert properties.headers["x-stream-offset"] == 5 + got and body == b"record %d" % (5 + got), (got, properties, body)
        channel.basic_ack(method.delivery_tag)
        got += 1
        if got == 15:
            break
    channel.cancel()
connection.close()
print("ok")
