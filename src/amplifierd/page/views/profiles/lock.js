// What a build was made of, to the commit and the hash.

import { h } from "../../lib/dom.js";

/** Every module and document of a lock as a table. */
export function lockPanel({ resources, build_id: build, python, platform, profile_hash: hash }) {
  const rows = rowsOf(resources);
  return h("div.table-box", { tabIndex: 0, role: "group", "aria-label": "What the build was made of" },
    h("p.muted.small", `Build ${build.slice(0, 16)} for Python ${python} on ${platform}; profile ${hash.slice(0, 12)}`),
    h("table",
      h("thead", h("tr", ["What", "Name", "Version", "From", "Commit", "Content"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", rows.map(([kind, name, one]) => h("tr", { dataset: { status: one.status } },
        h("td", kind), h("th", { scope: "row" }, name), h("td", one.version ?? "–"),
        h("td", one.ref ?? one.kind, one.mutable && h("span.tag", { title: "What this names can change; the lock records what it was." }, "moves")),
        h("td", one.commit ? h("code", { title: one.commit }, one.commit.slice(0, 10)) : "–"),
        h("td", one.content_hash ? h("code", { title: one.content_hash }, one.content_hash.replace("sha256:", "").slice(0, 12)) : "–"))))));
}

function rowsOf(resources) {
  const rows = [];
  for (const [kind, value] of Object.entries(resources ?? {})) {
    if (Array.isArray(value)) value.forEach((one) => rows.push([kind, one.name, one]));
    else if (value && "content_hash" in value) rows.push([kind, value.name ?? kind, value]);
    else for (const [name, one] of Object.entries(value ?? {})) rows.push([kind, name, one]);
  }
  return rows;
}
