// Services: found, asked, counted.
import { Svcm } from "@nats-io/services";
import { headersOf, script } from "./notes.mjs";

const reply = (m) => ({ data: m.string(), headers: headersOf(m) });

await script(async (nc, note) => {
  const svcm = new Svcm(nc);
  const made = [];
  for (const version of ["1.0.0", "1.0.1"]) {
    const service = await svcm.add({ name: "adder", version, description: "adds", metadata: { owner: "me" } });
    service.addEndpoint("add", {
      handler: (_, m) => {
        const numbers = JSON.parse(m.string());
        if (!Array.isArray(numbers)) m.respondError(400, "not a list", "bad");
        else m.respond(JSON.stringify(numbers.reduce((a, b) => a + b, 0)));
      },
      metadata: { schema: "list" },
    });
    service.addGroup("math").addGroup("more").addEndpoint("twice", (_, m) => m.respond(String(2 * Number(m.string()))));
    made.push(service);
  }
  await nc.flush();
  const ask = (subject, text) => nc.request(subject, text, { timeout: 5000 });
  for (let n = 0; n < 10; n++) await note(`sum ${n}`, ask("add", JSON.stringify([n, 1])), reply);
  await note("twice", ask("math.more.twice", "21"), reply);
  await note("an error", ask("add", "7"), reply);
  const client = svcm.client({ maxMessages: 2, maxWait: 5000, strategy: "count" });
  const gather = async (iterator) => {
    const found = [];
    for await (const each of await iterator) found.push(each);
    return found.sort((a, b) => a.version < b.version ? -1 : 1);
  };
  await note("ping", gather(client.ping()));
  await note("ping by name", gather(client.ping("adder")));
  await note("info", gather(client.info("adder")));
  const one = svcm.client({ maxMessages: 1, maxWait: 5000, strategy: "count" });
  await note("ping by id", gather(one.ping("adder", made[1].info().id)));
  const stats = (list) => ({
    ids: new Set(list.map((each) => each.id)).size,
    requests: list.flatMap((each) => each.endpoints).reduce((sum, each) => sum + each.num_requests, 0),
    errors: list.flatMap((each) => each.endpoints).reduce((sum, each) => sum + each.num_errors, 0),
    endpoints: list.map((each) => each.endpoints.map((e) => [e.name, e.subject, e.queue_group])),
    type: list[0].type,
  });
  await note("stats", gather(client.stats("adder")), stats);
  await note("nobody of that name", ask("$SRV.PING.nobody", ""));
  await made[0].stop();
  await note("one left", gather(one.ping("adder")));
  await note("it answers", ask("add", "[1,2,3]"), reply);
  await made[1].stop();
  await note("none left", ask("add", "[1,2,3]"));
});
