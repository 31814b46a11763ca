// Completion of "@file" while a prompt is written, from what is in the directory of the session.

import { below, completions } from "../../lib/directories.js";
import { settled } from "../../lib/state.js";
import { CompletionList } from "../../components/completion-list.js";

const MENTION = /(?:^|\s)@((?:\w[\w.-]*\/)*(?:\w[\w.-]*)?)$/; // What is hidden is not completed.

export class FileMentions {
  #field;
  #signal;
  #list;
  #root = null;
  #asked = 0;

  /** `directory()` returns the session's directory, null while it is not known. */
  constructor(field, { signal, directory }) {
    this.#field = field;
    this.#signal = signal;
    this.#list = new CompletionList(field, { id: "mention-list", label: "Files", onTake: (entry) => this.#take(entry, directory()) });
    field.addEventListener("input", settled(() => this.#complete(directory()), 120), { signal });
  }

  get element() {
    return this.#list.element;
  }

  /** Whether a key was one for the list. */
  keys(event) {
    return this.#list.keys(event);
  }

  get #begun() {
    return MENTION.exec(this.#field.value.slice(0, this.#field.selectionStart))?.[1] ?? null;
  }

  async #complete(directory) {
    const asked = ++this.#asked;
    const begun = this.#begun;
    if (begun === null || directory === null) return this.#list.close();
    try {
      this.#root ??= (await completions("", { signal: this.#signal })).root;
      const place = below(this.#root, directory);
      const { entries } = place === null ? { entries: [] } : await completions(place ? `${place}/${begun}` : begun, { signal: this.#signal });
      if (asked === this.#asked) this.#list.show(entries);
    } catch {
      this.#list.close(); // A prompt is written without completion, too.
    }
    return undefined;
  }

  #take({ path, type }, directory) {
    const { value, selectionStart: caret } = this.#field;
    const from = caret - this.#begun.length;
    const place = below(this.#root, directory);
    const name = (place ? path.slice(place.length + 1) : path) + (type === "directory" ? "/" : " ");
    this.#field.setRangeText(name, from, caret, "end");
    if (this.#field.value !== value) this.#field.dispatchEvent(new Event("input"));
    if (type !== "directory") this.#list.close();
  }
}
