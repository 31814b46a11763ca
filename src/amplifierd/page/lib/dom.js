// Elements without markup: text from outside becomes text that is seen, never HTML. The one exception is `trusted`.

import { visible } from "./visible.js";

/** Make an element: `h("button.primary", {onclick}, "Save")`. Strings become text nodes; null and false are left out. */
export function h(selector, ...rest) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  const [first] = rest;
  const hasProps = first !== null && typeof first === "object" && !(first instanceof Node) && !Array.isArray(first);
  if (hasProps) assign(element, rest.shift());
  add(element, rest);
  return element;
}

/** Set properties, attributes, listeners (`onclick`), `dataset`, and custom properties (`style: {"--depth": 1}`). */
function assign(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined) continue;
    if (READ.has(name)) {
      element.setAttribute(name, visible(value));
      continue;
    }
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = [element.className, value].filter(Boolean).join(" ");
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "style") for (const [key, part] of Object.entries(value)) element.style.setProperty(key, part);
    else if (name in element && !name.includes("-") && !READ_ONLY.has(name)) element[name] = value;
    else if (value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

const READ = new Set(["alt", "aria-description", "aria-label", "aria-valuetext", "label", "placeholder", "title"]);
const READ_ONLY = new Set(["list", "form", "role"]);

/** Append children, in lists of any depth. */
export function add(parent, children) {
  for (const child of [children].flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false && child !== "") parent.append(child instanceof Node ? child : visible(child));
  }
  return parent;
}

/** Have an element say a text and nothing else. */
export function setText(element, text) {
  element.textContent = visible(text);
}

/** Replace everything below an element. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  return add(parent, children);
}

/** Replace everything below an element; what had the focus has it again where there is something of the same name. */
export function refill(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  fill(parent, ...children);
  if (focused) [...parent.querySelectorAll("a, button, input, select, summary, [tabindex]")].find((one) => nameOf(one) === focused)?.focus();
  return parent;
}

function nameOf(element) {
  const name = element.dataset.key ?? element.getAttribute("aria-label") ?? element.getAttribute("href") ?? element.textContent;
  return `${element.tagName} ${name}`;
}

/** Turn HTML of the daemon's renderer, which sanitised it, into nodes. Nothing else may be passed here. */
export function trusted(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const link of template.content.querySelectorAll("a[href]")) {
    if (link.getAttribute("href").startsWith("#")) continue;
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  return template.content;
}

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  sessions: "M3 4h10M3 8h10M3 12h6",
  inbox: "M2.5 9.5 4 3.5h8l1.5 6v3h-11zM2.5 9.5H6l1 1.5h2l1-1.5h3.5",
  profiles: "M8 2 2.5 5 8 8l5.5-3zM2.5 8 8 11l5.5-3M2.5 11 8 14l5.5-3",
  daemon: "M3 3.5h10v4H3zM3 9.5h10v3H3zM5.5 5.5h.01M5.5 11h.01",
  plus: "M8 3v10M3 8h10",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3 14 14",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5 6.5 12 13 4.5",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  link: "M6.5 9.5 9.5 6.5M7 4.5l1.5-1.5a3 3 0 0 1 4.5 4.5L11.5 9M9 11.5 7.5 13A3 3 0 0 1 3 8.5L4.5 7",
  fork: "M5 3v7M5 10a2 2 0 1 0 0 3.9A2 2 0 0 0 5 10zM11 3.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6zM11 6.8c0 3-6 1.5-6 4",
  edit: "M3 13l.6-3L10.5 3l2.5 2.5L6 12.4z",
  trash: "M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5 5 13h6l.5-8.5",
  download: "M8 2.5v7M5 7l3 3 3-3M3 13h10",
  stop: "M4.5 4.5h7v7h-7z",
  send: "M8 13V3.5M4 7l4-4 4 4",
  chevron: "M6 4l4 4-4 4",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  moon: "M12.5 9.5A5 5 0 0 1 6.5 3.5a5 5 0 1 0 6 6z",
  sun: "M8 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  undo: "M3 6.5h6.5a3.5 3.5 0 0 1 0 7H6M3 6.5l3-3M3 6.5l3 3",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  terminal: "M2.5 3.5h11v9h-11zM5 6.5 6.5 8 5 9.5M8.5 9.5H11",
  agent: "M8 2.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM3 13.5c.5-2.5 2.5-3.5 5-3.5s4.5 1 5 3.5",
  help: "M6 6a2 2 0 1 1 3 1.7c-.7.4-1 .8-1 1.6M8 11.8h.01M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z",
  warn: "M8 2.5 14 13H2zM8 6.5v3M8 11.3h.01",
  folder: "M2.5 4h4l1.5 1.5h5.5v7h-11z",
  image: "M2.5 3.5h11v9h-11zM2.5 11l3-3 2.5 2.5L10.5 8l3 3M6 6h.01",
  bell: "M3.5 11.5c1-1 1-2 1-4a3.5 3.5 0 0 1 7 0c0 2 0 3 1 4zM6.8 13.5h2.4",
  upload: "M8 10V2.5M5 5.5l3-3 3 3M3 13h10",
  logout: "M6.5 3H3v10h3.5M7 8h6.5M11 5.5 13.5 8 11 10.5",
  down: "M8 3v9M4 8.5 8 12.5l4-4",
  model: "M8 2l1.5 4.5L14 8l-4.5 1.5L8 14l-1.5-4.5L2 8l4.5-1.5z",
  tool: "M9.5 6.5 3.5 12.5M13.5 4.8a3 3 0 0 1-4 3.4L8 6.7a3 3 0 0 1 3.4-4L9.8 4.4l1.8 1.8z",
  wait: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3l2 1.5",
  hook: "M10.5 2.5v6.8a3.2 3.2 0 1 1-6.4 0V8.5M4.1 8.5 2.6 10M4.1 8.5l1.5 1.5",
  moment: "M8 3l5 5-5 5-5-5z",
};

/** The address of the page's own picture. */
export const LOGO = new URL("../icon.svg", import.meta.url).href;

/** Make an icon. It is decoration: the control it stands in has a name of its own. */
export function icon(name, className = "") {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of [["viewBox", "0 0 16 16"], ["class", `icon ${className}`.trim()], ["aria-hidden", "true"]]) {
    svg.setAttribute(key, value);
  }
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name] ?? ICONS.help);
  svg.append(path);
  return svg;
}

/** Make a button that shows an icon and is called by its name. */
export function iconButton(name, label, onclick, props = {}) {
  return h("button.icon-button", { type: "button", "aria-label": label, title: label, onclick, ...props }, icon(name));
}

/** Tell a screen reader something that is seen elsewhere; used for what a person waits for, not for every change. */
export function announce(text) {
  const region = document.getElementById("announcer");
  region.replaceChildren();
  requestAnimationFrame(() => setText(region, text));
}
