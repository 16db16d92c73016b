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
