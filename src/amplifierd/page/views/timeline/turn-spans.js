// What a turn did, as spans of time: calls of models and tools, agents with what they did, waits, and moments.
//
// Built from events in their order, so that it makes no difference whether they are read from the store or heard live.

import { toolSubject } from "../../lib/tool-subject.js";
import { totalOf } from "../../lib/usage.js";

const MOMENTS = {
  "context:post_compact": ({ message_count: count, token_count: tokens }) => [COMPACTED, count ? `to ${count} messages, ${tokens} tokens` : ""],
  "orchestrator:steering_injected": () => ["Steered", ""],
  "policy:violation": ({ reason, rule }) => ["Policy violated", reason ?? rule ?? ""],
  "budget:warning": ({ limit }) => ["Limit nearly reached", limit ?? ""],
  "budget:exhausted": ({ limit }) => ["Limit reached", limit ?? ""],
  "mention:unresolved": ({ mention }) => ["Mention not found", mention ?? ""],
  "module:load_failed": ({ module_id: module }) => ["Module not loaded", module ?? ""],
  "display:message": ({ message }) => ["Notice", message ?? ""],
  "user:notification": ({ message }) => ["Notice", message ?? ""],
  "cancel:requested": ({ state }) => ["Stop asked for", state === "immediate" ? "at once" : "after the running tools"],
  "provider:throttle": ({ reason }) => ["Slowed down", reason ?? ""],
  "session:profile_changed": ({ to }) => ["Profile changed", to ?? ""],
  "session:taken_over": ({ action }) => ["Taken over", action ?? ""],
};
const BAD_MOMENTS = new Set(["policy:violation", "budget:exhausted", "module:load_failed"]);
const COMPACTED = "Context compacted";
const SLOW_HOOKS_MS = 20; // What hooks took together at one event: less is in the sum only.
const MODEL_EVENT = /^(provider|llm|request|response|content_block|thinking):/;

/** Take an event as the store or the stream has it, in one shape. */
export function normal(event) {
  return {
    seq: event.seq ?? event.sequence,
    at: Date.parse(event.ts ?? event.timestamp),
    told: Date.parse(event.data?.timestamp) || null,
    name: event.event,
    session: event.session_id,
    call: event.parent_tool_call_id ?? null,
    parent: event.parent_id ?? null,
    isNested: (event.nesting_depth ?? 0) > 0,
    data: event.data ?? {},
  };
}

export class TurnSpans {
  /** Every event of the turn, `{seq, at, name, session}`. */
  events = [];
  begin = null;
  end = null;
  status = "running";
  /** How long hooks took in all: an event carries when it was told to them, and is written down after the last. */
  hooksMs = 0;

  #root;
  #top = [];
  #asked = new Map();
  #calls = new Map();
  #agents = new Map();
  #questions = new Map();
  #count = 0;

  constructor(root) {
    this.#root = root;
  }

