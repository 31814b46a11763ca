// Where a person writes: a prompt, or while the agent works a word to it or the next prompt.

import { ofSession, post, submit } from "../../lib/api.js";
import { fill, h, icon, iconButton, setText } from "../../lib/dom.js";
import { LevelChooser } from "../../components/permissions.js";
import { stateOf } from "../../components/status.js";
import { refused } from "../../components/session-actions.js";
import { attempt, toast } from "../../components/toast.js";
import { describe, shortcut } from "../../lib/shortcuts.js";
import { kept, settled } from "../../lib/state.js";
import { onEvents } from "../../lib/stream.js";
import { FileMentions } from "./file-mentions.js";
import { imageOf, readImage } from "./images.js";

const BUSY = new Set(["executing", "queued", "waiting", "cancelling"]);
const MOST_IMAGE_BYTES = 5_000_000;

export class Composer extends HTMLElement {
  #id;
  #signal;
  #session = null;
  #images = [];
  #unread = []; // What was said to the running turn, and is not known to have reached the agent.
  #field = h("textarea", { rows: 1, "aria-label": "Message to the agent", spellcheck: true });
  #pictures = h("ul.composer-images", { hidden: true });
  #hint = h("span.composer-hint");
  #buttons = h("div.composer-buttons");
  #picker = h("input", { type: "file", accept: "image/png,image/jpeg,image/gif,image/webp", multiple: true, hidden: true });
  #print = "";
  #isSending = false;
  #isStopping = false;
  #mentions;
  #level;
  #keep = settled(() => kept.set(`draft.${this.#id}`, this.#field.value), 150, 500);

  constructor(id, signal) {
    super();
    this.#id = id;
    this.#signal = signal;
    this.#level = new LevelChooser(id);
    this.#field.value = kept.get(`draft.${id}`, "");
  }

