// The daemon's events in this tab. All tabs share the streams that a SharedWorker holds.

import { Store } from "./state.js";
import { StreamHub } from "./stream-hub.js";

/** How the connection stands: {link: "connecting" | "open" | "lost" | "unauthorized", retry_ms?}. */
export const link = new Store({ link: "connecting" });

const listeners = new Set();
const gapListeners = new Set();
const recordListeners = new Set();
const watched = new Map();
const readiness = new Set();
let send = null;
let isJoined = false;

/** Begin to listen; once per page. */
export function connect() {
  if (send) return;
  send = "SharedWorker" in window ? viaWorker() : viaPage();
  join();
  window.addEventListener("pagehide", () => {
    isJoined = false;
    send({ type: "leave" });
  });
  window.addEventListener("pageshow", join);
  window.addEventListener("online", retry);
}

/** Connect now: after a login, or because the user does not want to wait. */
export function retry() {
  send?.({ type: "retry" });
}

/** Call a function once the daemon can be reached again, unless `signal` is aborted before. */
export function onceReachable(work, { signal } = {}) {
  const leave = link.subscribe(({ link: state }) => {
    if (state !== "open") return;
    leave();
    work();
  }, { signal, now: false });
}

/**
 * Hear events until `signal` is aborted: `{event, session_id, root_session_id, sequence, cursor, timestamp, data, part}`.
 * What lists show comes for all sessions (`part: "overview"`); everything else for watched ones (`part: "detail"`).
 */
export function onEvents(listener, { signal } = {}) {
  listeners.add(listener);
  signal?.addEventListener("abort", () => listeners.delete(listener), { once: true });
}

/** Hear that events were missed, so that what is shown must be fetched again. */
export function onGap(listener, { signal } = {}) {
  gapListeners.add(listener);
  signal?.addEventListener("abort", () => gapListeners.delete(listener), { once: true });
}

/** Hear `(id, session)` when the record of a session changed, null when it is gone; without an id, many did. */
export function onRecords(listener) {
  recordListeners.add(listener);
}

/**
 * Get every event of a session and of what is below it, until `signal` is aborted. `ready` is called when they come: what
 * happened before that has to be fetched.
 */
export function watchSession(id, listener, { signal, ready = () => {} }) {
  const waiting = { id, ready };
  readiness.add(waiting);
  signal.addEventListener("abort", () => readiness.delete(waiting), { once: true });
  watched.set(id, (watched.get(id) ?? 0) + 1);
  tellWatched();
  onEvents((event) => {
    const isOfTree = event.session_id === id || event.root_session_id === id || event.session_id?.startsWith(`${id}-`);
    if (isOfTree && event.part === "detail") listener(event);
  }, { signal });
  signal.addEventListener("abort", () => {
    const left = watched.get(id) - 1;
    if (left) watched.set(id, left);
    else watched.delete(id);
    tellWatched();
  }, { once: true });
}

function join() {
  if (isJoined) return;
  isJoined = true;
  send({ type: "join" });
  if (watched.size) tellWatched();
}

function tellWatched() {
  send?.({ type: "watch", sessions: [...watched.keys()] });
}

function hear(message) {
  if (message.type === "events") message.events.forEach((event) => listeners.forEach((listener) => listener(event)));
  else if (message.type === "link") link.set({ ...message });
  else if (message.type === "watched") tellReady(message.sessions);
  else if (message.type === "record") recordListeners.forEach((listener) => listener(message.id, message.session));
  else if (message.type === "records") recordListeners.forEach((listener) => listener());
  else if (message.type === "gap") gapListeners.forEach((listener) => listener(message.part));
}

function tellReady(sessions) {
  for (const waiting of readiness) {
    if (!sessions.includes(waiting.id)) continue;
    readiness.delete(waiting);
    waiting.ready();
  }
}

function viaWorker() {
  const worker = new SharedWorker(new URL("../stream-worker.js", import.meta.url), { type: "module" });
  worker.port.addEventListener("message", ({ data }) => hear(data));
  worker.port.start();
  return (message) => worker.port.postMessage(message);
}

function viaPage() {
  const hub = new StreamHub();
  const client = { sessions: new Set(), post: hear };
  const actions = {
    join: () => hub.join(client),
    leave: () => hub.leave(client),
    retry: () => hub.retry(),
    watch: ({ sessions }) => hub.watch(client, sessions),
  };
  return (message) => actions[message.type](message);
}