  /** Take the next event; events that were taken before, and pieces of texts, change nothing. */
  take({ seq, at, told, name, session, call, parent, data }) {
    if (name.endsWith("delta") || (seq && seq <= (this.events.at(-1)?.seq ?? 0))) return;
    const event = { seq, at, name, session };
    this.events.push(event);
    this.begin ??= at;
    if (session !== this.#root) this.#agentOf(session, parent ?? this.#root, call, at).events.push(event);
    if (told !== null) this.#hooksAt(event, told);
    if (name === "provider:request") this.#ask(event, data);
    else if (MODEL_EVENT.test(name)) this.#ofModel(event, data);
    else if (name.startsWith("tool:")) this.#ofTool(event, data);
    else if (name.startsWith("approval:")) this.#ofApproval(event, data);
    else if (name === "execution:done") this.#ended(event, data);
    else if (name === "context:compaction") this.#compacted(event, data);
    else if (name in MOMENTS) this.#moment(event, ...MOMENTS[name](data), BAD_MOMENTS.has(name) ? "error" : "done");
    else if (/^hooks?-/.test(name)) this.#moment(event, name, data.reason ?? data.message ?? "", "done", "hook");
  }

  /** A wait in the queue that came before the turn. */
  queued(from, until, event) {
    this.#span({ kind: "wait", name: "Queue", subject: "waited for its turn", begin: from, end: until, status: "done", events: [event] }, this.#root);
    this.begin = from;
  }

  /** The spans in the order in which they are shown: each followed by what happened inside it. */
  rows() {
    const rows = [];
    const visit = (spans, depth) => {
      for (const span of spans.toSorted((one, other) => one.begin - other.begin || one.number - other.number)) {
        rows.push({ span, depth });
        visit(span.children, depth + 1);
      }
    };
    visit(this.#top, 0);
    return rows;
  }

  /** What the turn has used until now, in the words in which its end tells it. */
  usage() {
    const spans = this.rows().map(({ span }) => span);
    return { ...totalOf(spans.filter(({ kind }) => kind === "model")), tool_calls: spans.filter(({ callId }) => callId).length };
  }

  #span(facts, session) {
    const number = ++this.#count;
    const span = { number, status: "running", end: null, waits: [], children: [], events: [], usage: null, subject: "", session, ...facts };
    const agent = session === this.#root ? null : this.#agents.get(session);
    (agent ? agent.children : this.#top).push(span);
    return span;
  }

  #ask(event, { provider, model, iteration }) {
    const open = this.#asked.get(event.session);
    if (open && open.end === null) this.#close(open, event.at, "cut");
    const span = this.#span({ kind: "model", name: model ?? provider ?? "model", subject: iteration ? `#${iteration}` : "", begin: event.at, events: [event], provider }, event.session);
    this.#asked.set(event.session, span);
  }

  #ofModel(event, data) {
    const span = this.#asked.get(event.session);
    if (!span) return;
    span.events.push(event);
    if (event.name === "request:stored") {
      span.requestId = data.request_id;
      span.name = data.model ?? span.name;
      for (const part of data.add ?? []) {
        if (part.origin?.kind === "injection") this.#moment(event, part.origin.hook || "A hook", `injected ${part.tokens} tokens${part.origin.event ? ` at ${part.origin.event}` : ""}`, "done", "hook");
      }
    } else if (event.name === "provider:retry") {
      const wait = { kind: "retry", begin: event.at, end: event.at + (data.delay ?? 0) * 1000, text: data.error_message ?? data.error_type ?? "" };
      span.waits.push(wait);
      span.retries = (span.retries ?? 0) + 1;
    } else if (event.name === "llm:stream_block_start") {
      span.first ??= event.at;
    } else if (event.name === "provider:response" || event.name === "llm:response") {
      span.usage = data.usage ?? span.usage;
      this.#close(span, event.at, data.status === "error" ? "error" : "done");
    } else if (event.name === "provider:error") {
      this.#close(span, event.at, "error", data.error_message ?? data.error?.message ?? data.error ?? "");
    }
  }

  #ofTool(event, data) {
    const key = `${event.session}:${data.tool_call_id}`;
    if (event.name === "tool:pre") {
      const facts = { kind: "tool", name: data.tool_name, subject: toolSubject(data.tool_input), begin: event.at, group: data.parallel_group_id ?? null, callId: data.tool_call_id };
      this.#calls.set(key, this.#span(facts, event.session));
    }
    const span = this.#calls.get(key);
    if (!span) return;
    span.events.push(event);
    if (event.name === "tool:outcome") {
      if (data.success === false) this.#fail(span, data.result?.error?.message ?? "");
      const child = data.result?.output?.session_id;
      if (child && this.#agents.get(child)?.kind === "agent") this.#adopt(this.#agents.get(child), child, span);
    } else if (event.name === "tool:post" || event.name === "tool:error") {
      this.#close(span, event.at, event.name === "tool:error" || span.status === "error" ? "error" : "done");
    }
  }

