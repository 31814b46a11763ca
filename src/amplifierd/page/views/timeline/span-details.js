// What the panel shows of a span or a turn: its facts, and its events with all their data.

import { fill, h, icon } from "../../lib/dom.js";
import { dollars, duration, moment, number, plain } from "../../lib/format.js";
import { sessionHref } from "../../lib/router.js";
import { usageOf } from "../../lib/usage.js";
import { failure, loading } from "../../lib/view.js";
import { factList } from "../../components/inspector.js";
import { longText } from "../../components/long-text.js";

const STATES = { running: "running", done: "done", completed: "completed", error: "failed", failed: "failed", cut: "cut off", cancelled: "stopped" };
const OPENED = ["tool:pre", "tool:outcome", "provider:response", "provider:error", "tool:error", "approval:pending"];
const MOST_EVENTS = 300;

/** The content of the panel for a span; `load(event)` fetches an event as it is stored. */
export function spanDetails(span, spans, { sessionId, load }) {
  const { begin } = spans;
  const beside = span.group ? spans.rows().map((row) => row.span).filter((one) => one !== span && one.group === span.group) : [];
  const used = usageOf(span);
  const end = span.end ?? Date.now();
  return [
    factList([
      ["State", STATES[span.status] + (span.reason ? `: ${plain(span.reason)}` : "")],
      [span.kind === "model" ? "Request" : "What", plain(span.subject)],
      ["Began", `${duration(span.begin - begin)} into the turn, ${moment(span.begin)}`],
      ["Took", end > span.begin && duration(end - span.begin)],
      ["First word after", span.first && duration(span.first - span.begin)],
      ["Tokens", used.tokens > 0 && `${number(used.input)} in, ${number(used.output)} out`],
      ["Cost", used.cost !== null && dollars(used.cost)],
      ["In parallel with", beside.map((one) => one.agent ?? plain(one.name)).join(", ")],
      ...span.waits.map((wait) => [WAIT_NAMES[wait.kind], `${wait.end ? duration(wait.end - wait.begin) : "still waiting"}${wait.decision ? `, then ${wait.decision}` : ""}${wait.text ? ` (${plain(wait.text)})` : ""}`]),
    ]),
    h("p.detail-links",
      span.kind === "hook" && h("a.button", { href: sessionHref(sessionId, "plan") }, icon("hook"), "Which hooks hear what"),
      span.requestId && h("a.button", { href: sessionHref(span.session, `why/${encodeURIComponent(span.requestId)}`) }, icon("help"), "Why: what it was made of"),
      span.child && h("a.button", { href: sessionHref(span.child, "timeline") }, icon("agent"), "The agent's own timeline"),
      span.session !== sessionId && !span.child && h("a.button", { href: sessionHref(span.session) }, icon("agent"), "The agent's conversation")),
    eventList(span.events, { begin, load }),
  ];
}

const WAIT_NAMES = { approval: "Waited for approval", retry: "Waited to try again" };

/** The content of the panel for a turn. */
export function turnDetails(turn, spans, { load, sessionId }) {
  const { usage } = turn;
  return [
    factList([
      ["State", STATES[turn.status] + (turn.wasTakenBack ? ", taken back later" : "")],
      ["Problem", turn.error?.detail],
      ["Prompt", plain(turn.prompt)],
      ["Began", moment(turn.begin)],
      ["Took", turn.end && duration(turn.end - turn.begin)],
      ["Tokens", usage && `${number(usage.tokens.input)} in, ${number(usage.tokens.output)} out`],
      ["From the cache", usage?.tokens.cache_read > 0 && `${number(usage.tokens.cache_read)} tokens`],
      ["Tool calls", usage && number(usage.tool_calls)],
      ["Hooks took", spans.hooksMs > 0 && duration(spans.hooksMs)],
      ["Cost", usage && (usage.cost_usd === null ? "unknown" : dollars(usage.cost_usd))],
      ...Object.entries(usage?.by_agent ?? {}).map(([name, part]) => [`Agent ${plain(name)}`, `${number(part.tokens.total)} tokens${part.cost_usd === null ? "" : `, ${dollars(part.cost_usd)}`}`]),
    ]),
    h("p.detail-links", h("a.button", { href: `${sessionHref(sessionId, "why")}?turn=${turn.number}` }, icon("help"), "Why: its requests")),
    eventList(spans.events, { begin: spans.begin, load }),
  ];
}

/** Events, each of which opens to show its data as it is stored. */
function eventList(events, { begin, load }) {
  const box = h("div.event-list", h("h3", `${number(events.length)} ${events.length === 1 ? "event" : "events"}`));
  let most = MOST_EVENTS;
  const list = h("ol");
  const more = h("button.link", { type: "button", onclick: () => { most *= 10; show(); } }, "Show more");
  const show = () => {
    fill(list, events.slice(0, most).map((event) => h("li", eventElement(event, begin, load, events.length <= 12))));
    more.hidden = events.length <= most;
  };
  show();
  box.append(list, more);
  return box;
}

function eventElement(event, begin, load, mayOpen) {
  const body = h("div.event-data");
  const details = h("details.event", h("summary", icon("chevron", "fold"), h("code", event.name), h("span.event-at", `+${duration(event.at - begin)}`)), body);
  details.addEventListener("toggle", async () => {
    if (!details.open || body.firstChild) return;
    fill(body, loading());
    try {
      const stored = await load(event);
      fill(body, stored ? longText(stored.data, { label: `Data of ${event.name}` }) : h("p.muted.small", "This event is not stored."));
    } catch (error) {
      if (error.name !== "AbortError") fill(body, failure(error));
    }
  });
  if (mayOpen && OPENED.includes(event.name)) details.open = true;
  return details;
}
