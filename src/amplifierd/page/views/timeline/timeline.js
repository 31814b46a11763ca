// The timeline of a session: what every turn did when, what it waited for, and what it cost.

import { fill, h } from "../../lib/dom.js";
import { cost, duration, number, plain, time, tokens } from "../../lib/format.js";
import { describe, shortcut } from "../../lib/shortcuts.js";
import { perFrame } from "../../lib/state.js";
import { totalOf } from "../../lib/usage.js";
import { emptyState, loading, View } from "../../lib/view.js";
import { Inspector } from "../../components/inspector.js";
import { TurnPlots } from "./plots.js";
import { spanDetails, turnDetails } from "./span-details.js";
import { TurnBox } from "./turn-box.js";
import { Turns } from "./turns.js";

const TICK_MS = 250;

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
      fill(this.#list, h("li", emptyState("Nothing has happened yet", "When the session runs its first turn, what it does is drawn here as it happens.")));
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
    const worked = list.reduce((sum, turn) => sum + (turn.end ?? Date.now()) - turn.begin, 0);
    const used = list.map((turn) => turn.usage ?? turn.spans?.usage() ?? null);
    const usage = totalOf(used.map((one) => ({ usage: one })));
    fill(this.#summary, [
      ["Turns", number(list.length)],
      ["Time in turns", duration(worked)],
      ["Tokens", tokens(usage.tokens.total)],
      ["Tool calls", number(used.reduce((sum, one) => sum + (one?.tool_calls ?? 0), 0))],
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
      this.#summarise(this.#turns.list);
      this.#tick();
    }, TICK_MS);
  }
}

customElements.define("view-timeline", TimelineView);
export default TimelineView;
