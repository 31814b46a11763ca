// The end of the daemon's log, followed while it is visible.

import { get } from "../../lib/api.js";
import { fill, h, setText } from "../../lib/dom.js";
import { plain } from "../../lib/format.js";
import { heading, refused } from "./panel.js";

const EVERY_MS = 3_000;
const LINES = 400;
const LEVELS = { all: /./, warnings: /\b(WARNING|ERROR|CRITICAL)\b/, errors: /\b(ERROR|CRITICAL)\b/ };

export function logPanel(signal) {
  const words = h("input", { id: "log-words", type: "search", placeholder: "Filter", "aria-label": "Filter the log" });
  const level = h("select", { "aria-label": "Level" }, Object.keys(LEVELS).map((name) => h("option", { value: name }, name)));
  const follow = h("input", { type: "checkbox", checked: true });
  const text = h("pre.log", { tabIndex: 0, "aria-label": "Log", role: "log", "aria-live": "off" });
  const note = h("p.muted.small");
  const panel = h("section.panel.wide", { "aria-labelledby": "daemon-log" }, heading("daemon-log", "Log"),
    h("div.toolbar", words, level, h("label.check", follow, "Follow")), text, note);
  let lines = [];
  let timer = null;

  const render = () => {
    const wanted = words.value.toLowerCase();
    const shown = lines.filter((line) => LEVELS[level.value].test(line) && line.toLowerCase().includes(wanted));
    fill(text, shown.map((line) => h("span.log-line", { dataset: { level: levelOf(line) } }, `${plain(line)}\n`)));
    if (follow.checked) text.scrollTop = text.scrollHeight;
    setText(note, shown.length < lines.length ? `${shown.length} of the last ${lines.length} lines` : `The last ${lines.length} lines`);
  };
  const look = async () => {
    try {
      if (!document.hidden && follow.checked) {
        const found = await get("/logs", { lines: LINES }, { signal }).catch(refused);
        if (found.refusal) return void fill(panel, heading("daemon-log", "Log"), found.refusal);
        if (found.lines.join("\n") !== lines.join("\n")) {
          lines = found.lines;
          render();
        }
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      setText(note, error.message);
    }
    if (!signal.aborted) timer = setTimeout(look, EVERY_MS);
  };
  words.addEventListener("input", render);
  level.addEventListener("change", render);
  signal.addEventListener("abort", () => clearTimeout(timer));
  look();
  return panel;
}

function levelOf(line) {
  if (LEVELS.errors.test(line)) return "error";
  return LEVELS.warnings.test(line) ? "warning" : "";
}
