// The page of one session: its header and tabs, and below them the view of the tab.

import { emptyPage, failure } from "../lib/view.js";
import { fill, h, refill } from "../lib/dom.js";
import { costWord, moment, plain, plural, sessionName, shortPath, tokens } from "../lib/format.js";
import { navigate } from "../lib/navigation.js";
import { href, sessionHref } from "../lib/router.js";
import { hold, refresh, sessions } from "../lib/sessions.js";
import { perFrame } from "../lib/state.js";
import { setTitle } from "../lib/title.js";
import { menuButton } from "./menu.js";
import { rename, sessionMenu } from "./session-actions.js";
import { statusBadge } from "./status.js";

export class SessionFrame extends HTMLElement {
  #id;
  #tabs;
  #current = "";
  #head = h("header.session-head");
  #body = h("div.session-body");
  #abort = new AbortController();

  /** Return the frame of a session inside the page's frame: the one that is shown already, or a new one. */
  static in(frame, id, views) {
    const [present] = frame.main.children;
    if (present instanceof SessionFrame && present.#id === id) return present;
    const made = new SessionFrame(id, views);
    frame.show(made);
    return made;
  }

  constructor(id, views) {
    super();
    this.#id = id;
    this.#tabs = views.map((view) => view.tab).filter((tab) => tab?.label);
  }

  connectedCallback() {
    const { signal } = this.#abort;
    hold(this.#id, { signal });
    sessions.subscribe(perFrame(() => this.#renderHead()), { signal });
    this.#open();
  }

  #open() {
    fill(this, this.#head, this.#body);
    if (sessions.value.byId.has(this.#id)) return;
    refresh(this.#id, { signal: this.#abort.signal }).catch((error) => {
      if (error.name === "AbortError") return;
      fill(this, error.status === 404 ? missing(this.#id) : failure(error, () => this.#open()));
    });
  }

  disconnectedCallback() {
    this.#abort.abort();
  }

  show(view, route) {
    if (route) this.#current = route.tab.path;
    fill(this.#body, view);
    this.#renderHead();
  }

  #renderHead() {
    const session = sessions.value.byId.get(this.#id);
    if (!session || !this.isConnected) return;
    const name = sessionName(session);
    if (!this.#current) setTitle(name);
    const usage = session.usage_tree ?? session.usage;
    const parent = session.parent_session_id;
    refill(this.#head,
      h("div.session-title",
        parent && h("a.crumb", { href: sessionHref(parent), title: "The session that this one comes from" },
          session.created_by === "agent" ? "↑ parent" : `fork of turn ${session.forked_from_turn ?? "?"}`),
        h("h1", { title: name, ondblclick: () => rename(session) }, name),
        statusBadge(session),
        menuButton("Session actions", () => sessionMenu(session, { onDeleted: () => navigate("/") }), { dataset: { key: "menu" } })),
      h("div.session-facts",
        h("span", { title: "Profile" }, session.profile_name ?? session.bundle ?? "own plan"),
        session.model && h("span", { title: "Model of the last answer" }, session.model),
        h("span", { title: session.working_dir }, shortPath(session.working_dir)),
        h("span", { title: `Created ${moment(session.created_at)}` }, plural(session.turn_count, "turn")),
        h("span", { title: "Tokens of the session and its agents" }, `${tokens(usage?.tokens?.total ?? 0)} tokens`),
        h("span", { title: costTitle(usage) }, costWord(usage)),
        session.load_warnings.length > 0 && h("span.tag", { title: session.load_warnings.map(warningWord).join("\n") }, plural(session.load_warnings.length, "warning")),
        session.tainted && h("span.tag.is-warn", { title: "It has read content from outside and private data: every host that your own files do not name is asked about" }, "tainted"),
        session.stale && h("span.tag", { title: "The profile has a newer build" }, "newer build"),
        session.origin && h("span.tag", { title: "Stored by another program; it is copied with the first turn" }, session.origin)),
      this.#tabs.length > 1 && h("nav.tabs", { "aria-label": "Session" }, this.#tabs.map(({ label, path }) => h("a.tab", {
        href: sessionHref(this.#id, path), "aria-current": path === this.#current ? "page" : null, dataset: { key: `tab:${path}` },
      }, label))));
  }
}

function missing(id) {
  return emptyPage("No such session", `There is no session ${plain(id)}, or it was deleted.`, h("a.button", { href: href("/") }, "Sessions"));
}

/** A module that could not be loaded tells it in other words than everything else. */
const warningWord = ({ message, module_id: module, error }) => plain(message ?? `${module}: ${error}`);

function costTitle(usage) {
  const unpriced = usage?.unpriced_tokens ?? 0;
  const known = "Cost of the session and its agents";
  return unpriced ? `${known}; ${tokens(unpriced)} tokens have no known price` : known;
}

customElements.define("session-frame", SessionFrame);
