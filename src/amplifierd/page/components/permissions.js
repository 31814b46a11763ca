// What an agent may do without asking: its level, the plan that it ends with, and what was answered with "always".

import { get, ofSession, patch, remove, submit } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { keep } from "../lib/sessions.js";
import { visibleExactly } from "../lib/visible.js";
import { openDialog } from "./dialog.js";
import { stateOf } from "./status.js";
import { attempt } from "./toast.js";

const LEVELS = {
  plan: ["Plan", "It reads and thinks; nothing is written or executed"],
  ask: ["Ask", "It asks about what the rules of its profile do not approve"],
  edits: ["Edits", "It also edits files of its directory without asking"],
  auto: ["Auto", "It also runs commands that the sandbox contains without asking"],
};
const REACHES = { session: "in this session", project: "in this directory", everywhere: "everywhere" };
const ACCEPTED = "The plan is accepted. Carry it out.";
const EDITED = "The plan is accepted as it stands here. Carry it out.\n\n";

const choose = (id, level) =>
  attempt(async () => (keep(await patch(ofSession(id), { permission_level: level || null })), true), "Level not changed");

/** Where the permission level of a session is shown and chosen. */
export class LevelChooser extends HTMLElement {
  #id;
  #field = h("select", { "aria-label": "Permission level" },
    h("option", { value: "", title: "The rules of its profile are all there is" }, "Profile's rules"),
    Object.entries(LEVELS).map(([value, [label, title]]) => h("option", { value, title }, label)));

  constructor(id) {
    super();
    this.#id = id;
    this.#field.addEventListener("change", () => choose(this.#id, this.#field.value));
  }

  connectedCallback() {
    fill(this, this.#field);
  }

  update(session) {
    if (!session || document.activeElement === this.#field) return;
    this.#field.value = session.permission_level ?? "";
    this.#field.title = LEVELS[session.permission_level]?.[1] ?? "The rules of its profile are all there is";
  }
}

/** What is offered when a turn at the level plan has ended: accept its plan, change it first, or write what is wrong with it. */
export class PlanBar extends HTMLElement {
  #id;
  #edit;

  /** `edit` puts the plan where the person writes, behind some words. */
  constructor(id, edit) {
    super();
    this.#id = id;
    this.#edit = edit;
    this.hidden = true;
  }

  connectedCallback() {
    const accept = (level, label, kind = "") => h(`button${kind}`, { type: "button", onclick: () => this.#accept(level) }, label);
    fill(this, h("span", "The plan waits for you. "),
      accept("ask", "Accept", ".primary"), accept("edits", "Accept, edit files freely"),
      h("button", { type: "button", onclick: async () => (await choose(this.#id, "ask")) && this.#edit(EDITED) }, "Accept, change it first"),
      h("span.muted.small", "or write below what should change"));
  }

  update(session) {
    this.hidden = !(session?.permission_level === "plan" && session.turn_count > 0 && stateOf(session) === "idle" && !session.last_error);
  }

  async #accept(level) {
    this.hidden = true;
    if (await choose(this.#id, level)) {
      await attempt(() => submit(ofSession(this.#id, "/execute/stream"), { prompt: ACCEPTED, auto_resume: true }), "Not sent");
    }
  }
}

/** Show what was answered with "always" as far as it counts in a session; each can be taken back. */
export async function showPermissions(session) {
  const path = ofSession(session.session_id, "/permissions");
  const found = await attempt(() => get(path), "Not listed");
  if (!found) return;
  const revoke = async (one, row) => {
    const isRevoked = await attempt(async () => (await remove(`${path}/${one.approval_id}`), true), "Not taken back");
    if (isRevoked) row.remove();
  };
  const list = h("ul.trash-list", found.remembered.map((one) => {
    const row = h("li",
      h("span.trash-name", h("code", visibleExactly(`${one.tool}: ${one.is_exact ? "exactly " : ""}${one.covers}`)),
        h("span.muted.small", `${/^allow/i.test(one.option) ? "always" : visibleExactly(one.option)} ${REACHES[one.reach]}`)),
      h("button", { type: "button", onclick: () => revoke(one, row) }, "Ask again"));
    return row;
  }));
  await openDialog({
    title: "Always approved",
    build: () => (found.remembered.length ? list : h("p.muted", "Nothing here was answered with “always”.")),
  });
}

customElements.define("level-chooser", LevelChooser);
customElements.define("plan-bar", PlanBar);
