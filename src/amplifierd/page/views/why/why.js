// Why: what a request to a model was made of, and where every part of it came from.

import { get, ofSession } from "../../lib/api.js";
import { announce, fill, h, icon, iconButton, setText } from "../../lib/dom.js";
import { dollars, duration, number, plain, plural } from "../../lib/format.js";
import { sessionHref } from "../../lib/router.js";
import { shortcut } from "../../lib/shortcuts.js";
import { settled } from "../../lib/state.js";
import { watchSession } from "../../lib/stream.js";
import { emptyState, failure, loading, View } from "../../lib/view.js";
import { explanation } from "../../components/explanation.js";
import { factList } from "../../components/inspector.js";
import { longText } from "../../components/long-text.js";
import { composition } from "./composition.js";
import { partList } from "./request-parts.js";

const PAGE = 1000;
const CHARACTERS_PER_TOKEN = 4;

class WhyView extends View {
  #requests = [];
  #values = null;
  #at = -1;
  #picker = h("select", { "aria-label": "Request" });
  #older = iconButton("chevron", "Request before", () => this.#step(-1), { class: "is-back" });
  #newer = iconButton("chevron", "Next request", () => this.#step(1));
  #count = h("span.muted.small");
  #place = h("div.why-request");
  #main = h("div.split-main.why-main");

