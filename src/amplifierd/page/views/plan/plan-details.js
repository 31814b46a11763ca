// What the panel of the plan shows: a module with its lock and its settings, a text, an agent, a hook.

import { h, iconButton } from "../../lib/dom.js";
import { copyText } from "../../lib/clipboard.js";
import { moment, plain } from "../../lib/format.js";
import { explanation, explanationBody } from "../../components/explanation.js";
import { factList } from "../../components/inspector.js";
import { longText } from "../../components/long-text.js";
import { stateOf } from "./mounted-modules.js";

const STATES = { failed: "could not be loaded", missing: "missing in the build", loaded: "loaded", planned: "in the plan; the session is not loaded" };

/** Title, subtitle and content for what was opened. `values` are the explained values of the plan. */
export function planDetails(what, values) {
  if (what.instruction) return { title: "Instruction", subtitle: "what the agent is told first", content: explanationBody(what.instruction) };
  if (what.context) return { title: what.name, subtitle: "context files", content: lockFacts(what.context) };
  if (what.agent) return { title: what.name, subtitle: "agent", content: agentDetails(what, values) };
  if (what.handler) return { title: what.handler, subtitle: "hook", content: hookDetails(what, values) };
  return { title: what.name, subtitle: `${what.section.replace(/s$/, "")} module`, content: moduleDetails(what, values) };
}

function moduleDetails(module, values) {
  const prefix = `${module.path}.config.`;
  const settings = values.filter(({ key }) => key.startsWith(prefix));
  const own = values.find(({ key }) => key === `${module.path}.module`);
  return [
    factList([
      ["State", STATES[stateOf(module)] + (module.loaded?.error ? `: ${plain(module.loaded.error.error ?? module.loaded.error)}` : "")],
      ["Module", h("code", module.id)],
      ["Mounted at", module.loaded?.mount_point],
      ["Required", module.isRequired && "yes: without it the session does not start"],
    ]),
    module.locked ? lockFacts(module.locked) : h("p.muted.small", "No lock: the session runs a plan of its own."),
    h("section.value-group", h("h3", "Settings"), settings.length ? settings.map((value) => explanation(value, value.key.slice(prefix.length))) : h("p.muted.small", "None: the module's defaults.")),
    own?.origin && h("section.value-group", h("h3", "Named by"), explanation(own, "module")),
  ];
}

function lockFacts(entry) {
  return factList([
    ["Version", entry.version],
    ["Kind", entry.kind],
    ["Reference", entry.ref && h("code", plain(entry.ref))],
    ["Commit", copied(entry.commit, "the commit")],
    ["Hash", copied(entry.content_hash, "the hash")],
    ["Resolved", entry.resolved_at && moment(entry.resolved_at)],
    ["May move", entry.mutable && "yes: the reference can mean something else tomorrow"],
    ["Requires", entry.requirements?.length > 0 && h("ul", entry.requirements.map((one) => h("li", h("code", plain(typeof one === "string" ? one : `${one.name} ${one.version ?? ""} (${one.from ?? ""})`)))))],
  ]);
}

function agentDetails({ agent, name }, values) {
  const prefix = `agents.${name}.`;
  const set = values.filter(({ key }) => key.startsWith(prefix) || key.startsWith(`agents[${name}].`));
  return [agent.description && h("p", plain(agent.description)),
    set.length ? h("section.value-group", h("h3", "Values"), set.map((value) => explanation(value, value.key.slice(prefix.length)))) : longText(agent, { label: "Agent" })];
}

function hookDetails({ events, module }, values) {
  return [
    h("p", module ? "A handler of a module of the plan." : "A handler of the session itself: it is there whatever the plan says."),
    h("section.value-group", h("h3", `Hears ${events.length} events`), h("ul.event-names", events.map((event) => h("li", h("code", plain(event)))))),
    module && moduleDetails(module, values),
  ];
}

function copied(text, what) {
  return text && h("span.hash", h("code", text), iconButton("copy", `Copy ${what}`, () => copyText(text)));
}
