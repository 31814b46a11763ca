// Everything that waits for an answer, in all sessions, the oldest first.

import { approvals, load } from "../lib/approvals.js";
import { fill, h, refill, setText } from "../lib/dom.js";
import { moment, plural, sessionName, since } from "../lib/format.js";
import { sessionHref } from "../lib/router.js";
import { refresh, sessions } from "../lib/sessions.js";
import { shortcut } from "../lib/shortcuts.js";
import { perFrame } from "../lib/state.js";
import { emptyState, loading, View } from "../lib/view.js";
import { approvalBox } from "../components/approval-box.js";
import { toolInput } from "../components/tool-input.js";

class InboxView extends View {
  #items = new Map();
  #asked = new Set();
  #count = h("span.muted");
  #list = h("ol.inbox-list", { "aria-label": "Questions" });
  #foot = h("div");

  async open() {
    fill(this, h("header.view-head", h("h1", "Inbox"), this.#count), this.#list, this.#foot);
    fill(this.#foot, loading("Loading questions…"));
    await load();
    const render = perFrame(() => this.#render());
    this.listen(approvals, render);
    this.listen(sessions, render);
    const clock = setInterval(render, 30_000);
    this.signal.addEventListener("abort", () => clearInterval(clock));
    const group = "Inbox";
    shortcut("j", "Next question", () => this.#move(1), { signal: this.signal, group });
    shortcut("k", "Question before", () => this.#move(-1), { signal: this.signal, group });
  }

  #render() {
    const waiting = [...approvals.value.values()];
    setText(this.#count, waiting.length ? `${plural(waiting.length, "question")}, the oldest first` : "");
    for (const [id, item] of this.#items) {
      if (approvals.value.has(id)) continue;
      const hadFocus = item.contains(document.activeElement);
      const next = item.nextElementSibling ?? item.previousElementSibling;
      item.remove();
      this.#items.delete(id);
      if (hadFocus) next?.querySelector("button")?.focus();
    }
    waiting.forEach((approval, at) => {
      const item = this.#items.get(approval.request_id) ?? this.#make(approval);
      this.#head(item, approval);
      if (this.#list.children[at] !== item) this.#list.insertBefore(item, this.#list.children[at] ?? null);
    });
    fill(this.#foot, !waiting.length && emptyState("Nothing is waiting for you",
      "When an agent asks whether it may do something, the question appears here, whichever session it is in."));
  }

  #make(approval) {
    const item = h("li.inbox-item", h("div.inbox-head"), detailsOf(approval), approvalBox(approval));
    this.#items.set(approval.request_id, item);
    return item;
  }

  #head(item, approval) {
    const id = approval.session_id;
    const session = sessions.value.byId.get(id);
    if (!session && !this.#asked.has(id)) {
      this.#asked.add(id);
      refresh(id, { signal: this.signal }).catch(() => {});
    }
    refill(item.firstElementChild,
      h("a", { href: sessionHref(session?.root_session_id ?? id) }, session ? sessionName(session) : id),
      session?.profile_name && h("span.tag", session.profile_name),
      h("time.muted", { dateTime: approval.created_at, title: moment(approval.created_at) }, `asked ${since(approval.created_at)}`));
  }

  #move(step) {
    const items = [...this.#list.children];
    const at = items.findIndex((item) => item.contains(document.activeElement));
    const next = items[at < 0 ? 0 : Math.min(items.length - 1, Math.max(0, at + step))];
    next?.querySelector("button")?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }
}

/** What a tool is given, as its own card would show it; the question below it has every character. */
function detailsOf({ input, tool_name: name }) {
  if (!input || !Object.keys(input).length || "command" in input) return null;
  return h("div.inbox-input", toolInput({ name, input }));
}

customElements.define("view-inbox", InboxView);
export default InboxView;
