// What is wrong with a page for somebody who sees badly, uses a keyboard or has a small screen; run inside the page.
() => {
  const found = [];
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const brush = canvas.getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const read = (colour) => {
    if (!known.has(colour)) {
      brush.clearRect(0, 0, 1, 1);
      brush.fillStyle = colour;
      brush.fillRect(0, 0, 1, 1);
      known.set(colour, [...brush.getImageData(0, 0, 1, 1).data]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((part, at) => (part * a + below[at] * (255 - a)) / 255);
  const behind = (element) => {
    if (!element) return read(getComputedStyle(document.documentElement).colorScheme.includes("dark") ? "#000" : "#fff").slice(0, 3);
    const own = read(getComputedStyle(element).backgroundColor);
    return own[3] === 255 ? own.slice(0, 3) : over(own, behind(element.parentElement));
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const isShown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true });
  const describe = (element) => `${element.localName}.${[...element.classList].join(".")} “${element.textContent.trim().slice(0, 40)}”`;

  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest(".visually-hidden, .skip-link, :disabled, noscript, option") || !isShown(element)) continue;
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const ground = behind(element);
    const value = contrast(over(read(style.color), ground), ground);
    if (value < needed) found.push(`contrast ${value.toFixed(2)}: ${describe(element)}`);
  }

  const nameOf = (element) => {
    const labelled = element.getAttribute("aria-labelledby")?.split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    const labels = [...(element.labels ?? [])].map((label) => label.textContent).join(" ");
    return (element.getAttribute("aria-label") || labelled || labels || (element.matches("button, a, summary") ? element.textContent : "")).trim();
  };
  for (const element of document.querySelectorAll("button, a[href], input:not([type=hidden]), select, textarea, summary, dialog[open], nav, [role=img], [role=group], [role=log]")) {
    if (isShown(element) && !nameOf(element)) found.push(`no name: ${element.outerHTML.slice(0, 120)}`);
  }
  for (const image of document.images) if (!image.hasAttribute("alt")) found.push(`no alternative: ${image.src.slice(0, 80)}`);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids)) if (ids.filter((one) => one === id).length > 1) found.push(`id twice: ${id}`);
  if (document.querySelectorAll("main").length !== 1) found.push("there is not one main part");
  if (!document.querySelector("h1")) found.push("no heading");
  const inFlow = new Set(["static", "relative"]);
  for (const element of document.body.querySelectorAll("main *, dialog[open] *")) {
    const style = getComputedStyle(element);
    const around = element.parentElement;
    if (!(element instanceof HTMLElement) || !inFlow.has(style.position) || /^(inline|contents)$/.test(style.display)) continue;
    if (element.closest(".visually-hidden") || getComputedStyle(around).overflowX !== "visible" || !isShown(element)) continue;
    const beyond = element.getBoundingClientRect().right - around.getBoundingClientRect().right;
    if (beyond > 1) found.push(`sticks out by ${Math.round(beyond)}: ${describe(element)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push(`wider than the window: ${document.documentElement.scrollWidth}`);
  return found;
};
