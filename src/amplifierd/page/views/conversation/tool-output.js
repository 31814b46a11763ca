// What came out of the call of a tool.

import { h } from "../../lib/dom.js";
import { parsed } from "../../lib/json.js";
import { longText } from "../../components/long-text.js";
import { isSteps, stepList } from "../../components/tool-input.js";
import { imageOf, isImage } from "./images.js";

/** Show what a call, `{name, input}`, gave back. */
export function toolOutput({ name, input }, output) {
  if (Array.isArray(output)) return part(output.map((block) => (isImage(block) ? imageOf(block) : longText(block.text ?? block))));
  const value = parsed(output);
  if (value === null || typeof value !== "object") return part(longText(String(output)));
  if (typeof value.stdout === "string" || typeof value.stderr === "string") return commandOutput(value);
  if (name === "read_file" && typeof value.content === "string") return part(longText(value.content, { lines: 24 }));
  if (name === "edit_file" && !value.error) return h("p.muted.small", `${value.replacements_made ?? 1} changed, from line ${value.first_line ?? "?"} on`);
  if (name === "todo" && isSteps(value.todos)) return isSteps(input?.todos) ? null : stepList(value.todos);
  if (["task", "delegate"].includes(name) && typeof value.response === "string") {
    return part([h("h4.tool-part-title", "Answer"), longText(value.response)]);
  }
  if (Array.isArray(value.files)) return part(longText(value.files.join("\n") || "nothing found"));
  return part(longText(value));
}

const part = (content) => h("div.tool-part", content);

function commandOutput({ stdout, stderr, returncode }) {
  return part([
    stdout && longText(stdout),
    stderr && h("div.is-stderr", longText(stderr, { label: "Errors" })),
    !stdout && !stderr && h("p.muted.small", "No output."),
    returncode ? h("p.small.is-bad", `Exit code ${returncode}`) : null,
  ]);
}
