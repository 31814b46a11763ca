// What waits for an answer, in all sessions.

import { get, ofSession, post } from "./api.js";
import { onEvents, onGap } from "./stream.js";
import { settled, Store } from "./state.js";

/** Map of request_id → approval, the oldest first. */
export const approvals = new Store(new Map());

const reload = settled(() => load().catch(() => {}), 80, 300); // What is lost is read again when the stream is back.
let isListening = false;

export async function load() {
  if (!isListening) {
    isListening = true;
    onEvents(({ event }) => {
      if (event.startsWith("approval:") || event === "execution:done") reload();
    });
    onGap(reload);
  }
  const { pending } = await get("/approvals");
  pending.sort((one, other) => one.created_at.localeCompare(other.created_at));
  approvals.set(new Map(pending.map((approval) => [approval.request_id, approval])));
}

/** Answer a question. `decision` is "allow", "deny" or one of its options. */
export async function answer(approval, decision, { reason, remember } = {}) {
  const path = ofSession(approval.session_id, `/approvals/${encodeURIComponent(approval.request_id)}`);
  try {
    return await post(path, { decision, ...(reason && { reason }), ...(remember && { remember }) });
  } finally {
    reload();
  }
}

/** The questions of a session and of its agents. */
export const ofTree = (all, id) =>
  [...all.values()].filter((one) => one.session_id === id || one.session_id.startsWith(`${id}-`));

/** The question that the call of a tool waits for; a hook of the root asks for its agents, too, in the root's name. */
export const questionOf = (all, id, callId) =>
  [...all.values()].find((one) => one.tool_call_id === callId && (one.session_id === id || id.startsWith(`${one.session_id}-`)));
