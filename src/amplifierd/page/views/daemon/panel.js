// What the panels of the daemon's view share.

import { h } from "../../lib/dom.js";

export const heading = (id, text) => h("h2", { id }, text);

/** What stands in a panel that this person may not see: `{refusal}`. Other errors are raised again. */
export function refused(error) {
  if (error.status !== 403) throw error;
  return { refusal: h("p.muted", "Your token may not see this; it needs the scope admin.") };
}
