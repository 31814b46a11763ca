// What can be done with a session anywhere it is shown: rename, fork, export, end, delete.

import { get, ofSession, patch, post, remove } from "../lib/api.js";
import { copyText } from "../lib/clipboard.js";
import { h } from "../lib/dom.js";
import { sessionName } from "../lib/format.js";
import { navigate } from "../lib/navigation.js";
import { forget, keep } from "../lib/sessions.js";
import { askText, confirm } from "./dialog.js";
import { attempt, toast } from "./toast.js";

/** The entries of a session's menu. `onDeleted` is called when it is gone. */
export function sessionMenu(session, { onDeleted } = {}) {
  const isBusy = Boolean(session.activity) && session.activity !== "idle";
  const isOurs = !session.origin;
  return [
    { label: "Rename…", icon: "edit", run: () => rename(session), disabled: !isOurs },
    { label: "Fork from the last turn", icon: "fork", run: () => fork(session), disabled: !session.turn_count },
    { label: "Export", icon: "download", run: () => exportSession(session) },
    { label: "Copy id", icon: "copy", run: () => copyText(session.session_id, "Id copied") },
    "-",
    session.status === "active"
      ? { label: "End session", icon: "stop", run: () => end(session), disabled: !isOurs }
      : { label: "Resume", icon: "undo", run: () => resume(session), disabled: !isOurs },
    { label: "Delete", icon: "trash", kind: "danger", run: () => deleteSession(session, isBusy, onDeleted), disabled: !isOurs },
  ];
}

export async function rename(session) {
  const name = await askText({ title: "Rename session", label: "Name", value: session.name ?? "", hint: "Empty: no name." });
  if (name === null) return;
  await attempt(async () => keep(await patch(ofSession(session.session_id), { name: name.trim() })), "Not renamed");
}

/** Fork a session at a turn, by default its last, and go there. */
export async function fork(session, { turn, name, draft } = {}) {
  const body = { ...(turn !== undefined && { turn }), name: name ?? `${sessionName(session)} (fork)` };
  const made = await attempt(() => post(ofSession(session.session_id, "/fork"), body), "Not forked");
  if (!made) return null;
  toast(`Forked at turn ${made.forked_from_turn}`);
  if (!draft) navigate(`/sessions/${made.session_id}`);
  return made;
}

function exportSession(session) {
  const address = `/api/v1${ofSession(session.session_id, "/export")}`;
  const link = h("a", { href: address, download: `${session.session_id}.zip` });
  document.body.append(link);
  link.click();
  link.remove();
}

async function end(session) {
  await attempt(async () => keep(await patch(ofSession(session.session_id), { status: "completed" })), "Not ended");
}

async function resume(session) {
  await attempt(async () => keep(await post(ofSession(session.session_id, "/resume"))), "Not resumed");
}

async function deleteSession(session, isBusy, onDeleted) {
  if (isBusy) {
    const text = "It is working. Its turn is stopped first.";
    if (!(await confirm({ title: "Delete session?", text, action: "Stop and delete", kind: "danger" }))) return;
  }
  const id = session.session_id;
  const done = await attempt(() => remove(ofSession(id), isBusy ? { force: true } : {}).then(() => true), "Not deleted");
  if (!done) return;
  forget(id);
  onDeleted?.();
  toast(`Deleted “${sessionName(session)}”`);
}

/** Fetch a session's children; its agents' sessions and its forks. */
export const childrenOf = async (id) => (await get(ofSession(id, "/forks"), { limit: 1000 })).sessions;
