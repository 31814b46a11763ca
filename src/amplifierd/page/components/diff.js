// Differences: of two texts, or as a unified diff that the daemon made.

import { h } from "../lib/dom.js";
import { plain } from "../lib/format.js";

const MOST_LINES = 1200;
const LONGEST_LINE = 2000;

/** Show what changed from one text to another. */
export function textDiff(before, after) {
  return diffTable(compare(split(before), split(after)));
}

/** Show a unified diff, one box per file. */
export function unifiedDiff(text) {
  const files = [];
  for (const line of text.split("\n")) {
    if (line.startsWith("diff --git ")) files.push({ name: nameOf(line), lines: [] });
    else if (/^(index|---|\+\+\+|new file|deleted file|similarity|rename|old mode|new mode|Binary)/.test(line)) {
      if (line.startsWith("Binary")) files.at(-1)?.lines.push({ kind: "info", text: "binary file" });
    } else if (line.startsWith("@@")) files.at(-1)?.lines.push({ kind: "info", text: line });
    else if (line !== "\\ No newline at end of file") files.at(-1)?.lines.push(read(line));
  }
  return files.map(({ name, lines }) => h("figure.diff-file", h("figcaption", plain(name)), diffTable(lines)));
}

function nameOf(line) {
  return line.slice("diff --git ".length).split(" b/").at(-1);
}

function read(line) {
  const kind = { "+": "add", "-": "del" }[line[0]] ?? "same";
  return { kind, text: line.slice(1) };
}

function diffTable(lines) {
  const shown = lines.slice(0, MOST_LINES);
  const marks = { add: "+", del: "−", same: " ", info: "" };
  const names = { add: "added", del: "removed" };
  return h("div.diff", { role: "group", "aria-label": "Difference", tabIndex: 0 },
    shown.map(({ kind, text }) => h("div.diff-line", { dataset: { kind } },
      h("span.diff-mark", names[kind] ? { role: "img", "aria-label": names[kind] } : { "aria-hidden": "true" }, marks[kind]),
      h("code", plain(text.slice(0, LONGEST_LINE)) || " ", text.length > LONGEST_LINE && h("span.muted", ` … ${text.length - LONGEST_LINE} more characters`)))),
    lines.length > shown.length && h("p.muted.small", `${lines.length - shown.length} more lines are not shown.`));
}

function split(text) {
  const lines = String(text ?? "").split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Compare lines: equal ends are kept, the middle by the longest common subsequence where it is small enough. */
function compare(before, after) {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before.at(-1 - tail) === after.at(-1 - tail)) tail += 1;
  const same = (lines) => lines.map((text) => ({ kind: "same", text }));
  const middle = changes(before.slice(head, before.length - tail), after.slice(head, after.length - tail));
  return [...same(before.slice(0, head)), ...middle, ...same(tail ? before.slice(-tail) : [])];
}

function changes(before, after) {
  const removed = (lines) => lines.map((text) => ({ kind: "del", text }));
  const added = (lines) => lines.map((text) => ({ kind: "add", text }));
  if (before.length * after.length > 250_000) return [...removed(before), ...added(after)];
  const width = after.length + 1;
  const lengths = new Uint16Array((before.length + 1) * width);
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = before[i] === after[j]
        ? lengths[(i + 1) * width + j + 1] + 1
        : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < before.length && j < after.length) {
    if (before[i] === after[j]) {
      lines.push({ kind: "same", text: before[i] });
      i += 1;
      j += 1;
    } else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) {
      lines.push({ kind: "del", text: before[i++] });
    } else {
      lines.push({ kind: "add", text: after[j++] });
    }
  }
  return [...lines, ...removed(before.slice(i)), ...added(after.slice(j))];
}
