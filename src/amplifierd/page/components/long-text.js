// Text of programs: as long as it likes to be, shown in parts.

import { fill, h } from "../lib/dom.js";
import { number, plain } from "../lib/format.js";

const LINES = 40;
const CHARACTERS = 6_000;

/** Show text as written; its beginning first when it is long, and more when it is asked for. */
export function longText(text, { lines = LINES, label = "Output" } = {}) {
  const clean = plain(typeof text === "string" ? text : JSON.stringify(text, null, 2));
  const box = h("div.long-text");
  let most = CHARACTERS;
  let rows = lines;
  const show = () => {
    const cut = clean.slice(0, most).split("\n").slice(0, rows).join("\n");
    const left = clean.length - cut.length;
    fill(box, h("pre.output", { tabIndex: 0, role: "region", "aria-label": label, dir: "ltr" }, cut),
      left > 0 && h("button.link.small", {
        type: "button",
        onclick: () => {
          most *= 20;
          rows *= 25;
          show();
        },
      }, `Show more (${number(left)} characters left)`));
  };
  show();
  return box;
}
