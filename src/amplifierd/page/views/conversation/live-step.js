// What the model is saying right now: blocks that grow by events.

/** One answer of the model while it comes; `begun` is the event it began with. */
export class LiveStep {
  blocks = [];
  isDone = false;
  #request = null;

  constructor(begun) {
    this.begun = begun;
  }

  /** Take an event about a block; true when there is something new to see. */
  take(name, data) {
    if (name === "llm:stream_aborted") {
      this.blocks = [];
      return true;
    }
    if (name === "content_block:end" && data.block) return this.#whole(data);
    if (name.startsWith("llm:stream_block_") || name === "content_block:delta" || name === "thinking:delta") {
      return this.#piece(name, data);
    }
    return false;
  }

  #piece(name, data) {
    if (!name.startsWith("llm:") && this.#request) return false; // The provider's own pieces come already.
    if (data.request_id && this.#request && data.request_id !== this.#request) this.blocks = [];
    this.#request = data.request_id ?? this.#request;
    const index = data.block_index ?? 0;
    const block = (this.blocks[index] ??= { type: data.block_type ?? (name === "thinking:delta" ? "thinking" : "text"), text: "" });
    if (block.isWhole) return false;
    if (data.name) block.name = data.name;
    const text = data.text ?? (typeof data.delta === "string" ? data.delta : data.delta?.text) ?? "";
    block.text += text;
    if (typeof data.html === "string") Object.assign(block, { html: data.html, length: data.length ?? block.text.length });
    if (name.endsWith("_end")) block.isEnded = true;
    return Boolean(text || data.html || !name.endsWith("delta"));
  }

  #whole({ block_index: index = 0, block, html }) {
    const { type } = block;
    const text = block.text ?? block.thinking ?? "";
    this.blocks[index] = { ...block, type: type === "tool_use" ? "tool_call" : type, text, html: block.html ?? html ?? null, isWhole: true };
    return true;
  }
}
