// A conversation without pixels: what is stored, and what is happening right now on top of it.
//
// Stored messages are the truth. While a turn runs, its current step (what the model says until its tools have run) is
// built from events. A step whose message is stored is dropped, and what still comes of it is ignored: an answer is stored
// after its request, so a step that began before the latest answer of its turn is a part of that answer.

import { get, ofSession } from "../../lib/api.js";
import { compare, inOrder } from "../../lib/cursor.js";
import { messagesOf } from "../../lib/messages.js";
import { readStream } from "../../lib/event-source.js";
import { lastEvents } from "../../lib/session-events.js";
import { isAtWork } from "../../lib/sessions.js";
import { onEvents, onGap } from "../../lib/stream.js";
import { settled } from "../../lib/state.js";
import { LiveStep } from "./live-step.js";
import { ToolStates } from "./tool-states.js";

const OLDER_PAGE = 80;
const LARGE_PAGE = 1000;
const FOLLOWS = {
  ask: "Say how to continue.",
  continue: "A new turn continues the work.",
  stop: "The session has ended.",
};
const NOTICES = {
  "provider:retry": ({ attempt, delay, error_message: reason, error_type: type }) => `The model's service did not answer${reason || type ? ` (${reason || type})` : ""}; attempt ${attempt ?? "?"}${delay ? ` in ${Math.round(delay)} s` : ""}.`,
  "context:post_compact": ({ messages_before: before, messages_after: after }) => `The context was compacted${before ? `: ${before} messages became ${after}` : ""}.`,
  "display:message": ({ message }) => message,
  "user:notification": ({ message }) => message,
  "budget:warning": ({ limit, used, allowed }) => `Most of the limit ${limit} is used: ${used} of ${allowed}.`,
  "budget:exhausted": ({ limit, used, allowed }) => `The limit ${limit} is used up: ${used} of ${allowed}.`,
  "mention:unresolved": ({ mention }) => `Not found: ${mention}`,
  "session:profile_changed": ({ from, to }) => `The profile changed from ${from} to ${to}.`,
  "session:taken_over": ({ action }) => `The process that ran this turn ended before it did. ${FOLLOWS[action] ?? ""}`,
};

export class Conversation {
  messages = [];
  hasOlder = false;
  step = null;
  tools = new ToolStates();
  turns = new Map();
  isLoaded = false;

  #id;
  #signal;
  #changed;
  #early = [];
  #last = null;
  #reads = 0;
  #loading = null;
  #request = null;
  #finished = "";
  #fetchNew = settled(() => this.#reconcile(), 60, 250);
  #loadAnew = settled(() => this.load().catch(() => {}), 60, 250);

