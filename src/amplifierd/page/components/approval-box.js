// A question of an agent: may it do this? Once, always, or not, with a reason.

import { answer } from "../lib/approvals.js";
import { announce, h, icon } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { visibleExactly } from "../lib/visible.js";
import { attempt } from "./toast.js";

const LONG = 2000;
const REACHES = { project: "Always here", everywhere: "Always everywhere" };

/** The whole question with its answers as buttons. The first answer counts, wherever it is given. */
export function approvalBox(approval) {
  const reason = h("input", { type: "text", placeholder: "Reason (optional)", "aria-label": "Reason for denying", maxLength: 2000 });
  const buttons = approval.options.map((option) => {
    const isNo = /deny|reject|no\b/i.test(option);
    return h(`button${/once|^allow$|^yes/i.test(option) ? ".primary" : ""}`, {
      type: "button", dataset: { option },
      onclick: () => decide(option, { reason: isNo ? reason.value.trim() : "", remember: /always/i.test(option) }),
    }, visibleExactly(option));
  });
  if (approval.always_covers) {
    buttons.push(...Object.entries(REACHES).map(([remember, words]) =>
      h("button", { type: "button", dataset: { option: words }, onclick: () => decide("allow", { remember }) }, words)));
  }
  const decide = async (option, more) => {
    buttons.forEach((one) => { one.disabled = true; });
    const answered = await attempt(() => answer(approval, option, more), "Not answered");
    if (!answered) buttons.forEach((one) => { one.disabled = false; });
  };
  const no = buttons.find((one) => /deny|reject|no\b/i.test(one.dataset.option));
  reason.addEventListener("keydown", (event) => event.key === "Enter" && no?.click());
  const text = String(approval.prompt || approval.action || "");
  announce(`Approval needed: ${visibleExactly(approval.action)}`);
  return h("section.approval", { "aria-label": "Approval needed", dataset: { risk: approval.risk_level ?? "" } },
    h("p.approval-head", icon("warn"), h("strong", "Approval needed"),
      approval.risk_level && h("span.tag", `risk: ${approval.risk_level}`),
      text.length > LONG && h("span.muted.small", `${number(text.length)} characters, all of them below`)),
    h("pre.data.approval-question", { tabIndex: 0, dir: "ltr", "aria-label": "What is asked about" }, visibleExactly(text)),
    h("div.approval-answers", buttons.filter((one) => one !== no), no && h("span.approval-no", no, reason)),
    approval.expires_at && h("p.muted.small", `Without an answer by ${new Date(approval.expires_at).toLocaleTimeString()}: ${approval.default}.`));
}