  connectedCallback() {
    this.#mentions = new FileMentions(this.#field, { signal: this.#signal, directory: () => this.#session?.working_dir ?? null });
    fill(this, this.#pictures, h("div.completed-field", this.#field, this.#mentions.element), h("div.composer-foot",
      iconButton("image", "Attach images", () => this.#picker.click()), this.#picker, this.#level, this.#hint, this.#buttons));
    this.#field.addEventListener("input", () => (this.#keep(), this.#resize(), this.update(this.#session)));
    this.#field.addEventListener("keydown", (event) => this.#keys(event));
    this.#field.addEventListener("paste", (event) => this.#attach(event.clipboardData.files, event));
    this.addEventListener("dragover", (event) => event.preventDefault());
    this.addEventListener("drop", (event) => this.#attach(event.dataTransfer.files, event));
    this.#picker.addEventListener("change", () => this.#attach(this.#picker.files));
    const options = { signal: this.#signal, group: "Conversation" };
    onEvents((event) => event.session_id === this.#id && this.#heard(event), { signal: this.#signal });
    describe("Enter", "Send; while it works: say it to the running turn", options);
    describe("Shift+Enter", "New line", options);
    describe("@", "Name a file of the directory", options);
    describe("Ctrl+Enter", "Send; while it works: queue it as the next prompt", options);
    shortcut("Ctrl+.", "Stop; again: stop its tools, too", () => this.#stop(), { ...options, inFields: true });
    shortcut("i", "Write a message", () => this.#field.focus(), options);
    shortcut("Escape", "Leave the field", () => this.#field.blur(), { ...options, inFields: true });
    this.#resize();
  }

  get isBusy() {
    return this.#session !== null && BUSY.has(stateOf(this.#session));
  }

  /** Put a text into the field, before what is there. */
  write(text) {
    this.#field.value = [text, this.#field.value].filter(Boolean).join("\n\n");
    this.#keep();
    this.#resize();
    this.update(this.#session);
    this.#field.focus();
  }

  /** Show what can be done in the session's state. */
  update(session) {
    this.#session = session;
    this.#level.update(session);
    if (!session) return;
    const state = stateOf(session);
    const isEmpty = !this.#field.value.trim() && !this.#images.length;
    const print = JSON.stringify([state, session.status, isEmpty, this.#isSending]);
    if (print === this.#print) return;
    this.#print = print;
    const had = this.#buttons.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const isBusy = BUSY.has(state);
    this.#field.placeholder = isBusy ? "Say something to the running turn…" : session.status === "active" ? "Ask, or say what to do…" : "It has ended; a prompt resumes it…";
    setText(this.#hint, isBusy ? "Enter: steer · Ctrl+Enter: queue" : "Enter: send · Shift+Enter: new line");
    const button = (key, label, onclick, props = {}, ...content) =>
      h(`button${props.isPrimary ? ".primary" : ""}`, { type: "button", dataset: { key }, title: props.title ?? label, disabled: Boolean(props.disabled) || this.#isSending, onclick }, ...content, label);
    fill(this.#buttons, isBusy
      ? [
        state === "cancelling"
          ? button("stop", "Stop now", () => this.#stop(true), { title: "Stop at once (Ctrl+.)" }, icon("stop"))
          : button("stop", "Stop", () => this.#stop(), { title: "Stop; tools that run may finish (Ctrl+.)" }, icon("stop")),
        !isEmpty && button("queue", "Queue", () => this.#send({ queue: true }), { title: "Run it after this turn (Ctrl+Enter)" }),
        button("steer", "Steer", () => this.#steer(), { isPrimary: true, disabled: isEmpty || this.#images.length > 0, title: "Say it to the running turn (Enter)" }, icon("send")),
      ]
      : button("send", "Send", () => this.#send(), { isPrimary: true, disabled: isEmpty }, icon("send")));
    if (had) (this.#buttons.querySelector(`[data-key="${had}"]:not(:disabled)`) ?? this.#field).focus();
  }

  #keys(event) {
    if (this.#mentions.keys(event)) return;
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.isBusy) this.#send();
    else if (event.ctrlKey || event.metaKey || this.#images.length) this.#send({ queue: true });
    else this.#steer();
  }

  async #send({ queue = false } = {}) {
    const prompt = this.#field.value.trim();
    if ((!prompt && !this.#images.length) || this.#isSending) return;
    const body = { prompt, queue, auto_resume: true, ...(this.#images.length && { images: this.#images }) };
    const again = () => this.#send({ queue });
    await this.#sending(() => submit(ofSession(this.#id, "/execute/stream"), body), { again });
  }

  async #steer() {
    const content = this.#field.value.trim();
    if (!content || this.#isSending) return;
    const steer = () => post(ofSession(this.#id, "/steer"), { content });
    try {
      const isSent = await this.#sending(steer, { rethrow: ["nothing-to-steer", "steering-unsupported"] });
      if (isSent) {
        this.#unread.push(content);
        toast("The agent reads it before its next step");
      }
    } catch (error) {
      if (error.code === "steering-unsupported") toast("This agent cannot be steered; the text is queued.");
      await this.#send({ queue: true });
    }
  }

  /** Send what is written, and return whether the daemon has it; the field is emptied then, and not before. */
  async #sending(work, { rethrow = [], again } = {}) {
    const text = this.#field.value;
    const images = this.#images;
    this.#isSending = true;
    this.update(this.#session);
    try {
      await work();
      if (this.#field.value === text) this.#field.value = "";
      this.#images = this.#images.filter((one) => !images.includes(one));
      this.#showImages();
      kept.set(`draft.${this.#id}`, this.#field.value);
      this.#resize();
      this.dispatchEvent(new CustomEvent("sent", { bubbles: true }));
      return true;
    } catch (error) {
      if (rethrow.includes(error.code)) throw error;
      refused(this.#id, error, "Not sent", again);
      return false;
    } finally {
      this.#isSending = false;
      this.update(this.#session);
    }
  }

  async #stop(immediate = this.#session && stateOf(this.#session) === "cancelling") {
    if (!this.isBusy) return;
    this.#isStopping = true; // The turn may end before the answer is here; what was typed comes back at once and in order.
    const answer = await attempt(() => post(ofSession(this.#id, "/cancel"), { immediate, withdraw: true }), "Not stopped");
    this.#isStopping = false;
    if (!answer) return;
    this.#giveBack(answer.withdrawn);
    if (answer.state !== "graceful" || !answer.running_tools.length) return;
    toast(`${answer.running_tools.join(" and ")} may finish, then the turn ends`, { action: { label: "Stop now", run: () => this.#stop(true) } });
  }

  #heard({ event, data }) {
    if (event === "orchestrator:steering_injected") this.#unread = this.#unread.filter((text) => text !== data.content);
    else if (event === "execution:done" && data.status === "completed") this.#unread = [];
    else if (event === "execution:done" && !this.#isStopping) this.#giveBack();
  }

  /** Put what was not read, and prompts that were taken out of the queue, back into the field. */
  #giveBack(withdrawn = []) {
    const texts = [...this.#unread, ...withdrawn];
    this.#unread = [];
    if (texts.length) this.write(texts.join("\n\n"));
  }

  async #attach(files, event) {
    if (!files?.length) return;
    event?.preventDefault();
    const chosen = [...files];
    this.#picker.value = ""; // The same file can be chosen again.
    for (const file of chosen) {
      const block = file.size <= MOST_IMAGE_BYTES ? await readImage(file) : null;
      if (block) this.#images = [...this.#images, block];
      else toast(`${file.name || "The file"} cannot be attached: PNG, JPEG, GIF or WebP up to 5 MB`, { kind: "error" });
    }
    this.#showImages();
    this.update(this.#session);
  }

  #showImages() {
    this.#pictures.hidden = !this.#images.length;
    fill(this.#pictures, this.#images.map((block) => h("li", imageOf(block), iconButton("close", "Remove image", () => {
      this.#images = this.#images.filter((one) => one !== block);
      this.#showImages();
      this.update(this.#session);
    }))));
  }

  #resize() {
    this.#field.style.setProperty("height", "auto");
    this.#field.style.setProperty("height", `${Math.min(this.#field.scrollHeight + 2, innerHeight * 0.4)}px`);
  }
}

customElements.define("message-composer", Composer);
