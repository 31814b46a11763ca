// Plan and lock: what a session is assembled from, in which versions, set by which files.

import { get, ofSession, Problem } from "../../lib/api.js";
import { may } from "../../lib/caller.js";
import { fill, h, iconButton } from "../../lib/dom.js";
import { copyText } from "../../lib/clipboard.js";
import { moment, plain } from "../../lib/format.js";
import { refresh, sessions } from "../../lib/sessions.js";
import { shortcut } from "../../lib/shortcuts.js";
import { failure, loading, View } from "../../lib/view.js";
import { factList, Inspector } from "../../components/inspector.js";
import { longText } from "../../components/long-text.js";
import { hookMatrix } from "./hook-matrix.js";
import { mountedModules } from "./mounted-modules.js";
import { NewestBuild } from "./newest-build.js";
import { picture } from "./picture.js";
import { planDetails } from "./plan-details.js";

const WHOLE = { limit: 1000 };

class PlanView extends View {
  #inspector = new Inspector();
  #main = h("div.split-main.plan-main");
  #hooks = h("div.plan-hooks");
  #values = [];
  #mayLoad = false;

  async open() {
    const { signal } = this;
    fill(this.#main, loading("Loading the plan…"));
    fill(this, this.#main, this.#inspector);
    shortcut("Escape", "Close the details", () => this.#inspector.close(), { signal, group: "Plan" });
    const of = (rest, query = {}) => get(ofSession(this.params.id, rest), query, { signal });
    const known = sessions.value.byId.get(this.params.id) ?? (await refresh(this.params.id, { signal }));
    this.#mayLoad = await may("run");
    const modules = known.activity && this.#mayLoad ? orNull(of("/modules", WHOLE)) : null;
    const [plan, explained, loaded] = await Promise.all([of("/mount-plan"), of("/explain"), modules]);
    const lock = explained.build_id ? await of("/lock") : null;
    this.#values = explained.values;
    this.#build(known, plan, lock, loaded?.modules ?? null, explained.notes);
  }

  #build(session, plan, lock, loaded, notes) {
    const modules = mountedModules(plan, lock, loaded);
    const onOpen = (what, how) => this.#inspector.show({ ...planDetails(what, this.#values), ...how });
    const newest = session.profile_name ? new NewestBuild(this.params.id, { signal: this.signal, onMoved: () => this.open() }) : null;
    fill(this.#main,
      h("section", h("h2.why-title", "Assembled from"), picture(modules, {
        instruction: this.#values.find(({ key }) => key === "instruction"),
        contexts: lock?.resources?.contexts ?? {},
        agents: plan.agents ?? {},
        onOpen,
      })),
      notes.length > 0 && h("section", h("h2.why-title", "Composed"), h("ul.reasons", notes.map((text) => h("li", plain(text))))),
      h("section", h("h2.why-title", "Hooks by event"), this.#hooks),
      h("section", h("h2.why-title", "Build"), buildFacts(session, lock), this.#warnings(lock)),
      newest && h("section", h("h2.why-title", "With the newest build"), newest),
      h("section", h("details.raw-plan", h("summary.link-like", "The plan as it is stored"), longText(plan, { lines: 400, label: "Mount plan" }))));
    newest?.load();
    this.#fillHooks(modules, onOpen, loaded !== null);
  }

  #warnings(lock) {
    const all = [...(lock?.degraded ?? []).map((one) => `Degraded: ${typeof one === "string" ? one : JSON.stringify(one)}`), ...(lock?.warnings ?? [])];
    return all.length > 0 && h("ul.reasons", all.map((text) => h("li", plain(text))));
  }

  async #fillHooks(modules, onOpen, isLoaded) {
    if (!isLoaded) {
      const names = modules.hooks.map(({ name }) => name).join(", ") || "none";
      fill(this.#hooks, h("p.muted", `Hooks of the plan: ${plain(names)}. Which events each hears is known when the session's modules are loaded${this.#mayLoad ? "." : ", which your token may not see; it needs the scope run."}`),
        this.#mayLoad && h("button", { type: "button", onclick: () => this.#load() }, "Load the session and show"));
      return;
    }
    await this.#loadHooks(modules, onOpen);
  }

  /** Have the session's modules loaded, and show how that went. */
  async #load() {
    fill(this.#hooks, loading("Loading the session…"));
    try {
      await get(ofSession(this.params.id, "/hooks"), {}, { signal: this.signal });
      await refresh(this.params.id, { signal: this.signal });
      await this.open();
    } catch (error) {
      if (error.name !== "AbortError") fill(this.#hooks, failure(error, () => this.#load()));
    }
  }

  async #loadHooks(modules, onOpen) {
    fill(this.#hooks, loading());
    try {
      const { hooks } = await get(ofSession(this.params.id, "/hooks"), WHOLE, { signal: this.signal });
      const all = [...modules.hooks, modules.orchestrator, modules.context, ...modules.providers, ...modules.tools].filter(Boolean);
      fill(this.#hooks, hooks.length ? hookMatrix(hooks, all, onOpen) : h("p.muted", "Nothing hears the events of this session."));
    } catch (error) {
      if (error.name !== "AbortError") fill(this.#hooks, failure(error, () => this.#loadHooks(modules, onOpen)));
    }
  }
}

function buildFacts(session, lock) {
  if (!lock && session.bundle) return h("p.muted", `The session runs the bundle ${plain(session.bundle)}${session.base_profile ? ` over the profile ${session.base_profile}` : ""}.`);
  if (!lock) return h("p.muted", session.profile_name ? "The build of this session is gone; its next turn compiles the profile again." : "The session runs a plan of its own: nothing was compiled, and there is no lock.");
  return factList([
    ["Profile", session.profile_name],
    ["Build", h("span.hash", h("code", lock.build_id), iconButton("copy", "Copy the build id", () => copyText(lock.build_id)))],
    ["Made", moment(lock.generated_at)],
    ["For", `Python ${lock.python}, ${lock.platform}`],
    ["Text of the profile", h("code", lock.profile_hash)],
    ["Inherits from", lock.chain.length > 0 && h("ol", lock.chain.map(({ profile, hash }) => h("li", profile, " ", h("code.muted", hash.slice(0, 12)))))],
  ]);
}

/** What is not there is null; every other problem is one. */
async function orNull(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Problem && [404, 409].includes(error.status)) return null;
    throw error;
  }
}

customElements.define("view-plan", PlanView);
export default PlanView;
