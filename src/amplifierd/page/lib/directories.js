// Directories of the daemon's machine, for completion: those below the one where it begins sessions.

import { get } from "./api.js";

const SHOWN = 12;

/** Return what is in the directory of a path that is being typed and begins like its last part: `{root, entries}`. */
export async function completions(path, { signal, fits = () => true }) {
  const at = path.lastIndexOf("/") + 1;
  const { root, entries } = await get("/directories/list", { path: path.slice(0, at).replace(/\/$/, ""), limit: 1000 }, { signal });
  const begun = path.slice(at).toLowerCase();
  return { root, entries: entries.filter((one) => fits(one) && one.name.toLowerCase().startsWith(begun)).slice(0, SHOWN) };
}

/** Return a path counted from a directory above it; null when it is elsewhere. */
export function below(root, path) {
  return `${path}/`.startsWith(`${root}/`) ? path.slice(root.length + 1) : null;
}
