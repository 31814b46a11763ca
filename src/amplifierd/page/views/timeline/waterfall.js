// A turn as a waterfall: one row per span, drawn where and as long as it happened.

import { fill, h, icon, setText } from "../../lib/dom.js";
import { dollars, duration, plain, tokens } from "../../lib/format.js";
import { usageOf } from "../../lib/usage.js";
import { TimeScale } from "./time-scale.js";

const ICONS = { model: "model", tool: "tool", delegation: "agent", agent: "agent", wait: "wait", hook: "hook", moment: "moment" };
const KINDS = { model: "Model", tool: "Tool", delegation: "Agent", agent: "Agent", wait: "Wait", hook: "Hook", moment: "Moment" };
const STATES = { running: "running", done: "", error: "failed", cut: "cut off" };
const WAITS = { approval: "waited for approval", retry: "waited to try again" };

export class Waterfall extends HTMLElement {
  #spans = null;
  #onOpen;
  #rows = new Map();
  #axis = h("div.fall-axis", { "aria-hidden": "true" });
  #grid = h("span.fall-track");
  #list = h("ol.fall-rows");
  #chosen = null;

  /** `onOpen(span, {from, takeFocus})` is called for a row that is clicked or entered. */
  constructor(onOpen) {
    super();
    this.#onOpen = onOpen;
  }

  connectedCallback() {
    if (this.firstChild) return;
    fill(this, h("div.fall-head", { "aria-hidden": "true" }, h("span"), this.#axis, h("span.fall-number", "Time"), h("span.fall-number", "Tokens"), h("span.fall-number", "Cost")),
      h("div.fall-body", h("div.fall-grid", { "aria-hidden": "true" }, h("span"), this.#grid), this.#list));
    this.#list.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Show what happened so far; what runs is drawn up to now. */
  update(spans, now = Date.now()) {
    this.#spans = spans;
    const rows = spans.rows();
    const until = spans.end ?? Math.max(now, spans.events.at(-1)?.at ?? now);
    const begin = spans.begin ?? until;
    const scale = new TimeScale(begin, until, rows.flatMap(({ span }) => work(span, until)));
    const ticks = scale.ticks();
    fill(this.#axis, ticks.map(({ place, ms }) => h("span.tick", { style: { "--at": place } }, ms ? duration(ms) : "0")),
      scale.folds.map((fold) => h("span.fold-mark", { style: { "--at": fold.place, "--size": fold.length }, title: `${duration(fold.to - fold.from)} of waiting, drawn shorter` }, "⋯")));
    fill(this.#grid, ticks.map(({ place }) => h("span.grid-line", { style: { "--at": place } })));
    const present = new Set();
    rows.forEach(({ span, depth }, place) => {
      present.add(span);
      const row = this.#rows.get(span) ?? this.#make(span);
      row.update(scale, depth, begin, until);
      const at = this.#list.children[place];
      if (at !== row.item) this.#list.insertBefore(row.item, at ?? null);
    });
    for (const [span, row] of this.#rows) {
      if (present.has(span)) continue;
      row.item.remove();
      this.#rows.delete(span);
    }
    if (!this.#list.querySelector("[tabindex='0']")) this.#rows.values().next().value?.button.setAttribute("tabindex", "0");
  }

  /** Mark the row that is shown closely; none without a span. */
  choose(span) {
    this.#rows.get(this.#chosen)?.button.removeAttribute("aria-current");
    this.#chosen = span;
    this.#rows.get(span)?.button.setAttribute("aria-current", "true");
  }

  #make(span) {
    const row = new Row(span, (event) => {
      this.#rove(row.button);
      this.#onOpen(span, { from: row.button, takeFocus: event.detail === 0 });
    });
    this.#rows.set(span, row);
    return row;
  }

  #key(event) {
    const buttons = [...this.#list.querySelectorAll(".fall-row")];
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const next = buttons[Math.max(0, Math.min(buttons.length - 1, to))];
    this.#rove(next);
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  #rove(button) {
    this.#list.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
    button.setAttribute("tabindex", "0");
  }
}

/** When a span did something itself: not while it waited, and not what its children did. */
function work(span, until) {
  const end = span.end ?? until;
  if (span.kind === "wait" || span.kind === "delegation" || span.kind === "agent") return [];
  const parts = [];
  let at = span.begin;
  for (const wait of span.waits) {
    parts.push({ begin: at, end: wait.begin });
    at = wait.end ?? end;
  }
  return [...parts, { begin: at, end }];
}

class Row {
  #span;
  #print = "";
  #shape = "";
  #track = h("span.fall-track");
  #name = h("span.fall-name");
  #numbers = [h("span.fall-number"), h("span.fall-number.fall-tokens"), h("span.fall-number.fall-cost")];

  constructor(span, onclick) {
    this.#span = span;
    this.button = h("button.fall-row", { type: "button", tabIndex: -1, onclick, dataset: { kind: span.kind } }, this.#name, this.#track, this.#numbers);
    this.item = h("li", this.button);
  }

  update(scale, depth, begin, until) {
    const span = this.#span;
    const end = span.end ?? until;
    const isPoint = end === span.begin && span.kind !== "model" && span.kind !== "tool";
    const from = scale.percent(span.begin);
    this.button.dataset.kind = span.kind;
    this.button.dataset.state = span.status;
    this.button.style.setProperty("--depth", depth);
    this.#draw([
      [isPoint ? "point" : "bar", from, scale.percent(end)],
      ...(span.first ? [["first", from, scale.percent(span.first)]] : []),
      ...span.waits.map((wait) => ["wait", scale.percent(wait.begin), scale.percent(wait.end ?? until)]),
    ]);
    const used = usageOf(span);
    const print = JSON.stringify([span.kind, span.name, span.subject, span.status, span.end && end - span.begin, used, span.agent]);
    const time = isPoint ? "" : duration(end - span.begin);
    setText(this.#numbers[0], time);
    if (print === this.#print) return;
    this.#print = print;
    fill(this.#name, icon(ICONS[span.kind]), h("span.fall-label", span.agent ?? plain(span.name)), h("span.fall-subject", plain(span.subject).split("\n")[0].slice(0, 120)));
    setText(this.#numbers[1], used.tokens ? tokens(used.tokens) : "");
    setText(this.#numbers[2], used.cost === null ? "" : dollars(used.cost));
    this.button.setAttribute("aria-label", sentence(span, used, span.begin - begin, end, isPoint));
  }

  #draw(segments) {
    const shape = segments.join();
    if (shape === this.#shape) return;
    this.#shape = shape;
    fill(this.#track, segments.map(([kind, from, to]) => h(`span.fall-${kind}`, { style: { "--at": from, "--size": to - from } })));
  }
}

function sentence(span, used, after, end, isPoint) {
  const waits = span.waits.filter((wait) => wait.end).map((wait) => `${duration(wait.end - wait.begin)} ${WAITS[wait.kind]}`);
  return [
    `${KINDS[span.kind]} ${plain(span.agent ?? span.name)}`, plain(span.subject).slice(0, 80), STATES[span.status],
    `after ${duration(after)}`, !isPoint && span.end && `took ${duration(end - span.begin)}`, ...waits,
    used.tokens && `${used.tokens} tokens`, used.cost !== null && dollars(used.cost),
  ].filter(Boolean).join(", ");
}

customElements.define("turn-waterfall", Waterfall);
