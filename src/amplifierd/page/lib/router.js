// Which view shows an address. Addresses are below /app/; links are ordinary links.

const ROOT = "/app";

export class Router {
  #routes;
  #show;

  /** Take a table of routes `{path: "/sessions/:id", …}` and a function that shows a found one. */
  constructor(routes, show) {
    this.#routes = routes.map((route) => ({ ...route, pattern: patternOf(route.path) }));
    this.#show = show;
  }

  /** Follow links and the browser's history; once per page. */
  listen() {
    window.addEventListener("popstate", () => this.show());
    document.addEventListener("click", (event) => this.#click(event));
  }

  /** Show what the address names. */
  show() {
    const { route, params } = this.#found();
    this.#show(route, params, new URLSearchParams(location.search));
  }

  /** Go to an address below /app, for example "/sessions/abc?message=m1". */
  navigate(address, { replace = false } = {}) {
    const url = ROOT + address;
    if (url === location.pathname + location.search + location.hash) return;
    history[replace ? "replaceState" : "pushState"](null, "", url);
    this.show();
  }

  #click(event) {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest?.("a[href]");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (!link.pathname.startsWith(`${ROOT}/`) || link.getAttribute("href").startsWith("#")) return;
    event.preventDefault();
    this.navigate(link.pathname.slice(ROOT.length) + link.search + link.hash);
  }

  /** Begin to fetch the module of the address, before it can be shown. */
  preload() {
    this.#found().route?.load().catch(() => {});
  }

  #found() {
    const path = location.pathname.slice(ROOT.length).replace(/\/+$/, "") || "/";
    for (const route of this.#routes) {
      const match = route.pattern.exec(path);
      if (match) return { route, params: Object.fromEntries(Object.entries(match.groups ?? {}).map(([k, v]) => [k, decoded(v)])) };
    }
    return { route: null, params: {} };
  }
}

/** The address of a path below /app, for `href`. */
export const href = (path) => ROOT + path;

/** The address of a session's page, or of one of its tabs. */
export const sessionHref = (id, tab = "") => `${ROOT}/sessions/${encodeURIComponent(id)}${tab && `/${tab}`}`;

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function patternOf(path) {
  const source = path.replace(/[.+*]/g, "\\$&").replace(/:(\w+)/g, "(?<$1>[^/]+)");
  return new RegExp(`^${source}$`);
}
