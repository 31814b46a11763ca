// Where values of a plan come from: the file and line that set each, and what that overrode.

import { h, icon, iconButton } from "../lib/dom.js";
import { copyText } from "../lib/clipboard.js";
import { plain } from "../lib/format.js";
import { longText } from "./long-text.js";

const NO_FILE = { request: "the settings of this session", default: "the product's default" };

/** Who set a value, in words: the file and its line, or who else. */
function originWord(origin) {
  if (!origin) return "the author of this session";
  if (!origin.file) return NO_FILE[origin.profile] ?? origin.profile ?? "unknown";
  return `${origin.profile}, ${origin.file.split("/").at(-1)}${origin.line ? `:${origin.line}` : ""}`;
}

/** A value on one line. */
export function valueWord(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const line = plain(text ?? "null").replace(/\s+/g, " ");
  return line.length > 90 ? `${line.slice(0, 90)}…` : line;
}

/** One explained value, `{key, value, origin, overrode}`; `name` is what it is called here. It opens to show all of it. */
export function explanation({ key, value, origin, overrode }, name = key) {
  const details = h("details.explained", { dataset: { key } },
    h("summary", icon("chevron", "fold"), h("code.explained-key", name), h("span.explained-value", valueWord(value)), h("span.explained-origin", originWord(origin))));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(explanationBody({ value, origin, overrode }));
  });
  return details;
}

/** All of an explanation: the value, the file that set it, and what that overrode, the nearest first. */
export function explanationBody({ value, origin, overrode }) {
  return h("div.explained-body", longText(value, { label: "Value", lines: 14 }), place("Set by", origin),
    overrode.toReversed().map((old) => h("div.overrode",
      h("p.small", h("span.muted", old.merged ? "Together with " : "Instead of "), h("code", valueWord(old.value))), place("from", old.origin))));
}

function place(word, origin) {
  const where = origin?.file && `${origin.file}${origin.line ? `:${origin.line}` : ""}`;
  return h("p.explained-place.small", h("span.muted", `${word} `), h("span", originWord(origin)),
    where && [h("code.muted", { dir: "ltr" }, where), iconButton("copy", "Copy the place", () => copyText(where))]);
}
