// Numbers, times and names as people read them.

export { visible as plain } from "./visible.js";

const whole = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const day = new Intl.DateTimeFormat("en", { day: "numeric", month: "short" });
const dayOfYear = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", year: "numeric" });
const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hour12: false });
const exact = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium", hour12: false });

/** The cost of a usage: "$0.042", "≥ $0.042" when a part has no price, "unknown" when nothing has one. */
export function cost(usage) {
  if (!usage) return "–";
  const isPartly = (usage.unpriced_tokens ?? 0) > 0;
  if (usage.cost_usd === null || usage.cost_usd === undefined) {
    return isPartly || usage.tokens?.total ? "unknown" : dollars(0);
  }
  return `${isPartly ? "≥ " : ""}${dollars(usage.cost_usd)}`;
}

/** The cost of a usage where nothing else says that it is one. */
export function costWord(usage) {
  const known = cost(usage);
  return known === "unknown" ? "cost unknown" : known;
}

export function dollars(amount) {
  const value = Number(amount);
  if (value === 0) return "$0";
  if (value < 0.0001) return "< $0.0001";
  return `$${value.toFixed(value < 0.01 ? 4 : value < 1 ? 3 : 2)}`;
}

export const tokens = (count) => (count === null || count === undefined ? "–" : compact.format(count));
export const number = (count) => whole.format(count ?? 0);
export const plural = (count, one, many = `${one}s`) => `${whole.format(count)} ${count === 1 ? one : many}`;

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
  return `${Math.floor(seconds / 3600)} h ${String(Math.floor((seconds % 3600) / 60)).padStart(2, "0")} min`;
}

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "kB", "MB", "GB"];
  let value = count;
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit += 1) value /= 1000;
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** How long ago, short: "now", "5 min", "3 h", then the day. */
export function ago(timestamp, now = Date.now()) {
  if (!timestamp) return "–";
  const then = new Date(timestamp);
  const seconds = (now - then.getTime()) / 1000;
  if (seconds < 45) return "now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h`;
  return (then.getFullYear() === new Date(now).getFullYear() ? day : dayOfYear).format(then);
}

/** The same inside a sentence: "just now", "5 min ago", "on Jan 2". */
export function since(timestamp) {
  const word = ago(timestamp);
  if (word === "now") return "just now";
  return /^\d+ (min|h)$/.test(word) ? `${word} ago` : `on ${word}`;
}

export const time = (timestamp) => (timestamp ? clock.format(new Date(timestamp)) : "–");
export const moment = (timestamp) => (timestamp ? exact.format(new Date(timestamp)) : "–");

/** A message as a sentence begins: errors of the daemon begin small. */
export const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");

/** What a session is called: its name, its agent, what was said first, or the beginning of its id. */
export function sessionName(session) {
  if (session.name) return session.name;
  if (session.agent_name) return session.agent_name;
  if (session.first_prompt) return session.first_prompt;
  return `Session ${session.session_id.replace(/^session_/, "").slice(0, 8)}`;
}

/** The last parts of a path, for a narrow place. */
export function shortPath(path, parts = 2) {
  const pieces = (path ?? "").split("/").filter(Boolean);
  return pieces.length <= parts ? path : `…/${pieces.slice(-parts).join("/")}`;
}
