// One profile: its text, what it inherits, how its build stands and what it was made of.

import { get, put, remove } from "../../lib/api.js";
import { fill, h, icon, refill } from "../../lib/dom.js";
import { moment, sentence } from "../../lib/format.js";
import { navigate } from "../../lib/navigation.js";
import { isOver, latest, load as loadOperations, operations } from "../../lib/operations.js";
import { load as loadLibrary, ofProfile, statusWord } from "../../lib/profiles.js";
import { href } from "../../lib/router.js";
import { onEvents } from "../../lib/stream.js";
import { perFrame } from "../../lib/state.js";
import { failure, loading, View } from "../../lib/view.js";
import { confirm } from "../../components/dialog.js";
import { menuButton } from "../../components/menu.js";
import { progressLine } from "../../components/operation.js";
import { attempt, toast } from "../../components/toast.js";
import { ProfileEditor } from "./editor.js";
import { inheritedPanel } from "./inherited.js";
import { compile } from "./library-work.js";
import { lockPanel } from "./lock.js";
import { copyProfile } from "./new-profile.js";

class ProfileView extends View {
  #profile = null;
  #locked = null;
  #shownWork = null;
  #head = h("header.profile-head");
  #build = h("section.panel", { "aria-labelledby": "profile-build" });
  #inherited = h("section.panel", { "aria-labelledby": "profile-inherited" });
  #lock = h("section.panel.wide", { "aria-labelledby": "profile-lock" });

  get #id() {
    return `${this.params.collection}/${this.params.name}`;
  }

  async open() {
    fill(this, loading());
    this.#profile = await this.#read();
    const editor = new ProfileEditor(this.#id, { isEditable: this.#profile.is_local, signal: this.signal, onSaved: () => this.#saved() });
    fill(this, this.#head, h("div.profile-grid", editor, h("div.profile-side", this.#build, this.#inherited), this.#lock));
    this.#renderHead();
    await Promise.all([this.#refresh(), loadOperations()]);
    this.listen(operations, perFrame(() => this.#work() !== this.#shownWork && this.#renderBuild()));
    onEvents(({ event, data }) => {
      if (["profile:compiled", "profile:stale"].includes(event) && data.profile_id === this.#id) this.#refresh();
    }, { signal: this.signal });
  }

  /** Read the profile; one whose file cannot be read is known from the list alone. */
  async #read() {
    try {
      return await get(ofProfile(this.#id), {}, { signal: this.signal });
    } catch (error) {
      if (error.status !== 422) throw error;
      const { profiles } = await get("/profiles", { collection: this.params.collection, limit: 1000 }, { signal: this.signal });
      const known = profiles.find((one) => one.id === this.#id);
      if (!known) throw error;
      return known;
    }
  }

  async #saved() {
    this.#profile = (await attempt(() => this.#read())) ?? this.#profile;
    this.#renderHead();
    this.#refresh();
    loadLibrary().catch(() => {});
  }

  #refresh() {
    return Promise.all([this.#renderBuild(), this.#renderInherited()]);
  }

  #renderHead() {
    const profile = this.#profile;
    fill(this.#head,
      h("a.crumb", { href: href("/profiles") }, "Profiles"),
      h("div.session-title", h("h1", profile.id), profile.is_active && h("span.tag", "active"),
        !profile.is_local && h("button", { type: "button", onclick: () => copyProfile(profile) }, icon("copy"), "Copy to edit"),
        h("a.button", { href: `${href("/new")}?profile=${encodeURIComponent(profile.id)}` }, icon("plus"), "New session"),
        menuButton(`Actions for ${profile.id}`, () => [
          { label: profile.is_active ? "No longer the default" : "Make it the default", icon: "check", run: () => this.#activate() },
          { label: "Copy…", icon: "copy", run: () => copyProfile(profile) },
          ...(profile.is_local ? ["-", { label: "Delete…", icon: "trash", kind: "danger", run: () => this.#delete() }] : []),
        ])),
      profile.description && h("p.muted", profile.description));
  }

  #work() {
    return latest(operations.value, "profile-compile", this.#id);
  }

  async #renderBuild() {
    const work = (this.#shownWork = this.#work());
    const title = h("h2", { id: "profile-build" }, "Build");
    try {
      const status = await get(ofProfile(this.#id, "/status"), {}, { signal: this.signal });
      refill(this.#build, title,
        h("p", h("span.status", { dataset: { state: status.status } }, statusWord(status.status)),
          status.generated_at && h("span.muted", ` compiled ${moment(status.generated_at)}`)),
        status.build_id && h("p.small.muted", "Build ", h("code", status.build_id.slice(0, 16))),
        status.reasons.length > 0 && h("ul.build-reasons", status.reasons.map((reason) => h("li",
          h("strong", sentence([reason.code.replaceAll("-", " "), reason.subject].filter(Boolean).join(": "))), h("span.detail", `A compile does this: ${reason.action}.`)))),
        status.warnings.map((text) => h("p.warning", icon("warn"), text)),
        work?.status === "failed" && h("div.turn-error", h("strong", "The last compile failed"), h("p", work.error?.detail ?? "No reason was given."), work.error?.hint && h("p.muted", work.error.hint)),
        work && !isOver(work) ? progressLine(work) : h("div.form-foot",
          h("button.primary", { type: "button", disabled: status.status === "invalid", onclick: () => compile(this.#id) }, "Compile"),
          h("button", { type: "button", disabled: status.status === "invalid", onclick: () => compile(this.#id, { force: true }) }, "Resolve everything again")));
      await this.#renderLock(status.build_id);
    } catch (error) {
      if (error.name !== "AbortError") fill(this.#build, title, failure(error, () => this.#renderBuild()));
    }
  }

  async #renderInherited() {
    const title = h("h2", { id: "profile-inherited" }, "Inheritance");
    try {
      fill(this.#inherited, title, inheritedPanel(await get(ofProfile(this.#id), { resolved: true }, { signal: this.signal })));
    } catch (error) {
      if (error.name !== "AbortError") fill(this.#inherited, title, h("p.muted", error.message));
    }
  }

  async #renderLock(build) {
    if (build && build === this.#locked) return;
    const title = h("h2", { id: "profile-lock" }, "Lock");
    if (build) fill(this.#lock, title, lockPanel(await get(ofProfile(this.#id, "/lock"), {}, { signal: this.signal })));
    else fill(this.#lock, title, h("p.muted", "There is no build yet, so nothing is locked."));
    this.#locked = build;
  }

  async #activate() {
    const change = this.#profile.is_active ? () => remove("/profiles/active") : () => put("/profiles/active", { profile_id: this.#id });
    const done = await attempt(() => change().then(() => true), "Not changed");
    if (!done) return;
    this.#profile = { ...this.#profile, is_active: !this.#profile.is_active };
    this.#renderHead();
    loadLibrary().catch(() => {});
  }

  async #delete() {
    const text = "Its file is removed from config/profiles. Sessions that exist keep the build they run with.";
    if (!(await confirm({ title: `Delete ${this.#id}?`, text, action: "Delete", kind: "danger" }))) return;
    const done = await attempt(() => remove(ofProfile(this.#id)).then(() => true), "Not deleted");
    if (!done) return;
    toast(`Deleted ${this.#id}`);
    navigate("/profiles");
  }
}

customElements.define("view-profile", ProfileView);
export default ProfileView;
