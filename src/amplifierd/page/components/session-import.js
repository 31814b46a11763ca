// Taking over a session that was exported, here or elsewhere.

import { post } from "../lib/api.js";
import { base64Of } from "../lib/base64.js";
import { h } from "../lib/dom.js";
import { showSession } from "../lib/navigation.js";
import { keep } from "../lib/sessions.js";
import { attempt, toast } from "./toast.js";

const MOST_BYTES = 7_000_000; // A request has at most 10 MiB, and base64 makes four characters of three bytes.

/** Ask for an exported file, store its sessions, and go to the first of them. */
export function importSession() {
  const picker = h("input", { type: "file", accept: ".zip,.amplifier-session" });
  picker.addEventListener("change", () => take(picker.files[0]));
  picker.click();
}

async function take(file) {
  if (file.size > MOST_BYTES) {
    toast(`${file.name} is too large for the page. On the daemon's machine: amplifier session import FILE`, { kind: "error" });
    return;
  }
  const done = await attempt(async () => post("/sessions/import", { data: await base64Of(file) }), "Not imported");
  if (!done) return;
  keep(done.session);
  toast(done.verified ? "Imported" : "Imported. This daemon does not know who signed it.");
  showSession(done.session.session_id);
}
