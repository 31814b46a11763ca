// Long work of the daemon: compiling, syncing, fetching. Followed live, wherever it was begun.

import { get, post, remove } from "./api.js";
import { onEvents, onGap } from "./stream.js";
import { Store } from "./state.js";

/** Map of id → operation, the newest first. */
export const operations = new Store(new Map());

const MOST = 200;
let isListening = false;

export const isOver = (operation) => Boolean(operation) && !["pending", "running"].includes(operation.status);

/** Fetch the operations of the last day and follow them. */
export async function load() {
  if (!isListening) {
    isListening = true;
    onEvents(({ event, data }) => {
      if (event === "operation:updated") heard(data);
    });
    onGap(() => load().catch(() => {}));
  }
  const { operations: found } = await get("/operations", { limit: MOST });
  operations.set(new Map(found.map((one) => [one.id, one])));
}

/** Begin long work without waiting for its end; returns a promise of the finished operation. */
export async function run(path, body = {}) {
  if (!isListening) await load();
  const { operation_id: id } = await post(`${path}${path.includes("?") ? "&" : "?"}wait=false`, body);
  keep(await get(`/operations/${id}`));
  return new Promise((resolve) => {
    const leave = operations.subscribe((all) => {
      if (!isOver(all.get(id))) return;
      queueMicrotask(() => leave());
      resolve(all.get(id));
    });
  });
}

export const cancel = (id) => remove(`/operations/${encodeURIComponent(id)}`);

/** What is under way for a target, if anything is. */
export function underWay(all, kind, target) {
  const found = latest(all, kind, target);
  return isOver(found) ? null : found;
}

/** The latest piece of work for a target, under way or over. */
export function latest(all, kind, target) {
  return [...all.values()].find((one) => one.kind === kind && one.target === target) ?? null;
}

/** An event says how far it is; how it ended, with the reason, is in the answer of the daemon alone. */
async function heard(told) {
  if (!isOver(told)) return keep({ ...operations.value.get(told.id), ...told });
  try {
    keep(await get(`/operations/${told.id}`));
  } catch {
    keep({ ...operations.value.get(told.id), ...told });
  }
}

function keep(operation) {
  const rest = [...operations.value].filter(([id]) => id !== operation.id);
  const before = [...operations.value.keys()].indexOf(operation.id);
  if (before < 0) rest.unshift([operation.id, operation]);
  else rest.splice(before, 0, [operation.id, operation]);
  operations.set(new Map(rest.slice(0, MOST)));
}
