// Publishes to a queue with confirms, consumes and settles, with amqplib: a client that is not Go's.
const amqp = require("amqplib");

async function main() {
  const connection = await amqp.connect(process.argv[2]);
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue("amqplib", { durable: true });
  for (let n = 0; n < 20; n++) {
    channel.sendToQueue("amqplib", Buffer.from(`message ${n}`), { persistent: true, headers: { n } });
  }
  await channel.waitForConfirms();
  await channel.prefetch(5);
  let got = 0;
  await new Promise((resolve, reject) => {
    channel.consume("amqplib", (m) => {
      if (m === null || m.content.toString() !== `message ${got}` || m.properties.headers.n !== got) {
        reject(new Error(`message ${got}: ${m && m.content}`));
        return;
      }
      channel.ack(m);
      if (++got === 20) resolve();
    }).catch(reject);
  });
  await channel.close();
  const again = await connection.createChannel();
  const { messageCount } = await again.checkQueue("amqplib");
  if (messageCount !== 0) throw new Error(`${messageCount} messages are left`);
  await connection.close();
  console.log("ok");
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
