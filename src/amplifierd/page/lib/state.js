// Small observable values: a store holds one value and tells its subscribers when it changes.

export class Store {
  #value;
  #listeners = new Set();

  constructor(value) {
    this.#value = value;
  }

  get value() {
    return this.#value;
  }

  set(value) {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    this.#listeners.forEach((listener) => listener(value));
  }

  update(change) {
    this.set(change(this.#value));
  }

  /** Call a function now and after every change, until `signal` is aborted. Returns a function that ends it. */
  subscribe(listener, { signal, now = true } = {}) {
    this.#listeners.add(listener);
    const leave = () => this.#listeners.delete(listener);
    signal?.addEventListener("abort", leave, { once: true });
    if (now) listener(this.#value);
    return leave;
  }
}

/**
 * Call a function at most once per animation frame, however often it is asked for; a hidden tab waits a little. While a
 * control is pressed nothing is drawn: what was pressed must still be there when it is let go.
 */
export function perFrame(work) {
  let isAsked = false;
  const later = () => (document.hidden ? setTimeout(run, 250) : requestAnimationFrame(run));
  const run = () => {
    if (isPressed()) {
      later();
      return;
    }
    isAsked = false;
    work();
  };
  return () => {
    if (isAsked) return;
    isAsked = true;
    later();
  };
}

function isPressed() {
  return document.documentElement.matches(":active") && document.querySelector("button:active, a:active, summary:active") !== null;
}

/** Call a function when nothing asked for it for `ms`, but at least every `most` milliseconds. */
export function settled(work, ms, most = ms * 5) {
  let timer = null;
  let first = 0;
  return (...args) => {
    const now = performance.now();
    if (timer === null) first = now;
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = null;
      work(...args);
    }, Math.max(0, Math.min(ms, first + most - now)));
  };
}

/** What the browser keeps for this page: small values by name. A browser that keeps nothing is as good. */
export const kept = {
  get(name, fallback = null) {
    try {
      const text = localStorage.getItem(`amplifier.${name}`);
      return text === null ? fallback : JSON.parse(text);
    } catch {
      return fallback;
    }
  },
  set(name, value) {
    try {
      if (value === null || value === "") localStorage.removeItem(`amplifier.${name}`);
      else localStorage.setItem(`amplifier.${name}`, JSON.stringify(value));
    } catch {
      // Storage is full or forbidden: the value lasts as long as the page.
    }
  },
};
