// Text of programs that may be JSON.

/** Return the value of a text that is an object or a list in JSON; everything else as it is. */
export function parsed(text) {
  if (typeof text !== "string" || !/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
