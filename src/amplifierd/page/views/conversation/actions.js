// What can be done with the turns of a conversation: branch from a prompt, fork, see and take back what changed.

import { get, ofSession, post, submit } from "../../lib/api.js";
import { fill, h } from "../../lib/dom.js";
import { plural, sessionName } from "../../lib/format.js";
import { showSession } from "../../lib/navigation.js";
import { refresh, sessions } from "../../lib/sessions.js";
import { askText, confirm, openDialog } from "../../components/dialog.js";
import { unifiedDiff } from "../../components/diff.js";
import { fork } from "../../components/session-actions.js";
import { attempt, toast } from "../../components/toast.js";
import { isImage } from "./images.js";
import { blocksOf, textOf } from "./message.js";

/** The actions of the turns of a conversation (`model`). `write` puts text into the composer. */
export function turnActions(model, { write }) {
  const { id } = model;
  const session = () => sessions.value.byId.get(id) ?? { session_id: id };
  return {
    fork: (turn) => fork(session(), { turn }),
    edit: (message) => editAndBranch(session(), message),
    changes: (turn) => showChanges(id, turn),
    undo: (turn) => undo(model, turn, write),
    again: (turn) => runAgain(model, turn),
  };
}

/** Send the prompt of a turn that failed again, in place of that turn; files stay as they are. */
async function runAgain(model, turn) {
  const said = model.messages.filter((one) => one.turn === turn && one.role === "user");
  const images = said.flatMap((one) => blocksOf(one).filter(isImage));
  const body = { prompt: textOf(model.promptOf(turn)), auto_resume: true, ...(images.length && { images }) };
  await attempt(async () => {
    await post(ofSession(model.id, "/undo"), { turn, what: "conversation" });
    await submit(ofSession(model.id, "/execute/stream"), body);
    await model.load();
  }, "Not sent again");
}

/** Ask for another wording of a prompt and go on with it in a new session; this one stays as it is. */
async function editAndBranch(session, message) {
  const text = await askText({
    title: "Edit and branch", label: "Prompt", value: textOf(message), action: "Branch", multiline: true,
    hint: "A new session continues from here with the new wording. This one stays as it is.",
  });
  if (!text?.trim()) return;
  const branch = await attempt(() => branchBefore(session, message.turn), "Not branched");
  if (!branch) return;
  await attempt(() => submit(ofSession(branch, "/execute/stream"), { prompt: text.trim() }), "Not sent");
  showSession(branch);
}

/** Return the id of a new session with everything before a turn; before the first one that is nothing. */
async function branchBefore(session, turn) {
  const body = { turn: Math.max(1, turn - 1), name: `${sessionName(session)} (branch)` };
  const { session_id: branch } = await post(ofSession(session.session_id, "/fork"), body);
  if (turn === 1) await post(ofSession(branch, "/truncate"), { turn: 0 });
  return branch;
}

async function showChanges(id, turn) {
  const found = await attempt(() => get(ofSession(id, "/changes"), { turn }), "Not known");
  if (!found) return;
  const count = found.added.length + found.modified.length + found.deleted.length;
  await openDialog({
    title: `Turn ${turn}: ${plural(count, "file")} changed`,
    className: "wide-dialog",
    build: () => [
      found.reason && h("p.notice", found.reason),
      count === 0 && h("p.muted", "Nothing changed in the working directory."),
      unifiedDiff(found.diff),
      found.is_cut && h("p.muted.small", "The difference is longer than what is shown here."),
    ],
  });
}

const WHAT = {
  both: ["Files and conversation", "As if this turn and all later ones had never happened"],
  files: ["Files only", "The conversation stays"],
  conversation: ["Conversation only", "The files stay as they are"],
};

async function undo(model, turn, write) {
  const preview = h("div.undo-preview", h("p.muted", "Checking what changed…"));
  get(ofSession(model.id, "/changes"), { turn }).then(
    ({ added, modified, deleted, reason }) => fill(preview, reason && h("p.notice", reason), h("p.muted.small", summary(added, modified, deleted))),
    () => fill(preview, h("p.muted.small", "What the turn changed in files is not known here.")),
  );
  const what = await openDialog({
    title: `Undo turn ${turn}`,
    build: () => [
      h("fieldset.choices", h("legend.visually-hidden", "What to take back"), Object.entries(WHAT).map(([value, [label, text]], at) => h("label.profile-option",
        h("input", { type: "radio", name: "what", value, checked: at === 0, autofocus: at === 0 }),
        h("span", h("strong", label), h("span.detail", text))))),
      preview,
    ],
    actions: [{ label: "Undo", kind: "primary" }],
    onSubmit: (close) => close(document.querySelector('dialog input[name="what"]:checked').value),
  });
  if (what) await takeBack(model, turn, what, write);
}

async function takeBack(model, turn, what, write, force = false) {
  const { id } = model;
  const prompt = model.promptOf(turn);
  const done = await attempt(() => post(ofSession(id, "/undo"), { turn, what, force }), "Not undone");
  if (!done) return;
  if (!done.done) {
    const text = "These files were changed since. Undo overwrites them:";
    const details = h("ul.paths", done.foreign.map((path) => h("li", h("code", path))));
    const isMeant = await confirm({ title: "Files changed since", text, details, action: "Undo anyway", kind: "danger" });
    if (isMeant) await takeBack(model, turn, what, write, true);
    return;
  }
  toast(done.restored.length ? `Turn ${turn} undone; ${plural(done.restored.length, "file")} restored` : `Turn ${turn} undone`);
  await refresh(id).catch(() => {});
  await model.load();
  if (what !== "files" && prompt) write(textOf(prompt));
}

function summary(added, modified, deleted) {
  const parts = [[added, "added"], [modified, "changed"], [deleted, "deleted"]].filter(([paths]) => paths.length);
  if (!parts.length) return "The turn changed no files.";
  return parts.map(([paths, word]) => `${word}: ${paths.slice(0, 8).join(", ")}${paths.length > 8 ? ` and ${paths.length - 8} more` : ""}`).join(" · ");
}
