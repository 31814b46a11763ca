// A turn in the list of the timeline: a line about it and, when it is open, its waterfall.

import { fill, h, icon } from "../../lib/dom.js";
import { dollars, duration, plain, tokens } from "../../lib/format.js";
import { failure, loading } from "../../lib/view.js";
import { Waterfall } from "./waterfall.js";

const STATES = { running: "Running", completed: "", failed: "Failed", cancelled: "Stopped", cut: "Cut off" };

/** `open(turn)` reads what it did, `inspect(span, how)` shows one thing of it closely. */
export class TurnBox {
  #turn;
  #open;
  #inspect;
  #fall = null;
  #place = h("div.turn-fall");
  #print = "";

  constructor(turn, { open, inspect }) {
    this.#turn = turn;
    this.#open = open;
    this.#inspect = inspect;
    this.head = h("button.turn-head", { type: "button", "aria-expanded": "false", onclick: () => this.toggle() });
    this.element = h("li.turn-item", this.head, this.#place);
  }

  get isOpen() {
    return this.head.getAttribute("aria-expanded") === "true";
  }

  update(turn) {
    this.#turn = turn;
    const { usage } = turn;
    const took = (turn.end ?? Date.now()) - turn.begin;
    const print = JSON.stringify([turn.status, Math.round(took / 100), usage?.tokens.total, turn.wasTakenBack]);
    if (print !== this.#print) {
      this.#print = print;
      this.element.dataset.state = turn.status;
      fill(this.head, icon("chevron", "fold"), h("span.turn-number", `Turn ${turn.number}`),
        h("span.turn-prompt", { dir: "auto" }, plain(turn.prompt)),
        (STATES[turn.status] || turn.wasTakenBack) && h("span.tag", turn.wasTakenBack ? "Taken back" : STATES[turn.status]),
        h("span.turn-figure", { title: "Time" }, duration(took)),
        h("span.turn-figure", { title: "Tokens" }, usage ? `${tokens(usage.tokens.total)} tok` : ""),
        h("span.turn-figure", { title: "Cost" }, usage?.cost_usd ? dollars(usage.cost_usd) : ""));
    }
    if (this.isOpen && turn.spans && this.#fall) this.#fall.update(turn.spans);
  }

  toggle() {
    if (!this.isOpen) return this.open();
    this.head.setAttribute("aria-expanded", "false");
    this.#fall = null;
    fill(this.#place);
    return null;
  }

  async open() {
    if (this.isOpen) return;
    this.head.setAttribute("aria-expanded", "true");
    fill(this.#place, loading());
    try {
      const spans = await this.#open(this.#turn);
      if (!this.isOpen) return;
      this.#fall = new Waterfall((span, how) => this.#inspect(span, how));
      fill(this.#place, this.#fall, h("p.turn-foot-line", h("button.link.small", {
        type: "button",
        onclick: (event) => this.#inspect(null, { from: event.currentTarget, takeFocus: event.detail === 0 }),
      }, "All events of this turn"), legend()));
      this.#fall.update(spans);
    } catch (error) {
      if (error.name !== "AbortError") fill(this.#place, failure(error, () => { this.toggle(); this.open(); }));
    }
  }

  choose(span) {
    this.#fall?.choose(span);
  }
}

function legend() {
  const keys = [["model", "model"], ["first", "until its first word"], ["tool", "tool"], ["delegation", "agent"], ["wait", "waiting"], ["hook", "hook"]];
  return h("span.fall-legend", { "aria-hidden": "true" }, keys.map(([kind, name]) => h("span.key", { dataset: { kind } }, name)));
}
