// All sessions: live, filtered, searched, with the sessions of agents below those they work for.

import { get } from "../lib/api.js";
import { approvals } from "../lib/approvals.js";
import { fill, h, icon, iconButton, refill } from "../lib/dom.js";
import { ago, costWord, moment, plural, sessionName, shortPath, tokens } from "../lib/format.js";
import { href, sessionHref } from "../lib/router.js";
import { load, loadMore, sessions } from "../lib/sessions.js";
import { describe, shortcut } from "../lib/shortcuts.js";
import { kept, perFrame, settled } from "../lib/state.js";
import { emptyState, failure, loading, View } from "../lib/view.js";
import { menuButton } from "../components/menu.js";
import { sessionMenu, showTrash } from "../components/session-actions.js";
import { importSession } from "../components/session-import.js";
import { stateOf, statusDot, stateWord } from "../components/status.js";
import { attempt } from "../components/toast.js";

const FILTERS = {
  all: { label: "All", fits: () => true },
  working: { label: "Working", fits: (state) => ["executing", "queued", "cancelling"].includes(state) },
  waiting: { label: "Waiting", fits: (state) => state === "waiting" },
  failed: { label: "Failed", fits: (state) => ["failed", "error"].includes(state) },
  ended: { label: "Ended", fits: (state) => ["completed", "terminated", "failed"].includes(state) },
};

class SessionsView extends View {
  #filter = kept.get("sessions.filter", "all");
  #profile = "";
  #words = "";
  #hits = null;
  #opened = new Set(kept.get("sessions.opened", []));
  #rows = new Map();
  #search = h("input", { type: "search", placeholder: "Search names and messages", "aria-label": "Search sessions" });
  #filters = h("div.segmented", { role: "group", "aria-label": "Show" });
  #profiles = h("select", { "aria-label": "Profile" });
  #list = h("ul.session-list", { "aria-label": "Sessions" });
  #foot = h("div.list-foot");

