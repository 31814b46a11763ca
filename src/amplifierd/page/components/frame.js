// The frame of the page: navigation, how the connection stands, and the place where views are shown.

import { request } from "../lib/api.js";
import { approvals } from "../lib/approvals.js";
import { fill, h, icon, iconButton, LOGO, refill } from "../lib/dom.js";
import { ago, plural, sessionName } from "../lib/format.js";
import { canNotify, notices, toggleNotices } from "../lib/notices.js";
import { href, sessionHref } from "../lib/router.js";
import { sessions } from "../lib/sessions.js";
import { showHelp } from "../lib/shortcuts.js";
import { perFrame } from "../lib/state.js";
import { link } from "../lib/stream.js";
import { isDark, theme, toggleTheme } from "../lib/theme.js";
import { statusDot } from "./status.js";
import { toast } from "./toast.js";

const RECENT = 12;

export class Frame extends HTMLElement {
  #views;
  #retry;
  #main = h("main.main", { id: "main", tabIndex: -1 });
  #nav = h("ul.nav-list");
  #recentTitle = h("h2.side-title", "Recent");
  #recent = h("ul.recent-list", { "aria-label": "Recent sessions" });
  #banner = h("div.banner", { role: "status", hidden: true });
  #abort = new AbortController();
  #current = "";

  constructor(views, { retry }) {
    super();
    this.#views = views;
    this.#retry = retry;
  }

  connectedCallback() {
    const themeButton = iconButton("moon", "Switch between light and dark", toggleTheme);
    theme.subscribe(() => fill(themeButton, icon(isDark() ? "sun" : "moon")), { signal: this.#abort.signal });
    const noticesButton = iconButton("bell", "Notify me when an agent asks or has answered", changeNotices);
    notices.subscribe((isOn) => noticesButton.setAttribute("aria-pressed", String(isOn)), { signal: this.#abort.signal });
    fill(this,
      h("header.top-bar",
        iconButton("menu", "Navigation", () => this.#toggleSide(), { class: "side-toggle" }),
        h("a.brand", { href: href("/") }, h("img", { src: LOGO, alt: "", width: 20, height: 20 }), "Amplifier")),
      h("nav.side", { "aria-label": "Main" },
        h("a.brand", { href: href("/") }, h("img", { src: LOGO, alt: "", width: 20, height: 20 }), "Amplifier"),
        h("a.button.primary.new-button", { href: href("/new") }, icon("plus"), "New session", h("kbd", "n")),
        this.#nav,
        this.#recentTitle,
        this.#recent,
        h("div.side-foot", themeButton, canNotify && noticesButton,
          iconButton("help", "Keyboard shortcuts", showHelp),
          iconButton("logout", "Log out", () => this.#logOut()))),
      h("div.side-shade", { onclick: () => this.#toggleSide(false) }),
      h("div.content", this.#banner, this.#main));
    const options = { signal: this.#abort.signal };
    const renderRecent = perFrame(() => this.#renderRecent());
    const renderNav = perFrame(() => this.#renderNav());
    sessions.subscribe(renderRecent, options);
    approvals.subscribe(() => (renderRecent(), renderNav()), options);
    link.subscribe((state) => this.#renderLink(state), options);
    const clock = setInterval(renderRecent, 30_000);
    options.signal.addEventListener("abort", () => clearInterval(clock));
    this.addEventListener("keydown", (event) => event.key === "Escape" && this.#toggleSide(false));
  }

  disconnectedCallback() {
    this.#abort.abort();
  }

  /** Show a view. */
  show(view) {
    fill(this.#main, view);
    this.#main.scrollTop = 0;
  }

  /** The element that views are shown in. */
  get main() {
    return this.#main;
  }

  /** Mark where we are in the navigation. */
  mark(route, params) {
    this.#current = route?.tab ? `session:${params.id}` : route?.path ?? "";
    this.#renderNav();
    this.#renderRecent();
    this.#toggleSide(false);
  }

  #renderNav() {
    const waiting = approvals.value.size;
    refill(this.#nav, this.#views.filter((view) => view.nav).map(({ nav, path }) => h("li",
      h("a.nav-link", { href: href(path), "aria-current": this.#current === path ? "page" : null, title: `${nav.label} (${nav.keys})` },
        icon(nav.icon), h("span", nav.label),
        nav.badge === "approvals" && waiting > 0 && h("span.badge", { "aria-label": plural(waiting, "question") }, String(waiting))))));
  }

  #renderRecent() {
    const all = [...sessions.value.byId.values()].filter((one) => !one.parent_session_id || one.created_by === "user");
    const byTime = (one) => one.last_activity_at ?? one.created_at;
    all.sort((one, other) => byTime(other).localeCompare(byTime(one)));
    this.#recentTitle.hidden = !all.length;
    refill(this.#recent, all.slice(0, RECENT).map((session) => h("li",
      h("a.recent-link", {
        href: sessionHref(session.session_id),
        "aria-current": this.#current === `session:${session.session_id}` ? "page" : null,
      }, statusDot(session), h("span.recent-name", sessionName(session)), h("span.recent-time", ago(byTime(session)))))));
  }

  #renderLink({ link: state, retry_ms: wait }) {
    this.#banner.hidden = state !== "lost";
    if (state !== "lost") return;
    const soon = wait > 1500 ? ` Trying again in ${Math.round(wait / 1000)} s.` : " Trying again…";
    fill(this.#banner, icon("warn"), h("span", `Connection to the daemon lost. What you see may be old.${soon}`),
      h("button.link", { type: "button", onclick: this.#retry }, "Try now"));
  }

  #toggleSide(isOpen = !this.classList.contains("is-side-open")) {
    this.classList.toggle("is-side-open", isOpen);
  }

  async #logOut() {
    try {
      await request("POST", "/auth/logout", { body: {} });
    } finally {
      location.assign(href("/"));
    }
  }
}

async function changeNotices() {
  const isAllowed = await toggleNotices();
  if (!isAllowed) toast("The browser does not let this page notify you. Allow it in the browser's settings for this site.", { kind: "error" });
  else toast(notices.value ? "You are told when an agent asks or has answered, while you look elsewhere" : "No more notices");
}

customElements.define("page-frame", Frame);
