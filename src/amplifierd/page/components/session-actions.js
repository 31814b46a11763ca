// What can be done with a session anywhere it is shown: rename, another profile, fork, export, end, delete, take over.

import { get, ofSession, patch, post, remove } from "../lib/api.js";
import { copyText } from "../lib/clipboard.js";
import { h } from "../lib/dom.js";
import { moment, sessionName, since } from "../lib/format.js";
import { showSession } from "../lib/navigation.js";
import { forget, isAtWork, keep, refresh } from "../lib/sessions.js";
import { changeProfile } from "./change-profile.js";
import { askText, confirm, openDialog } from "./dialog.js";
import { showPermissions } from "./permissions.js";
import { attempt, toast, toastError } from "./toast.js";

/**
 * The entries of a session's menu. What a list shows can be a moment old: whether a session can be forked or is at work is
 * the daemon's to say. `onDeleted` is called when it is gone.
 */
export function sessionMenu(session, { onDeleted } = {}) {
  const isOurs = !session.origin;
  return [
    { label: "Rename…", icon: "edit", run: () => rename(session), disabled: !isOurs },
    { label: "Change profile…", icon: "profiles", run: () => changeProfile(session), disabled: !isOurs },
    { label: "Always approved…", icon: "warn", run: () => showPermissions(session), disabled: !isOurs },
    { label: "Fork from the last turn", icon: "fork", run: () => fork(session) },
    { label: "Export", icon: "download", run: () => exportSession(session) },
    { label: "Copy id", icon: "copy", run: () => copyText(session.session_id, "Id copied") },
    "-",
    session.status === "active"
      ? { label: "End session", icon: "stop", run: () => end(session), disabled: !isOurs }
      : { label: "Resume", icon: "undo", run: () => resume(session), disabled: !isOurs },
    { label: "Delete", icon: "trash", kind: "danger", run: () => deleteSession(session, onDeleted), disabled: !isOurs },
  ];
}

export async function rename(session) {
  const name = await askText({ title: "Rename session", label: "Name", value: session.name ?? "", hint: "Empty: no name." });
  if (name === null) return;
  await attempt(async () => keep(await patch(ofSession(session.session_id), { name: name.trim() })), "Not renamed");
}

/** Fork a session at a turn, by default its last, and go there. */
export async function fork(session, { turn } = {}) {
  const body = { ...(turn !== undefined && { turn }), name: `${sessionName(session)} (fork)` };
  const made = await attempt(() => post(ofSession(session.session_id, "/fork"), body), "Not forked");
  if (!made) return;
  toast(`Forked at turn ${made.forked_from_turn}`);
  showSession(made.session_id);
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
  const id = session.session_id;
  try {
    keep(await post(ofSession(id, "/resume")));
  } catch (error) {
    refused(id, error, "Not resumed");
  }
}

/** Say why a session could not be used. One that another program holds can be taken from it; `then` is called after that. */
export function refused(id, error, what, then = () => {}) {
  if (error.code !== "session-held") {
    toastError(error, what);
    return;
  }
  const run = async () => (await takeOver(id, error)) && then();
  toast(`${what} · ${error.message}`, { kind: "error", action: { label: "Take over…", run } });
}

/** Take a session from the program that holds it, when that is confirmed. Returns whether it is loaded here now. */
async function takeOver(id, held) {
  const text = "That program can write nothing into the session any more. What it has not stored yet is lost.";
  const details = h("p", held.message);
  if (!(await confirm({ title: "Take over session?", text, details, action: "Take over", kind: "danger" }))) return false;
  const query = { take_over: true };
  const taken = await attempt(() => post(ofSession(id, "/resume"), {}, { query }), "Not taken over");
  if (taken) keep(taken);
  return Boolean(taken);
}

async function deleteSession(session, onDeleted) {
  const id = session.session_id;
  if (!(await attempt(() => removeOrAsk(id), "Not deleted"))) return;
  forget(id);
  onDeleted?.();
  toast(`Deleted “${sessionName(session)}”`, { action: { label: "Undo", run: () => restore(session) } });
}

/** Move a session into the trash; one that is at work only when that is confirmed. Returns whether it is there. */
async function removeOrAsk(id) {
  const isBusy = isAtWork(await refresh(id));
  const question = { title: "Delete session?", text: "It is working. Its turn is stopped first.", action: "Stop and delete", kind: "danger" };
  if (isBusy && !(await confirm(question))) return false;
  await remove(ofSession(id), isBusy ? { force: true } : {});
  return true;
}

/** Bring a deleted session back, with everything below it. */
async function restore(session) {
  const path = `/sessions/trash/${encodeURIComponent(session.session_id)}/restore`;
  const back = await attempt(() => post(path), "Not restored");
  if (!back) return false;
  keep(back);
  toast(`Restored “${sessionName(back)}”`, { action: { label: "Open", run: () => showSession(back.session_id) } });
  return true;
}

/** Show what was deleted and can still be brought back. */
export async function showTrash() {
  const found = await attempt(() => get("/sessions/trash", { limit: 200 }), "Not listed");
  if (!found) return;
  const list = h("ul.trash-list", found.sessions.map((session) => h("li",
    h("span.trash-name", sessionName(session),
      h("span.muted.small", `deleted ${since(session.deleted_at)}, kept until ${moment(session.expires_at)}`)),
    h("button", {
      type: "button",
      onclick: async ({ currentTarget }) => {
        const row = currentTarget.closest("li");
        if (await restore(session)) row.remove();
      },
    }, "Restore"))));
  await openDialog({
    title: "Deleted sessions",
    build: () => (found.sessions.length ? list : h("p.muted", "Nothing was deleted recently.")),
  });
}
