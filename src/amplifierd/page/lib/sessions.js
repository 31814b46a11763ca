// All sessions as the daemon has them, kept current by its events. Lists and headers read from here.

import { get, ofSession } from "./api.js";
import { onEvents, onGap, onRecords } from "./stream.js";
import { Store } from "./state.js";

const PAGE = 200;
const MOST = 2000; // So many that were heard of since are kept; then the list is read anew.

/** {status: "loading" | "ready" | "error", byId: Map, total, hasMore, error} */
export const sessions = new Store({ status: "loading", byId: new Map(), total: 0, hasMore: false, error: null });

const held = new Map();
let offset = 0;
let isListening = false;

/** Fetch the latest sessions and follow what happens; again, it fetches anew. */
export async function load() {
  if (!isListening) {
    isListening = true;
    onEvents(heard);
    onRecords(changed);
    onGap(() => load());
  }
  try {
    const page = await get("/sessions", { limit: PAGE, sort: "-last_activity_at" });
    offset = page.sessions.length;
    const shown = [...held.keys()].map((id) => sessions.value.byId.get(id)).filter(Boolean);
    const byId = new Map([...shown, ...page.sessions].map((session) => [session.session_id, session]));
    sessions.set({ status: "ready", byId, total: page.total, hasMore: page.has_more, error: null });
    const listed = new Set(page.sessions.map((session) => session.session_id));
    for (const { session_id: id } of shown) if (!listed.has(id)) refresh(id).catch(() => {});
  } catch (error) {
    sessions.update((state) => ({ ...state, status: state.byId.size ? "ready" : "error", error }));
  }
}

/** Fetch the next older sessions. */
export async function loadMore() {
  const page = await get("/sessions", { limit: PAGE, offset, sort: "-last_activity_at" });
  offset += page.sessions.length;
  sessions.update((state) => {
    const byId = new Map(state.byId);
    for (const session of page.sessions) if (!byId.has(session.session_id)) byId.set(session.session_id, session);
    return { ...state, byId, total: page.total, hasMore: page.has_more };
  });
}

/** Keep a session that is looked at, however old it is, until `signal` is aborted. */
export function hold(id, { signal }) {
  held.set(id, (held.get(id) ?? 0) + 1);
  signal.addEventListener("abort", () => (held.get(id) > 1 ? held.set(id, held.get(id) - 1) : held.delete(id)), { once: true });
}

/** Fetch one session again and return it. */
export async function refresh(id, options) {
  const session = await get(ofSession(id), {}, options);
  keep(session);
  return session;
}

/** Whether a session does something now. */
export const isAtWork = ({ activity }) => Boolean(activity) && activity !== "idle";

/** Take over a session that the daemon just answered with. */
export function keep(session) {
  sessions.update((state) => ({ ...state, byId: new Map(state.byId).set(session.session_id, session) }));
}

/** Take a session and what is below it out of the lists. */
export function forget(id) {
  sessions.update((state) => {
    const byId = new Map([...state.byId].filter(([key, one]) => key !== id && one.root_session_id !== id));
    return { ...state, byId };
  });
}

function heard({ event, session_id: id, data }) {
  if (event === "session:deleted") forget(id);
  const known = sessions.value.byId.get(id);
  if (event === "session:status" && known) keep({ ...known, ...data });
}

function changed(id, session) {
  if (!id) load();
  else if (session) keep(session);
  else forget(id);
  if (sessions.value.byId.size > offset + MOST) load();
}
