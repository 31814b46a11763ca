// The parts of a request to a model, in the order in which they were sent, each with where it came from.

import { fill, h, icon, iconButton, setText } from "../../lib/dom.js";
import { copyText } from "../../lib/clipboard.js";
import { number, plain, plural, tokens } from "../../lib/format.js";
import { factList } from "../../components/inspector.js";
import { longText } from "../../components/long-text.js";

/** The kinds of origins, in the order in which they are listed. */
export const KINDS = {
  instruction: "Instruction", context_file: "Context file", mention: "Mention", injection: "Injection",
  compaction: "Compaction", orchestrator: "Reminder of the loop", inherited: "Inherited", message: "Conversation", other: "Other",
};
const ROLES = { user: "Prompt", assistant: "Answer", tool: "Tool result", system: "System", developer: "Developer" };
const SINGLE = 10;
const AT_ONCE = 150;

export const kindOf = (part) => part.origin?.kind ?? "message";

/** The list of parts. `known` are the hashes of the request before, null when there was none; `shown` the kinds to show. */
export function partList(parts, { known, shown }) {
  const wanted = parts.filter((part) => shown.has(kindOf(part)));
  const items = [];
  for (let at = 0; at < wanted.length;) {
    let end = at;
    while (end < wanted.length && kindOf(wanted[end]) === "message") end += 1;
    const isLast = end === wanted.length;
    const folded = isLast ? end - SINGLE : end;
    if (folded - at > 3) {
      items.push(earlier(wanted.slice(at, folded), known));
      at = folded;
    } else {
      items.push(partElement(wanted[at], known));
      at += 1;
    }
  }
  return items.length ? h("ol.part-list", items.map((item) => h("li", item))) : h("p.muted", "No part of these kinds.");
}

/** Many messages of the conversation, shown when they are asked for. */
function earlier(parts, known) {
  const sum = parts.reduce((total, part) => total + part.tokens, 0);
  const body = h("div.part-run");
  const details = h("details.part.is-run", { dataset: { origin: "message" } },
    h("summary", icon("chevron", "fold"), h("span.part-kind", "Conversation"), h("span.part-what", plural(parts.length, "earlier message")), h("span.part-tokens", `${tokens(sum)} tok`)), body);
  let count = 0;
  const more = h("button.link.small", { type: "button", onclick: () => show() });
  const show = () => {
    const next = parts.slice(count, count + AT_ONCE);
    count += next.length;
    more.before(...next.map((part) => partElement(part, known)));
    more.hidden = count >= parts.length;
    setText(more, `Show more (${number(parts.length - count)} left)`);
  };
  details.addEventListener("toggle", () => {
    if (!details.open || body.firstChild) return;
    fill(body, more);
    show();
  });
  return details;
}

function partElement(part, known) {
  const kind = kindOf(part);
  const isNew = known !== null && !known.has(part.hash);
  const details = h("details.part", { dataset: { origin: kind } },
    h("summary", icon("chevron", "fold"), h("span.part-kind", kind === "message" ? ROLES[part.role] ?? part.role : KINDS[kind] ?? kind),
      h("span.part-what", { dir: "auto" }, whatOf(part)), isNew && h("span.tag", "new"), h("span.part-tokens", `${tokens(part.tokens)} tok`)));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(partBody(part));
  });
  return details;
}

/** What a part is, on one line: its files, its hook, or how its text begins. */
function whatOf(part) {
  const { hook, event, sources } = part.origin ?? {};
  if (hook) return `${hook}${event ? ` at ${event}` : ""}`;
  if (sources?.length) return plain(sources.map((one) => (/^[0-9a-f]{64}$/.test(one) ? `build ${one.slice(0, 8)}` : one)).join(", "));
  return plain(textOf(part.content)).replace(/\s+/g, " ").slice(0, 160);
}

function partBody(part) {
  const { origin = {} } = part;
  const sent = /^\[Context from ([^\n]+)\]\n/.exec(typeof part.content?.content === "string" ? part.content.content : "");
  return h("div.part-body",
    factList([
      ["From", KINDS[kindOf(part)] ?? kindOf(part)],
      ["Hook", origin.hook && h("code", plain(origin.hook))],
      ["At event", origin.event && h("code", plain(origin.event))],
      ["Sources", origin.sources?.length && plain(origin.sources.join(", "))],
      ["File", sent?.[1].includes(" → ") && h("code", plain(sent[1].split(" → ").slice(1).join(" → ")))],
      ["Sent as", part.role],
      ["Hash", h("span.hash", h("code", part.hash), iconButton("copy", "Copy the hash", () => copyText(part.hash)))],
      ["Message", part.message && h("code", part.message)],
      ["Changed", part.changed && "the text was sent in another form than the conversation has it"],
      ["Note", part.content && !part.is_exact && "secrets were taken out of this text before it was stored"],
    ]),
    contentOf(part.content));
}

function contentOf(content) {
  if (!content) return h("p.muted.small", "Its text is no longer stored.");
  const blocks = Array.isArray(content.content) ? content.content : [content.content];
  return [
    blocks.filter(Boolean).map((block) => longText(typeof block === "string" ? block : block.text ?? block.thinking ?? block, { label: "Text" })),
    (content.tool_calls ?? []).map((call) => longText(`${call.name}(${JSON.stringify(call.arguments ?? call.input ?? {}, null, 2)})`, { label: `Call of ${call.name}` })),
  ];
}

function textOf(content) {
  if (!content) return "no longer stored";
  if (typeof content.content === "string" && content.content) return content.content;
  const texts = Array.isArray(content.content) ? content.content.map((block) => block.text ?? block.thinking ?? `[${block.type}]`) : [];
  const calls = (content.tool_calls ?? []).map((call) => `${call.name}(…)`);
  return [...texts, ...calls].filter(Boolean).join(" ");
}
