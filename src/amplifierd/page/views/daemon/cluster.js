// The daemons that share a store: who they are, how busy, and taking one out of service.

import { get, post } from "../../lib/api.js";
import { may } from "../../lib/caller.js";
import { h, refill } from "../../lib/dom.js";
import { duration, number } from "../../lib/format.js";
import { confirm } from "../../components/dialog.js";
import { attempt, toast } from "../../components/toast.js";
import { failure } from "../../lib/view.js";
import { heading } from "./panel.js";

const EVERY_MS = 2_000;
const STATES = {
  active: "takes on work",
  draining: "ends its turns and starts nothing new",
  late: "has not said in time that it is there",
  fenced: "was shut out; the others have its sessions",
  left: "has no sessions left",
};

/** The panel is not there for a daemon that stands alone. */
export function clusterPanel(signal) {
  const panel = h("section.panel.wide", { "aria-labelledby": "daemon-cluster", hidden: true });
  let timer = null;

  const look = async () => {
    clearTimeout(timer);
    try {
      if (!document.hidden) {
        const [cluster, isAdmin] = await Promise.all([get("/cluster", {}, { signal }), may("admin")]);
        if (!cluster.enabled) return;
        panel.hidden = false;
        refill(panel, heading("daemon-cluster", "Cluster"), table(cluster.members, isAdmin, look));
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      refill(panel, heading("daemon-cluster", "Cluster"), failure(error));
    }
    if (!signal.aborted) timer = setTimeout(look, EVERY_MS);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  look();
  return panel;
}

const COLUMNS = ["Member", "State", "Version", "Sessions held", "Turns", "Loop lag", "For", ""];
const isNumber = (at) => at >= 3 && at <= 5;

function table(members, isAdmin, look) {
  return h("div.table-box", { tabIndex: 0, role: "group", "aria-label": "Members of the cluster" }, h("table",
    h("thead", h("tr", COLUMNS.map((name, at) =>
      h(`th${isNumber(at) ? ".number" : ""}`, { scope: "col" }, name || h("span.visually-hidden", "Actions"))))),
    h("tbody", members.map((member) => row(member, isAdmin, look)))));
}

function row(member, isAdmin, look) {
  const { load } = member;
  return h("tr", { dataset: { state: member.state } },
    h("th", { scope: "row" }, h("code", nameOf(member)), member.is_self && h("span.muted", " this one")),
    h("td", { title: STATES[member.state] }, member.state), h("td", member.version),
    h("td.number", number(member.holds)), h("td.number", number(load.turns ?? 0)),
    h("td.number", load.loop_lag_ms === undefined ? "" : `${load.loop_lag_ms.toFixed(1)} ms`),
    h("td", duration(member.age_seconds * 1000)),
    h("td.actions", isAdmin && member.address && member.state === "active"
      && h("button", { type: "button", "aria-label": `Drain ${nameOf(member)}`, onclick: () => drain(member, look) }, "Drain")));
}

const nameOf = (member) => member.address ?? `${member.kind} ${member.pid} on ${member.host}`;

async function drain(member, look) {
  const text = "It ends its turns and starts nothing new; then the others take over its sessions. It takes part again when it is restarted.";
  if (!(await confirm({ title: `Drain ${nameOf(member)}?`, text, action: "Drain" }))) return;
  const path = `/cluster/members/${encodeURIComponent(member.member_id)}/drain`;
  const done = await attempt(() => post(path).then(() => true), "Not drained");
  if (done) toast(`${nameOf(member)} starts nothing new`);
  look();
}
