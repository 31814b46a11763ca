// A field for a directory of the daemon's machine, completed from what is there.

import { get } from "../lib/api.js";
import { fill, h, icon } from "../lib/dom.js";
import { settled } from "../lib/state.js";

const SHOWN = 12;

/** A text field with a list of directories below what is typed. `value` is an absolute path, or empty for the default. */
export class DirectoryField extends HTMLElement {
  #input = h("input", {
    id: "working-dir", autocomplete: "off", spellcheck: false, role: "combobox",
    "aria-expanded": "false", "aria-controls": "working-dir-list", "aria-autocomplete": "list",
  });
  #list = h("ul.completions", { id: "working-dir-list", role: "listbox", "aria-label": "Directories", hidden: true });
  #note = h("p.muted.small");
  #root = null;
  #selected = -1;
  #asked = 0;
  #abort = new AbortController();

  connectedCallback() {
    fill(this, h("div.completed-field", this.#input, this.#list), this.#note);
    const complete = settled(() => this.#complete(), 120);
    this.#input.addEventListener("input", complete);
    this.#input.addEventListener("focus", complete);
    this.#input.addEventListener("keydown", (event) => this.#keys(event));
    this.addEventListener("focusout", (event) => !this.contains(event.relatedTarget) && this.#close());
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
    const below = this.#below(typed);
    if (below === null) {
      this.#close();
      this.#note.textContent = `Completion knows the directories below ${this.#root} only.`;
      return;
    }
    const at = below.lastIndexOf("/") + 1;
    const asked = ++this.#asked;
    let page;
    try {
      page = await get("/directories/list", { path: below.slice(0, at).replace(/\/$/, ""), limit: 1000 }, { signal: this.#abort.signal });
    } catch {
      this.#close();
      return;
    }
    if (asked !== this.#asked) return; // More was typed meanwhile.
    this.#root = page.root;
    this.#input.placeholder = page.root;
    this.#note.textContent = `If left empty: ${page.root}`;
    if (quietly || !this.contains(document.activeElement)) return;
    const begun = below.slice(at).toLowerCase();
    const found = page.entries.filter((one) => one.type === "directory" && one.name.toLowerCase().startsWith(begun));
    this.#show(found.slice(0, SHOWN));
  }

  /** Return what is typed as a path below the root; null when it is elsewhere. */
  #below(typed) {
    if (!typed.startsWith("/")) return typed;
    if (!this.#root || !`${typed}/`.startsWith(`${this.#root}/`)) return null;
    return typed.slice(this.#root.length + 1);
  }

  #show(entries) {
    this.#selected = -1;
    fill(this.#list, entries.map((entry, at) => h("li", {
      id: `working-dir-${at}`, role: "option", "aria-selected": "false", dataset: { path: entry.path },
      onpointerdown: (event) => {
        event.preventDefault();
        this.#take(entry.path);
      },
    }, icon("folder"), entry.path)));
    this.#list.hidden = !entries.length;
    this.#input.setAttribute("aria-expanded", String(entries.length > 0));
  }

  #close() {
    this.#show([]);
    this.#input.removeAttribute("aria-activedescendant");
  }

  #take(path) {
    this.#input.value = `${this.#root}/${path}/`.replace(/\/{2,}/g, "/");
    this.#complete();
  }

  #keys(event) {
    const options = [...this.#list.children];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) {
      event.preventDefault();
      options[this.#selected]?.setAttribute("aria-selected", "false");
      this.#selected = (this.#selected + step + options.length) % options.length;
      options[this.#selected].setAttribute("aria-selected", "true");
      this.#input.setAttribute("aria-activedescendant", options[this.#selected].id);
    } else if ((event.key === "Enter" || event.key === "Tab") && this.#selected >= 0) {
      event.preventDefault();
      this.#take(options[this.#selected].dataset.path);
    } else if (event.key === "Escape" && options.length) {
      event.stopPropagation();
      this.#close();
    }
  }
}

customElements.define("directory-field", DirectoryField);
