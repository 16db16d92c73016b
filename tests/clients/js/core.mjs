// Publish, subscribe, request, queue groups, headers, drain.
import { connect, createInbox, headers } from "@nats-io/transport-node";
import { headersOf, script } from "./notes.mjs";

const inboxOr = (subject) => subject.startsWith("_INBOX.") ? "INBOX" : subject;
const seen = (m) => ({ subject: inboxOr(m.subject), data: m.string(), reply: Boolean(m.reply), headers: headersOf(m) });

await script(async (nc, note) => {
  const { headers: has_headers, jetstream, proto, max_payload, version, auth_required, tls_required } = nc.info;
  await note("info", { has_headers, jetstream, proto, max_payload, version, auth_required, tls_required });
  await note("nobody answers", nc.request("nobody", "x"));
  nc.subscribe("silent", { callback: () => {} });
  await note("nobody in time", nc.request("silent", "x", { timeout: 100 }));
  nc.subscribe("echo", { callback: (_, m) => m.respond(m.data, { headers: m.headers }) });
  const head = headers();
  head.append("a", "1");
  head.append("a", "2");
  head.set("Empty", "");
  await note("echo", nc.request("echo", "hello", { timeout: 5000 }), seen);
  await note("echo with headers", nc.request("echo", "hello", { timeout: 5000, headers: head }), seen);
  await note("echo of much", nc.request("echo", "x".repeat(1_000_000), { timeout: 5000 }), (m) => m.data.length);
  for (let n = 0; n < 3; n++) nc.subscribe("many", { callback: (_, m) => m.respond(`answer ${n}`) });
  const many = async (options) => {
    const found = [];
    for await (const m of await nc.requestMany("many", "x", options)) found.push(m.string());
    return found.sort();
  };
  await note("many answers", many({ maxMessages: 3, maxWait: 5000, strategy: "count" }));

  const other = await connect({ servers: process.env.NATS_URL, reconnect: false, noEcho: true, name: "other" });
  let mine = 0;
  other.subscribe("own", { callback: () => mine++ });
  other.publish("own", "x");
  await other.flush(); // its subscription is with the server
  nc.publish("own", "y");
  await nc.flush();
  await other.flush();
  await note("no echo", mine);

  const counts = [0, 0, 0];
  const workers = counts.map((_, n) => other.subscribe("work.>", { queue: "q", callback: () => counts[n]++ }));
  let monitor = 0;
  const watching = other.subscribe("work.*", { callback: () => monitor++ });
  await other.flush();
  for (let n = 0; n < 300; n++) nc.publish(`work.${n}`);
  await nc.flush();
  await other.flush();
  await note("queue", { total: counts.reduce((a, b) => a + b), each: counts.every((c) => c > 30), monitor });
  workers[0].unsubscribe();
  watching.unsubscribe();
  await other.flush();

  const limited = other.subscribe("limited", { max: 2 });
  await other.flush();
  for (let n = 0; n < 5; n++) nc.publish("limited", `${n}`);
  await nc.flush();
  const got = [];
  for await (const m of limited) got.push(m.string());
  await note("at most two", got);

  const inbox = createInbox();
  const answers = other.subscribe(inbox, { max: 1 });
  other.publish("echo", "by hand", { reply: inbox });
  for await (const m of answers) await note("by hand", m, (m) => ({ data: m.string(), mine: m.subject === inbox }));

  let drained = 0;
  other.subscribe("drained", { callback: () => drained++ });
  await other.flush();
  for (let n = 0; n < 200; n++) nc.publish("drained");
  await nc.flush();
  await other.drain();
  await note("drained", { drained, closed: other.isClosed() });
  await note("publish when closed", (async () => other.publish("x"))());
  await note("a wrong subject", (async () => nc.publish("a b"))());
  await note("round trip", nc.rtt(), (ms) => typeof ms);
});
