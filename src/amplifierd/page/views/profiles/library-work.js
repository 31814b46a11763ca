// What is done with profiles and collections, and what is said of how it went.

import { patch, remove } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { run } from "../../lib/operations.js";
import { load } from "../../lib/profiles.js";
import { confirm, openDialog } from "../../components/dialog.js";
import { attempt, toast } from "../../components/toast.js";

/** Compile a profile, and say what came of it. */
export async function compile(id, { force = false } = {}) {
  const done = await attempt(() => run(`/profiles/${id}/compile`, force ? { force } : {}), "Not compiled");
  if (!done) return;
  if (done.status === "succeeded") {
    const { result } = done;
    toast(result?.status === "unchanged" ? `${id}: nothing has changed` : `Compiled ${id}${result?.degraded?.length ? `, without ${result.degraded.join(", ")}` : ""}`);
    load().catch(() => {});
  } else if (done.status === "failed") {
    toast(`${id}: ${done.error?.detail ?? "the compile failed"}`, { kind: "error" });
  }
}

/** Bring a collection, or without one all of them, in step with its source, and say what came of it. */
export async function sync(id) {
  const done = await attempt(() => run(id ? `/collections/${encodeURIComponent(id)}/sync` : "/collections/sync"), "Not synced");
  if (!done) return;
  if (done.status === "failed") toast(done.error?.detail ?? "The sync failed", { kind: "error" });
  else if (done.status === "succeeded") tellSynced(Object.entries(done.result.results));
  load().catch(() => {});
}

function tellSynced(results) {
  const failed = results.filter(([, { status }]) => status === "error");
  const changed = results.filter(([, { status }]) => ["synced", "updated"].includes(status)).map(([id]) => id);
  for (const [id, { errors }] of failed) toast(`Not synced: ${id} · ${errors[0]?.message ?? "no reason was given"}`, { kind: "error" });
  if (changed.length) toast(`Synced ${changed.join(", ")}`);
  else if (!failed.length) toast("Nothing has changed at the source");
}

/** Ask for a collection and register it. */
export async function addCollection() {
  const id = h("input", { id: "collection-id", required: true, pattern: "[a-z0-9][a-z0-9._\\-]*", autofocus: true, autocomplete: "off" });
  const source = h("input", { id: "collection-source", required: true, placeholder: "git+https://host/team/collection@main", autocomplete: "off" });
  const given = await openDialog({
    title: "Add collection",
    build: () => [
      h("p", "A collection is a repository or a directory with profiles. Its profiles name modules, and modules are programs that run on this machine: add only what you trust."),
      h("div.field", h("label", { htmlFor: "collection-id" }, "Name"), id),
      h("div.field", h("label", { htmlFor: "collection-source" }, "Source"), source,
        h("p.muted.small", "A git reference, an address of an archive, or a directory of the daemon's machine.")),
    ],
    actions: [{ label: "Add" }],
    onSubmit: (close) => close({ identifier: id.value.trim(), source: source.value.trim() }),
  });
  if (!given) return;
  const done = await attempt(() => run("/collections", given), "Not added");
  if (done?.status === "failed") toast(done.error?.detail ?? "It could not be added", { kind: "error" });
  else if (done?.status === "succeeded") toast(`Added ${given.identifier}`);
  load().catch(() => {});
}

/** Use the profiles of a collection, or stop to. */
export async function enable(collection) {
  await attempt(() => patch(`/collections/${encodeURIComponent(collection.identifier)}`, { enabled: !collection.enabled }), "Not changed");
  load().catch(() => {});
}

/** Remove a collection when that is confirmed. */
export async function removeCollection(id) {
  const text = "Its profiles are removed from this home. Sessions that exist keep the builds they run with.";
  if (!(await confirm({ title: `Remove ${id}?`, text, action: "Remove", kind: "danger" }))) return;
  await attempt(() => remove(`/collections/${encodeURIComponent(id)}`).then(() => toast(`Removed ${id}`)), "Not removed");
  load().catch(() => {});
}
