// How much of a request came from where: a bar, and its key, whose entries choose what the list shows.

import { fill, h } from "../../lib/dom.js";
import { number, plural, tokens } from "../../lib/format.js";
import { kindOf, KINDS } from "./request-parts.js";

/** A bar with the share of each kind of origin. `onChoose(kinds)` is called with the set of kinds to show. */
export function composition(parts, toolTokens, onChoose) {
  const sums = new Map();
  for (const part of parts) {
    const known = sums.get(kindOf(part)) ?? { tokens: 0, count: 0 };
    sums.set(kindOf(part), { tokens: known.tokens + part.tokens, count: known.count + 1 });
  }
  const kinds = Object.keys(KINDS).filter((kind) => sums.has(kind));
  const total = kinds.reduce((sum, kind) => sum + sums.get(kind).tokens, toolTokens) || 1;
  const share = (count) => (100 * count) / total;
  const shown = new Set(kinds);
  const keys = h("div.origin-keys", { role: "group", "aria-label": "Show parts of these kinds" });
  const show = () => {
    fill(keys, kinds.map((kind) => h("button.origin-key.key", {
      type: "button", "aria-pressed": String(shown.has(kind)), dataset: { origin: kind },
      onclick: () => {
        if (shown.size === kinds.length) kinds.forEach((one) => one !== kind && shown.delete(one));
        else if (!shown.delete(kind)) shown.add(kind);
        if (!shown.size) kinds.forEach((one) => shown.add(one));
        show();
        keys.querySelector(`[data-origin="${kind}"]`).focus();
        onChoose(shown);
      },
    }, h("span", KINDS[kind]), h("span.origin-count", `${number(sums.get(kind).count)} · ${tokens(sums.get(kind).tokens)} tok`))),
    toolTokens > 0 && h("span.origin-key.key", { dataset: { origin: "tools" } }, h("span", "Tools"), h("span.origin-count", `about ${tokens(toolTokens)} tok`)));
  };
  show();
  const segments = [...kinds.map((kind) => [kind, sums.get(kind).tokens]), ["tools", toolTokens]].filter(([, count]) => count > 0);
  const said = segments.map(([kind, count]) => `${KINDS[kind] ?? "Tools"} ${Math.round(share(count))} %`).join(", ");
  return h("div.composition",
    h("div.composition-bar", { role: "img", "aria-label": `Made of ${plural(parts.length, "part")}: ${said}` },
      segments.map(([kind, count]) => h("span", { dataset: { origin: kind }, style: { "--size": share(count) }, title: `${KINDS[kind] ?? "Tools"}: ${Math.round(share(count))} %` }))),
    keys);
}
