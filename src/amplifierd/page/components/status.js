// What a session does now, as a dot and as a word.

import { approvals, ofTree } from "../lib/approvals.js";
import { h } from "../lib/dom.js";
import { isAtWork, sessions } from "../lib/sessions.js";

const WORDS = {
  waiting: "Waits for approval", executing: "Working", queued: "Queued", cancelling: "Stopping", idle: "Idle",
  failed: "Failed", completed: "Completed", terminated: "Ended", created: "Not started", error: "Last turn failed",
};

/**
 * Return one word for how a session stands; questions of its agents count as its own. What an agent does is not in its
 * record: one that has no turn behind it is at work while its root is.
 */
export function stateOf(session) {
  if (session.activity === "waiting_approval" || ofTree(approvals.value, session.session_id).length) return "waiting";
  if (["executing", "queued", "cancelling"].includes(session.activity)) return session.activity;
  if (session.status !== "active") return session.status;
  const root = session.created_by === "agent" && !session.turn_count ? sessions.value.byId.get(session.root_session_id) : null;
  if (root && isAtWork(root)) return "executing";
  return session.last_error ? "error" : "idle";
}

export const stateWord = (state) => WORDS[state] ?? state;

/** A dot that is named for screen readers. */
export function statusDot(session) {
  const state = stateOf(session);
  return h("span.dot", { dataset: { state }, role: "img", "aria-label": stateWord(state), title: stateWord(state) });
}

/** A dot with its word. */
export function statusBadge(session) {
  const state = stateOf(session);
  return h("span.status", { dataset: { state } }, h("span.dot", { dataset: { state }, "aria-hidden": "true" }), stateWord(state));
}
