// A profile of one's own: begun from another one, or as a copy of it.

import { post } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { navigate } from "../../lib/navigation.js";
import { library, load, ofProfile, profileAddress } from "../../lib/profiles.js";
import { openDialog } from "../../components/dialog.js";
import { attempt } from "../../components/toast.js";

const NAME = "[a-z0-9][a-z0-9._\\-]*";

/** Ask for a name and what it extends, store it, and go there to edit it. */
export async function newProfile() {
  if (!library.value.isLoaded) await attempt(load);
  const name = nameField();
  const parents = library.value.profiles.filter((one) => one.valid);
  const parent = h("select", { id: "profile-parent" },
    parents.map((one) => h("option", { value: one.id, selected: one.id === "foundation/base" }, `${one.id} — ${one.description}`)));
  const problem = h("p.field-error", { role: "alert" });
  await openDialog({
    title: "New profile",
    build: () => [
      h("div.field", h("label", { htmlFor: "profile-name" }, "Name"), name),
      h("div.field", h("label", { htmlFor: "profile-parent" }, "Extends"), parent,
        h("p.muted.small", "It has everything of that profile; what you write adds to it or replaces it.")),
      problem,
    ],
    actions: [{ label: "Create" }],
    onSubmit: (close) => store(close, problem, () => post("/profiles", {
      name: name.value, extends: parent.value, description: "", instruction: "What this agent is for, and how it works.",
    })),
  });
}

/** Copy a profile to one of the user's own, and go there. */
export async function copyProfile(profile) {
  const name = nameField(`my-${profile.name}`);
  const problem = h("p.field-error", { role: "alert" });
  await openDialog({
    title: `Copy ${profile.id}`,
    build: () => [h("div.field", h("label", { htmlFor: "profile-name" }, "Name of the copy"), name), problem],
    actions: [{ label: "Copy" }],
    onSubmit: (close) => store(close, problem, () => post(ofProfile(profile.id, "/copy"), { new_name: name.value })),
  });
}

const nameField = (value = "") => h("input", { id: "profile-name", value, required: true, pattern: NAME, autofocus: true, autocomplete: "off" });

async function store(close, problem, send) {
  try {
    const made = await send();
    close(made);
    await attempt(load);
    navigate(profileAddress(made.id));
  } catch (error) {
    problem.textContent = error.message;
  }
}
