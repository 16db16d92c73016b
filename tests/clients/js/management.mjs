// Streams: made, changed, listed, emptied, deleted; their messages fetched and deleted.
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { all, script, stored } from "./notes.mjs";

await script(async (nc, note) => {
  const jsm = await jetstreamManager(nc);
  const js = jetstream(nc);
  const account = ({ streams, consumers, limits, storage, api, domain }) => (
    { streams, consumers, limits, storage, api: api.level, domain } // how often others asked is a race
  );
  await note("account, empty", jsm.getAccountInfo(), account);
  await note("no streams", all(jsm.streams.list()));
  await note("no such stream", jsm.streams.info("ORDERS"));
  await note("add", jsm.streams.add({ name: "ORDERS", subjects: ["orders.>"], description: "orders" }));
  await note("add the same", jsm.streams.add({ name: "ORDERS", subjects: ["orders.>"], description: "orders" }));
  await note("add another of that name", jsm.streams.add({ name: "ORDERS", subjects: ["others"] }));
  await note("add one that overlaps", jsm.streams.add({ name: "OVER", subjects: ["orders.new"] }));
  await note("add a wrong one", jsm.streams.add({ name: "WRONG", max_msg_size: -7, num_replicas: 6 }));
  await note("a name with a dot", jsm.streams.add({ name: "a.b" }));
  for (const storage of ["file", "memory"]) {
    await note(`add ${storage}`, jsm.streams.add({
      name: storage, subjects: [`${storage}.*`], storage, retention: "limits", discard: "new", max_msgs: 5,
      max_msgs_per_subject: 2, max_bytes: 10_000, max_age: 3_600e9, duplicate_window: 60e9, allow_direct: true,
      deny_delete: false, metadata: { owner: "me" },
    }));
  }
  await note("update", jsm.streams.update("ORDERS", { subjects: ["orders.>", "more.*"], max_msgs: 100 }));
  await note("update wrongly", jsm.streams.update("ORDERS", { storage: "memory" }));
  await note("update of none", jsm.streams.update("NONE", { max_msgs: 1 }));
  for (let n = 0; n < 20; n++) await js.publish(`orders.${n % 4}`, `order ${n}`);
  await note("info", jsm.streams.info("ORDERS"));
  await note("info with subjects", jsm.streams.info("ORDERS", { subjects_filter: "orders.*" }));
  await note("message by seq", jsm.streams.getMessage("ORDERS", { seq: 3 }), stored);
  await note("last message", jsm.streams.getMessage("ORDERS", { last_by_subj: "orders.2" }), stored);
  await note("next message", jsm.streams.getMessage("ORDERS", { seq: 5, next_by_subj: "orders.3" }), stored);
  await note("message that is not there", jsm.streams.getMessage("ORDERS", { seq: 300 }));
  await note("delete a message", jsm.streams.deleteMessage("ORDERS", 3));
  await note("delete and keep the bytes", jsm.streams.deleteMessage("ORDERS", 4, false));
  await note("delete it again", jsm.streams.deleteMessage("ORDERS", 3));
  await note("info with deleted", jsm.streams.info("ORDERS", { deleted_details: true }));
  await note("purge a subject", jsm.streams.purge("ORDERS", { filter: "orders.1" }));
  await note("purge, keep", jsm.streams.purge("ORDERS", { filter: "orders.2", keep: 1 }));
  await note("purge up to", jsm.streams.purge("ORDERS", { seq: 10 }));
  await note("purge all", jsm.streams.purge("ORDERS"));
  await note("purge of none", jsm.streams.purge("NONE"));
  await note("state after", jsm.streams.info("ORDERS"), (info) => info.state);
  await note("list", all(jsm.streams.list()), (list) => list.map((info) => [info.config.name, info.state.messages]));
  await note("list by subject", all(jsm.streams.list("orders.1")), (list) => list.map((info) => info.config.name));
  await note("names", all(jsm.streams.names()));
  await note("names by subject", all(jsm.streams.names("file.>")));
  await note("find", jsm.streams.find("memory.x"));
  await note("find none", jsm.streams.find("nobody.here"));
  await note("account", jsm.getAccountInfo(), account);
  await note("delete", jsm.streams.delete("ORDERS"));
  await note("delete again", jsm.streams.delete("ORDERS"));
  await note("message of none", jsm.streams.getMessage("ORDERS", { seq: 1 }));
  for (const name of ["file", "memory"]) await note(`delete ${name}`, jsm.streams.delete(name));
});
