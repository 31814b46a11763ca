// Pictures in a conversation: only kinds that cannot hold a script, never from another place.

import { base64Of } from "../../lib/base64.js";
import { h } from "../../lib/dom.js";

const KINDS = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export const isImage = (block) => block?.type === "image" || block?.type === "image_url";

/** Show the image of a content block; say so where it cannot be shown. */
export function imageOf(block) {
  const source = block.source ?? block;
  const kind = source.media_type ?? source.mime_type ?? "";
  if (!KINDS.has(kind) || typeof source.data !== "string" || !/^[A-Za-z0-9+/=\s]+$/.test(source.data)) {
    return h("p.muted.small", `An image that this page does not show${kind ? ` (${kind})` : ""}.`);
  }
  const address = `data:${kind};base64,${source.data}`;
  return h("img.picture", { src: address, alt: "Image of the conversation", loading: "lazy", decoding: "async" });
}

/** Read an image file as a content block; null when it is of a kind that models do not read. */
export async function readImage(file) {
  if (!KINDS.has(file.type)) return null;
  return { type: "image", source: { type: "base64", media_type: file.type, data: await base64Of(file) } };
}