  #ofApproval(event, data) {
    const span = this.#calls.get(`${event.session}:${data.tool_call_id}`);
    if (data.request_id && !this.#questions.has(data.request_id)) {
      const wait = { kind: "approval", begin: event.at, end: null, text: data.action ?? "" };
      const asked = span ?? this.#span({ kind: "wait", name: "Approval", subject: data.action ?? data.prompt ?? "", begin: event.at }, event.session);
      asked.waits.push(wait);
      this.#questions.set(data.request_id, { wait, span: asked });
    }
    const known = this.#questions.get(data.request_id);
    const owner = known?.span ?? span;
    owner?.events.push(event);
    if (!known || !/:(resolved|expired)$/.test(event.name)) return;
    known.wait.end = event.at;
    known.wait.decision = event.name.endsWith("expired") ? "expired" : data.decision;
    if (known.span.kind === "wait") this.#close(known.span, event.at, "done");
  }

  /** What a context manager of ours tells more of than the event that they all have. */
  #compacted(event, { before_tokens: before, after_tokens: after }) {
    const known = this.rows().findLast(({ span }) => span.name === COMPACTED && span.session === event.session)?.span;
    const subject = before ? `${before} → ${after} tokens` : "";
    if (!known || known.events.length > 1) this.#moment(event, COMPACTED, subject, "done");
    else {
      known.events.push(event);
      known.subject = subject;
    }
  }

  /** The hooks that heard an event ran one after another; what they waited for a person is told elsewhere. */
  #hooksAt(event, told) {
    const waits = [...this.#questions.values()].map(({ wait }) => Math.min(event.at, wait.end ?? event.at) - Math.max(told, wait.begin));
    const took = event.at - told - waits.filter((ms) => ms > 0).reduce((sum, ms) => sum + ms, 0);
    if (took <= 0) return;
    this.hooksMs += took;
    if (took < SLOW_HOOKS_MS) return;
    this.#span({ kind: "hook", name: `Hooks at ${event.name}`, subject: "all that heard it, one after another", begin: told, end: event.at, status: "done", events: [event] }, event.session);
  }

  #moment(event, name, subject, status, kind = "moment") {
    this.#span({ kind, name, subject: String(subject ?? ""), begin: event.at, end: event.at, status, events: [event] }, event.session);
  }

  #ended(event, data) {
    if (event.session !== this.#root) {
      const agent = this.#agents.get(event.session);
      agent.usage = data.usage ?? null;
      if (agent.kind === "agent") this.#close(agent, event.at, data.status === "completed" ? "done" : "error");
      return;
    }
    this.status = data.status;
    this.end = event.at;
    for (const { span } of this.rows()) if (span.end === null) this.#close(span, event.at, "cut");
    if (data.status === "cancelled" && this.#asked.get(this.#root)?.usage === null) this.#asked.get(this.#root).status = "cut";
  }

  /** The span of an agent's session: the call that started it, or one of its own while that is not known. */
  #agentOf(session, parent, call, at) {
    const known = this.#agents.get(session);
    if (known) return known;
    const started = call ? this.#calls.get(`${parent}:${call}`) : null;
    if (started) return this.#adopt(null, session, started);
    const made = this.#span({ kind: "agent", name: agentName(session), subject: "", begin: at, child: session }, parent);
    this.#agents.set(session, made);
    return made;
  }

  /** A call turns out to be an agent's: it takes over what the agent did. */
  #adopt(agent, session, call) {
    Object.assign(call, { kind: "delegation", agent: agentName(session), child: session });
    if (agent && agent !== call) {
      call.children.push(...agent.children);
      call.usage ??= agent.usage;
      for (const list of [this.#top, ...this.rows().map(({ span }) => span.children)]) {
        const place = list.indexOf(agent);
        if (place >= 0) list.splice(place, 1);
      }
    }
    this.#agents.set(session, call);
    return call;
  }

  #fail(span, reason) {
    span.status = "error";
    span.reason = reason;
  }

  #close(span, at, status, reason) {
    span.end = at;
    span.status = status;
    if (reason) span.reason = reason;
    for (const wait of span.waits) if (wait.end === null || wait.end > at) wait.end = at;
  }
}

/** The agent's name in the id of its session: `<parent>-<16 hex digits>_<agent>`. */
function agentName(session) {
  return /-[0-9a-f]{8,}_(.+)$/.exec(session)?.[1] ?? "agent";
}
