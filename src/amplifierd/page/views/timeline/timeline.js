// The timeline of a session: what every turn did when, what it waited for, and what it cost.

import { fill, h, icon } from "../../lib/dom.js";
import { cost, dollars, duration, number, plain, time, tokens } from "../../lib/format.js";
import { describe, shortcut } from "../../lib/shortcuts.js";
import { perFrame } from "../../lib/state.js";
import { emptyState, failure, loading, View } from "../../lib/view.js";
import { Inspector } from "../../components/inspector.js";
import { TurnPlots } from "./plots.js";
import { spanDetails, turnDetails } from "./span-details.js";
import { Turns } from "./turns.js";
import { Waterfall } from "./waterfall.js";

const TICK_MS = 250;
const STATES = { running: "Running", completed: "", failed: "Failed", cancelled: "Stopped", cut: "Cut off" };

class TimelineView extends View {
  #turns;
  #boxes = new Map();
  #summary = h("div.timeline-summary");
  #plots = new TurnPlots((turn) => this.#goTo(turn));
  #list = h("ol.turn-list", { "aria-label": "Turns, the latest first" });
  #inspector = new Inspector();
  #main = h("div.split-main");
  #isTicking = false;

  async open() {
    const { signal } = this;
    this.#boxes.clear();
    fill(this.#main, loading("Loading the timeline…"));
    fill(this, this.#main, this.#inspector);
    const render = perFrame(() => this.#render());
    this.#turns = new Turns(this.params.id, { signal, changed: () => render() });
    const options = { signal, group: "Timeline" };
    shortcut("j", "Next older turn", () => this.#step(1), options);
    shortcut("k", "Next newer turn", () => this.#step(-1), options);
    shortcut("Escape", "Close the details", () => this.#inspector.close(), options);
    describe("↑ ↓", "Move in a turn", options);
    await this.#turns.load();
    fill(this.#main, this.#summary, this.#plots, this.#list);
    this.#render();
    const wanted = Number(this.query.get("turn"));
    const first = this.#turns.list.findLast((turn) => turn.number === wanted) ?? this.#turns.last;
    if (first) await this.#boxes.get(first.seq)?.open();
    if (wanted && first) this.#goTo(first);
  }

  #render() {
    if (!this.#turns.isLoaded || !this.#main.contains(this.#list)) return;
    const { list } = this.#turns;
    if (!list.length) {
      fill(this.#list, h("li", emptyState("Nothing happened yet", "When the session runs its first turn, what it does is drawn here while it does it.")));
      this.#plots.hidden = true;
      fill(this.#summary);
      return;
    }
    const places = list.toReversed();
    places.forEach((turn, place) => {
      const box = this.#boxes.get(turn.seq) ?? this.#made(turn);
      box.update(turn);
      if (this.#list.children[place] !== box.element) this.#list.insertBefore(box.element, this.#list.children[place] ?? null);
    });
    while (this.#list.children.length > places.length) this.#list.lastChild.remove();
    const ended = list.filter((turn) => turn.usage).length;
    if (this.#summary.dataset.ended !== String(ended) || !this.#summary.firstChild) {
      this.#summary.dataset.ended = String(ended);
      this.#plots.update(list);
      this.#summarise(list);
    }
    this.#tick();
  }

  #summarise(list) {
    const worked = list.reduce((sum, turn) => sum + (turn.end ? turn.end - turn.begin : 0), 0);
    const total = (read) => list.reduce((sum, turn) => sum + (turn.usage ? read(turn.usage) : 0), 0);
    const priced = list.filter((turn) => turn.usage && turn.usage.cost_usd !== null);
    const usage = {
      cost_usd: priced.length ? total((one) => Number(one.cost_usd ?? 0)) : null,
      unpriced_tokens: total((one) => one.unpriced_tokens ?? 0),
      tokens: { total: total((one) => one.tokens.total) },
    };
    fill(this.#summary, [
      ["Turns", number(list.length)],
      ["Time in turns", duration(worked)],
      ["Tokens", tokens(usage.tokens.total)],
      ["Tool calls", number(total((one) => one.tool_calls))],
      ["Cost", cost(usage)],
    ].map(([name, value]) => h("div.figure", h("span.figure-value", value), h("span.figure-name", name))));
  }

  #made(turn) {
    const box = new TurnBox(turn, {
      open: (one) => this.#turns.open(one),
      inspect: (span, from) => this.#inspect(turn, span, from),
    });
    this.#boxes.set(turn.seq, box);
    return box;
  }

  #inspect(turn, span, { from, takeFocus }) {
    const box = this.#boxes.get(turn.seq);
    const parts = { sessionId: this.params.id, load: (event) => this.#turns.event(event) };
    const isTurn = span === null;
    this.#inspector.show({
      title: isTurn ? `Turn ${turn.number}` : span.agent ?? plain(span.name),
      subtitle: isTurn ? time(turn.begin) : plain(span.subject).split("\n")[0].slice(0, 140),
      content: isTurn ? turnDetails(turn, turn.spans, parts) : spanDetails(span, turn.spans, parts),
      from,
      takeFocus,
      onClose: () => box.choose(null),
    });
    box.choose(span);
  }

  async #goTo(turn) {
    const box = this.#boxes.get(turn.seq);
    if (!box) return;
    await box.open();
    box.element.scrollIntoView({ block: "start" });
    box.head.focus({ preventScroll: true });
  }

  #step(by) {
    const heads = [...this.#list.querySelectorAll(".turn-head")];
    const at = heads.indexOf(document.activeElement?.closest?.(".turn-item")?.querySelector(".turn-head"));
    const next = heads[Math.max(0, Math.min(heads.length - 1, at < 0 ? 0 : at + by))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  #tick() {
    const { last } = this.#turns;
    if (this.#isTicking || !last || last.status !== "running") return;
    this.#isTicking = true;
    setTimeout(() => {
      this.#isTicking = false;
      if (this.signal.aborted) return;
      const { last: now } = this.#turns;
      if (now) this.#boxes.get(now.seq)?.update(now);
      this.#tick();
    }, TICK_MS);
  }
}

/** A turn in the list: a line about it and, when it is open, its waterfall. */
class TurnBox {
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

customElements.define("view-timeline", TimelineView);
export default TimelineView;
