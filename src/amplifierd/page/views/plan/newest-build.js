// What would change with the newest build of the profile, and the way there.

import { get, ofSession, post } from "../../lib/api.js";
import { fill, h, icon } from "../../lib/dom.js";
import { plain } from "../../lib/format.js";
import { keep } from "../../lib/sessions.js";
import { failure, loading } from "../../lib/view.js";
import { valueWord } from "../../components/explanation.js";
import { attempt, toast } from "../../components/toast.js";

const ACTIONS = { added: "Added", removed: "Removed", changed: "Changed", moved: "Moved" };

/** A box that compares a session with the newest build; `onMoved()` is called when the session was moved to it. */
export class NewestBuild extends HTMLElement {
  #id;
  #signal;
  #onMoved;

  constructor(id, { signal, onMoved }) {
    super();
    this.#id = id;
    this.#signal = signal;
    this.#onMoved = onMoved;
  }

  async load() {
    fill(this, loading("Comparing with the newest build…"));
    try {
      this.#show(await get(ofSession(this.#id, "/newest-build"), {}, { signal: this.#signal }));
    } catch (error) {
      if (error.name !== "AbortError") fill(this, failure(error, () => this.load()));
    }
  }

  #show(found) {
    const isStale = found.status === "stale";
    fill(this,
      found.is_newest && !isStale && h("p.build-state.is-ok", icon("check"), "This session runs the newest build."),
      found.is_newest && isStale && h("p.build-state.is-warn", icon("warn"), "The profile has changed since it was compiled. Compile it to see what that would change."),
      !found.is_newest && found.newest_build_id && h("p.build-state.is-warn", icon("warn"), `There is a newer build, ${found.newest_build_id.slice(0, 12)}. The session keeps its own until you move it.`),
      !["stale", "fresh"].includes(found.status) && h("p.muted", `The profile is ${found.status}.`),
      found.reasons.length > 0 && h("ul.reasons", found.reasons.map(({ code, subject }) => h("li", h("code", code), " ", plain(subject)))),
      found.is_told_otherwise && h("p", "It tells the agent something else: its instruction differs."),
      found.difference && difference(found.difference),
      h("p.detail-links",
        isStale && h("button", { type: "button", onclick: (event) => this.#compile(event.currentTarget, found.profile_id) }, "Compile the profile"),
        !found.is_newest && found.newest_build_id && h("button.primary", { type: "button", onclick: (event) => this.#move(event.currentTarget, found.profile_id) }, "Move this session to it")));
  }

  async #compile(button, profile) {
    button.disabled = true;
    await attempt(async () => {
      await post(`/profiles/${profile}/compile`, {}, { signal: this.#signal });
      await this.load();
    });
    button.disabled = false;
  }

  async #move(button, profile) {
    button.disabled = true;
    await attempt(async () => {
      keep(await post(ofSession(this.#id, "/change-profile"), { profile_name: profile }, { signal: this.#signal }));
      toast("The session runs the newest build from its next turn on");
      this.#onMoved();
    });
    button.disabled = false;
  }
}

/** A comparison of two plans as lists of what was added, removed, changed and moved. */
function difference(found) {
  const modules = Object.entries(ACTIONS).flatMap(([kind, word]) => found[kind].map((one) => entry(kind, word, one)));
  const agents = Object.entries(found.agents).flatMap(([kind, names]) => names.map((name) => entry(kind, ACTIONS[kind] ?? kind, { module: name, section: "agents" })));
  const session = found.session.map(({ path, before, after }) => entry("changed", "Changed", { module: path, section: "session", before, after }));
  const all = [...modules, ...agents, ...session];
  if (!all.length) return h("p.muted", "The plans are the same.");
  return h("ul.plan-diff", { "aria-label": "What would change" }, all);
}

function entry(kind, word, { module, section, version, config = [], before, after }) {
  const values = [
    ...(version ? [["version", version[0] ?? "none", version[1] ?? "none"]] : []),
    ...config.map((one) => [one.path, one.before, one.after]),
    ...(before !== undefined || after !== undefined ? [["", before, after]] : []),
  ];
  return h("li.plan-change", { dataset: { kind } }, h("span.change-kind", word), h("code", plain(module)), h("span.muted", section),
    values.length > 0 && h("ul.change-facts", values.map(([name, old, next]) => h("li", name && [h("code", plain(name)), " "],
      h("del", valueWord(old)), h("span", { "aria-hidden": "true" }, " → "), h("ins", valueWord(next))))));
}

customElements.define("newest-build", NewestBuild);
