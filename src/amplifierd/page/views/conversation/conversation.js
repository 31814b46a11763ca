// The conversation of a session: read, answered, steered.

import { approvals, ofTree } from "../../lib/approvals.js";
import { announce, fill, h, icon } from "../../lib/dom.js";
import { sessions } from "../../lib/sessions.js";
import { shortcut } from "../../lib/shortcuts.js";
import { perFrame } from "../../lib/state.js";
import { onEvents, watchSession } from "../../lib/stream.js";
import { emptyState, failure, loading, View } from "../../lib/view.js";
import { PlanBar } from "../../components/permissions.js";
import { toast } from "../../components/toast.js";
import { turnActions } from "./actions.js";
import { Composer } from "./composer.js";
import { ConversationLog } from "./log.js";
import { textOf } from "./message.js";
import { PromptQueue } from "./queue.js";
import { TurnMeter } from "./turn-meter.js";

const NEAR_END_PX = 90;

class ConversationView extends View {
  #scroller = h("div.log-scroller", { tabIndex: 0, role: "log", "aria-label": "Conversation", "aria-live": "off" });
  #older = h("div.log-older");
  #jump = h("button.jump", { type: "button", hidden: true, onclick: () => this.#toEnd() }, icon("down"), "Latest");
  #composer;
  #log;
  #actions;
  #isAtEnd = true;
  #isWatched = false;
  #target = null;
  #top = 0;
  #isLoadingOlder = false;

