// Buckets, as far as they go without watching: keys made, changed, deleted, read at a revision.
import { Kvm } from "@nats-io/kv";
import { all, script } from "./notes.mjs";

const entry = (found) => found && {
  bucket: found.bucket, key: found.key, value: found.string(), revision: found.revision,
  operation: found.operation, length: found.length, created: found.created, delta: found.delta,
};
const status = (found) => ({
  bucket: found.bucket, values: found.values, history: found.history, ttl: found.ttl, size: found.size,
  storage: found.storage, replicas: found.replicas, max_bytes: found.max_bytes, maxValueSize: found.maxValueSize,
  description: found.description, metadata: found.metadata, markerTTL: found.markerTTL, config: found.streamInfo.config,
});

await script(async (nc, note) => {
  const kvm = new Kvm(nc);
  await note("no bucket", kvm.open("none").then((kv) => kv.status()));
  const bucket = { history: 5, description: "a bucket", metadata: { owner: "me" }, markerTTL: 60_000 };
  const kv = await kvm.create("B", bucket);
  await note("create", kv.create("a", "1"));
  await note("create again", kv.create("a", "1"));
  await note("put", kv.put("a", "2"));
  await note("put an object", kv.put("b.c", JSON.stringify({ x: 1 })));
  await note("put where it was", kv.put("b.c", "3", { previousSeq: 3 }));
  await note("put where it was not", kv.put("b.c", "4", { previousSeq: 3 }));
  await note("get", kv.get("a"), entry);
  await note("get none", kv.get("z"), entry);
  await note("get a revision", kv.get("a", { revision: 1 }), entry);
  await note("get another key's revision", kv.get("a", { revision: 3 }), entry);
  await note("update", kv.update("a", "5", 2));
  await note("update wrongly", kv.update("a", "6", 2));
  await note("delete", kv.delete("a"));
  await note("get deleted", kv.get("a"), entry);
  await note("create after delete", kv.create("a", "7"));
  await note("purge", kv.purge("b.c"));
  await note("get purged", kv.get("b.c"), entry);
  await note("create after purge", kv.create("b.c", "8"));
  await note("create with a ttl", kv.create("t", "9", "1h"));
  await note("get with a ttl", kv.get("t"), entry);
  await note("purge with a ttl", kv.purge("t", { ttl: "1h" }));
  await note("an empty value", kv.put("e", ""));
  await note("get the empty value", kv.get("e"), entry);
  await note("a wrong key", kv.put("a b", "x"));
  await note("status", kv.status(), status);
  await note("the same bucket again", kvm.create("B", bucket).then((again) => again.status()), status);
  const memory = await kvm.create("M", { storage: "memory", ttl: 3_600_000, max_bytes: 10_000, maxValueSize: 10 });
  await note("memory", memory.status(), status);
  await note("too large", memory.put("k", "x".repeat(200)));
  await note("list", all(kvm.list()), (list) => list.map((each) => [each.bucket, each.values]));
  await note("destroy", kv.destroy());
  await note("destroy memory", memory.destroy());
  await note("get of none", kv.get("a"), entry);
});
