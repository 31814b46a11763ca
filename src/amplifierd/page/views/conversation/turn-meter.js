// What the running turn has taken until now: time, tokens and cost, those of its agents included.

import { fill, h, setText } from "../../lib/dom.js";
import { costWord, duration, plural } from "../../lib/format.js";
import { eventsAfter, lastEvents } from "../../lib/session-events.js";
import { isAtWork } from "../../lib/sessions.js";
import { onEvents } from "../../lib/stream.js";
import { totalOf } from "../../lib/usage.js";
import { statusBadge } from "../../components/status.js";

const EVERY_MS = 1000;
const BEGUN = "execution:start";
const ANSWERED = "provider:response";

export class TurnMeter extends HTMLElement {
  #id;
  #signal;
  #began = null;
  #answers = new Map();
  #figures = h("span");
  #badge = h("span");
  #timer = null;

  constructor(id, signal) {
    super();
    this.#id = id;
    this.#signal = signal;
    this.hidden = true;
  }

  connectedCallback() {
    fill(this, h("p.turn-meter", this.#badge, this.#figures));
    onEvents((event) => this.#heard(event), { signal: this.#signal });
    this.#signal.addEventListener("abort", () => clearInterval(this.#timer), { once: true });
  }

  /** Show it while the session is at work. */
  update(session) {
    const isShown = session !== null && isAtWork(session);
    if (isShown) fill(this.#badge, statusBadge(session));
    if (isShown !== this.hidden) return;
    this.hidden = !isShown;
    clearInterval(this.#timer);
    if (!isShown) return;
    this.#timer = setInterval(() => this.#render(), EVERY_MS);
    if (this.#began === null) this.#read().catch(() => {}); // The turn itself is shown; only what it took is not.
    this.#render();
  }

  /** Find out what a turn has used that began before the page was opened. */
  async #read() {
    const begun = (await lastEvents(this.#id, BEGUN, { signal: this.#signal })).at(-1);
    if (!begun || this.#began !== null) return;
    this.#began = Date.parse(begun.ts);
    for (const { seq, data } of await eventsAfter(this.#id, begun.seq, ANSWERED, { signal: this.#signal })) this.#answers.set(seq, data);
    this.#render();
  }

  #heard({ event, session_id: of, root_session_id: root, sequence, timestamp, data, part }) {
    if (event === BEGUN && of === this.#id) {
      this.#began = Date.parse(timestamp);
      this.#answers.clear();
    } else if (event === "execution:done" && of === this.#id) this.#began = null;
    else if (event === ANSWERED && part === "detail" && (of === this.#id || root === this.#id)) this.#answers.set(sequence, data);
  }

  #render() {
    const usage = totalOf([...this.#answers.values()]);
    const figures = [
      this.#began && duration(Math.max(0, Math.floor((Date.now() - this.#began) / 1000) * 1000)),
      usage.tokens.total > 0 && plural(usage.tokens.total, "token"),
      usage.tokens.total > 0 && costWord(usage),
    ];
    setText(this.#figures, figures.filter(Boolean).join(" · "));
  }
}

customElements.define("turn-meter", TurnMeter);
