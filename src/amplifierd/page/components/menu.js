// A menu at a button: arrows move, letters jump, Escape closes and gives the focus back.

import { h, icon, iconButton } from "../lib/dom.js";

/** Make a button that opens a menu; `items()` returns `{label, icon, run, kind, disabled, hint}` or "-" for a line. */
export function menuButton(label, items, props = {}) {
  const button = iconButton("more", label, () => toggle(button, items()), {
    "aria-haspopup": "menu", "aria-expanded": "false", ...props,
  });
  return button;
}

let open = null;

function toggle(anchor, items) {
  const wasMine = open?.anchor === anchor;
  open?.close();
  if (!wasMine) openMenu(anchor, items);
}

/** Open a menu below an element. */
function openMenu(anchor, items) {
  const label = anchor.getAttribute("aria-label");
  const menu = h("div.menu", { role: "menu", "aria-label": label });
  const abort = new AbortController();
  const close = ({ focus = false } = {}) => {
    abort.abort();
    menu.remove();
    anchor.setAttribute("aria-expanded", "false");
    open = null;
    if (focus) (anchor.isConnected ? anchor : sameButton(label))?.focus();
  };
  for (const item of items) {
    if (item === "-") {
      menu.append(h("hr", { role: "separator" }));
      continue;
    }
    menu.append(h("button.menu-item", {
      type: "button", role: "menuitem", tabIndex: -1, disabled: item.disabled ?? false, dataset: { kind: item.kind ?? "" },
      onclick: () => {
        close({ focus: true });
        item.run();
      },
    }, icon(item.icon ?? "chevron"), h("span", item.label), item.hint && h("kbd", item.hint)));
  }
  open = { anchor, close };
  anchor.setAttribute("aria-expanded", "true");
  (anchor.closest("dialog") ?? document.body).append(menu);
  place(menu, anchor);
  const entries = [...menu.querySelectorAll("button:not(:disabled)")];
  entries[0]?.focus();
  menu.addEventListener("keydown", (event) => keys(event, entries, close));
  const outside = (event) => !menu.contains(event.target) && !anchor.contains(event.target) && close();
  document.addEventListener("pointerdown", outside, { signal: abort.signal });
  window.addEventListener("resize", () => close(), { signal: abort.signal });
  window.addEventListener("popstate", () => close(), { signal: abort.signal });
  document.addEventListener("scroll", () => anchor.isConnected && place(menu, anchor), { signal: abort.signal, capture: true, passive: true });
}

/** The button that stands where another was before its surroundings were drawn anew. */
function sameButton(label) {
  return [...document.querySelectorAll("button[aria-haspopup=menu]")].find((one) => one.getAttribute("aria-label") === label);
}

function place(menu, anchor) {
  const at = anchor.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.right - width, innerWidth - width - 8));
  const below = at.bottom + 4 + height < innerHeight;
  menu.style.setProperty("left", `${left}px`);
  menu.style.setProperty("top", `${below ? at.bottom + 4 : Math.max(8, at.top - height - 4)}px`);
}

function keys(event, entries, close) {
  const at = entries.indexOf(document.activeElement);
  const move = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
  if (move !== undefined) {
    event.preventDefault();
    entries.at(move % entries.length)?.focus();
  } else if (event.key === "Escape" || event.key === "Tab") {
    event.stopPropagation();
    if (event.key === "Escape") event.preventDefault();
    close({ focus: true });
  } else if (event.key.length === 1 && !event.ctrlKey && !event.metaKey) {
    const rest = [...entries.slice(at + 1), ...entries.slice(0, at + 1)];
    rest.find((one) => one.textContent.trim().toLowerCase().startsWith(event.key.toLowerCase()))?.focus();
    event.stopPropagation();
  }
}
