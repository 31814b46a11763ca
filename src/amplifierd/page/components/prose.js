// Text of people and models: rendered by the daemon where it did, else as it was written.

import { h, iconButton, trusted } from "../lib/dom.js";
import { plain } from "../lib/format.js";
import { copyText } from "../lib/clipboard.js";

const TAIL = 4_000;

/**
 * Show a text: `html` is the daemon's rendering of `text`; without it the text is shown as it is. Of a text that is still
 * coming, `length` characters are rendered; the rest is shown as it is when it is long.
 */
export function prose(part) {
  const box = h("div.prose", { dir: "auto" });
  updateProse(box, part);
  return box;
}

/** Show a text that has changed; what did not change is left alone, so that a selection in it stays. */
export function updateProse(box, { text, html, length }) {
  if (typeof html !== "string") {
    showPlain(box, String(text ?? ""));
    return;
  }
  if (box.classList.contains("is-plain")) {
    box.classList.remove("is-plain");
    box.plainText = null;
    box.replaceChildren();
  }
  const wanted = [...trusted(html).childNodes];
  const present = [...box.childNodes];
  let same = 0;
  while (same < wanted.length && same < present.length && print(present[same]) === print(wanted[same])) same += 1;
  present.slice(same).forEach((node) => node.remove());
  for (const node of wanted.slice(same)) {
    node.asRendered = print(node);
    box.append(dressed(node));
  }
  const tail = length === undefined ? "" : String(text ?? "").slice(length);
  if (tail.length > TAIL) box.append(h("div.is-plain", plain(tail)));
}

/** Show text as it is, one element per line: text that grows is appended, and only its last line is laid out again. */
function showPlain(box, text) {
  const known = box.plainText;
  if (known === text) return;
  box.classList.add("is-plain");
  const isGrown = typeof known === "string" && text.startsWith(known) && box.lastChild;
  if (!isGrown) box.replaceChildren(h("div", document.createTextNode("")));
  box.plainText = text;
  const [first, ...lines] = plain(isGrown ? text.slice(known.length) : text).split("\n");
  box.lastChild.firstChild.appendData(first);
  box.append(...lines.map((line) => {
    const element = document.createElement("div");
    element.append(document.createTextNode(line));
    return element;
  }));
}

function print(node) {
  return node.asRendered ?? node.outerHTML ?? node.textContent;
}

/** Give code its language and a copy button; what can be scrolled can be reached by key. */
function dressed(node) {
  if (!(node instanceof Element)) return node;
  for (const table of [node, ...node.querySelectorAll(".md-table")]) if (table.matches(".md-table")) table.tabIndex = 0;
  for (const pre of node.querySelectorAll("pre")) pre.replaceWith(codeFrame(pre));
  if (!node.matches("pre")) return node;
  return Object.assign(codeFrame(node), { asRendered: node.asRendered });
}

function codeFrame(pre) {
  const copy = iconButton("copy", "Copy code", () => copyText(pre.textContent, "Code copied"));
  const frame = h("div.code-frame", pre.dataset.language && h("span.code-language", pre.dataset.language), copy);
  const shown = pre.cloneNode(true);
  shown.tabIndex = 0;
  frame.prepend(shown);
  return frame;
}
