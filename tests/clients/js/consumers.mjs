// Consumers: made, changed, listed, paused, reset, deleted; fetch, next, consume; every kind of ack.
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { all, counters, delivered, described, fill, headersOf, script, some } from "./notes.mjs";

const list = (messages) => messages.map(delivered);

await script(async (nc, note) => {
  const jsm = await jetstreamManager(nc);
  const js = jetstream(nc);
  const fetch = async (consumer, options) => all(await consumer.fetch(options));
  await note("no stream", jsm.consumers.add("NONE", { durable_name: "d" }));
  await fill(jsm, js, "C", 12);
  await note("none yet", all(jsm.consumers.list("C")));
  await note("add", jsm.consumers.add("C", { durable_name: "d", ack_policy: "explicit" }), described);
  await note("add the same", jsm.consumers.add("C", { durable_name: "d", ack_policy: "explicit" }), described);
  await note("create what is there", jsm.consumers.add("C", {
    durable_name: "d", ack_policy: "explicit", max_deliver: 4,
  }, { action: "create" }));
  await note("update what is not there", jsm.consumers.add("C", { durable_name: "u" }, { action: "update" }));
  await note("ephemeral", jsm.consumers.add("C", { ack_policy: "none", inactive_threshold: 60e9 }), described);
  await note("full", jsm.consumers.add("C", {
    name: "full", durable_name: "full", description: "all of it", deliver_policy: "by_start_sequence", opt_start_seq: 3,
    ack_policy: "explicit", ack_wait: 30e9, max_deliver: 4, backoff: [1e9, 2e9], filter_subjects: ["c.0", "c.1"],
    replay_policy: "original", sample_freq: "20", max_waiting: 10, max_ack_pending: 11, headers_only: true,
    max_batch: 12, max_bytes: 1300, max_expires: 14e9, inactive_threshold: 60e9, mem_storage: true,
    metadata: { a: "b" },
  }), described);
  await note("update", jsm.consumers.update("C", "d", { max_deliver: 5, description: "changed" }), described);
  await note("update wrongly", jsm.consumers.update("C", "d", { deliver_policy: "new" }));
  await note("update of none", jsm.consumers.update("C", "none", { max_deliver: 5 }));
  await note("a name with a dot", jsm.consumers.add("C", { durable_name: "a.b" }));
  await note("filters that overlap", jsm.consumers.add("C", { durable_name: "z", filter_subjects: ["c.*", "c.1"] }));
  await note("info", jsm.consumers.info("C", "full"), described);
  await note("info of none", jsm.consumers.info("C", "none"));
  await note("list", all(jsm.consumers.list("C")), (found) => found.map((each) => described(each).name).sort());
  await note("get none", js.consumers.get("C", "none"));

  const consumer = await js.consumers.get("C", "d");
  const first = await note("next", consumer.next({ expires: 5000 }), delivered);
  await note("double ack", first.ackAck({ timeout: 5000 }));
  await note("double ack of the same", first.ackAck({ timeout: 5000 }));
  const five = await note("fetch five", fetch(consumer, { max_messages: 5, expires: 5000 }), list);
  five[0].nak();
  await note("again", consumer.next({ expires: 5000 }), (m) => m.info.streamSequence < 8);
  five[1].working();
  await note("terminate, after working", five[1].ackAck({ timeout: 5000 }));
  five[2].term("no good");
  await note("ack the last", five[4].ackAck({ timeout: 5000 }));
  await note("fetch bytes", fetch(consumer, { max_bytes: 150, expires: 1000 }), list);
  await note("the rest", fetch(consumer, { max_messages: 50, expires: 1000 }), (found) => found.length > 0);
  const waiting = consumer.next({ expires: 10_000 });
  while ((await consumer.info()).num_waiting === 0);
  await js.publish("c.0", "while it waits");
  await note("waited", waiting, (m) => m.string());
  await note("delete", consumer.delete());
  await note("delete again", jsm.consumers.delete("C", "d"));
  await note("next of the deleted", consumer.next({ expires: 1000 }));

  await jsm.consumers.add("C", { durable_name: "loop", ack_policy: "explicit", filter_subject: "c.1", ack_wait: 30e9 });
  const loop = await js.consumers.get("C", "loop");
  const messages = await loop.consume({ max_messages: 2 });
  const heard = [];
  for await (const m of messages) {
    heard.push(delivered(m));
    await m.ackAck({ timeout: 5000 });
    if (heard.length === 4) await js.publish("c.1", "more");
    if (heard.length === 5) break;
  }
  await note("consume", heard);
  await messages.close();
  await note("consumed", loop.info(), counters);
  const called = [];
  await new Promise((resolve) => {
    loop.consume({ callback: (m) => {
      called.push([m.seq, m.string(), m.info.deliverySequence]);
      m.ack();
      if (called.length === 2) resolve();
    } }).then(() => js.publish("c.1", "x")).then(() => js.publish("c.1", "y"));
  });
  await note("by callback", called);

  await jsm.consumers.add("C", { durable_name: "p", ack_policy: "explicit" });
  const paused = await js.consumers.get("C", "p");
  const later = new Date(Date.now() + 600_000);
  await note("pause", jsm.consumers.pause("C", "p", later), (p) => [p.paused, !!p.pause_until]);
  await note("paused", paused.info(), described);
  await note("nothing while paused", paused.next({ expires: 1000 }), delivered);
  await note("resume", jsm.consumers.resume("C", "p"), (p) => p.paused);
  await note("resumed", paused.next({ expires: 5000 }), delivered);
  await note("reset", jsm.consumers.reset("C", "p", 5), (r) => r.reset_seq);
  await note("after the reset", fetch(paused, { max_messages: 2, expires: 5000 }), list);

  await jsm.consumers.add("C", {
    durable_name: "o", ack_policy: "explicit", ack_wait: 200e6, max_deliver: 2, filter_subject: "c.2",
  });
  const given = await js.consumers.get("C", "o");
  await note("not acked", fetch(given, { max_messages: 4, expires: 5000 }), list);
  const twice = [];
  while (twice.length < 4) twice.push(...await fetch(given, { max_messages: 4 - twice.length, expires: 5000 }));
  await note("come again", list(twice));
  await note("not a third time", given.next({ expires: 1000 }), delivered);

  const ordered = await js.consumers.get("C");
  const messages_of = await ordered.consume();
  await note("ordered", some(messages_of, 15), (found) => found.map((m) => [m.seq, m.info.pending, m.string()]));
  const part = await js.consumers.get("C", { filter_subjects: ["c.0", "c.2"], deliver_policy: "last_per_subject" });
  await note("ordered, part", fetch(part, { max_messages: 2, expires: 5000 }), (found) => found.map((m) => m.string()));
  const from = await js.consumers.get("C", {
    opt_start_seq: 12, deliver_policy: "by_start_sequence", headers_only: true,
  });
  await note("ordered, next", from.next({ expires: 5000 }), (m) => [m.seq, m.string(), headersOf(m)]);
  await note("ordered, info", from.info(), (info) => {
    const { durable_name, name, ...config } = described(info).config;
    return config;
  });

  const news = await js.consumers.get("C", { deliver_policy: "new" });
  const flowing = await news.consume({ idle_heartbeat: 500, expires: 1000 });
  const made_again = (async () => {
    for await (const s of flowing.status()) if (s.type === "ordered_consumer_recreated") return s.type;
  })();
  const two = some(flowing, 2);
  await js.publish("c.0", "before");
  while ((await news.info()).delivered.consumer_seq < 1);
  await jsm.consumers.delete("C", (await news.info()).name);
  await note("ordered, deleted under way", made_again);
  await js.publish("c.0", "after");
  await note("it goes on", two, (found) => found.map((m) => [m.seq, m.string()]));

  await jsm.streams.add({ name: "W", subjects: ["w.*"], retention: "workqueue" });
  await jsm.consumers.add("W", { durable_name: "w", ack_policy: "explicit", filter_subject: "w.1" });
  await note("a work queue's second", jsm.consumers.add("W", {
    durable_name: "x", ack_policy: "explicit", filter_subject: "w.*",
  }));
  for (let n = 0; n < 6; n++) await js.publish(`w.${n % 2}`, `${n}`);
  const worker = await js.consumers.get("W", "w");
  for (const m of await fetch(worker, { max_messages: 3, expires: 5000 })) await m.ackAck({ timeout: 5000 });
  await note("worked off", jsm.streams.info("W"), ({ state }) => [state.messages, state.first_seq, state.last_seq]);
  for (const name of ["C", "W"]) await note(`delete ${name}`, jsm.streams.delete(name));
});