  /** `changed(kind, detail)` is called with "reset", "older", "messages", "live", "tools" or "turn". */
  constructor(id, { signal, changed }) {
    this.#id = id;
    this.#signal = signal;
    this.#changed = changed;
    onEvents((event) => event.session_id === id && event.part === "detail" && this.#heard(event), { signal });
    onGap(() => this.load().catch(() => {}), { signal });
  }

  get id() {
    return this.#id;
  }

  /**
   * Fetch the end of the conversation, and what a running turn has done so far. Before events come, whether one runs is
   * not asked for: `catchUp` does.
   */
  load({ isWatched = true } = {}) {
    this.#loading = this.#load(isWatched);
    return this.#loading;
  }

  async #load(isWatched) {
    const read = ++this.#reads;
    this.isLoaded = false;
    this.#early = [];
    const [page, begun] = await Promise.all([this.#page(), isWatched ? this.#runningRequest() : null]);
    const turn = page.messages.at(-1)?.correlation_id;
    const recent = begun && (!turn || begun.correlation_id === turn) ? await this.#since(begun) : [];
    if (read !== this.#reads) return;
    this.#take(page);
    this.step = null;
    this.tools.reset(this.messages);
    this.isLoaded = true;
    const early = inOrder([...recent, ...this.#early]);
    this.#early = [];
    this.#last = null;
    early.forEach((event) => this.#heard(event));
    this.#dropStored();
    this.#changed("reset");
    this.#readTurns().catch(() => {});
    if (early.length) this.#fetchNew();
  }

  /** Take over the end of the conversation; what is known from before it stays. */
  #take({ messages, has_more: hasMore }) {
    const before = this.messages.findIndex((one) => one.id === messages[0]?.id);
    if (before <= 0) this.hasOlder = hasMore;
    this.messages = [...this.messages.slice(0, Math.max(0, before)), ...messages];
  }

  /** Read what earlier turns used and how they ended: they may have run unwatched. */
  async #readTurns() {
    for (const { data } of await this.#lastEvents("execution:done")) this.#note(data);
    this.#changed("turn");
  }

  /** Events come from now on: fetch what happened since the conversation was loaded. */
  async catchUp() {
    await this.#loading;
    if (isAtWork(await this.#record(this.#id))) await this.load();
    else this.#fetchNew();
  }

  /** Fetch what was said before; true when there is still more. */
  async loadOlder({ limit = OLDER_PAGE } = {}) {
    if (!this.hasOlder || !this.messages.length) return false;
    const [first] = this.messages;
    const page = await this.#page({ limit, before: first.id });
    if (this.messages[0]?.id !== first.id) return this.hasOlder; // It was loaded anew meanwhile.
    this.messages = [...page.messages, ...this.messages];
    this.hasOlder = page.has_more;
    this.tools.reset(this.messages);
    this.#changed("older", page.messages);
    return this.hasOlder;
  }

  /** Fetch back to a message, or to the beginning; true when it is there. */
  async loadTo(messageId) {
    const isThere = () => this.messages.some((one) => one.id === messageId);
    while (!isThere() && (await this.loadOlder({ limit: LARGE_PAGE })));
    return isThere();
  }

  /** The number of the last turn. */
  get lastTurn() {
    return this.messages.at(-1)?.turn ?? 0;
  }

  /** The last message in which the agent says something. */
  get lastAnswer() {
    return this.messages.findLast((one) => one.role === "assistant" && one.content?.length);
  }

  /** The message that began a turn; undefined when it is not loaded. */
  promptOf(turn) {
    return this.messages.find((one) => one.turn === turn && one.role === "user");
  }

  #page(query) {
    return get(...messagesOf(this.#id, query), { signal: this.#signal });
  }

  /** Return the event that began the step that is running; null when none is. An agent is at work while its root is. */
  async #runningRequest() {
    const session = await this.#record(this.#id);
    const { root_session_id: root } = session;
    const isBusy = isAtWork(session) || (root && root !== this.#id && isAtWork(await this.#record(root)));
    return isBusy ? (await this.#lastEvents("provider:request")).at(-1) : null;
  }

  #record(id) {
    return get(ofSession(id), {}, { signal: this.#signal });
  }

  /** Return what happened from an event on: nothing stores the pieces of a step while it runs. */
  async #since({ seq }) {
    const address = `/api/v1${ofSession(this.#id, "/stream")}?after=${seq - 1}&render=html`;
    const found = await readStream(address, { signal: this.#signal });
    return found.filter((event) => event.session_id === this.#id);
  }

  #lastEvents(type) {
    return lastEvents(this.#id, type, { signal: this.#signal });
  }

  async #reconcile() {
    if (!this.isLoaded || this.#signal.aborted) return;
    const read = this.#reads;
    const over = this.step?.isDone ? this.step : null;
    const known = this.messages.findLast((one) => !one.isToldOnly)?.id;
    try {
      const page = await this.#page(known ? { limit: LARGE_PAGE, after: known } : {});
      if (read !== this.#reads) return;
      const fresh = page.messages;
      const ids = new Set(fresh.map((one) => one.id));
      const isStored = (one) => !one.isToldOnly && !ids.has(one.id);
      this.messages = [...this.messages.filter(isStored), ...fresh, ...this.messages.filter((one) => one.isToldOnly && !ids.has(one.id))];
      this.tools.stored(fresh);
      if (this.step === over) this.step = null;
      this.#dropStored();
      this.#changed("messages", fresh);
      if (page.has_more) this.#fetchNew();
    } catch (error) {
      if (error.name !== "AbortError" && error.status !== 404) setTimeout(this.#fetchNew, 2000);
    }
  }

  #heard(event) {
    if (!this.isLoaded) {
      this.#early.push(event);
      return;
    }
    if (event.cursor && this.#last && compare(event.cursor, this.#last) <= 0) return;
    this.#last = event.cursor ?? this.#last;
    const { event: name, data } = event;
    if (name.startsWith("llm:stream_") || name.startsWith("content_block:") || name.startsWith("thinking:")) {
      this.#piece(event);
    } else if (name === "provider:request") {
      this.#finishStep(event);
      this.#request = event;
      this.step = this.#isStored(event) ? null : new LiveStep(event);
      this.#changed("live");
    } else if (name.startsWith("tool:") || /^(task|delegate):agent_/.test(name)) {
      if (name === "tool:pre") this.#finishStep(event);
      if (this.tools.take(name, data, event)) this.#changed("tools", data.tool_call_id);
    } else if (name === "approval:required" || name === "approval:pending") {
      this.#finishStep(event); // What asks has been said and stored; the tool itself is told of when it may run.
    } else if (name === "user_message:saved") {
      this.#userSaid(event);
    } else if (name === "orchestrator:steering_injected") {
      this.#fetchNew();
    } else if (name === "execution:done") {
      this.#ended(event);
    } else if (name === "message:deleted") {
      if (this.messages.some((one) => one.id === data.message_id)) this.#loadAnew();
    } else if (name in NOTICES) {
      this.#notice(NOTICES[name](data), data.level ?? (name.startsWith("budget") ? "warning" : "info"));
    }
  }

  #piece(event) {
    const begun = this.#request?.correlation_id === event.correlation_id ? this.#request : event;
    if (event.timestamp <= this.#finished || this.#isStored(begun)) return;
    if (!this.step || this.step.isDone) this.step = new LiveStep(begun);
    if (this.step.take(event.event, event.data)) this.#changed("live");
  }

  /** Whether the answer that an event began is among the stored messages; the same clock tells the time of both. */
  #isStored({ correlation_id: turn, timestamp }) {
    const answer = this.messages.findLast((one) => one.role === "assistant" && one.metadata?.source !== "hook");
    return answer?.correlation_id === turn && answer.timestamp > timestamp;
  }

  #dropStored() {
    if (this.step && this.#isStored(this.step.begun)) this.step = null;
  }

  #finishStep({ timestamp }) {
    if (this.step) this.step.isDone = true;
    this.#finished = timestamp;
    this.#fetchNew();
  }

  #userSaid({ data, timestamp, correlation_id: correlation }) {
    this.tools.begin(data.turn);
    if (!this.messages.some((one) => one.id === data.message_id)) {
      const message = { isToldOnly: true, id: data.message_id, role: "user", content: data.content, html: data.html, turn: data.turn, timestamp, correlation_id: correlation };
      this.messages = [...this.messages, message];
      this.#changed("messages", [message]);
    }
    this.#fetchNew();
  }

  #ended({ data, timestamp }) {
    this.#finishStep({ timestamp });
    this.#note(data);
    this.tools.ended();
    this.#changed("turn", data.turn ?? this.lastTurn);
  }

  /** Take note of how a turn ended. */
  #note({ turn = this.lastTurn, status, usage, error }) {
    this.turns.set(turn, { ...this.turns.get(turn), status, usage, error });
  }

  #notice(text, level) {
    if (!text) return;
    const turn = this.lastTurn;
    const facts = this.turns.get(turn) ?? {};
    this.turns.set(turn, { ...facts, notices: [...(facts.notices ?? []), { text, level }] });
    this.#changed("turn", turn);
  }
}