  async open() {
    const { id } = this.params;
    const { signal } = this;
    this.#composer = new Composer(id, signal);
    this.#log = new ConversationLog(id, { signal, onChange: () => this.#changed() });
    this.#actions = this.#log.actions = turnActions(this.#log.model, { write: (text) => this.#composer.write(text) });
    const queue = new PromptQueue(id, { signal, edit: (text) => this.#composer.write(text) });
    fill(this.#scroller, loading("Loading the conversation…"));
    const meter = new TurnMeter(id, signal);
    const plan = new PlanBar(id, (words) => this.#composer.write(words + textOf(this.#log.model.lastAnswer)));
    fill(this, this.#scroller, h("div.jump-place", this.#jump), h("div.dock", queue, plan, meter, this.#composer));
    const ready = () => {
      this.#isWatched = true;
      this.#log.model.catchUp().catch(() => {});
    };
    watchSession(id, () => {}, { signal, ready });
    const update = perFrame(() => {
      const session = sessions.value.byId.get(id) ?? null;
      this.#composer.update(session);
      meter.update(session);
      plan.update(session);
    });
    this.listen(sessions, update);
    this.listen(approvals, update);
    this.listen(this.#scroller, "scroll", () => this.#scrolled());
    this.listen(this.#composer, "sent", () => this.#toEnd());
    onEvents(({ event, session_id: of, data }) => of === id && event === "execution:done" && announce(endOf(data)), { signal });
    this.#shortcuts(id);
    for (const type of ["wheel", "pointerdown", "touchmove", "keydown"]) this.listen(this.#scroller, type, () => { this.#target = null; });
    const growth = new ResizeObserver(() => (this.#isAtEnd ? this.#toEnd() : this.#target?.scrollIntoView({ block: "center" })));
    growth.observe(this.#log);
    growth.observe(this.#scroller);
    signal.addEventListener("abort", () => growth.disconnect());
    await this.#load();
  }

  async #load() {
    const { model } = this.#log;
    try {
      await model.load({ isWatched: this.#isWatched });
    } catch (error) {
      if (error.name !== "AbortError") fill(this.#scroller, failure(error, () => this.#load()));
      return;
    }
    fill(this.#scroller, this.#older, this.#log);
    this.#log.renderNow();
    this.#showEmpty();
    const wanted = this.query.get("message");
    if (wanted) await this.#goTo(wanted);
    else this.#toEnd();
    const upper = new IntersectionObserver(([entry]) => entry.isIntersecting && this.#loadOlder(), { root: this.#scroller, rootMargin: "800px" });
    upper.observe(this.#older);
    this.signal.addEventListener("abort", () => upper.disconnect());
    if (matchMedia("(pointer: fine)").matches && !wanted) this.#composer.querySelector("textarea").focus();
  }

  async #goTo(messageId) {
    if (!(await this.#log.model.loadTo(messageId))) {
      toast("The message of this link is no longer in the conversation", { kind: "error" });
      this.#toEnd();
      return;
    }
    this.#log.renderNow();
    this.#isAtEnd = false;
    const element = this.#log.elementOf(messageId);
    this.#target = element; // What is above it may get its height later; it stays in sight until the reader scrolls.
    element?.scrollIntoView({ block: "center" });
    element?.classList.add("is-target");
    element?.focus({ preventScroll: true });
  }

  async #loadOlder() {
    const { model } = this.#log;
    if (this.#isLoadingOlder || !model.hasOlder) return;
    this.#isLoadingOlder = true;
    fill(this.#older, loading("Loading what was said before…"));
    try {
      await model.loadOlder();
      const first = this.#log.firstElementChild;
      const place = () => first?.getBoundingClientRect().top ?? 0;
      const before = place();
      fill(this.#older);
      this.#log.renderNow();
      if (!this.#isAtEnd) this.#scroller.scrollTop += place() - before;
    } catch (error) {
      fill(this.#older, failure(error, () => this.#loadOlder()));
    } finally {
      this.#isLoadingOlder = false;
    }
  }

  #changed() {
    this.#showEmpty();
    if (this.#isAtEnd) this.#toEnd();
    else this.#jump.hidden = false;
  }

  #showEmpty() {
    const isEmpty = !this.#log.model.messages.length;
    const shown = this.#scroller.querySelector(".state-box");
    if (isEmpty && !shown) this.#scroller.append(emptyState("Nothing said yet", "Write below what the agent should do. Everything it does is shown here as it happens."));
    else if (!isEmpty) shown?.remove();
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const isNearEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    if (isNearEnd) this.#isAtEnd = true;
    else if (scrollTop < this.#top) this.#isAtEnd = false;
    this.#top = scrollTop;
    this.#jump.hidden = this.#isAtEnd;
  }

  #toEnd() {
    this.#isAtEnd = true;
    this.#target = null;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#jump.hidden = true;
  }

  #shortcuts(id) {
    const options = { signal: this.signal, group: "Conversation" };
    shortcut("j", "Next message", () => this.#step(1), options);
    shortcut("k", "Previous message", () => this.#step(-1), options);
    shortcut("End", "To the end", () => this.#toEnd(), options);
    shortcut("a", "To the waiting question", () => {
      const [first] = ofTree(approvals.value, id);
      if (first) this.querySelector(".approval button")?.focus();
      else toast("Nothing is waiting for an answer here");
    }, options);
    shortcut("e", "Edit the last prompt and branch", () => this.#lastPrompt("edit"), options);
    shortcut("u", "Undo the last turn", () => this.#lastPrompt("undo"), options);
  }

  #lastPrompt(what) {
    const { model } = this.#log;
    const message = model.messages.findLast((one) => one.role === "user" && model.promptOf(one.turn) === one);
    if (!message) return;
    if (what === "edit") this.#actions.edit(message);
    else this.#actions.undo(message.turn);
  }

  #step(by) {
    const messages = [...this.#log.querySelectorAll(":scope > .turn > .turn-messages > .message")];
    const at = messages.indexOf(document.activeElement?.closest?.(".message"));
    const next = messages.at(at < 0 ? -1 : Math.max(0, Math.min(messages.length - 1, at + by)));
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }
}

function endOf({ status }) {
  return { completed: "The agent has answered.", failed: "The turn failed.", cancelled: "The turn was stopped." }[status] ?? "The turn has ended.";
}

customElements.define("view-conversation", ConversationView);
export default ConversationView;
