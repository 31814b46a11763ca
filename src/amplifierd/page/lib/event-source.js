// Server-sent events by fetch: unlike the browser's EventSource it hears every name and sees why it was refused.

const QUIET_MS = 45_000; // The daemon says something every 15 seconds.
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

/**
 * A connection to a stream of the daemon that comes back by itself, from the last event it has seen.
 *
 * `onEvent(envelope)` gets every event, `onState("connecting" | "open" | "lost" | "unauthorized", detail)` how it stands.
 */
export class ReconnectingStream {
  #address;
  #handlers;
  #abort = null;
  #lastId;
  #failures = 0;
  #timer = null;
  #wake = null;

  constructor(address, handlers, lastId = null) {
    this.#address = address;
    this.#handlers = handlers;
    this.#lastId = lastId;
    this.#run();
  }

  get lastId() {
    return this.#lastId;
  }

  close() {
    this.#abort?.abort();
    this.#abort = null;
    this.#wake?.();
    clearTimeout(this.#timer);
    this.#handlers = { onEvent() {}, onState() {} };
  }

  /** Try again now instead of later. */
  hurry() {
    this.#wake?.();
  }

  async #run() {
    const { signal } = (this.#abort = new AbortController());
    while (!signal.aborted) {
      this.#handlers.onState("connecting", { failures: this.#failures });
      const refusal = await this.#once(signal);
      if (signal.aborted) return;
      if (refusal === 401) {
        this.#handlers.onState("unauthorized", {});
        return;
      }
      this.#failures += 1;
      const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (this.#failures - 1)) * (0.75 + Math.random() / 2);
      this.#handlers.onState("lost", { retry_ms: wait, failures: this.#failures, refusal });
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, wait);
      });
    }
  }

  /** Read the stream until it ends; return the status that it was refused with, or null. */
  async #once(outer) {
    const inner = new AbortController();
    const end = () => inner.abort();
    outer.addEventListener("abort", end, { once: true });
    try {
      const headers = this.#lastId ? { "Last-Event-ID": this.#lastId } : {};
      const options = { headers, signal: inner.signal, credentials: "same-origin", cache: "no-store" };
      const answer = await fetch(this.#address, options);
      if (!answer.ok) return answer.status;
      this.#failures = 0;
      this.#handlers.onState("open", {});
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const frames = new Frames((frame) => this.#take(frame));
      for (;;) {
        clearTimeout(this.#timer);
        this.#timer = setTimeout(end, QUIET_MS);
        const { done, value } = await reader.read();
        if (done) return null;
        frames.push(value);
      }
    } catch {
      return null;
    } finally {
      clearTimeout(this.#timer);
      outer.removeEventListener("abort", end);
      inner.abort();
    }
  }

  #take({ id, data }) {
    const envelope = JSON.parse(data);
    if (id) this.#lastId = id;
    else if (envelope.event === "stream:gap" || envelope.event === "stream:connected") {
      const at = envelope.data.resumed_at ?? envelope.data.sequence;
      if (typeof at === "string") this.#lastId = at; // An id of the stream of all sessions.
    }
    this.#handlers.onEvent(envelope);
  }
}

/** Read what a stream has at once: until it is quiet for a moment, or for two seconds at most. */
export async function readStream(address, { signal, quiet_ms: quiet = 200 }) {
  const abort = new AbortController();
  const end = () => abort.abort();
  signal.addEventListener("abort", end, { once: true });
  const events = [];
  const frames = new Frames(({ data }) => events.push(JSON.parse(data)));
  const latest = setTimeout(end, 2000);
  let timer = setTimeout(end, 1500);
  try {
    const answer = await fetch(address, { signal: abort.signal, credentials: "same-origin", cache: "no-store" });
    if (!answer.ok) return [];
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      clearTimeout(timer);
      timer = setTimeout(end, quiet);
      const { done, value } = await reader.read();
      if (done) break;
      frames.push(value);
    }
  } catch {
    // It was quiet: what came until then is what we wanted.
  } finally {
    clearTimeout(timer);
    clearTimeout(latest);
    signal.removeEventListener("abort", end);
    abort.abort();
  }
  return events.filter((event) => event.cursor && !event.event.startsWith("stream:"));
}

/** Cuts text into the frames of server-sent events. */
class Frames {
  #rest = [];
  #onFrame;

  constructor(onFrame) {
    this.#onFrame = onFrame;
  }

  push(text) {
    const isEnd = text.includes("\n\n") || (text.startsWith("\n") && this.#rest.at(-1)?.endsWith("\n"));
    this.#rest.push(text);
    if (!isEnd) return; // Of an event of many megabytes most pieces are the middle.
    const parts = this.#rest.join("").split("\n\n");
    this.#rest = [parts.pop()];
    for (const part of parts) {
      const frame = {};
      for (const line of part.split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) frame[line.slice(0, at)] = line.slice(at + 2);
      }
      if (frame.data) this.#onFrame(frame);
    }
  }
}
