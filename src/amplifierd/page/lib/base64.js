// Files as text, for requests that are JSON.

const PIECE = 0x8000;

/** Return what is in a file, in base64. */
export async function base64Of(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += PIECE) text += String.fromCharCode(...bytes.subarray(at, at + PIECE));
  return btoa(text);
}
