// The turns of a session: how each began and ended, and, for those that are looked at, everything that happened.

import { get, ofSession } from "../../lib/api.js";
import { isAtWork } from "../../lib/sessions.js";
import { onGap, watchSession } from "../../lib/stream.js";
import { normal, TurnSpans } from "./turn-spans.js";

const PAGE = 1000;
const SHORT = 160;
const OUTLINE = "user_message:saved,execution:queued,execution:done";

export class Turns {
  /** `{number, seq, begin, end, prompt, status, usage, spans, wasTakenBack}`, the first one first. */
  list = [];
  isLoaded = false;

  #id;
  #signal;
  #changed;
  #queued = [];
  #early = [];

  /** `changed(turn)` is called when a turn changed, without one when all of them did. */
  constructor(id, { signal, changed }) {
    this.#id = id;
    this.#signal = signal;
    this.#changed = changed;
    watchSession(id, (event) => this.#heard(event), { signal });
    onGap(() => this.load().catch(() => {}), { signal });
  }

  /** Fetch how the turns began and ended. */
  async load() {
    this.isLoaded = false;
    const seen = new Map(this.list.map((turn) => [turn.seq, turn]));
    this.list = [];
    this.#queued = [];
    for await (const event of this.#stored({ filter: OUTLINE })) if (event.session === this.#id) this.#outline(event);
    for (const turn of this.list) {
      const { spans } = seen.get(turn.seq) ?? {};
      if (spans) turn.spans = turn.end ? spans : await this.#read(turn);
    }
    await this.#closeCutOff();
    this.isLoaded = true;
    const early = this.#early;
    this.#early = [];
    early.forEach((event) => this.#take(event));
    this.#changed();
  }

  /** Fetch everything that happened in a turn, unless it is here already. */
  async open(turn) {
    if (turn.spans) return turn.spans;
    turn.loading ??= this.#read(turn).finally(() => { turn.loading = null; });
    return turn.loading;
  }

  /** Fetch one event as it is stored, with all its data. */
  async event({ seq, session }) {
    const { events } = await get(ofSession(session, "/events"), { after_seq: seq - 1, limit: 1 }, { signal: this.#signal });
    return events.find((event) => event.seq === seq) ?? null;
  }

  get last() {
    return this.list.at(-1) ?? null;
  }

  async #read(turn) {
    const spans = new TurnSpans(this.#id);
    if (turn.queued) spans.queued(turn.queued.at, turn.begin, turn.queued);
    turn.waiting = [];
    const limit = turn.lastSeq ? Math.min(PAGE, turn.lastSeq - turn.seq + 1) : PAGE;
    for await (const event of this.#stored({ include_children: true, after_seq: turn.seq - 1, limit })) {
      if (turn.lastSeq && event.seq > turn.lastSeq) break;
      if (event.session === this.#id || event.isNested) spans.take(event);
    }
    turn.waiting.forEach((event) => spans.take(event));
    turn.waiting = null;
    turn.spans = spans;
    return spans;
  }

  /** A turn that nothing works on any more, and whose end was not told, was cut off. */
  async #closeCutOff() {
    if (!this.last || this.last.end !== null) return;
    if (!isAtWork(await get(ofSession(this.#id), {}, { signal: this.#signal }))) Object.assign(this.last, { end: this.last.begin, status: "cut" });
  }

  async *#stored(query) {
    for (let offset = 0; ; offset += query.limit ?? PAGE) {
      const page = await get(ofSession(this.#id, "/events"), { limit: PAGE, ...query, offset, shorten: SHORT }, { signal: this.#signal });
      for (const event of page.events) yield normal(event);
      if (!page.has_more) return;
    }
  }

  #heard(envelope) {
    const event = normal(envelope);
    if (!this.isLoaded) this.#early.push(event);
    else this.#take(event);
  }

  #take(event) {
    const isOwn = event.session === this.#id;
    const before = this.last;
    if (isOwn) this.#outline(event);
    const turn = this.last;
    if (!turn || (turn.end && event.name !== "execution:done")) return;
    if (turn !== before) {
      turn.spans = new TurnSpans(this.#id);
      if (turn.queued) turn.spans.queued(turn.queued.at, turn.begin, turn.queued);
    }
    if (turn.waiting) turn.waiting.push(event);
    else turn.spans?.take(event);
    this.#changed(turn);
  }

  #outline({ seq, at, name, data, session }) {
    if (this.list.some((turn) => turn.seq === seq || turn.lastSeq === seq)) return;
    const open = this.last?.end === null ? this.last : null;
    if (name === "execution:queued") {
      this.#queued.push({ seq, at, name, session });
    } else if (name === "user_message:saved") {
      if (open && open.number === data.turn) return;
      if (open) Object.assign(open, { end: at, lastSeq: seq - 1, status: "cut" });
      for (const turn of this.list) if (turn.number >= data.turn) turn.wasTakenBack = true;
      this.list.push({ number: data.turn, seq, lastSeq: null, begin: at, end: null, prompt: textOf(data.content), status: "running", usage: null, spans: null, queued: this.#queued.shift() ?? null });
    } else if (name === "execution:done" && open) {
      Object.assign(open, { end: at, lastSeq: seq, status: data.status, usage: data.usage ?? null, error: data.error ?? null });
    }
  }
}

function textOf(content) {
  if (typeof content === "string") return content;
  return Array.isArray(content) ? content.map((block) => block.text ?? "").join(" ") : "";
}
