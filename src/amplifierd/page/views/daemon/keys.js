// Keys of the providers: which are stored, storing one, and taking one out.

import { get, patch } from "../../lib/api.js";
import { fill, h, iconButton } from "../../lib/dom.js";
import { plain } from "../../lib/format.js";
import { askAndSend, confirm } from "../../components/dialog.js";
import { attempt, toast } from "../../components/toast.js";
import { failure } from "../../lib/view.js";
import { heading, refused } from "./panel.js";

export function keysPanel(signal) {
  const body = h("div");
  const panel = h("section.panel.wide", { "aria-labelledby": "daemon-keys" }, heading("daemon-keys", "Provider keys"),
    h("p.muted.small", "Sessions that start from now on use the key that is stored here. A key that the daemon finds in its environment counts as well, and is not listed."), body);

  const look = async () => {
    try {
      const read = (path) => get(path, { limit: 1000 }, { signal });
      const [{ api_keys: keys, refusal }, { modules }] = await Promise.all([get("/settings", {}, { signal }).catch(refused), read("/modules/providers")]);
      if (refusal) fill(panel, heading("daemon-keys", "Provider keys"), refusal);
      else fill(body, table(modules, new Map(keys.map((key) => [key.provider_id, key.masked_value])), look));
    } catch (error) {
      if (error.name !== "AbortError") fill(body, failure(error, look));
    }
  };
  look();
  return panel;
}

function table(modules, keys, look) {
  const unknown = [...keys.keys()].filter((id) => !modules.some((one) => one.id === id)).map((id) => ({ id, description: "Not installed here." }));
  return h("div.table-box", { tabIndex: 0, role: "group", "aria-label": "Keys of providers" }, h("table",
    h("thead", h("tr", ["Provider", "Key", ""].map((name) => h("th", { scope: "col" }, name || h("span.visually-hidden", "Actions"))))),
    h("tbody", [...modules, ...unknown].map(({ id, description }) => h("tr",
      h("th", { scope: "row" }, h("code", id), h("div.detail", plain(description))),
      h("td", keys.has(id) ? h("code", keys.get(id)) : h("span.muted", "none stored")),
      h("td.actions",
        h("button", { type: "button", "aria-label": `Store a key for ${id}`, onclick: () => store(id, look) }, keys.has(id) ? "Replace" : "Store"),
        keys.has(id) && iconButton("trash", `Remove the key of ${id}`, () => forget(id, look))))))));
}

async function store(id, look) {
  const key = h("input", { id: "provider-key", type: "password", required: true, autocomplete: "off", spellcheck: false, autofocus: true });
  const stored = await askAndSend({
    title: `Key for ${id}`,
    fields: h("div.field", h("label", { htmlFor: "provider-key" }, "Key"), key,
      h("p.muted.small", "It goes to the keyring of the daemon's machine, or to a file that only its owner can read. It is not shown again.")),
    action: "Store",
    send: () => patch("/settings/api-keys", { api_keys: { [id]: key.value } }),
  });
  if (!stored) return;
  toast(`Stored the key of ${id}`);
  look();
}

async function forget(id, look) {
  if (!(await confirm({ title: `Remove the key of ${id}?`, text: "New sessions do without it.", action: "Remove", kind: "danger" }))) return;
  const done = await attempt(() => patch("/settings/api-keys", { api_keys: { [id]: "" } }), "Not removed");
  if (done) toast(`Removed the key of ${id}`);
  look();
}
