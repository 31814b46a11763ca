// A call of a tool as a card: one line that says what it does, and inside it what went in and what came out.

import { approvals, questionOf } from "../../lib/approvals.js";
import { fill, h, icon } from "../../lib/dom.js";
import { duration, plain } from "../../lib/format.js";
import { toolSubject } from "../../lib/tool-subject.js";
import { approvalBox } from "../../components/approval-box.js";
import { toolInput } from "../../components/tool-input.js";
import { toolOutput } from "./tool-output.js";

const ICONS = { bash: "terminal", task: "agent", delegate: "agent", read_file: "file", write_file: "edit", edit_file: "edit", grep: "search", glob: "search", web_search: "search", todo: "check" };
const STATES = {
  pending: "Not run yet", running: "Running", waiting: "Waits for approval", done: "Done", error: "Failed", cut: "Cut off",
};

/** A card of one call. It is updated in place, so that what a person opened stays open. */
class ToolCard extends HTMLElement {
  #call;
  #model;
  #turn;
  #print = "";
  #details = h("details.tool-details");
  #summary = h("summary.tool-summary");
  #body = h("div.tool-body");
  #approval = h("div.tool-approval");
  #agent = null;
  #nested;
  #isFilled = false;

  /** `nested(sessionId, began)` makes the element that shows an agent's conversation; `began` is when it was called. */
  constructor(call, turn, model, nested) {
    super();
    this.#call = call;
    this.#turn = turn;
    this.#model = model;
    this.#nested = nested;
    this.#details.append(this.#summary, this.#body);
    this.#details.addEventListener("toggle", () => this.#details.open && this.#fillBody());
  }

  connectedCallback() {
    if (!this.firstChild) fill(this, this.#details, this.#approval);
    this.update();
  }

  /** Show how the call stands now. */
  update() {
    const known = this.#model.tools.get(this.#turn, this.#call.id);
    const question = known?.output ? null : questionOf(approvals.value, this.#model.id, this.#call.id);
    const state = question ? "waiting" : known?.status ?? "pending";
    const print = JSON.stringify([state, known?.duration, Boolean(known?.output), known?.child, question?.request_id]);
    if (print === this.#print) return;
    const wasWaiting = this.dataset.state === "waiting";
    this.#print = print;
    this.dataset.state = state;
    const { name } = this.#call;
    fill(this.#summary, icon("chevron", "fold"), icon(ICONS[name] ?? "profiles"), h("span.tool-name", name),
      h("span.tool-subject", { dir: "ltr" }, plain(toolSubject(this.#call.input).slice(0, 1000)).split("\n")[0].slice(0, 200)),
      h("span.tool-state", state === "running" && h("span.spinner", { "aria-hidden": "true" }),
        h("span", { class: state === "done" ? "visually-hidden" : "" }, STATES[state]),
        known?.duration >= 1 && h("span.tool-time", duration(known.duration))));
    if (question) fill(this.#approval, approvalBox(question));
    else if (wasWaiting || this.#approval.firstChild) fill(this.#approval);
    if (opensItself(name, state, this.#call.input)) this.#details.open = true;
    if (this.#details.open) this.#fillBody(true);
    else this.#isFilled = false;
  }

  #fillBody(anew = false) {
    if (this.#isFilled && !anew) return;
    this.#isFilled = true;
    const known = this.#model.tools.get(this.#turn, this.#call.id);
    const content = [toolInput(this.#call)];
    if (known?.child) content.push(this.#agent ??= this.#nested(known.child, known.began));
    else if (known?.output !== undefined && known?.output !== null) content.push(toolOutput(this.#call, known.output));
    else if (known?.status === "cut") content.push(h("p.muted", "It was cut off; there is no result."));
    fill(this.#body, content);
  }
}

/** Makes the cards of a conversation. A card of the live step goes on in its stored message, with what a person did there. */
export class ToolCards {
  #lent = new Map();
  #make;

  constructor(model, nested) {
    this.#make = (call, turn) => new ToolCard(call, turn, model, nested);
  }

  /** Return the card for a call of the live step. */
  lend(call, turn) {
    const card = this.#make(call, turn);
    this.#lent.set(`${turn}:${call.id}`, card);
    return card;
  }

  /** Return the card for a call of a stored message. */
  take(call, turn) {
    const key = `${turn}:${call.id}`;
    const lent = this.#lent.get(key);
    this.#lent.delete(key);
    return lent ?? this.#make(call, turn);
  }
}

/** Edits and lists of steps are shown without being asked; so is an agent at work. */
function opensItself(name, state, input) {
  if (state === "waiting") return true;
  if (["task", "delegate"].includes(name)) return state === "running";
  if (name === "todo") return Array.isArray(input?.todos);
  return name === "edit_file" && String(input?.new_string ?? "").length < 4000;
}

customElements.define("tool-card", ToolCard);
