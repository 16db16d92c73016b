// Direct gets: one message, batches, the last of many subjects.
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { all, script, stored } from "./notes.mjs";

await script(async (nc, note) => {
  const jsm = await jetstreamManager(nc);
  const js = jetstream(nc);
  await jsm.streams.add({ name: "D", subjects: ["d.>"], allow_direct: true });
  for (let n = 0; n < 12; n++) await js.publish(`d.${n % 3}`, `message ${n}`, n % 5 === 4 ? { msgID: `id-${n}` } : {});
  await jsm.streams.deleteMessage("D", 6);
  await note("by seq", jsm.direct.getMessage("D", { seq: 5 }), stored);
  await note("deleted", jsm.direct.getMessage("D", { seq: 6 }));
  await note("past the end", jsm.direct.getMessage("D", { seq: 60 }));
  await note("last by subject", jsm.direct.getMessage("D", { last_by_subj: "d.1" }), stored);
  await note("last by no subject", jsm.direct.getMessage("D", { last_by_subj: "d.9" }));
  await note("next by subject", jsm.direct.getMessage("D", { seq: 4, next_by_subj: "d.2" }), stored);
  const messages = (list) => list.map(stored);
  const batch = (options) => jsm.direct.getBatch("D", options).then(all);
  const last = (options) => jsm.direct.getLastMessagesFor("D", options).then(all);
  await note("batch", batch({ seq: 3, batch: 4 }), messages);
  await note("batch of a subject", batch({ seq: 1, batch: 100, next_by_subj: "d.0" }), messages);
  await note("batch of bytes", batch({ seq: 1, batch: 100, max_bytes: 200 }), messages);
  await note("batch from a time", batch({ start_time: new Date(0), batch: 2 }), messages);
  await note("last for all", last({ multi_last: ["d.*"] }), messages);
  await note("last for two", last({ multi_last: ["d.0", "d.2", "d.7"] }), messages);
  await note("last up to", last({ multi_last: ["d.>"], up_to_seq: 5 }), messages);
  await note("last for none", last({ multi_last: ["x.>"] }), messages);
  await note("no such stream", jsm.direct.getMessage("NONE", { seq: 5 }));
  await jsm.streams.add({ name: "SHUT", subjects: ["shut"], allow_direct: false });
  await js.publish("shut", "x");
  await note("not allowed", jsm.direct.getMessage("SHUT", { seq: 1 }));
  for (const name of ["D", "SHUT"]) await note(`delete ${name}`, jsm.streams.delete(name));
});
