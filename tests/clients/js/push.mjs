// Push consumers: bound, in queues, ordered, with heartbeats and flow control.
import { createInbox } from "@nats-io/transport-node";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { counters, delivered, described, fill, headersOf, script, some } from "./notes.mjs";

await script(async (nc, note) => {
  const jsm = await jetstreamManager(nc);
  const js = jetstream(nc);
  await fill(jsm, js, "U", 30);
  const subject = "deliver.d";
  await note("durable", jsm.consumers.add("U", {
    durable_name: "d", deliver_subject: subject, ack_policy: "explicit", idle_heartbeat: 5e9, flow_control: true,
  }), described);
  const consumer = await js.consumers.getPushConsumer("U", "d");
  const messages = await consumer.consume();
  const heard = [];
  for await (const m of messages) {
    heard.push(m);
    if (heard.length === 30) break;
  }
  await note("thirty", heard.map(delivered));
  for (const m of heard) await m.ackAck({ timeout: 5000 });
  await note("acked", consumer.info(), (info) => [counters(info), info.push_bound]);
  await messages.close();

  const inbox = createInbox();
  const sub = nc.subscribe(inbox);
  await nc.flush();
  await note("ephemeral", jsm.consumers.add("U", {
    deliver_subject: inbox, ack_policy: "none", idle_heartbeat: 200e6, deliver_policy: "last",
  }), (info) => described(info).config);
  const seen = await some(sub, 2);
  await note("the last, then a heartbeat", seen.map((m) => [m.string(), headersOf(m), m.subject === inbox]));

  const counts = [0, 0, 0];
  await jsm.consumers.add("U", {
    durable_name: "q", deliver_subject: "deliver.q", deliver_group: "g", ack_policy: "none",
  });
  await new Promise((resolve) => {
    const count = (n) => () => {
      counts[n]++;
      if (counts[0] + counts[1] + counts[2] === 330) resolve();
    };
    counts.forEach((_, n) => nc.subscribe("deliver.q", { queue: "g", callback: count(n) }));
    nc.flush().then(async () => {
      for (let n = 0; n < 300; n++) await js.publish("u.9", `${n}`);
    });
  });
  await note("a queue", { total: counts.reduce((a, b) => a + b), each: counts.every((c) => c > 30) });

  const big = "x".repeat(2000);
  await jsm.streams.add({ name: "B", subjects: ["b.*"] });
  for (let n = 0; n < 20; n++) {
    await Promise.all(Array.from({ length: 100 }, (_, i) => js.publish(`b.${i % 4}`, `${n * 100 + i} ${big}`)));
  }
  await jsm.streams.purge("B", { filter: "b.2" });
  const ordered = await js.consumers.getPushConsumer("B", { filter_subjects: ["b.0", "b.1", "b.2"] });
  const flowing = await ordered.consume();
  const seqs = [];
  for await (const m of flowing) {
    seqs.push([m.seq, parseInt(m.string())]);
    if (m.info.pending === 0) break;
  }
  const expected = Array.from({ length: 2000 }, (_, n) => n).filter((n) => n % 4 < 2);
  await note("ordered", seqs.length === 1000 && seqs.every(([seq, n], i) => n === expected[i] && seq === n + 1));
  await note("ordered, info", ordered.info(), (info) => {
    const { name, ...config } = described(info).config;
    return config;
  });
  for (const name of ["U", "B"]) await note(`delete ${name}`, jsm.streams.delete(name));
});
