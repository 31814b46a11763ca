// The conversation on the page: turns with their messages, and at the end what is happening now.

import { approvals } from "../../lib/approvals.js";
import { fill, h, icon } from "../../lib/dom.js";
import { costWord, duration, plural, sentence } from "../../lib/format.js";
import { href, sessionHref } from "../../lib/router.js";
import { perFrame } from "../../lib/state.js";
import { onEvents } from "../../lib/stream.js";
import { LiveMessage, messageElement } from "./message.js";
import { Conversation } from "./model.js";
import { ToolCards } from "./tool-card.js";

const FIRST_WORD_MS = 3000;

/** Shows a conversation and keeps it current. `actions` are what can be done with its turns; an agent's has none. */
export class ConversationLog extends HTMLElement {
  model;
  actions = null;
  #isAgent;
  #onChange;
  #signal;
  #cards;
  #sections = new Map();
  #elements = new Map();
  #live = null;
  #dirty = new Set();
  #render = perFrame(() => this.#flush());

  constructor(id, { signal, isAgent = false, onChange = () => {} }) {
    super();
    this.#isAgent = isAgent;
    this.#signal = signal;
    this.#onChange = onChange;
    this.model = new Conversation(id, { signal, changed: (kind) => this.#mark(kind) });
    this.#cards = new ToolCards(this.model, (agent, began) => nestedAgent(agent, began, signal));
    approvals.subscribe(() => this.#mark("tools"), { signal, now: false });
  }

  /** The element of a message; null when it is not loaded. */
  elementOf(messageId) {
    return this.#elements.get(messageId)?.element ?? null;
  }

  /** Show now instead of with the next frame. */
  renderNow() {
    this.#flush();
  }

  #mark(kind) {
    this.#dirty.add(kind);
    this.#render();
  }

  #flush() {
    if (!this.#dirty.size || this.#signal.aborted) return;
    const kinds = [...this.#dirty];
    this.#dirty.clear();
    if (!this.model.isLoaded && !this.model.messages.length) return;
    const focused = this.contains(document.activeElement) ? document.activeElement : null;
    if (kinds.some((kind) => kind !== "live" && kind !== "tools")) this.#place();
    this.#placeLive();
    if (kinds.some((kind) => kind !== "live")) this.querySelectorAll("tool-card").forEach((card) => card.update());
    if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
    this.#onChange();
  }

  #place() {
    const turns = new Map();
    for (const message of this.model.messages) {
      if (message.role === "tool") continue;
      const turn = message.turn ?? 0;
      if (!turns.has(turn)) turns.set(turn, []);
      turns.get(turn).push(message);
    }
    const seen = new Set();
    let at = 0;
    for (const [turn, messages] of turns) {
      const section = this.#sectionOf(turn);
      this.#placeMessages(section, messages, seen);
      this.#renderFoot(section, turn);
      if (this.children[at] !== section.element) this.insertBefore(section.element, this.children[at] ?? null);
      at += 1;
    }
    for (const [turn, { element }] of this.#sections) {
      if (turns.has(turn)) continue;
      element.remove();
      this.#sections.delete(turn);
    }
    for (const id of this.#elements.keys()) if (!seen.has(id)) this.#elements.delete(id);
  }

  #sectionOf(turn) {
    if (!this.#sections.has(turn)) {
      const list = h("div.turn-messages");
      const foot = h("footer.turn-foot");
      const element = h("div.turn", { dataset: { turn: String(turn) }, role: "group", "aria-label": `Turn ${turn}` }, list, foot);
      this.#sections.set(turn, { element, list, foot, print: "" });
    }
    return this.#sections.get(turn);
  }

  #placeMessages({ list }, messages, seen) {
    let prompts = 0;
    messages.forEach((message, at) => {
      const isSteering = message.role === "user" && !isPictures(message) && prompts++ > 0;
      seen.add(message.id);
      const element = this.#elementFor(message, isSteering);
      if (list.children[at] !== element) list.insertBefore(element, list.children[at] ?? null);
    });
    while (list.children.length > messages.length) list.lastElementChild.remove();
  }

  /** Return the element of a message, made anew when it looks different now. */
  #elementFor(message, isSteering) {
    const known = this.#elements.get(message.id);
    if (known?.message === message && known.isSteering === isSteering) return known.element;
    const { content, html = "" } = message;
    const print = `${isSteering}${html}${JSON.stringify(content).length}${Array.isArray(content) && content.some((block) => block.html)}`;
    const isSame = known?.print === print;
    const element = isSame ? known.element : messageElement(message, this.#context(isSteering));
    if (!isSame) known?.element.replaceWith(element);
    this.#elements.set(message.id, { element, print, message, isSteering });
    return element;
  }

  #placeLive() {
    const { step } = this.model;
    const last = [...this.#sections.values()].at(-1);
    if (!step || !last) {
      this.#live?.element.remove();
      this.#live = null;
      return;
    }
    if (this.#live?.step !== step) {
      this.#live?.element.remove();
      this.#live = Object.assign(new LiveMessage(this.#context(false)), { step });
    }
    this.#live.update(step, this.model.lastTurn);
    if (this.#live.element.parentElement !== last.element) last.foot.before(this.#live.element);
  }

  #context(isSteering) {
    return { model: this.model, actions: this.actions, cards: this.#cards, isSteering, isAgent: this.#isAgent };
  }

  #renderFoot(section, turn) {
    const facts = this.model.turns.get(turn);
    const canRunAgain = this.actions !== null && facts?.status === "failed" && turn === this.model.lastTurn && Boolean(this.model.promptOf(turn));
    const print = JSON.stringify([facts, canRunAgain]);
    if (section.print === print) return;
    section.print = print;
    fill(section.foot, facts && [
      (facts.notices ?? []).map(({ text, level }) => h("p.notice", { dataset: { level } }, icon(level === "info" ? "chevron" : "warn"), text)),
      facts.status === "failed" && h("div.turn-error", { role: "alert" }, h("strong", "The turn failed"),
        h("p", sentence(vendorWords(facts.error?.detail ?? "no reason was given"))), facts.error?.hint && h("p.muted", sentence(facts.error.hint)),
        canRunAgain && h("div.form-foot", h("button", { type: "button", onclick: () => this.actions.again(turn) }, icon("undo"), "Try again"),
          facts.error?.code === "provider-auth" && h("a.button", { href: href("/daemon#daemon-keys") }, "Provider keys"))),
      facts.status === "cancelled" && h("p.notice", icon("stop"), "Stopped."),
      facts.usage && h("p.turn-usage", [
        facts.usage.seconds ? duration(facts.usage.seconds * 1000) : null,
        facts.usage.tool_calls ? plural(facts.usage.tool_calls, "tool call") : null,
        facts.usage.tokens ? `${plural(facts.usage.tokens.total, "token")}` : null,
        costWord(facts.usage),
      ].filter(Boolean).join(" · ")),
    ]);
  }
}

/** The sentence in what a vendor answered as JSON. */
function vendorWords(detail) {
  if (!detail.startsWith("{")) return detail;
  try {
    const answer = JSON.parse(detail);
    return answer.error?.message ?? answer.message ?? detail;
  } catch {
    return detail;
  }
}

function isPictures({ content }) {
  return Array.isArray(content) && content.length > 0 && content.every((block) => block.type === "image");
}

/** An agent's conversation inside the card of the call that started it; live while it works. */
function nestedAgent(id, began, signal) {
  const box = h("div.nested", { role: "group", "aria-label": "The agent's conversation" }, h("p.muted.small", "Loading…"));
  const log = new ConversationLog(id, { signal, isAgent: true });
  untilStored(id, began, signal).then(() => log.model.load()).then(
    () => fill(box, h("p.small", h("a", { href: sessionHref(id) }, "Open as a session")), log),
    (error) => error.name !== "AbortError" && fill(box, h("p.muted.small", `Its conversation cannot be shown: ${error.message}`)),
  );
  return box;
}

/** Wait for the first word of an agent that was called just now: it is announced a moment before it is stored. */
async function untilStored(id, began, signal) {
  if (!(Date.now() - Date.parse(began) < FIRST_WORD_MS)) return;
  const heard = new AbortController();
  await new Promise((resolve) => {
    onEvents(({ session_id: of }) => of === id && resolve(), { signal: AbortSignal.any([signal, heard.signal]) });
    setTimeout(resolve, FIRST_WORD_MS);
  });
  heard.abort();
}

customElements.define("conversation-log", ConversationLog);
