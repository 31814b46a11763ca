// A field for a directory of the daemon's machine, completed from what is there.

import { visible } from "../lib/visible.js";
import { below, completions } from "../lib/directories.js";
import { fill, h, setText } from "../lib/dom.js";
import { settled } from "../lib/state.js";
import { CompletionList } from "./completion-list.js";

/** A text field with a list of directories below what is typed. `value` is an absolute path, or empty for the default. */
export class DirectoryField extends HTMLElement {
  #input = h("input", { id: "working-dir", autocomplete: "off", spellcheck: false });
  #list = new CompletionList(this.#input, { id: "working-dir-list", label: "Directories", onTake: ({ path }) => this.#take(path) });
  #note = h("p.muted.small");
  #root = null;
  #asked = 0;
  #abort = new AbortController();

  connectedCallback() {
    fill(this, h("div.completed-field", this.#input, this.#list.element), this.#note);
    const complete = settled(() => this.#complete(), 120);
    this.#input.addEventListener("input", complete);
    this.#input.addEventListener("focus", complete);
    this.#input.addEventListener("keydown", (event) => this.#list.keys(event));
    this.#complete({ quietly: true });
  }

  disconnectedCallback() {
    this.#abort.abort();
  }

  get value() {
    const typed = this.#input.value.trim();
    return !typed || typed.startsWith("/") || !this.#root ? typed : `${this.#root}/${typed}`;
  }

  set value(path) {
    this.#input.value = path;
  }

  async #complete({ quietly = false } = {}) {
    const typed = this.#input.value.trim();
    const path = typed.startsWith("/") ? this.#root && below(this.#root, typed) : typed;
    if (path === null) {
      this.#list.close();
      setText(this.#note, this.#root ? `Completion knows the directories below ${this.#root} only.` : "");
      return;
    }
    const asked = ++this.#asked;
    try {
      const { root, entries } = await completions(path, { signal: this.#abort.signal, fits: ({ type }) => type === "directory" });
      if (asked !== this.#asked) return; // More was typed meanwhile.
      this.#root = root;
      this.#input.placeholder = visible(root);
      setText(this.#note, `If left empty: ${root}`);
      if (!quietly && document.activeElement === this.#input) this.#list.show(entries);
    } catch {
      this.#list.close(); // What is typed is no directory, or cannot be looked at: it may be meant all the same.
    }
  }

  #take(path) {
    this.#input.value = `${this.#root}/${path}/`.replace(/\/{2,}/g, "/");
    this.#complete();
  }
}

customElements.define("directory-field", DirectoryField);
