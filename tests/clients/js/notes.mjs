// What a script hears from the server, as one JSON line: [name, value] pairs in the order in which they were noted.
// Times, ids and names that differ from server to server are replaced by words; everything else is shown as it is.
import { connect } from "@nats-io/transport-node";

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;
const WORDS = { id: "ID", started: "TIME", processing_time: "NANOS", average_processing_time: "NANOS" };

function plain(value) {
  if (value === null || typeof value !== "object") {
    return typeof value === "string" && TIME.test(value) && !value.startsWith("0001") ? "TIME" : value;
  }
  if (value instanceof Date) return "TIME";
  if (value instanceof Uint8Array) return Buffer.from(value).toString();
  if (Array.isArray(value)) return value.map(plain);
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, key in WORDS ? WORDS[key] : plain(item)]));
}

function failure(error) {
  const found = { error: error.name, message: error.message };
  if (error.code !== undefined) found.code = error.code;
  if (error.status !== undefined) found.status = error.status;
  if (error.cause instanceof Error) found.cause = failure(error.cause);
  return found;
}

// The headers of a message as [key, values] pairs; a message's time is taken out.
export function headersOf(message) {
  if (!message.headers && !message.header) return [];
  const headers = message.headers ?? message.header;
  return headers.keys().sort().map((key) => [key, key === "Nats-Time-Stamp" ? "TIME" : headers.values(key)]);
}

export function stored(message) {
  if (message === null) return null;
  const { seq, subject } = message;
  return { seq, subject, data: message.string(), headers: headersOf(message), time: typeof message.time };
}

// A consumer's message as it came: what its ack subject tells, but for the time.
export function delivered(message) {
  if (message === null) return null;
  const { timestampNanos: _, consumer, ...info } = message.info;
  const name = consumer.length < 8 ? consumer : "RANDOM";
  return { subject: message.subject, data: message.string(), headers: headersOf(message), ...info, consumer: name };
}

// What CONSUMER.INFO tells, without names and subjects that are random, and what is left of a pause.
export function described(info) {
  const config = { ...info.config };
  const found = { ...info, config };
  if (info.name.length > 7) {
    found.name = "RANDOM";
    if (config.name) config.name = "RANDOM";
  }
  if (config.deliver_subject?.startsWith("_INBOX.")) config.deliver_subject = "INBOX";
  if (info.pause_remaining) found.pause_remaining = "NANOS";
  return found;
}

// Its counters; requests that wait are left out, for they end by the clock.
export function counters(info) {
  const { num_ack_pending, num_redelivered, num_pending } = info;
  const pair = ({ consumer_seq, stream_seq }) => [consumer_seq, stream_seq];
  return {
    delivered: pair(info.delivered), floor: pair(info.ack_floor), num_ack_pending, num_redelivered, num_pending,
  };
}

// A stream with so many messages over three subjects.
export async function fill(jsm, js, name, count, more = {}) {
  await jsm.streams.add({ name, subjects: [`${name.toLowerCase()}.*`], ...more });
  for (let n = 0; n < count; n++) await js.publish(`${name.toLowerCase()}.${n % 3}`, `${n}`);
}

// The first `count` that an iterator gives, which is stopped then.
export async function some(iterator, count) {
  const found = [];
  if (count === 0) return found;
  for await (const each of iterator) {
    found.push(each);
    if (found.length === count) break;
  }
  return found;
}

export async function all(iterator) {
  const found = [];
  for await (const each of iterator) found.push(each);
  return found;
}

// Runs `body(nc, note)`: `await note(name, promise)` keeps what the promise gives, or how it fails, and gives it on.
export async function script(body) {
  const nc = await connect({ servers: process.env.NATS_URL, timeout: 10_000, reconnect: false });
  const notes = [];
  const note = async (name, promise, view = plain) => {
    try {
      const value = await promise;
      notes.push([name, plain(view(value))]);
      return value;
    } catch (error) {
      notes.push([name, failure(error)]);
      return undefined;
    }
  };
  try {
    await body(nc, note);
  } finally {
    await nc.close();
  }
  process.stdout.write(JSON.stringify(notes) + "\n");
}
