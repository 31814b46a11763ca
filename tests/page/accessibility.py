"""What keeps people out: controls without a name, and text that is hard to tell from what is behind it."""

from __future__ import annotations

from playwright.sync_api import Page

_NAMELESS = """(root) => {
  const named = (one) => one.getAttribute("aria-label") || one.textContent.trim() || one.title
    || one.labels?.length || one.getAttribute("aria-labelledby");
  return [...document.querySelectorAll(`${root} :is(button, a, input, select, textarea, summary, [role=img])`)]
    .filter((one) => one.checkVisibility() && !named(one)).map((one) => one.outerHTML.slice(0, 200));
}"""

_PALE = """(root) => {
  const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
    .getContext("2d", { willReadFrequently: true });
  const read = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return { rgb: [r, g, b], alpha: a / 255 };
  };
  const over = (top, below) => top.rgb.map((value, index) => value * top.alpha + below[index] * (1 - top.alpha));
  const behind = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      const layer = read(getComputedStyle(one).backgroundColor);
      if (layer.alpha) layers.push(layer);
      if (layer.alpha === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const luminance = (rgb) => rgb.map((value) => value / 255)
    .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
  const found = [];
  for (const element of document.querySelectorAll(`${root} *`)) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest(":disabled, .visually-hidden, svg, select")) continue;
    const back = behind(element);
    const [light, dark] = [luminance(over(read(getComputedStyle(element).color), back)), luminance(back)]
      .sort((one, other) => other - one);
    const ratio = (light + 0.05) / (dark + 0.05);
    const words = element.textContent.slice(0, 60);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${element.className || element.tagName}: ${words}`);
  }
  return found;
}"""


def nameless(page: Page, root: str) -> list[str]:
    """Return the controls below a selector that a screen reader cannot name."""
    found: list[str] = page.evaluate(_NAMELESS, root)
    return found


def pale(page: Page, root: str) -> list[str]:
    """Return the texts below a selector whose contrast is less than AA asks for, with the ratio; in both themes."""
    found: list[str] = []
    for theme in ("light", "dark"):
        page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        found += [f"{theme} {one}" for one in page.evaluate(_PALE, root)]
    return found
