// The panel beside a view that shows one thing of it closely. On a narrow screen it lies over the view.

import { announce, fill, h, iconButton, setText } from "../lib/dom.js";

/** Opened with `show`; Escape or its button closes it, and the focus returns to where it came from. */
export class Inspector extends HTMLElement {
  #from = null;
  #onClose = null;
  #heading = h("h2.inspector-title", { tabIndex: -1 });
  #subtitle = h("p.inspector-subtitle.muted.small");
  #body = h("div.inspector-body");

  connectedCallback() {
    if (this.firstChild) return;
    this.hidden = true;
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Details");
    fill(this, h("header.inspector-head", h("div.inspector-names", this.#heading, this.#subtitle), iconButton("close", "Close details", () => this.close())), this.#body);
    this.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.close();
    });
  }

  /** Show content; `from` gets the focus back, `takeFocus` moves it here (when a key opened it). */
  show({ title, subtitle = "", content, from = null, takeFocus = false, onClose = null }) {
    if (this.#onClose && this.#onClose !== onClose) this.#onClose();
    this.#from = from;
    this.#onClose = onClose;
    setText(this.#heading, title);
    setText(this.#subtitle, subtitle);
    this.#subtitle.hidden = !subtitle;
    fill(this.#body, content);
    this.hidden = false;
    this.#body.scrollTop = 0;
    if (takeFocus) this.#heading.focus();
    else announce(`Details of ${title}`);
  }

  close() {
    if (this.hidden) return;
    this.hidden = true;
    this.#onClose?.();
    this.#onClose = null;
    fill(this.#body);
    this.#from?.focus();
    this.#from = null;
  }
}

/** Facts as a list of names and values; what is null is left out. */
export function factList(facts) {
  const given = facts.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return h("dl.facts", given.map(([name, value]) => h("div", h("dt", name), h("dd", value))));
}

customElements.define("detail-inspector", Inspector);
