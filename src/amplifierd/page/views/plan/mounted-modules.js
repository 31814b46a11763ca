// The modules of a session without pixels: what its plan mounts, what its lock knows of each, and how each loaded.

const SECTIONS = ["providers", "tools", "hooks"];

/** Return `{orchestrator, context, providers[], tools[], hooks[]}`; each module is `{id, name, section, config, path, locked, loaded}`. */
export function mountedModules(plan, lock, loaded) {
  const session = plan.session ?? {};
  const module = (section, entry, path) => {
    const id = typeof entry === "string" ? entry : entry.module;
    const name = (typeof entry === "object" && entry.instance_id) || id;
    return { id, name, section, path, config: entry.config ?? plan[section]?.config ?? {}, isRequired: entry.required === true, locked: lockedOf(lock, section, id), loaded: loaded?.find((one) => one.id === id) ?? null };
  };
  const found = {};
  for (const section of ["orchestrator", "context"]) found[section] = session[section] ? module(section, session[section], `session.${section}`) : null;
  for (const section of SECTIONS) {
    found[section] = (plan[section] ?? []).map((entry) => module(section, entry, `${section}[${entry.instance_id ?? entry.module}]`));
  }
  return found;
}

function lockedOf(lock, section, id) {
  const entries = [lock?.resources?.[section] ?? []].flat();
  return entries.find((entry) => entry.name === id) ?? null;
}

/** The version of a module in a few characters: its tag, its commit, or its hash. */
export function versionWord(locked) {
  if (!locked) return "";
  if (locked.version) return `v${locked.version}`;
  if (locked.commit) return locked.commit.slice(0, 8);
  return locked.content_hash ? `#${locked.content_hash.replace("sha256:", "").slice(0, 8)}` : "";
}

/** How a module stands: "failed", "missing", "loaded" or "planned". */
export function stateOf({ locked, loaded }) {
  if (loaded?.error || (loaded && loaded.status !== "loaded")) return "failed";
  if (locked?.status === "missing") return "missing";
  return loaded ? "loaded" : "planned";
}
