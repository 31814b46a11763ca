// Short messages at the edge of the page: what was done, with a way to take it back.

import { announce, h, iconButton } from "../lib/dom.js";

const LASTS_MS = 6_000;
const ERROR_LASTS_MS = 12_000;

/** Say something. `action: {label, run}` adds a button; `kind: "error"` stays longer. */
export function toast(text, { kind = "info", action = null } = {}) {
  const close = () => box.remove();
  const act = action && h("button.link", {
    type: "button",
    onclick: () => {
      close();
      action.run();
    },
  }, action.label);
  const box = h("div.toast", { dataset: { kind } }, h("span", text), act, iconButton("close", "Dismiss", close));
  document.getElementById("toasts").append(box);
  announce(action ? `${text} ${action.label} is available.` : text);
  let timer = null;
  const closeIn = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(close, ms);
  };
  closeIn(kind === "error" ? ERROR_LASTS_MS : LASTS_MS);
  for (const type of ["pointerenter", "focusin"]) box.addEventListener(type, () => clearTimeout(timer));
  for (const type of ["pointerleave", "focusout"]) box.addEventListener(type, () => closeIn(LASTS_MS));
}

/** Say that something did not work, as the daemon explains it. */
export function toastError(error, what = "") {
  if (error?.name === "AbortError") return;
  const text = [what, error.message, error.hint].filter(Boolean).join(" · ");
  toast(text, { kind: "error" });
}

/** Run something that may be refused; say so and return undefined when it is. */
export async function attempt(work, what = "") {
  try {
    return await work();
  } catch (error) {
    toastError(error, what);
    return undefined;
  }
}