  open() {
    const find = settled(() => this.#find(), 200, 1000);
    fill(this,
      h("header.view-head", h("h1", "Sessions"), h("a.button.primary.narrow-only", { href: href("/new") }, icon("plus"), "New session")),
      h("div.toolbar", h("div.search-field", icon("search"), this.#search), this.#filters, this.#profiles,
        iconButton("upload", "Import a session", importSession), iconButton("trash", "Deleted sessions", showTrash)),
      this.#list, this.#foot);
    const render = perFrame(() => this.#render());
    this.listen(this.#search, "input", find);
    this.listen(this.#search, "keydown", (event) => {
      if (event.key === "ArrowDown") this.#list.querySelector("a")?.focus();
    });
    this.listen(this.#profiles, "change", () => {
      this.#profile = this.#profiles.value;
      render();
    });
    this.listen(this.#list, "keydown", (event) => this.#keys(event));
    this.listen(sessions, render);
    this.listen(approvals, render);
    const clock = setInterval(render, 30_000);
    this.signal.addEventListener("abort", () => clearInterval(clock));
    const group = "Sessions";
    describe("ArrowDown ArrowUp", "Move through the list", { signal: this.signal, group });
    describe("ArrowRight ArrowLeft", "Show or hide what is below", { signal: this.signal, group });
    describe("Enter", "Open", { signal: this.signal, group });
    describe(".", "Actions", { signal: this.signal, group });
    shortcut("/", "Search", () => this.#search.select(), { signal: this.signal, group });
    if (this.query.get("focus") === "search") this.#search.focus();
  }

  async #find() {
    const words = this.#search.value.trim();
    this.#words = words;
    if (!words) {
      this.#hits = null;
      this.#render();
      return;
    }
    const found = await attempt(() => get("/sessions/search", { q: words, limit: 100 }, { signal: this.signal }), "Not searched");
    if (found && this.#words === words) {
      this.#hits = found.hits;
      this.#render();
    }
  }

  #render() {
    const { status, byId, hasMore, total, error } = sessions.value;
    this.#renderFilters(byId);
    if (status === "loading") return void fill(this.#foot, loading("Loading sessions…"));
    if (status === "error") return void fill(this.#foot, failure(error, load));
    const entries = this.#hits ? this.#found() : this.#tree(byId);
    this.#place(entries);
    if (entries.length) {
      fill(this.#foot, !this.#hits && hasMore && h("button", { type: "button", onclick: () => attempt(loadMore) }, `Show older (${plural(total - byId.size, "more", "more")})`));
    } else if (this.#hits || this.#filter !== "all" || this.#profile) {
      fill(this.#foot, emptyState("Nothing found", "No session matches the words and filters.",
        h("button", { type: "button", onclick: () => this.#showAll() }, "Show all")));
    } else {
      fill(this.#foot, emptyState("No sessions yet", "A session is a conversation with an agent in a directory of this machine.",
        h("a.button.primary", { href: href("/new") }, icon("plus"), "Start the first one")));
    }
  }

  #showAll() {
    this.#search.value = this.#words = this.#profile = this.#profiles.value = "";
    this.#hits = null;
    this.#choose("all");
  }

  #choose(filter) {
    this.#filter = filter;
    kept.set("sessions.filter", filter);
    this.#render();
  }

  #renderFilters(byId) {
    const states = [...byId.values()].filter((one) => one.created_by === "user").map(stateOf);
    refill(this.#filters, Object.entries(FILTERS).map(([name, { label, fits }]) => {
      const count = name === "all" ? 0 : states.filter(fits).length;
      return h("button", {
        type: "button", "aria-pressed": String(this.#filter === name), dataset: { key: name },
        onclick: () => this.#choose(name),
      }, label, count > 0 && h("span.count", String(count)));
    }));
    const names = [...new Set([...byId.values()].map((one) => one.profile_name).filter(Boolean))].sort();
    const options = ["", ...names];
    if (this.#profiles.options.length && [...this.#profiles.options].map((one) => one.value).join() === options.join()) return;
    fill(this.#profiles, options.map((name) => h("option", { value: name, selected: name === this.#profile }, name || "All profiles")));
  }

  /** Return the rows of the tree that are to be seen: {session, depth, children}. */
  #tree(byId) {
    const children = new Map();
    for (const one of byId.values()) {
      if (one.created_by !== "agent" || !byId.has(one.parent_session_id)) continue;
      children.set(one.parent_session_id, [...(children.get(one.parent_session_id) ?? []), one]);
    }
    const order = (one) => one.last_activity_at ?? one.created_at;
    const roots = [...byId.values()].filter((one) => one.created_by !== "agent" || !byId.has(one.parent_session_id));
    roots.sort((one, other) => order(other).localeCompare(order(one)));
    const rows = [];
    const walk = (session, depth) => {
      const below = (children.get(session.session_id) ?? []).sort((a, b) => a.created_at.localeCompare(b.created_at));
      rows.push({ session, depth, children: below.length });
      if (this.#opened.has(session.session_id)) below.forEach((child) => walk(child, depth + 1));
    };
    const { fits } = FILTERS[this.#filter] ?? FILTERS.all;
    for (const root of roots) {
      if (fits(stateOf(root)) && (!this.#profile || root.profile_name === this.#profile)) walk(root, 0);
    }
    return rows;
  }

  #found() {
    const { fits } = FILTERS[this.#filter] ?? FILTERS.all;
    return this.#hits
      .map((hit) => ({ ...hit, session: sessions.value.byId.get(hit.session.session_id) ?? hit.session, depth: 0, children: 0 }))
      .filter(({ session }) => fits(stateOf(session)) && (!this.#profile || session.profile_name === this.#profile));
  }

  /** Put the rows in order; rows that did not change stay as they are, with the focus. */
  #place(entries) {
    const wanted = [];
    for (const entry of entries) {
      const { session_id: id } = entry.session;
      const print = JSON.stringify([entry, stateOf(entry.session), ago(entry.session.last_activity_at), this.#opened.has(id)]);
      let row = this.#rows.get(id);
      if (row?.print !== print) {
        const focused = row?.element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
        const element = this.#row(entry);
        if (row) row.element.replaceWith(element);
        if (focused) element.querySelector(`[data-key="${focused}"]`)?.focus();
        row = { element, print };
        this.#rows.set(id, row);
      }
      wanted.push(row.element);
    }
    const stay = new Set(wanted);
    for (const [id, { element }] of this.#rows) {
      if (!stay.has(element)) {
        element.remove();
        this.#rows.delete(id);
      }
    }
    wanted.forEach((element, at) => {
      if (this.#list.children[at] !== element) this.#list.insertBefore(element, this.#list.children[at] ?? null);
    });
  }

  #row({ session, depth, children, snippet, message_id: message }) {
    const id = session.session_id;
    const usage = session.usage_tree ?? session.usage;
    const isOpen = this.#opened.has(id);
    const address = sessionHref(id) + (message ? `?message=${encodeURIComponent(message)}` : "");
    return h("li.session-row", { dataset: { id, state: stateOf(session) }, style: { "--depth": String(depth) } },
      children
        ? h("button.icon-button.expander", {
          type: "button", "aria-expanded": String(isOpen), "aria-label": `${plural(children, "sub-session")} of ${sessionName(session)}`,
          dataset: { key: "expander" }, onclick: () => this.#toggle(id),
        }, icon("chevron"))
        : h("span.expander"),
      statusDot(session),
      h("a.session-name", { href: address, dataset: { key: "link" } },
        h("span.name", sessionName(session)),
        h("span.detail", h("span.narrow-only", `${[stateWord(stateOf(session)), usage && costWord(usage)].filter(Boolean).join(" · ")} · `), snippet ?? detailOf(session))),
      h("span.cell.profile", { title: "Profile" }, session.profile_name ?? session.bundle ?? "own plan"),
      h("span.cell.state", stateWord(stateOf(session))),
      h("span.cell.number", { title: "Turns" }, plural(session.turn_count, "turn")),
      h("span.cell.number.wide", { title: "Tokens" }, `${tokens(usage?.tokens?.total ?? 0)} tok`),
      h("span.cell.number", { title: "Cost" }, costWord(usage)),
      h("time.cell.number", { dateTime: session.last_activity_at ?? session.created_at, title: moment(session.last_activity_at ?? session.created_at) },
        ago(session.last_activity_at ?? session.created_at)),
      menuButton(`Actions for ${sessionName(session)}`, () => sessionMenu(sessions.value.byId.get(id) ?? session), { dataset: { key: "menu" } }));
  }

  #toggle(id, isOpen = !this.#opened.has(id)) {
    this.#opened[isOpen ? "add" : "delete"](id);
    kept.set("sessions.opened", [...this.#opened].slice(-100));
    this.#render();
  }

  #keys(event) {
    const row = event.target.closest(".session-row");
    if (!row) return;
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (step) {
      event.preventDefault();
      if (row[step]) row[step].querySelector("a").focus();
      else if (event.key === "ArrowUp") this.#search.focus();
    } else if (["ArrowRight", "ArrowLeft"].includes(event.key) && row.querySelector("button.expander")) {
      event.preventDefault();
      this.#toggle(row.dataset.id, event.key === "ArrowRight");
    } else if (event.key === "." && event.target.matches("a")) {
      event.preventDefault();
      row.querySelector('[data-key="menu"]').click();
    }
  }
}

function detailOf(session) {
  const parts = [shortPath(session.working_dir)];
  if (session.forked_from_turn !== null) parts.push(`fork of turn ${session.forked_from_turn}`);
  if (session.last_error) parts.push(session.last_error.detail ?? session.last_error.title);
  return parts.filter(Boolean).join(" · ");
}

customElements.define("view-sessions", SessionsView);
export default SessionsView;
