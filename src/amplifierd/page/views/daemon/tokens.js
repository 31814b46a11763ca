// Who may use the daemon: named tokens with what each may do.

import { get, post, remove } from "../../lib/api.js";
import { fill, h, icon, iconButton } from "../../lib/dom.js";
import { ago, moment } from "../../lib/format.js";
import { askAndSend, confirm, openDialog } from "../../components/dialog.js";
import { copyText } from "../../lib/clipboard.js";
import { attempt, toast } from "../../components/toast.js";
import { failure } from "../../lib/view.js";
import { heading, refused } from "./panel.js";

const SCOPES = {
  read: "may look at sessions of its owner",
  run: "may also start sessions and run turns",
  admin: "may do everything, in all sessions",
};

export function tokensPanel(signal) {
  const body = h("div");
  const panel = h("section.panel.wide", { "aria-labelledby": "daemon-tokens" },
    h("header.panel-head", heading("daemon-tokens", "Tokens"),
      h("button", { type: "button", onclick: () => create(look) }, icon("plus"), "New token")), body);

  const look = async () => {
    try {
      const { tokens, refusal } = await get("/tokens", { limit: 1000 }, { signal }).catch(refused);
      if (refusal) fill(panel, heading("daemon-tokens", "Tokens"), refusal);
      else fill(body, table(tokens, look));
    } catch (error) {
      if (error.name !== "AbortError") fill(body, failure(error, look));
    }
  };
  look();
  return panel;
}

function table(tokens, look) {
  return h("div.table-box", h("table",
    h("thead", h("tr", ["Name", "Scope", "Owner", "Created", ""].map((name) => h("th", { scope: "col" }, name || h("span.visually-hidden", "Actions"))))),
    h("tbody", tokens.map((token) => h("tr",
      h("th", { scope: "row" }, token.name), h("td", { title: SCOPES[token.scope] }, token.scope), h("td", token.owner),
      h("td", { title: moment(token.created_at) }, token.created_at ? ago(token.created_at) : "at the first start"),
      h("td.actions", iconButton("trash", `Revoke ${token.name}`, () => revoke(token, look))))))));
}

async function create(look) {
  const name = h("input", { id: "token-name", required: true, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}", autocomplete: "off", autofocus: true });
  const owner = h("input", { id: "token-owner", placeholder: "same as the name", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}", autocomplete: "off" });
  const scope = h("select", { id: "token-scope" }, Object.entries(SCOPES).map(([key, text]) => h("option", { value: key, selected: key === "run" }, `${key} — ${text}`)));
  const made = await askAndSend({
    title: "New token",
    fields: [
      h("div.field", h("label", { htmlFor: "token-name" }, "Name"), name),
      h("div.field", h("label", { htmlFor: "token-scope" }, "Scope"), scope),
      h("div.field", h("label", { htmlFor: "token-owner" }, "Owner"), owner,
        h("p.muted.small", "Whose sessions it sees. Tokens of one owner see the same ones.")),
    ],
    action: "Create",
    send: () => post("/tokens", { name: name.value, scope: scope.value, ...(owner.value && { owner: owner.value }) }),
  });
  if (!made) return;
  look();
  await openDialog({
    title: `Token ${made.name}`,
    build: () => [
      h("p", "This is shown once. Keep it where you keep passwords."),
      h("div.secret", h("code", made.token), iconButton("copy", "Copy the token", () => copyText(made.token, "Token copied"))),
    ],
    actions: [{ label: "Done" }],
  });
}

async function revoke(token, look) {
  const text = token.name === "default"
    ? "It gets a new secret in config/token. Browsers and programs that use the old one are logged out, this one too if it logged in with it."
    : "Anyone who uses it is refused from now on.";
  if (!(await confirm({ title: `Revoke ${token.name}?`, text, action: "Revoke", kind: "danger" }))) return;
  const done = await attempt(() => remove(`/tokens/${encodeURIComponent(token.name)}`).then(() => true), "Not revoked");
  if (done) toast(`Revoked ${token.name}`);
  look();
}
