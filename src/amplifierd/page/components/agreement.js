// The question whether modules of a plan from elsewhere get the keys and variables that it names for them.

import { patch } from "../lib/api.js";
import { may } from "../lib/caller.js";
import { h } from "../lib/dom.js";
import { visibleExactly } from "../lib/visible.js";
import { confirm } from "./dialog.js";

let asking = Promise.resolve();

/** Ask what a refused request needs, one question at a time; true when it was agreed to, so that it can be sent again. */
export function askToAgree(problem) {
  const answer = asking.then(() => ask(problem));
  asking = answer.catch(() => {});
  return answer;
}

async function ask({ message, agreements }) {
  if (!agreements?.length || !(await may("admin"))) return false;
  const agreed = await confirm({
    title: "Give away keys or variables?",
    text: "This agent does not come from you. Agree only if you know the hosts; the answer is remembered.",
    details: h("pre.data", { tabIndex: 0, dir: "ltr", "aria-label": "What would be given" }, visibleExactly(message)),
    action: "Agree",
  });
  if (agreed) await patch("/settings/agreements", { agree: agreements });
  return agreed;
}
