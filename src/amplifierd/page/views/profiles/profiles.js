// All profiles by collection: what each is, how its build stands, and bringing collections in step with their sources.

import { fill, h, icon, refill } from "../../lib/dom.js";
import { moment, plural } from "../../lib/format.js";
import { load as loadOperations, operations, underWay } from "../../lib/operations.js";
import { library, load, profileAddress, statusWord } from "../../lib/profiles.js";
import { href } from "../../lib/router.js";
import { shortcut } from "../../lib/shortcuts.js";
import { perFrame } from "../../lib/state.js";
import { emptyState, loading, View } from "../../lib/view.js";
import { menuButton } from "../../components/menu.js";
import { progressLine } from "../../components/operation.js";
import { addCollection, compile, enable, removeCollection, sync } from "./library-work.js";
import { newProfile } from "./new-profile.js";

const LOCAL = "local";

class ProfilesView extends View {
  #words = "";
  #search = h("input", { type: "search", placeholder: "Filter profiles", "aria-label": "Filter profiles" });
  #body = h("div.collections");

  async open() {
    fill(this,
      h("header.view-head", h("h1", "Profiles"), h("div.head-actions",
        h("button", { type: "button", onclick: () => sync("") }, icon("down"), "Sync all"),
        h("button", { type: "button", onclick: addCollection }, icon("plus"), "Add collection"),
        h("button.primary", { type: "button", onclick: newProfile }, icon("plus"), "New profile"))),
      h("div.toolbar", h("div.search-field", icon("search"), this.#search)),
      this.#body);
    fill(this.#body, loading("Loading profiles…"));
    await Promise.all([load(), loadOperations()]);
    const render = perFrame(() => this.#render());
    this.listen(this.#search, "input", () => {
      this.#words = this.#search.value.trim().toLowerCase();
      render();
    });
    const options = { signal: this.signal, group: "Profiles" };
    shortcut("/", "Filter", () => this.#search.select(), options);
    shortcut("j", "Next profile", () => this.#step(1), options);
    shortcut("k", "Profile before", () => this.#step(-1), options);
    shortcut("c", "New profile", newProfile, options);
    this.listen(library, render);
    this.listen(operations, render);
  }

  #step(by) {
    const links = [...this.#body.querySelectorAll(".profile-name")];
    const at = links.findIndex((link) => link.closest("li").contains(document.activeElement));
    links[at < 0 ? 0 : Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
  }

  #render() {
    const { profiles, collections } = library.value;
    const fits = (one) => !this.#words || `${one.id} ${one.description}`.toLowerCase().includes(this.#words);
    const known = [...collections];
    if (profiles.some((one) => one.collection_id === LOCAL) && !known.some((one) => one.identifier === LOCAL)) {
      known.push({ identifier: LOCAL, source: "written here", status: "synced", enabled: true, isLocal: true, warnings: [] });
    }
    const shown = known.map((one) => [one, profiles.filter((each) => each.collection_id === one.identifier && fits(each))]);
    const wanted = this.#words ? shown.filter(([, found]) => found.length) : shown;
    refill(this.#body, wanted.length ? wanted.map(([one, found]) => collectionSection(one, found)) : emptyState("Nothing found", "No profile matches."));
  }
}

function collectionSection(collection, profiles) {
  const { identifier: id } = collection;
  const isFixed = collection.isLocal || collection.source?.startsWith("builtin:") || id === LOCAL;
  const work = underWay(operations.value, "collection-sync", id) ?? underWay(operations.value, "collection-sync", "");
  return h("section.collection", { "aria-labelledby": `collection-${id}`, dataset: { enabled: String(collection.enabled) } },
    h("header.collection-head",
      h("h2", { id: `collection-${id}` }, id),
      h("span.status", { dataset: { state: collection.status } }, collection.enabled ? collection.status : "disabled"),
      h("span.muted.source", collection.source),
      collection.synced_at && h("time.muted.small", { dateTime: collection.synced_at }, `synced ${moment(collection.synced_at)}`),
      collection.commit && h("code.muted.small", collection.commit.slice(0, 10)),
      !isFixed && menuButton(`Actions for ${id}`, () => [
        { label: "Sync", icon: "down", run: () => sync(id) },
        { label: collection.enabled ? "Disable" : "Enable", icon: collection.enabled ? "stop" : "check", run: () => enable(collection) },
        "-",
        { label: "Remove…", icon: "trash", kind: "danger", run: () => removeCollection(id) },
      ])),
    collection.warnings?.map((text) => h("p.warning", icon("warn"), String(text.message ?? text))),
    work && progressLine(work),
    h("ul.profile-list", profiles.map(profileRow)),
    !profiles.length && h("p.muted", collection.enabled ? "It has no profiles." : "Its profiles are not used."));
}

function profileRow(profile) {
  const work = underWay(operations.value, "profile-compile", profile.id);
  return h("li.profile-row",
    h("a.profile-name", { href: href(profileAddress(profile.id)) },
      h("span.name", profile.name, profile.is_active && h("span.tag", "active"), profile.version && h("span.muted.small", profile.version)),
      h("span.detail", profile.description || (profile.issues.length ? plural(profile.issues.length, "issue") : "No description"))),
    h("span.cell.extends", profile.extends ? `extends ${profile.extends}` : ""),
    h("span.cell.status", { dataset: { state: profile.status } }, work ? work.progress?.message || "Compiling…" : statusWord(profile.status)),
    h("button", { type: "button", disabled: Boolean(work) || !profile.valid, "aria-label": `Compile ${profile.id}`, onclick: () => compile(profile.id) }, "Compile"));
}

customElements.define("view-profiles", ProfilesView);
export default ProfilesView;
