// What the call of a tool is about, as one text.

const KEYS = ["file_path", "command", "pattern", "query", "path", "url", "agent", "agent_name", "instruction", "name", "title", "prompt"];

/** Return the text of an input that tells most: by the names of parameters, else the first one. */
export function toolSubject(input) {
  if (!input || typeof input !== "object") return String(input ?? "");
  const found = KEYS.map((key) => input[key]).find((value) => typeof value === "string" && value);
  return found ?? Object.values(input).find((value) => typeof value === "string") ?? "";
}
