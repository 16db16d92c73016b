// Priority groups: overflow, a pinned client, priorities.
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { all, delivered, described, fill, script } from "./notes.mjs";

await script(async (nc, note) => {
  const jsm = await jetstreamManager(nc);
  const js = jetstream(nc);
  const list = (messages) => messages.map(delivered);
  const fetch = async (consumer, options) => all(await consumer.fetch({ expires: 1000, ...options }));
  await fill(jsm, js, "G", 10);
  const add = (name, more) => jsm.consumers.add("G", { durable_name: name, ack_policy: "explicit", ...more });

  await note("no policy", add("z", { priority_groups: ["g"] }));
  await note("no groups", add("z", { priority_policy: "overflow" }));
  await note("overflow", add("o", { priority_groups: ["g"], priority_policy: "overflow" }), described);
  const overflow = await js.consumers.get("G", "o");
  await note("without a group", fetch(overflow, { max_messages: 2 }), list);
  await note("of another group", fetch(overflow, { max_messages: 2, group: "h" }), list);
  await note("enough is pending", fetch(overflow, { max_messages: 2, group: "g", min_pending: 5 }), list);
  await note("not enough", fetch(overflow, { max_messages: 2, group: "g", min_pending: 50 }), list);
  await note("unacked enough", fetch(overflow, {
    max_messages: 2, group: "g", min_pending: 50, min_ack_pending: 2,
  }), list);
  await note("unacked not enough", fetch(overflow, { max_messages: 2, group: "g", min_ack_pending: 20 }), list);
  await note("overflow, info", overflow.info(), (info) => [info.num_pending, info.priority_groups]);

  await note("prioritised", add("p", { priority_groups: ["g"], priority_policy: "prioritized" }), described);
  const prioritised = await js.consumers.get("G", "p");
  await note("a priority", fetch(prioritised, { max_messages: 2, group: "g", priority: 3 }), list);

  await note("pinned", add("c", {
    priority_groups: ["g"], priority_policy: "pinned_client", priority_timeout: 1e9,
  }), described);
  const pinned = await js.consumers.get("G", "c");
  const ids = (m) => m.headers?.has("Nats-Pin-Id") ?? false;
  const found = await fetch(pinned, { max_messages: 2, group: "g" });
  await note("the first is pinned", found.map((m) => [m.seq, ids(m)]));
  await note("pinned, info", pinned.info(), ({ priority_groups }) => (
    priority_groups.map(({ group, pinned_client_id, pinned_ts }) => [group, !!pinned_client_id, !!pinned_ts])
  ));
  await note("unpin", jsm.consumers.unpin("G", "c", "g"));
  await note("unpin of no group", jsm.consumers.unpin("G", "c", "h"));
  await note("unpin of none", jsm.consumers.unpin("G", "none", "g"));
  await note("unpinned, info", pinned.info(), ({ priority_groups }) => priority_groups);
  const other = await js.consumers.get("G", "c");
  await note("another is pinned", fetch(other, { max_messages: 2, group: "g" }), (messages) => (
    messages.map((m) => [m.seq, ids(m)])
  ));
  await note("delete", jsm.streams.delete("G"));
});
