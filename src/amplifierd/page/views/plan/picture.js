// The modules as a picture: the loop in the middle, whom it asks, what it calls, what it remembers with.

import { h, icon } from "../../lib/dom.js";
import { plain, plural } from "../../lib/format.js";
import { stateOf, versionWord } from "./mounted-modules.js";

const STATES = { failed: "not loaded", missing: "missing in the build", loaded: "loaded", planned: "" };

/** The picture. `onOpen(what, {from, takeFocus})` is called for a card with the module, `{instruction}` or `{agent, name}`. */
export function picture(modules, { instruction, contexts, agents, onOpen }) {
  const card = (module) => moduleCard(module, onOpen);
  return h("div.plan-picture",
    column("Told", "told", [
      instruction && textCard("file", "Instruction", plain(instruction.value).split("\n").find((line) => line.trim()) ?? "", () => ({ instruction }), onOpen),
      Object.entries(contexts).map(([name, entry]) => textCard("folder", name, entry.ref ?? "context files", () => ({ context: entry, name }), onOpen)),
    ]),
    wire("tells"),
    h("div.picture-core",
      column("Loop", "orchestrator", modules.orchestrator && card(modules.orchestrator)),
      wire("remembers", "is-down"),
      column("Context", "context", modules.context && card(modules.context))),
    wire("asks, calls"),
    h("div.picture-outer",
      column("Providers", "providers", modules.providers.map(card)),
      column("Tools", "tools", modules.tools.map(card)),
      Object.keys(agents).length > 0 && column("Agents", "agents", Object.entries(agents).map(([name, agent]) => textCard("agent", name, agent.description ?? agent.content ?? "", () => ({ agent, name }), onOpen)))),
    h("div.picture-hooks", column("Hooks", "hooks", modules.hooks.map(card))));
}

function column(title, section, cards) {
  const list = [cards].flat(2).filter(Boolean);
  return h("section.picture-column", { dataset: { section }, "aria-label": title }, h("h3", title), list.length ? h("ul", list.map((one) => h("li", one))) : h("p.muted.small", "none"));
}

const wire = (word, className = "") => h("div.wire", { class: className, "aria-hidden": "true" }, h("span", word));

/** A module as a card. */
function moduleCard(module, onOpen) {
  const state = stateOf(module);
  const count = Object.keys(module.config).length;
  return h("button.module-card", { type: "button", dataset: { state, module: module.name }, onclick: (event) => onOpen(module, { from: event.currentTarget, takeFocus: event.detail === 0 }) },
    h("span.module-name", plain(module.name)),
    h("span.module-facts", versionWord(module.locked) && h("code", versionWord(module.locked)), module.locked?.kind && h("span", module.locked.kind),
      count > 0 && h("span", plural(count, "setting")), module.isRequired && h("span", "required")),
    STATES[state] && h("span.module-state", h("span.dot", { dataset: { state: state === "loaded" ? "completed" : "failed" }, "aria-hidden": "true" }), STATES[state]));
}

function textCard(sign, name, text, what, onOpen) {
  return h("button.module-card.is-text", { type: "button", dataset: { module: name }, onclick: (event) => onOpen(what(), { from: event.currentTarget, takeFocus: event.detail === 0 }) },
    h("span.module-name", icon(sign), plain(name)), h("span.module-text", plain(text).slice(0, 140)));
}
