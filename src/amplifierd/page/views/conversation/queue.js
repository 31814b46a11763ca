// Prompts that wait for their turn: seen, changed and removed.

import { get, ofSession, remove } from "../../lib/api.js";
import { h, iconButton, refill } from "../../lib/dom.js";
import { plain, plural } from "../../lib/format.js";
import { onEvents, onGap } from "../../lib/stream.js";
import { settled } from "../../lib/state.js";
import { attempt, toast } from "../../components/toast.js";

export class PromptQueue extends HTMLElement {
  #id;
  #signal;
  #edit;
  #prompts = [];
  #held = 0;

  /** `edit(text)` takes over a prompt that was taken out to be changed. */
  constructor(id, { signal, edit }) {
    super();
    this.#id = id;
    this.#signal = signal;
    this.#edit = edit;
  }

  connectedCallback() {
    const load = settled(() => this.#load(), 50, 200);
    const isAbout = ({ event, session_id: id }) => id === this.#id && (event.startsWith("execution:") || event === "user_message:saved");
    onEvents((event) => isAbout(event) && load(), { signal: this.#signal });
    onGap(load, { signal: this.#signal });
    this.#load();
  }

  async #load() {
    try {
      ({ queue: this.#prompts, held: this.#held } = await get(ofSession(this.#id, "/queue"), {}, { signal: this.#signal }));
    } catch {
      return; // The view says what is wrong; the queue is shown again with the next event.
    }
    this.hidden = !this.#prompts.length;
    refill(this, this.#prompts.length > 0 && h("section.queue", { "aria-label": "Queued prompts" },
      h("h2.queue-title", plural(this.#prompts.length, "prompt waits", "prompts wait"),
        this.#held > 0 && ` · ${plural(this.#held, "was left over; take it out to send it", "were left over; take them out to send them")}`),
      h("ol", this.#prompts.map((prompt, at) => h("li",
        h("span.queue-text", plain(prompt)),
        iconButton("edit", "Take out and edit", () => this.#take(at, prompt, true)),
        iconButton("close", "Remove from the queue", () => this.#take(at, prompt, false)))))));
  }

  async #take(at, prompt, isToEdit) {
    const { queue } = (await attempt(() => get(ofSession(this.#id, "/queue")))) ?? {};
    if (!queue) return;
    const position = queue[at] === prompt ? at : queue.indexOf(prompt);
    if (position < 0) {
      toast("It has already begun");
    } else {
      const taken = await attempt(() => remove(ofSession(this.#id, `/queue/${position + 1}`)), "Not removed");
      if (taken && isToEdit) this.#edit(taken.prompt);
      else if (taken) toast("Removed from the queue", { action: { label: "Undo", run: () => this.#edit(taken.prompt) } });
    }
    await this.#load();
  }
}

customElements.define("prompt-queue", PromptQueue);
