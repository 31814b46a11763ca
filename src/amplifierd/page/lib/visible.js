// The border of the page: text from outside, made visible and harmless. The twin of amplifier_system.visible.

const PLAIN = /^[\x20-\x7e\n\t]*$/;
const HIDDEN = /[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/gu;
const SHAPING = /[\u200c\u200d\ufe0f]/g; // They join letters and choose shapes, in many scripts and in emoji.
const KEPT = new Set([" ", "\n", "\t", "\u200c", "\u200d", "\ufe0f"]);

/** Text as it can be shown: what would be obeyed or not be seen appears as an escape such as `\x1b`. */
export function visible(text) {
  const whole = String(text ?? "");
  return PLAIN.test(whole) ? whole : whole.replace(HIDDEN, (character) => (KEPT.has(character) ? character : escaped(character)));
}

/** Text on which a person decides: as `visible`, and what joins letters or chooses shapes is an escape, too. */
export function visibleExactly(text) {
  return visible(text).replace(SHAPING, escaped);
}

function escaped(character) {
  if (character === "\r") return "\\r";
  const code = character.codePointAt(0).toString(16);
  if (code.length <= 2) return `\\x${code.padStart(2, "0")}`;
  return code.length <= 4 ? `\\u${code.padStart(4, "0")}` : `\\U${code.padStart(8, "0")}`;
}
