// What a profile consists of after inheritance, and which file set it.

import { h } from "../../lib/dom.js";
import { profileAddress } from "../../lib/profiles.js";
import { href } from "../../lib/router.js";

/** The chain of ancestors, then each section with its origin. */
export function inheritedPanel({ id, inheritance_chain: chain, provenance, instruction, ...values }) {
  return h("div.inherited",
    h("ol.chain", (chain ?? []).map((one) => h("li", one === id ? h("strong", one) : h("a", { href: href(profileAddress(one)) }, one)))),
    Object.keys(provenance ?? {}).map((name) => h("details",
      h("summary", h("strong", name), h("span.muted", ` ${summaryOf(values[name])}`), origin(provenance[name])),
      h("pre.data", JSON.stringify(values[name], null, 2)),
      provenance[name].overrode?.length > 0 && h("p.muted.small", `Overrode ${provenance[name].overrode.map((one) => one.profile ?? one.origin?.profile).filter(Boolean).join(", ")}`))),
    instruction && h("details", h("summary", h("strong", "instruction"), h("span.muted", ` ${instruction.split("\n").length} lines`)), h("pre.data", instruction)));
}

function origin(known) {
  const from = known?.origin;
  return from && h("span.origin", from.profile ?? "", from.line ? `:${from.line}` : "");
}

function summaryOf(value) {
  if (Array.isArray(value)) return value.map((one) => one?.module ?? String(one)).join(", ");
  return value && typeof value === "object" ? Object.keys(value).join(", ") : String(value);
}
