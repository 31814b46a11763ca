// What every view is: a custom element that cleans up after itself.

import { fill, h } from "./dom.js";
import { sentence } from "./format.js";
import { Problem, Unreachable } from "./api.js";
import { onceReachable } from "./stream.js";

/**
 * A page of the application. The router sets `params` (from the path) and `query` (URLSearchParams), then adds it to
 * the document, which calls `open()`. `signal` is aborted when the view goes: pass it to fetches, listeners and stores.
 */
export class View extends HTMLElement {
  params = {};
  query = new URLSearchParams();
  #abort = new AbortController();

  get signal() {
    return this.#abort.signal;
  }

  connectedCallback() {
    if (this.#abort.signal.aborted) this.#abort = new AbortController();
    Promise.resolve(this.open()).catch((error) => {
      if (error.name !== "AbortError") this.fail(error);
    });
  }

  disconnectedCallback() {
    this.#abort.abort();
  }

  /** Build the view; a view overrides this. What it throws is shown with a way to try again. */
  async open() {}

  /** Listen to a target, or to a Store, for as long as the view is there. */
  listen(target, type, listener) {
    if (typeof target.subscribe === "function") target.subscribe(type, { signal: this.signal });
    else target.addEventListener(type, listener, { signal: this.signal });
  }

  fail(error) {
    const again = () => {
      this.disconnectedCallback(); // What listened for the failed attempt goes with it.
      this.replaceChildren();
      this.connectedCallback();
    };
    fill(this, failure(error, again));
    if (error instanceof Unreachable) onceReachable(again, { signal: this.signal });
  }
}

/** An error as a person can use it: what happened, what to do, and a button that tries again. */
export function failure(error, again) {
  const isExpected = error instanceof Problem || error instanceof Unreachable;
  if (!isExpected) reportError(error);
  return h("div.state-box.is-error", { role: "alert" },
    h("h2", titleOf(error)),
    h("p", sentence(error.message)),
    error.hint && h("p.muted", sentence(error.hint)),
    error.request_id && h("p.muted.small", `Request ${error.request_id}`),
    again && h("button", { type: "button", onclick: again }, "Try again"));
}

function titleOf(error) {
  if (error instanceof Unreachable) return "No connection";
  if (error.status === 404) return "Not there";
  if (error.status === 403) return "Not allowed";
  return "That did not work";
}

/** What stands where nothing is yet. */
export const emptyState = (title, text, ...actions) => stateBox(h("h2", title), text, actions);

/** What stands at an address where there is nothing. */
export const emptyPage = (title, text, ...actions) => stateBox(h("h1", title), text, actions);

const stateBox = (heading, text, actions) => h("div.state-box", heading, text && h("p.muted", text), actions);

/** What stands where something will be; says so to a screen reader after a moment, and never jumps. */
export function loading(label = "Loading…") {
  return h("div.state-box.is-loading", { role: "status" }, h("span.spinner", { "aria-hidden": "true" }), h("span", label));
}
