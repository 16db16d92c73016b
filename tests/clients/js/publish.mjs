// Publishing to streams: acknowledgements, ids, expectations, headers, limits, TTLs.
import { headers } from "@nats-io/transport-node";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { script, stored } from "./notes.mjs";

await script(async (nc, note) => {
  const jsm = await jetstreamManager(nc);
  const js = jetstream(nc);
  await jsm.streams.add({ name: "P", subjects: ["p.>"], max_msg_size: 5000, allow_msg_ttl: true, allow_direct: true });
  await note("publish", js.publish("p.a", "one"));
  await note("publish nothing", js.publish("p.a"));
  await note("publish bytes", js.publish("p.b", new Uint8Array([0, 1, 255, 10, 13])));
  await note("nobody stores it", js.publish("q.a", "one"));
  await note("with an id", js.publish("p.a", "id", { msgID: "m1" }));
  await note("with that id again", js.publish("p.a", "id", { msgID: "m1" }));
  await note("with another id", js.publish("p.a", "id", { msgID: "m2" }));
  await note("expect this stream", js.publish("p.a", "x", { expect: { streamName: "P" } }));
  await note("expect another stream", js.publish("p.a", "x", { expect: { streamName: "Q" } }));
  await note("expect the last sequence", js.publish("p.a", "x", { expect: { lastSequence: 6 } }));
  await note("expect a wrong sequence", js.publish("p.a", "x", { expect: { lastSequence: 2 } }));
  await note("expect the last id", js.publish("p.a", "x", { msgID: "m3", expect: { lastMsgID: "m2" } }));
  await note("expect the last id, really", js.publish("p.a", "x", { msgID: "m3", expect: { lastMsgID: "" } }));
  await note("expect a wrong id", js.publish("p.a", "x", { expect: { lastMsgID: "m1" } }));
  await note("expect the subject's last", js.publish("p.b", "x", { expect: { lastSubjectSequence: 3 } }));
  await note("expect a wrong one", js.publish("p.b", "x", { expect: { lastSubjectSequence: 3 } }));
  await note("expect a new subject", js.publish("p.new", "x", { expect: { lastSubjectSequence: 0 } }));
  await note("expect it of others", js.publish("p.c.d", "x", {
    expect: { lastSubjectSequence: 0, lastSubjectSequenceSubject: "p.c.*" },
  }));
  await note("too large", js.publish("p.a", "x".repeat(5001)));
  const with_headers = headers();
  with_headers.append("Color", "red");
  with_headers.append("Color", "blue");
  with_headers.set("Unicode", "größe");
  await note("headers", js.publish("p.h", "headed", { headers: with_headers }));
  await note("headers stored", jsm.streams.getMessage("P", { last_by_subj: "p.h" }), stored);
  await note("ttl", js.publish("p.t", "short", { ttl: "1h" }));
  await note("ttl stored", jsm.direct.getMessage("P", { last_by_subj: "p.t" }), stored);
  await note("ttl wrong", js.publish("p.t", "short", { ttl: "soon" }));
  const many = await Promise.all(Array.from({ length: 500 }, (_, n) => js.publish(`p.many.${n % 7}`, `n${n}`)));
  const first = many[0].seq;
  await note("many at once", many.every((ack, n) => ack.seq === first + n && ack.stream === "P" && !ack.duplicate));
  await note("state", jsm.streams.info("P"), (info) => info.state);
  await jsm.streams.add({ name: "FULL", subjects: ["full"], max_msgs: 1, discard: "new" });
  await note("fits", js.publish("full", "1"));
  await note("full", js.publish("full", "2"));
  await jsm.streams.update("FULL", { sealed: true });
  await note("sealed", js.publish("full", "3"));
  for (const name of ["P", "FULL"]) await note(`delete ${name}`, jsm.streams.delete(name));
});
