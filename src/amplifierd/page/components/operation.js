// One piece of long work: what it is, how far it is, and how it ended.

import { h, iconButton } from "../lib/dom.js";
import { ago, moment } from "../lib/format.js";
import { cancel, isOver } from "../lib/operations.js";
import { attempt } from "./toast.js";

const WORDS = { pending: "Waiting", running: "Running", succeeded: "Done", failed: "Failed", cancelled: "Cancelled" };

export function operationRow(operation) {
  const over = isOver(operation);
  return h("li.operation", { dataset: { state: operation.status } },
    over ? h("span.mark", { "aria-hidden": "true" }) : h("span.spinner", { "aria-hidden": "true" }),
    h("div.operation-text",
      h("span", h("strong", operation.kind.replaceAll("-", " ")), operation.target && ` ${operation.target}`),
      h("span.detail", detailOf(operation))),
    h("span.operation-state", WORDS[operation.status] ?? operation.status),
    h("time.cell", { dateTime: operation.created_at, title: moment(operation.created_at) }, ago(operation.created_at)),
    over
      ? h("span")
      : iconButton("close", `Cancel ${operation.kind} ${operation.target}`, () => attempt(() => cancel(operation.id), "Not cancelled")));
}

/** How far it is, as a line that a screen reader follows. */
export function progressLine(operation) {
  return h("p.progress-line", { role: "status" }, h("span.spinner", { "aria-hidden": "true" }),
    h("span", operation.progress?.message || "Starting…"));
}

function detailOf({ error, progress }) {
  if (error) return [error.detail ?? error.title, error.hint].filter(Boolean).join(" · ");
  return progress?.message ?? "";
}
