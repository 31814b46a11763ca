// What goes into the call of a tool: a command as one, an edit as a difference, a list of steps as a list.

import { h, icon } from "../lib/dom.js";
import { plain } from "../lib/format.js";
import { textDiff } from "./diff.js";
import { longText } from "./long-text.js";

const SHORT = 300;
const STEPS = { completed: "done", in_progress: "under way", pending: "open" };

/** Show the input of a call, `{name, input}`; null when there is none. */
export function toolInput({ name, input }) {
  if (!input || typeof input !== "object") return input ? longText(String(input), { label: "Input" }) : null;
  if (name === "bash" && typeof input.command === "string") return part(longText(`$ ${input.command}`, { label: "Command" }));
  if (name === "edit_file" && typeof input.old_string === "string") return part(textDiff(input.old_string, input.new_string ?? ""));
  if (name === "write_file" && typeof input.content === "string") return part(textDiff("", input.content));
  if (name === "todo" && isSteps(input.todos)) return stepList(input.todos);
  const given = Object.entries(input);
  if (!given.length) return null;
  return h("dl.tool-input", given.map(([key, value]) => h("div", h("dt", key),
    h("dd", typeof value === "string" && value.length < SHORT ? plain(value) : longText(value, { lines: 12, label: key })))));
}

const part = (content) => h("div.tool-part", content);

/** Whether a value is a list of steps, `{content, status}`. */
export const isSteps = (value) => Array.isArray(value) && value.length > 0 && value.every((one) => typeof one?.content === "string");

/** Steps with how each stands. */
export function stepList(steps) {
  return h("ul.steps", { "aria-label": "Steps" }, steps.map(({ content, status }) => h("li", { dataset: { status } },
    h("span.step-mark", { role: "img", "aria-label": STEPS[status] ?? String(status) }, status === "completed" && icon("check")), h("span", plain(content)))));
}
