// Buckets watched: every form of watcher, histories, keys, purges of old deletes, markers of what has expired.
import { jetstream } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { all, script, some } from "./notes.mjs";

const entry = (e) => [e.key, e.string(), e.revision, e.operation, e.delta, e.isUpdate];
const update = (e) => [e.key, e.string(), e.revision, e.operation]; // how many come after it is a race

await script(async (nc, note) => {
  const kvm = new Kvm(jetstream(nc));
  const kv = await kvm.create("W", { history: 5 });
  const entries = (found) => found.map(entry);
  await note("no keys", all(await kv.keys()));
  await note("no history", all(await kv.history()));
  const live = await kv.watch();
  for (let n = 0; n < 4; n++) await kv.put("a", `${n}`);
  await kv.put("b.c", "x");
  await kv.put("b.d", "y");
  await kv.delete("b.d");
  await kv.put("b.e.f", "z");
  await kv.purge("b.e.f");
  await kv.put("e", "");
  await note("live", some(live, 10), (found) => found.map(update));
  for (const [name, options, count] of [
    ["all", {}, 5],
    ["one", { key: "a" }, 1],
    ["a pattern", { key: "b.*" }, 2],
    ["patterns", { key: ["a", "b.>"] }, 4],
    ["history", { include: "history" }, 9],
    ["history of one", { key: "a", include: "history" }, 4],
    ["without deletes", { ignoreDeletes: true }, 3],
    ["without values", { headers_only: true }, 5],
    ["from a revision", { resumeFromRevision: 6 }, 4],
  ]) {
    await note(`watch ${name}`, some(await kv.watch(options), count), entries);
  }
  const updates = await kv.watch({ include: "updates" });
  await kv.put("b.c", "2");
  await kv.delete("b.c");
  await note("updates only", some(updates, 2), (found) => found.map(update));
  await note("keys", all(await kv.keys()));
  await note("keys by a pattern", all(await kv.keys("b.>")));
  await note("keys by patterns", all(await kv.keys(["a", "e"])));
  await note("history", all(await kv.history()), entries);
  await note("history of a key", all(await kv.history({ key: "b.c" })), entries);
  await note("history of none", all(await kv.history({ key: "none" })), entries);
  await note("purge deletes, all young", kv.purgeDeletes());
  await note("left", all(await kv.history()), entries);
  await note("purge deletes, any", kv.purgeDeletes(0));
  await note("left then", all(await kv.history()), entries);
  await Promise.all(Array.from({ length: 600 }, (_, n) => kv.put(`many.${n % 250}`, `${n}`)));
  await note("many keys", all(await kv.keys("many.*")), (keys) => [keys.length, new Set(keys).size]);
  const short = await kvm.create("S", { markerTTL: 60_000 });
  const watched = await short.watch();
  await short.create("t", "1", "1s");
  await note("a value with a TTL, and its marker", some(watched, 2), (found) => (
    found.map((e) => [e.key, e.revision, e.operation])
  ));
  await note("forgotten", short.get("t"), (e) => [e.operation, e.revision]);
  await note("made anew", short.create("t", "2"));
  await note("destroy", kv.destroy());
  await note("destroy S", short.destroy());
});
