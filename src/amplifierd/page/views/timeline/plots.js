// Cost and tokens over the turns: bars, and the same numbers as a table.

import { fill, h, setText } from "../../lib/dom.js";
import { dollars, duration, number, plain, plural, tokens } from "../../lib/format.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 100;
const FEWEST = 20; // With fewer turns the bars stay as wide as with so many.

/** Two plots and their table. `onChoose(turn)` is called for a bar that is clicked. */
export class TurnPlots extends HTMLElement {
  #cost = h("div.plot-place");
  #tokens = h("div.plot-place");
  #table = h("details.plot-table");
  #onChoose;
  #turns = [];

  constructor(onChoose) {
    super();
    this.#onChoose = onChoose;
  }

  connectedCallback() {
    if (this.firstChild) return;
    fill(this, h("div.plots", this.#cost, this.#tokens), this.#table);
    this.#table.addEventListener("toggle", () => this.#fillTable());
  }

  update(turns) {
    this.#turns = turns.filter((turn) => turn.usage);
    this.hidden = this.#turns.length === 0;
    const costs = this.#turns.map((turn) => [Number(turn.usage.cost_usd ?? 0)]);
    const isPriced = this.#turns.some((turn) => turn.usage.cost_usd !== null);
    fill(this.#cost, isPriced ? this.#plot("Cost", costs, dollars, ["cost"]) : h("figure.plot", h("figcaption", h("span.plot-title", "Cost")), h("p.plot-none.muted", "No price is known for the models of this session.")));
    const counts = this.#turns.map(({ usage }) => [usage.tokens.input, usage.tokens.output]);
    fill(this.#tokens, this.#plot("Tokens", counts, tokens, ["input", "output"]));
    if (this.#table.open) this.#fillTable();
    else fill(this.#table, h("summary.link-like", "Show the numbers as a table"));
  }

  #plot(title, values, word, series) {
    const sums = values.map((parts) => parts.reduce((one, other) => one + other, 0));
    const most = Math.max(...sums, Number.MIN_VALUE);
    const total = sums.reduce((one, other) => one + other, 0);
    const said = h("span.plot-said.muted", `${word(total)} in ${plural(values.length, "turn")}${values.length > 1 ? `, at most ${word(most)}` : ""}`);
    const rest = said.textContent;
    const svg = this.#bars(values, most, series);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${title} per turn: ${word(total)} in all, at most ${word(most)} in one turn. The table below has the numbers.`);
    const at = (event) => {
      const box = svg.getBoundingClientRect();
      return Math.max(0, Math.min(values.length - 1, Math.floor(((event.clientX - box.left) / box.width) * Math.max(values.length, FEWEST))));
    };
    svg.addEventListener("pointermove", (event) => {
      const turn = this.#turns[at(event)];
      const parts = series.length > 1 ? series.map((name, index) => `${tokens(values[at(event)][index])} ${name}`).join(", ") : word(sums[at(event)]);
      setText(said, `Turn ${turn.number}: ${parts}`);
    });
    svg.addEventListener("pointerleave", () => { setText(said, rest); });
    svg.addEventListener("click", (event) => this.#onChoose(this.#turns[at(event)]));
    return h("figure.plot",
      h("figcaption", h("span.plot-title", title), series.length > 1 && h("span.plot-key", series.map((name) => h("span.key", { dataset: { series: name } }, name))), said),
      h("div.plot-area", svg),
      h("div.plot-ends", { "aria-hidden": "true", style: { "--size": (100 * values.length) / Math.max(values.length, FEWEST) } }, h("span", `turn ${this.#turns[0]?.number ?? 1}`), values.length > 1 && h("span", `turn ${this.#turns.at(-1).number}`)));
  }

  #bars(values, most, series) {
    const width = Math.max(values.length, FEWEST);
    const svg = svgElement("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", class: "plot-bars" });
    const gap = values.length > 150 ? 0 : 0.18;
    values.forEach((parts, index) => {
      let top = HEIGHT;
      parts.forEach((value, place) => {
        const size = value > 0 ? Math.max((value / most) * HEIGHT, 0.7) : 0;
        top -= size;
        svg.append(svgElement("rect", { x: index + gap / 2, y: top, width: 1 - gap, height: size, "data-series": series[place] }));
      });
    });
    return svg;
  }

  #fillTable() {
    if (!this.#table.open) return;
    fill(this.#table, h("summary.link-like", "Hide the table"),
      h("div.table-scroll", { tabIndex: 0, role: "region", "aria-label": "Cost and tokens per turn" }, h("table.numbers",
        h("caption.visually-hidden", "Cost and tokens per turn"),
        h("thead", h("tr", ["Turn", "Prompt", "Time", "Input", "Output", "Tools", "Cost"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", this.#turns.map((turn) => h("tr",
          h("th", { scope: "row" }, h("button.link", { type: "button", onclick: () => this.#onChoose(turn) }, `Turn ${turn.number}`)),
          h("td.cut", plain(turn.prompt)),
          h("td", duration(turn.end - turn.begin)),
          h("td", number(turn.usage.tokens.input)),
          h("td", number(turn.usage.tokens.output)),
          h("td", number(turn.usage.tool_calls)),
          h("td", turn.usage.cost_usd === null ? "unknown" : dollars(turn.usage.cost_usd))))))));
  }
}

function svgElement(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

customElements.define("turn-plots", TurnPlots);
