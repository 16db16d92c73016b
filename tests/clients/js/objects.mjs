// Object stores: put, read, described, linked, watched, listed, deleted, sealed.
import { createHash } from "node:crypto";
import { jetstream } from "@nats-io/jetstream";
import { Objm } from "@nats-io/obj";
import { all, script, some } from "./notes.mjs";

const about = (i) => i && {
  name: i.name, bucket: i.bucket, size: i.size, chunks: i.chunks, digest: i.digest, deleted: i.deleted,
  description: i.description, options: i.options, revision: i.revision, metadata: i.metadata,
  link: i.isLink?.(), headers: i.headers ? [...i.headers] : null,
};
const sum = (data) => data && [data.length, createHash("sha256").update(data).digest("hex")];

await script(async (nc, note) => {
  const objm = new Objm(jetstream(nc));
  const store = await objm.create("O", { description: "objects", metadata: { a: "b" } });
  const bytes = (size) => Uint8Array.from({ length: size }, (_, n) => n % 251);
  const text = (s) => new TextEncoder().encode(s);
  await note("nothing", store.list());
  await note("put", store.putBlob({ name: "a" }, bytes(300_000)), about);
  await note("info", store.info("a"), about);
  await note("get", store.getBlob("a"), sum);
  await note("put again", store.putBlob({ name: "a" }, text("y")), about);
  await note("get again", store.getBlob("a"), sum);
  await note("empty", store.putBlob({ name: "empty" }, new Uint8Array(0)), about);
  await note("get empty", store.getBlob("empty"), sum);
  await note("many chunks", store.putBlob({ name: "m", description: "small chunks", options: { max_chunk_size: 1000 },
    metadata: { k: "v" } }, bytes(250_500)), about);
  await note("get many chunks", store.getBlob("m"), sum);
  await note("large", store.putBlob({ name: "large" }, bytes(3_000_000)), about);
  const stream = await store.get("large");
  let size = 0;
  for await (const chunk of stream.data) size += chunk.length;
  await note("read as a stream", [size, await stream.error, about(stream.info)]);
  await note("where it was", store.putBlob({ name: "a" }, text("z"), { previousRevision: 1 }), about);
  await note("info of none", store.info("b"));
  await note("get none", store.getBlob("b"));
  await note("update", store.update("m", { name: "m", description: "described" }), (ack) => ack.seq);
  await note("rename", store.update("m", { name: "n" }), (ack) => ack.seq);
  await note("renamed", store.info("n"), about);
  await note("old name", store.info("m"), about);
  await note("get renamed", store.getBlob("n"), sum);
  await note("rename onto another", store.update("n", { name: "a" }));
  await note("link", store.link("l", await store.info("a")), about);
  await note("get by the link", store.getBlob("l"), sum);
  await note("link to a link", store.link("ll", await store.info("l")));
  const other = await objm.create("P", { storage: "memory", ttl: 3600e9 });
  await note("link to a store", store.linkStore("s", other), about);
  await note("get the linked store", store.getBlob("s"));
  await note("list", store.list(), (found) => found.map(about).sort((x, y) => x.name < y.name ? -1 : 1));
  const watcher = await store.watch(); // of this client: only what comes
  const everything = await store.watch({ includeHistory: true, ignoreDeletes: true });
  await note("delete", store.delete("a"));
  await store.putBlob({ name: "new" }, text("new"));
  await note("watch", some(watcher, 2), (found) => found.map(about));
  await note("watch everything", some(everything, 7), (found) => found.map((i) => [i.name, i.isUpdate]));
  await note("info of deleted", store.info("a"), about);
  await note("get deleted", store.getBlob("a"));
  await note("delete again", store.delete("a"));
  await note("delete none", store.delete("none"));
  await note("status", store.status(), ({ streamInfo, size, ...rest }) => (
    { ...rest, config: streamInfo.config, messages: streamInfo.state.messages }
  ));
  await note("seal", store.seal(), (status) => status.sealed);
  await note("put when sealed", store.putBlob({ name: "c" }, text("c")));
  await note("get when sealed", store.getBlob("large"), sum);
  await note("delete when sealed", store.delete("new"));
  await note("stores", all(objm.list()), (found) => found.map((each) => [each.bucket, each.sealed]).sort());
  await note("destroy", store.destroy());
  await note("destroy the other", other.destroy());
  await note("open none", objm.open("O"));
});
