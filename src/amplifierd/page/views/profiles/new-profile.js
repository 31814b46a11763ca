// A profile of one's own: begun from another one, or as a copy of it.

import { post } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { navigate } from "../../lib/navigation.js";
import { library, load, ofProfile, profileAddress } from "../../lib/profiles.js";
import { askAndSend } from "../../components/dialog.js";
import { attempt } from "../../components/toast.js";

const NAME = "[a-z0-9][a-z0-9._\\-]*";

/** Ask for a name and what it extends, store it, and go there to edit it. */
export async function newProfile() {
  if (!library.value.isLoaded) await attempt(load);
  const name = nameField();
  const parents = library.value.profiles.filter((one) => one.valid);
  const parent = h("select", { id: "profile-parent" },
    parents.map((one) => h("option", { value: one.id, selected: one.id === "foundation/base" }, `${one.id} — ${one.description}`)));
  const made = await askAndSend({
    title: "New profile",
    fields: [
      h("div.field", h("label", { htmlFor: "profile-name" }, "Name"), name),
      h("div.field", h("label", { htmlFor: "profile-parent" }, "Extends"), parent,
        h("p.muted.small", "It has everything of that profile; what you write adds to it or replaces it.")),
    ],
    action: "Create",
    send: () => post("/profiles", {
      name: name.value, extends: parent.value, description: "", instruction: "What this agent is for, and how it works.",
    }),
  });
  await show(made);
}

/** Copy a profile to one of the user's own, and go there. */
export async function copyProfile(profile) {
  const name = nameField(`my-${profile.name}`);
  const made = await askAndSend({
    title: `Copy ${profile.id}`,
    fields: h("div.field", h("label", { htmlFor: "profile-name" }, "Name of the copy"), name),
    action: "Copy",
    send: () => post(ofProfile(profile.id, "/copy"), { new_name: name.value }),
  });
  await show(made);
}

const nameField = (value = "") => h("input", { id: "profile-name", value, required: true, pattern: NAME, autofocus: true, autocomplete: "off" });

async function show(made) {
  if (!made) return;
  await attempt(load);
  navigate(profileAddress(made.id));
}
