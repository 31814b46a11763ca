// The HTTP API: JSON in both directions, and errors as the daemon's problem documents.

const BASE = "/api/v1";

/** What the daemon refused, or could not do. `code` is a stable word, `hint` says what to do. */
export class Problem extends Error {
  constructor(document) {
    super(document.detail || document.title || "the request failed");
    this.name = "Problem";
    Object.assign(this, { status: 0, code: "unknown", hint: null, retryable: false, errors: null }, document);
  }
}

/** The daemon could not be reached. */
export class Unreachable extends Error {
  constructor(cause) {
    super("The daemon does not answer.", { cause });
    this.name = "Unreachable";
  }
}

const unauthorized = new Set();

/** Call a function whenever a request is refused because the browser is not logged in. */
export function onUnauthorized(listener) {
  unauthorized.add(listener);
}

let agree = async () => false;

/** Have a function asked when a request leads to a plan that needs an agreement; after a true it is sent again. */
export function onAgreementNeeded(ask) {
  agree = ask;
}

/** Send a request and return the parsed answer; null when there is none. Raises Problem or Unreachable. */
export async function request(method, path, options) {
  try {
    return (await send(method, path, options)).parsed;
  } catch (error) {
    if (error.code !== "agreement-needed" || !(await agree(error))) throw error;
  }
  return (await send(method, path, again(options))).parsed;
}

const again = ({ headers, ...options } = {}) =>
  ({ ...options, headers: headers && { ...headers, ...(headers["Idempotency-Key"] && { "Idempotency-Key": newKey() }) } });

/** GET a text that is not JSON, with the version that tells it from others. */
export async function getText(path, query, options) {
  const { text, answer } = await send("GET", path, { query, ...options });
  return { text, version: answer.headers.get("etag") };
}

const begun = new Map();
const KEPT_MS = 10_000;

/** Send a GET whose answer the first `get` of the same address takes, if one comes soon; for what a page will need. */
export function begin(path, query) {
  const url = BASE + path + queryString(query);
  const answer = fetch(url, initOf("GET"));
  begun.set(url, answer);
  answer.catch(() => {}); // The caller that takes it reports it.
  setTimeout(() => begun.delete(url), KEPT_MS);
}

/** Whether the daemon has let in what was begun; false when nothing was, or when it does not answer. */
export async function isLetIn() {
  const [first] = begun.values();
  return first ? first.then((answer) => answer.status !== 401, () => false) : false;
}

const initOf = (method) => ({ method, credentials: "same-origin", headers: { "X-Amplifier-Page": "1" } });

async function send(method, path, { body, query, signal, headers } = {}) {
  const url = (path.startsWith("/auth/") && path !== "/auth/me" ? path : BASE + path) + queryString(query);
  const init = { ...initOf(method), signal };
  Object.assign(init.headers, headers);
  if (body !== undefined) {
    init.headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  const waiting = method === "GET" ? begun.get(url) : undefined;
  begun.delete(url);
  let answer;
  try {
    answer = await (waiting ?? fetch(url, init));
    signal?.throwIfAborted();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable(error);
  }
  const text = await answer.text();
  const parsed = text && (answer.headers.get("content-type") ?? "").includes("json") ? JSON.parse(text) : null;
  if (answer.ok) return { answer, text, parsed };
  if (answer.status === 401) unauthorized.forEach((listener) => listener());
  throw new Problem({ status: answer.status, title: answer.statusText, ...parsed });
}

export const get = (path, query, options) => request("GET", path, { query, ...options });
export const patch = (path, body, options) => request("PATCH", path, { body, ...options });
export const put = (path, body, options) => request("PUT", path, { body, ...options });
export const remove = (path, query, options) => request("DELETE", path, { query, ...options });

/** POST with an Idempotency-Key; pass the same `key` to repeat a submit whose answer was lost. */
export function post(path, body = {}, { key = newKey(), ...options } = {}) {
  return request("POST", path, { body, headers: { "Idempotency-Key": key }, ...options });
}

/** POST, and again with the same key while the daemon does not answer: it runs once. */
export async function submit(path, body, { attempts = 4, ...options } = {}) {
  const key = newKey();
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await post(path, body, { key, ...options });
    } catch (error) {
      const isWorthIt = error instanceof Unreachable || (error instanceof Problem && error.status === 503);
      if (!isWorthIt || attempt >= attempts) throw error;
      await new Promise((resolve) => setTimeout(resolve, 300 * 2 ** attempt));
    }
  }
}

/** The address of a session's part of the API. */
export const ofSession = (id, rest = "") => `/sessions/${encodeURIComponent(id)}${rest}`;

/** A name that no other request has. (`crypto.randomUUID` is there in secure contexts only.) */
function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function queryString(query) {
  const pairs = Object.entries(query ?? {}).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  const given = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}
