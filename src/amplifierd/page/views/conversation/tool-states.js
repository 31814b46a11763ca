// How the calls of tools stand: from stored messages, and from events while they run.
//
// A call is known by its turn and its id: some providers begin to count anew when a session is loaded again.

import { parsed } from "../../lib/json.js";

const AGENT_TOOLS = new Set(["task", "delegate"]);

export class ToolStates {
  #calls = new Map();
  #turn = 0;

  /** Forget everything and read what is stored. */
  reset(messages) {
    const running = [...this.#calls].filter(([, call]) => call.status === "running");
    this.#calls = new Map();
    this.stored(messages);
    for (const [key, call] of running) if (!this.#calls.get(key)?.output) this.#calls.set(key, call);
  }

  /** Read calls and results of stored messages. */
  stored(messages) {
    for (const message of messages) {
      this.#turn = message.turn ?? this.#turn;
      if (message.role === "tool") {
        const call = this.#of(message.turn, message.tool_call_id);
        Object.assign(call, { output: message.content, name: message.name, status: call.status === "error" ? "error" : outcome(message.content) });
        const child = sessionIn(message.content);
        if (child && AGENT_TOOLS.has(message.name)) call.child = child;
      }
    }
  }

  /** Take an event; true when it changed something. */
  take(name, data, { timestamp }) {
    if (name.endsWith(":agent_spawned") || name.endsWith(":agent_resumed")) return this.#spawned(data);
    if (!data.tool_call_id) return false;
    const call = this.#of(this.#turn, data.tool_call_id);
    if (name === "tool:pre") {
      Object.assign(call, { status: "running", name: data.tool_name, input: data.tool_input, began: timestamp, output: null });
    } else if (name === "tool:outcome") {
      Object.assign(call, { status: data.success ? "done" : "error", output: data.content ?? data.result?.output ?? data.result });
    } else if (name === "tool:post") {
      Object.assign(call, { duration: data.duration_ms, status: call.status === "running" ? "done" : call.status });
    } else if (name === "tool:error") {
      Object.assign(call, { status: "error", duration: data.duration_ms ?? call.duration });
    } else {
      return false;
    }
    return true;
  }

  /** A new turn has begun. */
  begin(turn) {
    this.#turn = turn;
  }

  /** The turn is over: what still runs was cut off. */
  ended() {
    for (const call of this.#calls.values()) if (call.status === "running") call.status = "cut";
  }

  get(turn, id) {
    return this.#calls.get(`${turn}:${id}`) ?? null;
  }

  #of(turn, id) {
    const key = `${turn}:${id}`;
    if (!this.#calls.has(key)) this.#calls.set(key, { status: "pending" });
    return this.#calls.get(key);
  }

  #spawned({ agent, sub_session_id: child, tool_call_id: id }) {
    const waiting = [...this.#calls.entries()].find(([key, call]) => {
      if (id) return key.endsWith(`:${id}`);
      const asked = call.input?.agent ?? call.input?.agent_name ?? call.input?.subagent_type;
      return call.status === "running" && AGENT_TOOLS.has(call.name) && !call.child && (!asked || asked === agent);
    });
    if (!waiting) return false;
    waiting[1].child = child;
    return true;
  }
}

function outcome(content) {
  const value = parsed(content);
  if (value && typeof value === "object") {
    if (value.error && !value.output) return "error";
    if (typeof value.returncode === "number" && value.returncode !== 0) return "error";
  }
  return typeof content === "string" && /^(Error|Denied)\b/i.test(content) ? "error" : "done";
}

function sessionIn(content) {
  const value = parsed(content);
  return typeof value?.session_id === "string" ? value.session_id : null;
}
