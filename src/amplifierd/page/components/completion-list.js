// What a text field can be completed with: a list that the keys of the field move in.

import { fill, h, icon } from "../lib/dom.js";

/** The list of a field, below an input and above a text; `onTake(entry)` gets the `{path, type}` that was chosen. */
export class CompletionList {
  element;
  #field;
  #onTake;
  #isAbove;
  #entries = [];
  #at = -1;

  constructor(field, { id, label, onTake }) {
    this.#field = field;
    this.#onTake = onTake;
    this.#isAbove = field instanceof HTMLTextAreaElement;
    this.element = h("ul.completions", { id, role: "listbox", "aria-label": label, hidden: true, class: this.#isAbove ? "is-above" : "" });
    field.setAttribute("aria-controls", id);
    field.setAttribute("aria-autocomplete", "list");
    if (!this.#isAbove) field.role = "combobox"; // A text of several lines cannot be one.
    field.addEventListener("blur", () => this.close());
  }

  show(entries) {
    this.#entries = entries;
    this.#at = -1;
    fill(this.element, entries.map((entry, at) => h("li", {
      id: `${this.element.id}-${at}`, role: "option", "aria-selected": "false",
      onpointerdown: (event) => {
        event.preventDefault();
        this.#onTake(entry);
      },
    }, icon(entry.type === "directory" ? "folder" : "file"), entry.path)));
    this.element.hidden = !entries.length;
    if (this.#isAbove) this.#place();
    else this.#field.setAttribute("aria-expanded", String(entries.length > 0));
    this.#field.removeAttribute("aria-activedescendant");
  }

  close() {
    this.show([]);
  }

  /** Move, take or close by a key of the field; true when it was one. */
  keys(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const count = this.#entries.length;
    if (!count) return false;
    if (step) this.#select((Math.max(this.#at, step < 0 ? 0 : -1) + step + count) % count);
    else if (["Enter", "Tab"].includes(event.key) && this.#at >= 0) this.#onTake(this.#entries[this.#at]);
    else if (event.key === "Escape") this.close();
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  #place() {
    const { left, top, width } = this.#field.getBoundingClientRect();
    for (const [name, px] of [["--left", left], ["--bottom", innerHeight - top], ["--width", width]]) this.element.style.setProperty(name, `${px}px`);
  }

  #select(at) {
    const options = [...this.element.children];
    options[this.#at]?.setAttribute("aria-selected", "false");
    options[at].setAttribute("aria-selected", "true");
    options[at].scrollIntoView({ block: "nearest" });
    this.#field.setAttribute("aria-activedescendant", options[at].id);
    this.#at = at;
  }
}
