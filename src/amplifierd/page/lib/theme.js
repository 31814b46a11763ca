// Light or dark: what the system says, unless the user chose.

import { kept, Store } from "./state.js";

/** "light", "dark" or "system". */
export const theme = new Store(kept.get("theme", "system"));

export function applyTheme() {
  theme.subscribe((chosen) => {
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
  });
}

export function isDark() {
  if (theme.value !== "system") return theme.value === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

export function toggleTheme() {
  const next = isDark() ? "light" : "dark";
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  theme.set(next === system ? "system" : next);
  kept.set("theme", theme.value === "system" ? null : theme.value);
}
