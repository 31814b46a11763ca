// Dialogs: the browser's own element, which keeps the focus inside and closes by Escape.

import { add, h, iconButton, setText } from "../lib/dom.js";

/**
 * Show a dialog and return a promise of what it was closed with; null when it was dismissed.
 * `build(close)` returns the content; `actions` are buttons `{label, value | action, kind: "primary" | "danger"}`.
 */
export function openDialog({ title, build, actions = [], className = "", onSubmit }) {
  return new Promise((resolve) => {
    const heading = h("h2", { id: `dialog-${++count}` }, title);
    const dialog = h("dialog.dialog", { class: className, "aria-labelledby": heading.id });
    let result = null;
    let isSubmitting = false;
    const close = (value = null) => {
      result = value;
      dialog.close();
    };
    const form = h("form.dialog-form", {
      onsubmit: async (event) => {
        event.preventDefault();
        if (isSubmitting) return;
        isSubmitting = true;
        await (onSubmit ? onSubmit(close) : close(actions.find((one) => one.kind)?.value ?? true));
        isSubmitting = false;
      },
    });
    add(form, [
      h("header.dialog-head", heading, iconButton("close", "Close", () => close())),
      h("div.dialog-body", build?.(close)),
      actions.length > 0 && h("footer.dialog-foot", h("button", { type: "button", onclick: () => close() }, "Cancel"),
        actions.map(({ label, kind = "primary" }) => h(`button.${kind}`, { type: "submit" }, label))),
    ]);
    dialog.append(form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    dialog.addEventListener("click", (event) => event.target === dialog && close());
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("[autofocus]") ?? form.querySelector(".dialog-body input, .dialog-body textarea"))?.focus();
  });
}

let count = 0;

/** Close what is open: the reader went elsewhere with the browser's own buttons. */
export function closeDialogs() {
  document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
}

/** Ask for a line of text; null when it was dismissed. */
export function askText({ title, label, value = "", action = "Save", hint, multiline = false }) {
  const field = h(multiline ? "textarea" : "input", { value, id: "dialog-text", rows: 4, autofocus: true });
  if (multiline) {
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) field.form.requestSubmit();
    });
  }
  return openDialog({
    title,
    build: () => h("div.field", h("label", { htmlFor: "dialog-text" }, label), field, hint && h("p.muted.small", hint)),
    actions: [{ label: action }],
    onSubmit: (close) => close(field.value),
  });
}

/** Ask for something and send it; while it is refused the dialog stays and says why. Null when it was dismissed. */
export function askAndSend({ title, fields, action, send }) {
  const problem = h("p.field-error", { role: "alert" });
  return openDialog({
    title,
    build: () => [fields, problem],
    actions: [{ label: action }],
    onSubmit: async (close) => {
      setText(problem, "");
      try {
        close(await send());
      } catch (error) {
        setText(problem, [error.message, error.hint].filter(Boolean).join(" · "));
      }
    },
  });
}

/** Ask whether to do something; true when it is to be done. */
export async function confirm({ title, text, details, action = "OK", kind = "primary" }) {
  const build = () => [h("p", text), details];
  return (await openDialog({ title, build, actions: [{ label: action, kind }], onSubmit: (close) => close(true) })) === true;
}
