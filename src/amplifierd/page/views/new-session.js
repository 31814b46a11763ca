// A new session: which profile, where, within which limits, and what to do first.

import { get, ofSession, submit } from "../lib/api.js";
import { fill, h, setText } from "../lib/dom.js";
import { showSession } from "../lib/navigation.js";
import { canRun } from "../lib/profiles.js";
import { href } from "../lib/router.js";
import { keep } from "../lib/sessions.js";
import { describe } from "../lib/shortcuts.js";
import { kept } from "../lib/state.js";
import { failure, View } from "../lib/view.js";
import { DirectoryField } from "../components/directory-field.js";
import { toastError } from "../components/toast.js";

const OFFLINE = "foundation/offline"; // what the daemon takes by itself when it has no key for a model
const BUNDLE = "bundle "; // before the name of a bundle among the profiles: no profile's id has a space
const LIMITS = [
  { name: "cost_usd", label: "Cost", unit: "US dollars", step: "0.01" },
  { name: "total_tokens", label: "Tokens", step: "1" },
  { name: "turns", label: "Turns", step: "1" },
  { name: "tool_calls", label: "Tool calls", step: "1" },
  { name: "seconds", label: "Time at work", unit: "seconds", step: "1" },
];

class NewSessionView extends View {
  #prompt = h("textarea", { id: "first-prompt", rows: 4, placeholder: "What should the agent do? You can also say it later." });
  #name = h("input", { id: "session-name", maxLength: 200, autocomplete: "off" });
  #directory = new DirectoryField();
  #profiles = h("fieldset.profile-picker", h("legend", "Profile"), h("p.muted", "Loading profiles…"));
  #limits = LIMITS.map((limit) => ({
    ...limit,
    field: h("input", { id: `limit-${limit.name}`, type: "number", min: "0", step: limit.step, inputMode: "decimal" }),
  }));
  #problem = h("div", { role: "alert" });
  #button = h("button.primary", { type: "submit" }, "Start session");

  async open() {
    this.#directory.value = this.query.get("dir") ?? kept.get("new.directory", "");
    this.#prompt.value = kept.get("draft.new", "");
    this.#prompt.addEventListener("input", () => kept.set("draft.new", this.#prompt.value));
    this.#prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.querySelector("form").requestSubmit();
    });
    fill(this, h("header.view-head", h("h1", "New session")), h("form.new-session", { onsubmit: (event) => this.#create(event) },
      h("div.field", h("label", { htmlFor: "first-prompt" }, "First prompt"), this.#prompt),
      this.#profiles,
      h("div.field", h("label", { htmlFor: "working-dir" }, "Working directory"), this.#directory),
      h("div.field", h("label", { htmlFor: "session-name" }, "Name ", h("span.muted", "(optional; else how the prompt begins)")), this.#name),
      h("details.limits", h("summary", "Limits"),
        h("p.muted.small", "They hold for the session and its agents together. Empty: the daemon's own limits."),
        h("div.limit-grid", this.#limits.map(({ name, label, unit, field }) => h("div.field",
          h("label", { htmlFor: `limit-${name}` }, label, unit && h("span.muted", ` (${unit})`)), field)))),
      this.#problem,
      h("div.form-foot", this.#button, h("a.button", { href: href("/") }, "Cancel"))));
    describe("Ctrl+Enter", "Start the session", { signal: this.signal, group: "New session" });
    this.#prompt.focus();
    const [{ profiles, default_id: unnamed }, { bundles }] = await Promise.all([
      get("/profiles", { limit: 1000 }, { signal: this.signal }),
      get("/bundles", { limit: 1000 }, { signal: this.signal }),
    ]);
    this.#showProfiles(profiles, unnamed, bundles.filter((one) => !one.error));
  }

  #showProfiles(profiles, unnamed, bundles) {
    const usable = profiles.filter(canRun);
    const asked = this.query.get("bundle");
    const chosen = asked ? BUNDLE + asked : this.query.get("profile") ?? usable.find((one) => one.is_active)?.id ?? kept.get("new.profile", "");
    const known = usable.some((one) => one.id === chosen) || bundles.some((one) => BUNDLE + one.name === chosen) ? chosen : "";
    const option = (id, title, text, tag) => h("label.profile-option",
      h("input", { type: "radio", name: "profile", value: id, checked: id === known }),
      h("span", h("strong", title), tag && h("span.tag", tag), h("span.detail", text)));
    fill(this.#profiles, h("legend", "Profile"),
      h("div.profile-options",
        option("", "Default", unnamed ? `Now ${unnamed}` : "The profile that the daemon's settings name"),
        usable.map((one) => option(one.id, one.id, one.description, tagOf(one))),
        bundles.map((one) => option(BUNDLE + one.name, one.name, one.description ?? one.uri, "bundle"))),
      bundles.length > 0 && h("p.muted.small", "What a bundle leaves out comes from the default profile."),
      unnamed === OFFLINE && h("p.muted.small", "It needs no model. For the others, ", h("a", { href: href("/daemon#daemon-keys") }, "store the key of a provider"), "."),
      profiles.length > usable.length && h("p.muted.small",
        `Not shown, because they cannot run: ${profiles.filter((one) => !usable.includes(one)).map((one) => one.id).join(", ")}.`));
  }

  /** Send the first prompt; one that is refused waits in the field of the session, which exists already. */
  async #ask(id, prompt) {
    try {
      await submit(ofSession(id, "/execute/stream"), { prompt });
    } catch (error) {
      kept.set(`draft.${id}`, prompt);
      toastError(error, "Not sent");
    }
  }

  async #create(event) {
    event.preventDefault();
    this.#button.disabled = true;
    setText(this.#button, "Starting…");
    fill(this.#problem);
    const profile = new FormData(event.target).get("profile") ?? "";
    const prompt = this.#prompt.value.trim();
    const name = this.#name.value.trim() || nameFrom(prompt);
    const given = this.#limits.filter(({ field }) => field.value !== "").map(({ name, field }) => [name, Number(field.value)]);
    try {
      const session = await submit("/sessions", {
        ...(profile && (profile.startsWith(BUNDLE) ? { bundle_name: profile.slice(BUNDLE.length) } : { profile_name: profile })),
        ...(this.#directory.value && { working_dir: this.#directory.value.replace(/(.)\/+$/, "$1") }),
        ...(name && { name }),
        ...(given.length && { limits: Object.fromEntries(given) }),
      });
      keep(session);
      kept.set("new.profile", profile);
      kept.set("new.directory", this.#directory.value);
      kept.set("draft.new", null);
      if (prompt) await this.#ask(session.session_id, prompt);
      if (this.isConnected) showSession(session.session_id, { replace: true });
    } catch (error) {
      fill(this.#problem, failure(error));
    } finally {
      this.#button.disabled = false;
      setText(this.#button, "Start session");
    }
  }
}

/** A session is named after what it is first asked, unless it is named. */
function nameFrom(prompt) {
  const line = prompt.split("\n")[0].replace(/\s+/g, " ");
  return line.length <= 60 ? line : `${line.slice(0, 60).replace(/\s\S*$/, "")}…`;
}

function tagOf(profile) {
  if (profile.is_active) return "active";
  return profile.status === "stale" || profile.status === "degraded" ? profile.status : null;
}

customElements.define("view-new-session", NewSessionView);
export default NewSessionView;
