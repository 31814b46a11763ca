// One message of a conversation, and the step that the model is at, as elements.

import { h, icon, iconButton } from "../../lib/dom.js";
import { copyText } from "../../lib/clipboard.js";
import { moment, time } from "../../lib/format.js";
import { sessionHref } from "../../lib/router.js";
import { prose, updateProse } from "../../components/prose.js";
import { menuButton } from "../../components/menu.js";
import { imageOf, isImage } from "./images.js";

/** What a message consists of, as blocks. */
export function blocksOf({ content, html, tool_calls: calls }) {
  if (Array.isArray(content)) {
    const texts = content.filter((block) => block.type === "text");
    return content.map((block) => (block.type === "text" && texts.length === 1 ? { html, ...block } : block));
  }
  const blocks = content ? [{ type: "text", text: String(content), html }] : [];
  return [...blocks, ...(calls ?? []).map((call) => ({ type: "tool_call", id: call.id, name: call.tool ?? call.name, input: call.arguments ?? call.input }))];
}

/** The text of a message, as a reader would copy it. */
export function textOf(message) {
  return blocksOf(message).filter((block) => block.type === "text").map((block) => block.text).join("\n\n");
}

/** Make the element of a stored message. `context` is {model, actions, cards, isSteering, isAgent}. */
export function messageElement(message, context) {
  const { role } = message;
  const name = { user: context.isAgent ? "Task" : context.isSteering ? "You, while it worked" : "You", assistant: message.agent ?? "Agent", system: "System" }[role] ?? role;
  const blocks = blocksOf(message);
  const hasText = blocks.some((block) => block.type === "text" && block.text?.trim());
  return h(`article.message.is-${role}`, { id: `m-${message.id}`, dataset: { id: message.id }, "aria-label": `${name}, ${time(message.timestamp)}`, tabIndex: -1 },
    role !== "assistant" && h("header.message-head", h("span.message-who", name), h("time", { dateTime: message.timestamp, title: moment(message.timestamp) }, time(message.timestamp))),
    h("div.message-body", blocks.map((block) => blockElement(block, message.turn, context))),
    (hasText || role === "user") && toolsOf(message, context));
}

function blockElement(block, turn, context) {
  if (block.type === "text") return block.text?.trim() ? prose(block) : null;
  if (block.type === "thinking" || block.type === "redacted_thinking") return thinking(block);
  if (block.type === "tool_call" || block.type === "tool_use") return context.cards.take(block, turn);
  if (isImage(block)) return imageOf(block);
  return h("p.muted.small", `A part of kind “${block.type}” that this page does not show.`);
}

function thinking(block) {
  const text = block.thinking ?? block.text ?? "";
  return h("details.thinking", h("summary", icon("chevron", "fold"), "Thinking"), prose({ text: text || "The provider does not show it.", html: text ? block.html : null }));
}

/** What can be done with a message; shown when it has the pointer or the focus. */
function toolsOf(message, { actions, model, isSteering }) {
  if (!actions) return null;
  const address = `${location.origin}${sessionHref(model.id)}?message=${encodeURIComponent(message.id)}`;
  const isPrompt = message.role === "user" && !isSteering;
  return h("div.message-tools",
    iconButton("copy", "Copy text", () => copyText(textOf(message))),
    message.role === "assistant" && h("a.button.icon-button", {
      href: sessionHref(model.id, `why/${encodeURIComponent(message.id)}`), "aria-label": "Why this answer", title: "Why this answer",
    }, icon("help")),
    isPrompt && iconButton("edit", "Edit and branch", () => actions.edit(message)),
    menuButton("More for this message", () => [
      { label: "Copy link", icon: "link", run: () => copyText(address, "Link copied") },
      { label: "Fork after this turn", icon: "fork", run: () => actions.fork(message.turn) },
      { label: "Show what changed", icon: "file", run: () => actions.changes(message.turn) },
      "-",
      { label: "Undo this turn…", icon: "undo", run: () => actions.undo(message.turn) },
    ]));
}

/** The step that the model is at; `update` shows what came since. */
export class LiveMessage {
  element = h("article.message.is-assistant.is-live", { "aria-label": "Agent, at work", "aria-busy": "true" });
  #shown = [];
  #body = h("div.message-body");
  #waiting = h("p.waiting", h("span.spinner", { "aria-hidden": "true" }), h("span", "Waiting for the model…"));
  #context;

  constructor(context) {
    this.#context = context;
    this.element.append(this.#body, this.#waiting);
  }

  update(step, turn) {
    this.#waiting.hidden = step.blocks.length > 0 || step.isDone;
    if (this.#shown.length > step.blocks.length) {
      this.#shown = [];
      this.#body.replaceChildren();
    }
    for (let at = 0; at < step.blocks.length; at += 1) this.#updateBlock(step.blocks[at], at, turn);
  }

  #updateBlock(block, at, turn) {
    if (!block) return;
    const shown = this.#shown[at];
    const kind = block.isWhole ? `whole-${block.type}` : block.type;
    if (shown?.kind === kind || (shown && kind === "whole-text" && shown.kind === "text") || (shown && kind === "whole-thinking" && shown.kind === "thinking")) {
      if (shown.text !== block.text || shown.html !== block.html) shown.refresh(block);
      Object.assign(shown, { text: block.text, html: block.html });
      return;
    }
    const made = this.#make(block, turn);
    if (shown) shown.element.replaceWith(made.element);
    else this.#body.append(made.element);
    this.#shown[at] = { ...made, kind, text: block.text, html: block.html };
  }

  #make(block, turn) {
    if (block.type === "thinking") {
      const box = prose(block);
      const element = h("details.thinking", h("summary", icon("chevron", "fold"), "Thinking…"), box);
      return { element, refresh: (next) => updateProse(box, next) };
    }
    if (block.type === "text") {
      const element = prose(block);
      return { element, refresh: (next) => updateProse(element, next) };
    }
    if (block.isWhole && block.type === "tool_call") {
      const call = { id: block.id, name: block.name, input: block.input ?? block.arguments };
      return { element: this.#context.cards.lend(call, turn), refresh() {} };
    }
    const element = h("p.tool-coming", h("span.spinner", { "aria-hidden": "true" }), h("span", `Preparing ${block.name ?? "a tool"}…`));
    return { element, refresh() {} };
  }
}
