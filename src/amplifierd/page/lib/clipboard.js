// Copying, also where the browser has no clipboard for pages (plain HTTP on another name than localhost).

import { h } from "./dom.js";
import { toast } from "../components/toast.js";

export async function copyText(text, said = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
    toast(said);
  } catch {
    const field = h("textarea.visually-hidden", { value: text, "aria-hidden": "true" });
    document.body.append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    toast(isDone ? said : "The browser does not let this page copy.", isDone ? {} : { kind: "error" });
  }
}
