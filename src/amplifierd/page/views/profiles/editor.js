// The text of a profile, checked while it is written. What is not valid is never stored.

import { getText, post, put } from "../../lib/api.js";
import { announce, fill, h, icon, setText } from "../../lib/dom.js";
import { plural } from "../../lib/format.js";
import { ofProfile } from "../../lib/profiles.js";
import { describe } from "../../lib/shortcuts.js";
import { kept, settled } from "../../lib/state.js";
import { failure } from "../../lib/view.js";
import { confirm } from "../../components/dialog.js";
import { toast, toastError } from "../../components/toast.js";

export class ProfileEditor extends HTMLElement {
  #id;
  #options;
  #stored = "";
  #version = null;
  #checked = 0;
  #isSaving = false;
  #gutter = h("ol.gutter", { "aria-hidden": "true" });
  #text = h("textarea.code", { spellcheck: false, autocapitalize: "off", "aria-label": "Text of the profile", wrap: "off" });
  #issues = h("ul.issues", { "aria-label": "Issues" });
  #verdict = h("p.verdict", { role: "status" });
  #save = h("button.primary", { type: "button", disabled: true, onclick: () => this.#store() }, "Save");
  #revert = h("button", { type: "button", disabled: true, onclick: () => this.#discard() }, "Discard changes");

  constructor(id, options) {
    super();
    this.#id = id;
    this.#options = options;
  }

  connectedCallback() {
    const { isEditable, signal } = this.#options;
    this.#text.readOnly = !isEditable;
    fill(this,
      h("header.panel-head", h("h2", isEditable ? "Text" : "Text (read-only: it belongs to its collection)"), isEditable && [this.#revert, this.#save]),
      h("div.code-box", this.#gutter, this.#text), this.#verdict, this.#issues);
    const check = settled(() => this.#check(), 250, 1500);
    this.#text.addEventListener("input", () => {
      this.#changed();
      check();
    }, { signal });
    this.#text.addEventListener("scroll", () => { this.#gutter.scrollTop = this.#text.scrollTop; }, { signal, passive: true });
    this.#text.addEventListener("keydown", (event) => this.#keys(event), { signal });
    if (isEditable) describe("Ctrl+s", "Save the profile", { signal, group: "Profile" });
    window.addEventListener("beforeunload", (event) => this.#isChanged && event.preventDefault(), { signal });
    this.#read().catch((error) => error.name !== "AbortError" && fill(this, failure(error, () => this.connectedCallback())));
  }

  get #isChanged() {
    return this.#options.isEditable && this.#text.value !== this.#stored;
  }

  get #draft() {
    return `draft.profile.${this.#id}`;
  }

  async #read() {
    const { text, version } = await getText(ofProfile(this.#id), { raw: true }, { signal: this.#options.signal });
    this.#stored = text;
    this.#version = version;
    const draft = this.#options.isEditable ? kept.get(this.#draft) : null;
    this.#text.value = draft ?? text;
    if (draft !== null && draft !== text) toast("Changes that you had not saved are back.");
    this.#changed();
    await this.#check();
  }

  #changed() {
    const isChanged = this.#isChanged;
    this.#save.disabled = !isChanged || this.#isSaving;
    this.#revert.disabled = !isChanged;
    if (this.#options.isEditable) kept.set(this.#draft, isChanged ? this.#text.value : null);
    const lines = this.#text.value.split("\n").length;
    while (this.#gutter.children.length > lines) this.#gutter.lastElementChild.remove();
    while (this.#gutter.children.length < lines) this.#gutter.append(h("li", String(this.#gutter.children.length + 1)));
  }

  async #check() {
    const turn = ++this.#checked;
    try {
      const verdict = await post("/profiles/validate", { markdown: this.#text.value }, { signal: this.#options.signal });
      if (turn === this.#checked) this.#show(verdict);
    } catch (error) {
      if (error.name !== "AbortError" && turn === this.#checked) setText(this.#verdict, `Not checked: ${error.message}`);
    }
  }

  #show({ valid, issues }) {
    const errors = issues.filter((one) => one.severity === "error").length;
    const rest = issues.length - errors;
    const parts = [errors && plural(errors, "error"), rest && plural(rest, "warning")].filter(Boolean);
    this.#verdict.dataset.state = valid ? "fresh" : "invalid";
    fill(this.#verdict, icon(valid ? "check" : "warn"), `${valid ? "Valid" : "Not valid"}${parts.length ? `: ${parts.join(", ")}` : ""}`);
    const bad = new Map(issues.filter((one) => one.line).map((one) => [one.line, one.severity]));
    [...this.#gutter.children].forEach((line, at) => { line.dataset.severity = bad.get(at + 1) ?? ""; });
    fill(this.#issues, issues.map((issue) => h("li", { dataset: { severity: issue.severity } },
      issue.line
        ? h("button.link", { type: "button", onclick: () => this.#goTo(issue.line) }, `Line ${issue.line}`)
        : h("span.muted", issue.location ?? "The whole"),
      h("span", issue.message), issue.fix && h("span.detail", issue.fix))));
  }

  #goTo(line) {
    const before = this.#text.value.split("\n").slice(0, line - 1).join("\n").length;
    const start = line > 1 ? before + 1 : 0;
    const end = this.#text.value.indexOf("\n", start);
    this.#text.focus();
    this.#text.setSelectionRange(start, end < 0 ? this.#text.value.length : end);
    const height = this.#text.scrollHeight / this.#text.value.split("\n").length;
    this.#text.scrollTop = Math.max(0, (line - 4) * height);
  }

  #keys(event) {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      if (this.#isChanged) this.#store();
    }
  }

  async #store() {
    if (this.#isSaving) return;
    this.#isSaving = true;
    this.#save.disabled = true;
    try {
      await this.#put();
    } catch (error) {
      toastError(error, "Not saved");
    } finally {
      this.#isSaving = false;
      this.#changed();
    }
  }

  async #put() {
    const text = this.#text.value;
    try {
      await put(ofProfile(this.#id), { markdown: text }, { headers: { "If-Match": this.#version } });
      const { text: stored, version } = await getText(ofProfile(this.#id), { raw: true }, { signal: this.#options.signal });
      this.#stored = stored;
      this.#version = version;
      announce("Saved");
      toast(`Saved ${this.#id}`);
      this.#options.onSaved();
    } catch (error) {
      if (error.code !== "profile-changed") throw error;
      await this.#conflict();
    }
  }

  async #conflict() {
    const text = "The file was changed after you began. Your text is kept here; should it replace the new version of the file?";
    if (!(await confirm({ title: "Changed elsewhere", text, action: "Replace theirs", kind: "danger" }))) return;
    this.#version = (await getText(ofProfile(this.#id), { raw: true })).version;
    await this.#put();
  }

  #discard() {
    this.#text.value = this.#stored;
    this.#changed();
    this.#check();
    this.#text.focus();
  }
}

customElements.define("profile-editor", ProfileEditor);
