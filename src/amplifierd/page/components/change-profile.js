// Another profile for a session that is under way.

import { get, ofSession, post } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { canRun } from "../lib/profiles.js";
import { keep } from "../lib/sessions.js";
import { askAndSend } from "./dialog.js";
import { attempt, toast } from "./toast.js";

/** Ask for a profile, and let the session go on with it from its next turn. */
export async function changeProfile(session) {
  const { session_id: id, profile_name: current } = session;
  const found = await attempt(() => get("/profiles", { limit: 1000 }), "Not listed");
  if (!found) return;
  const choice = h("select", { id: "other-profile", autofocus: true },
    found.profiles.filter(canRun).map((one) => h("option", { value: one.id, selected: one.id === current }, one.description ? `${one.id} — ${one.description}` : one.id)));
  const changed = await askAndSend({
    title: "Change profile",
    fields: h("div.field", h("label", { htmlFor: "other-profile" }, "Profile"), choice,
      h("p.muted.small", "The conversation stays. From the next turn on, the session has the model, tools and instruction of this profile.")),
    action: "Change",
    send: () => post(ofSession(id, "/change-profile"), { profile_name: choice.value }),
  });
  if (!changed) return;
  keep(changed);
  toast(`The session goes on with ${changed.profile_name}`);
}
