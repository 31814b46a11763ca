// What the tab is called: where one is, and how many questions wait for an answer.

import { approvals } from "./approvals.js";
import { visible } from "./visible.js";

let place = "";

/** Say what is shown. */
export function setTitle(text) {
  place = text;
  show();
}

function show() {
  const waiting = approvals.value.size;
  document.title = visible(`${waiting ? `(${waiting}) ` : ""}${place} · Amplifier`);
}

approvals.subscribe(show, { now: false });
