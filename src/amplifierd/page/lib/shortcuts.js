// Keys that work everywhere on the page, and the dialog that lists them.

import { h } from "./dom.js";
import { openDialog } from "../components/dialog.js";

const shortcuts = [];
let pending = "";
let timer = null;

/** Add a shortcut such as "n", "g s" or "Alt+ArrowUp", until `signal` is aborted. */
export function shortcut(keys, label, run, { signal, group = "Everywhere", inFields = false } = {}) {
  const entry = { keys, label, run, group, inFields };
  shortcuts.push(entry);
  signal?.addEventListener("abort", () => shortcuts.splice(shortcuts.indexOf(entry), 1), { once: true });
}

/** Add keys to the list in the help that an element itself reacts to. */
export function describe(keys, label, { signal, group }) {
  shortcut(keys, label, null, { signal, group });
}

export function listenForShortcuts() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const name = nameOf(event);
    if (!name) return;
    const inField = isField(event.target);
    if (document.querySelector("dialog[open]")) return;
    const sequence = pending ? `${pending} ${name}` : name;
    const usable = shortcuts.filter((one) => one.run && (one.inFields || !inField));
    const found = usable.findLast((one) => one.keys === sequence) ?? usable.findLast((one) => one.keys === name);
    clearTimeout(timer);
    pending = "";
    if (found) {
      event.preventDefault();
      found.run(event);
    } else if (usable.some((one) => one.keys.startsWith(`${name} `))) {
      pending = name;
      timer = setTimeout(() => { pending = ""; }, 1200);
    }
  });
  shortcut("?", "Show these keys", showHelp);
}

export function showHelp() {
  const groups = Map.groupBy?.(shortcuts, (one) => one.group) ?? grouped();
  openDialog({
    title: "Keyboard",
    className: "help-dialog",
    build: () => h("div.help-groups", [...groups].map(([group, entries]) => h("section",
      h("h3", group),
      h("dl", entries.map(({ keys, label }) => h("div", h("dt", keyCaps(keys)), h("dd", label))))))),
  });
}

/** Keys as key caps: "g s" → g, s. */
function keyCaps(keys) {
  return keys.split(" ").map((stroke) => stroke.split("+").map((key) => h("kbd", NAMES[key] ?? key)));
}

const NAMES = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc" };

function grouped() {
  const groups = new Map();
  for (const one of shortcuts) groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
  return groups;
}

function nameOf(event) {
  if (["Shift", "Control", "Alt", "Meta"].includes(event.key)) return null;
  const isPrinted = event.key.length === 1;
  const held = [(event.ctrlKey || event.metaKey) && "Ctrl", event.altKey && "Alt", event.shiftKey && !isPrinted && "Shift"];
  return [...held.filter(Boolean), event.key].join("+");
}

function isField(target) {
  return target instanceof HTMLElement && (target.matches("input, textarea, select") || target.isContentEditable);
}
