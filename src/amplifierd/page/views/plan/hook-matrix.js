// The hooks by event: a row per hook, a column per family of events, a dot where one hears the other.

import { h } from "../../lib/dom.js";
import { plain, plural } from "../../lib/format.js";

const FAMILIES = ["session", "prompt", "plan", "execution", "provider", "llm", "content_block", "thinking", "tool", "context", "approval", "artifact", "policy", "cancel"];

/** The matrix of `hooks`, `{event, handlers[]}`; `onOpen({handler, events, module}, how)` is called for a row. */
export function hookMatrix(hooks, modules, onOpen) {
  const heard = new Map();
  for (const { event, handlers } of hooks) for (const handler of handlers) heard.set(handler, [...(heard.get(handler) ?? []), event]);
  const all = new Map();
  for (const { event } of hooks) all.set(familyOf(event), (all.get(familyOf(event)) ?? 0) + 1);
  const families = [...FAMILIES.filter((name) => all.has(name)), "other"].filter((name) => name !== "other" || all.has("other"));
  const owner = (handler) => modules.find(({ id }) => handler === id || handler.startsWith(`${id}-`) || handler.startsWith(`${id}:`)) ?? null;
  const rows = [...heard].map(([handler, events]) => ({ handler, events, module: owner(handler) }));
  rows.sort((one, other) => Number(other.module !== null) - Number(one.module !== null));
  return h("div.table-scroll.is-matrix", { tabIndex: 0, role: "region", "aria-label": "Hooks by event" }, h("table.matrix",
    h("caption.visually-hidden", "Which hook hears which events"),
    h("thead", h("tr", h("th", { scope: "col" }, "Hook"), families.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", rows.map((row) => h("tr", { class: row.module ? "" : "is-own" },
      h("th", { scope: "row" }, h("button.link", { type: "button", onclick: (event) => onOpen(row, { from: event.currentTarget, takeFocus: event.detail === 0 }) }, plain(row.handler))),
      families.map((family) => cell(row.events.filter((event) => familyOf(event) === family), all.get(family))))))));
}

function cell(events, count) {
  if (!events.length) return h("td", h("span.visually-hidden", "none"));
  return h("td", { title: events.join("\n") }, h("span.hear", { class: events.length === count ? "is-all" : "", "aria-hidden": "true" }),
    h("span.visually-hidden", `${events.length} of ${plural(count, "event")}`));
}

function familyOf(event) {
  const [family] = event.split(":");
  return FAMILIES.includes(family) ? family : "other";
}
