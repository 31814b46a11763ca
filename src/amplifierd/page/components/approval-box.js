// A question of an agent: may it do this? Once, always, or not, with a reason.

import { answer } from "../lib/approvals.js";
import { announce, h, icon } from "../lib/dom.js";
import { plain } from "../lib/format.js";
import { attempt } from "./toast.js";

const MOST_SHOWN = 2000;

/** The question with its answers as buttons. The first answer counts, wherever it is given. */
export function approvalBox(approval) {
  const reason = h("input", { type: "text", placeholder: "Reason (optional)", "aria-label": "Reason for denying", maxLength: 2000 });
  const buttons = approval.options.map((option) => {
    const isNo = /deny|reject|no\b/i.test(option);
    return h(`button${/once|^allow$|^yes/i.test(option) ? ".primary" : ""}`, {
      type: "button", dataset: { option },
      onclick: () => decide(option, isNo ? reason.value.trim() : ""),
    }, option);
  });
  const decide = async (option, why) => {
    buttons.forEach((one) => { one.disabled = true; });
    const answered = await attempt(() => answer(approval, option, { reason: why, remember: /always/i.test(option) }), "Not answered");
    if (!answered) buttons.forEach((one) => { one.disabled = false; });
  };
  const no = buttons.find((one) => /deny|reject|no\b/i.test(one.dataset.option));
  reason.addEventListener("keydown", (event) => event.key === "Enter" && no?.click());
  announce(`Approval needed: ${approval.action}`);
  return h("section.approval", { "aria-label": "Approval needed", dataset: { risk: approval.risk_level ?? "" } },
    h("p.approval-head", icon("warn"), h("strong", plain(String(approval.action ?? approval.prompt).slice(0, MOST_SHOWN))),
      approval.risk_level && h("span.tag", `risk: ${approval.risk_level}`)),
    h("div.approval-answers", buttons.filter((one) => one !== no), no && h("span.approval-no", no, reason)),
    approval.expires_at && h("p.muted.small", `Without an answer by ${new Date(approval.expires_at).toLocaleTimeString()}: ${approval.default}.`));
}