  async open() {
    const { signal } = this;
    const { id } = this.params;
    fill(this, this.#main);
    fill(this.#main, loading("Loading the requests…"));
    this.listen(this.#picker, "change", () => this.#show(Number(this.#picker.value)));
    shortcut("[", "Request before", () => this.#step(-1), { signal, group: "Why" });
    shortcut("]", "Next request", () => this.#step(1), { signal, group: "Why" });
    const refresh = settled(() => this.#refresh().catch(() => {}), 400, 2000);
    watchSession(id, ({ event, session_id: of }) => of === id && event === "response:stored" && refresh(), { signal });
    await this.#load();
    if (!this.#requests.length) {
      fill(this.#main, emptyState("No request yet", "Everything that is sent to a model is kept. After the first turn you see here what it was made of."));
      return;
    }
    this.#build();
    await this.#show(await this.#wanted());
  }

  async #load() {
    const found = [];
    for (let offset = 0; ; offset += PAGE) {
      const page = await get(ofSession(this.params.id, "/requests"), { limit: PAGE, offset }, { signal: this.signal });
      found.push(...page.requests);
      if (!page.has_more) break;
    }
    this.#requests = found;
  }

  async #refresh() {
    const wasEmpty = !this.#requests.length;
    await this.#load();
    if (wasEmpty && this.#requests.length) {
      this.#build();
      await this.#show(this.#requests.length - 1);
    } else if (!wasEmpty) this.#fillPicker();
  }

  /** The request that the address names: by its own id, by the message that answered it, or by its turn. */
  async #wanted() {
    const { message } = this.params;
    const last = this.#requests.length - 1;
    if (message) {
      const found = this.#requests.findIndex((one) => one.request_id === message || one.message_id === message);
      if (found >= 0) return found;
      const { turns } = await get(ofSession(this.params.id, "/turns"), { limit: PAGE }, { signal: this.signal });
      const turn = turns.find((one) => one.message_ids.includes(message))?.turn;
      return turn ? this.#ofTurn(turn) : last;
    }
    return this.query.has("turn") ? this.#ofTurn(Number(this.query.get("turn"))) : last;
  }

  #ofTurn(turn) {
    const found = this.#requests.findLastIndex((one) => one.turn === turn);
    return found >= 0 ? found : this.#requests.length - 1;
  }

  #build() {
    fill(this.#main, h("div.why-head", h("div.why-picker", this.#older, this.#picker, this.#newer), this.#count), this.#place);
    this.#fillPicker();
  }

  #fillPicker() {
    const groups = new Map();
    this.#requests.forEach((request, place) => {
      if (!groups.has(request.turn)) groups.set(request.turn, h("optgroup", { label: `Turn ${request.turn}` }));
      const end = request.response?.finish_reason === "tool_calls" ? "asks for tools" : request.response?.error ? "failed" : request.response ? "answers" : "no answer";
      groups.get(request.turn).append(h("option", { value: String(place) }, `Request ${request.number} · turn ${request.turn} · ${end}`));
    });
    fill(this.#picker, [...groups.values()]);
    if (this.#at >= 0) this.#picker.value = String(this.#at);
    setText(this.#count, `of ${plural(this.#requests.length, "request")}`);
    this.#older.disabled = this.#at <= 0;
    this.#newer.disabled = this.#at >= this.#requests.length - 1;
  }

  #step(by) {
    const to = this.#at + by;
    if (this.#requests[to]) this.#show(to);
  }

  async #show(place) {
    const isFirst = this.#at < 0;
    this.#at = place;
    this.#fillPicker();
    const { request_id: wanted } = this.#requests[place];
    if (!isFirst) history.replaceState(null, "", sessionHref(this.params.id, `why/${encodeURIComponent(wanted)}`));
    const waiting = setTimeout(() => this.#at === place && fill(this.#place, loading()), isFirst ? 0 : 150);
    try {
      const path = (one) => ofSession(this.params.id, `/requests/${encodeURIComponent(one.request_id)}`);
      const before = this.#requests[place - 1];
      const [request, earlier] = await Promise.all([
        get(path(this.#requests[place]), {}, { signal: this.signal }),
        before ? get(path(before), {}, { signal: this.signal }) : null,
      ]);
      this.#values ??= get(ofSession(this.params.id, "/explain"), {}, { signal: this.signal });
      if (this.#at !== place) return;
      clearTimeout(waiting);
      fill(this.#place, this.#render(request, earlier));
      announce(`Request ${request.number}`);
      await this.#fillValues(request);
    } catch (error) {
      if (error.name !== "AbortError" && this.#at === place) fill(this.#place, failure(error, () => this.#show(place)));
    } finally {
      clearTimeout(waiting);
    }
  }

  #render(request, earlier) {
    const known = earlier ? new Set(earlier.parts.map((part) => part.hash)) : null;
    const list = h("div", partList(request.parts, { known, shown: new Set(request.parts.map((part) => part.origin?.kind ?? "message")) }));
    const toolTokens = Math.round(JSON.stringify(request.tools).length / CHARACTERS_PER_TOKEN);
    const { response } = request;
    const usage = response?.usage;
    return [
      h("section.why-facts", { "aria-label": "The request" },
        factList([
          ["Model", plain([request.model, request.provider].filter(Boolean).join(" · "))],
          ["Sent", usage ? `${number(usage.input_tokens)} tokens, as the provider counted` : `about ${number(request.tokens)} tokens`],
          ["Came back", usage && `${number(usage.output_tokens)} tokens`],
          ["From the cache", usage?.cache_read_tokens > 0 && `${number(usage.cache_read_tokens)} tokens`],
          ["Cost", usage?.cost_usd && dollars(usage.cost_usd)],
          ["Took", response?.duration_ms && duration(response.duration_ms)],
          ["Ended with", response?.finish_reason ?? (response?.error ? plain(response.error.message ?? response.error.type) : response ? null : "no answer yet")],
        ]),
        h("p.detail-links",
          request.message_id && h("a.button", { href: `${sessionHref(this.params.id)}?message=${encodeURIComponent(request.message_id)}` }, icon("sessions"), "The answer in the conversation"),
          h("a.button", { href: `${sessionHref(this.params.id, "timeline")}?turn=${request.turn}` }, icon("wait"), "Its turn in the timeline"))),
      h("section", h("h2.why-title", "What was sent"), changeLine(request, earlier),
        composition(request.parts, request.tools.length ? toolTokens : 0, (shown) => fill(list, partList(request.parts, { known, shown }))), list),
      h("section", h("h2.why-title", `Tools offered (${request.tools.length})`), toolList(request.tools)),
      Object.keys(request.parameters).length > 0 && h("section", h("h2.why-title", "Parameters"), longText(request.parameters, { label: "Parameters" })),
      h("section.why-values", h("h2.why-title", "Values of the plan behind it"), h("div.why-values-place", loading())),
    ];
  }

  /** The values that shaped a request: what it was told, and how its provider, loop and context are set. */
  async #fillValues(request) {
    const place = this.#place.querySelector(".why-values-place");
    try {
      const { values, build_id: build } = await this.#values;
      const provider = values.map(({ key }) => /^providers\[([^\]]+)\]/.exec(key)?.[1]).find((name) => name && (name === request.provider || name === `provider-${request.provider}`));
      const groups = [
        ["Instruction", (key) => key === "instruction"],
        ["Provider", (key) => key.startsWith(`providers[${provider}]`)],
        ["Loop", (key) => key.startsWith("session.orchestrator")],
        ["Context manager", (key) => key.startsWith("session.context")],
        ["Tools", (key) => key.startsWith("tools[")],
        ["Hooks", (key) => key.startsWith("hooks[")],
      ];
      const isOwn = ({ key }) => !key.endsWith(".source");
      fill(place, !build && h("p.muted", "This session runs a plan of its own: its author set these values."), groups.map(([name, fits]) => {
        const found = values.filter((value) => fits(value.key) && isOwn(value));
        return found.length > 0 && h("div.value-group", h("h3", name), found.map((value) => explanation(value)));
      }));
    } catch (error) {
      this.#values = null;
      if (error.name !== "AbortError") fill(place, failure(error));
    }
  }
}

function changeLine(request, earlier) {
  if (!earlier) return h("p.muted", "The first request of the session.");
  const before = new Set(earlier.parts.map((part) => part.hash));
  const now = new Set(request.parts.map((part) => part.hash));
  const fresh = [...now].filter((hash) => !before.has(hash)).length;
  const gone = [...before].filter((hash) => !now.has(hash)).length;
  return h("p.muted", `Since the request before: ${plural(fresh, "part")} new${gone ? `, ${number(gone)} left out` : ", nothing left out"}.`);
}

function toolList(tools) {
  if (!tools.length) return h("p.muted", "None.");
  return h("ul.tool-list", tools.map((tool) => h("li", h("details.part", { dataset: { origin: "tools" } },
    h("summary", icon("chevron", "fold"), h("code.part-kind", plain(tool.name)), h("span.part-what", plain(tool.description ?? ""))),
    h("div.part-body", h("p.small", plain(tool.description ?? "")), longText(tool.parameters ?? tool.input_schema ?? {}, { label: `Parameters of ${tool.name}` }))))));
}

customElements.define("view-why", WhyView);
export default WhyView;
