// The application: logs in, builds the frame, and shows the view of the address.

import "./early.js";
import { isLetIn, onAgreementNeeded, onUnauthorized, Unreachable } from "./lib/api.js";
import { load as loadApprovals } from "./lib/approvals.js";
import { announce, fill, h } from "./lib/dom.js";
import { listenForNotices } from "./lib/notices.js";
import { href, Router } from "./lib/router.js";
import { load as loadSessions } from "./lib/sessions.js";
import { listenForShortcuts, shortcut } from "./lib/shortcuts.js";
import { kept } from "./lib/state.js";
import { connect, link, onceReachable, retry } from "./lib/stream.js";
import { applyTheme } from "./lib/theme.js";
import { setTitle } from "./lib/title.js";
import { emptyPage, failure, loading } from "./lib/view.js";
import { closeDialogs } from "./components/dialog.js";
import { Frame } from "./components/frame.js";
import { SessionFrame } from "./components/session-frame.js";
import { VIEWS } from "./views.js";

const PATIENCE_MS = 2000; // how long lists wait for the stream that keeps them current

const root = document.getElementById("app");
let frame = null;
let isStarted = false;
let isHearing = false;
let shown = 0;
const router = new Router(VIEWS, show);

applyTheme();
connect();
router.preload();
onUnauthorized(showLogin);
onAgreementNeeded(async (problem) => (await import("./components/agreement.js")).askToAgree(problem));
link.subscribe(({ link: state }) => {
  if (state === "unauthorized") showLogin();
  else if (state === "open") start();
});
if (kept.get("known", false)) start();
else {
  isLetIn().then((isKnown) => isKnown && start());
  setTimeout(() => link.value.link === "lost" && start(), 3000);
}

async function showLogin() {
  if (root.querySelector("view-login")) return;
  frame = null;
  kept.set("known", null);
  await import("./views/login.js");
  fill(root, Object.assign(document.createElement("view-login"), { onLogin: () => location.reload() }));
}

/** Build the page; a browser that was let in before does not wait for the daemon to say so again. */
function start() {
  const isOpen = link.value.link === "open";
  if (isOpen) kept.set("known", true);
  if (isOpen && !isHearing) load(); // Not before: what happens between an answer and the first event is in neither.
  isHearing ||= isOpen;
  if (frame) return;
  frame = new Frame(VIEWS, { retry });
  fill(root, frame);
  setTimeout(() => isHearing || load(), PATIENCE_MS);
  if (!isStarted) {
    isStarted = true;
    listenForShortcuts();
    listenForNotices();
    shortcut("n", "New session", () => router.navigate("/new"));
    shortcut("/", "Search sessions", () => router.navigate("/?focus=search"));
    for (const { nav, path } of VIEWS) if (nav) shortcut(nav.keys, `Go to ${nav.label}`, () => router.navigate(path));
    addEventListener("amplifier:navigate", ({ detail }) => router.navigate(detail.address, detail));
    router.listen();
  }
  router.show();
}

function load() {
  loadSessions();
  loadApprovals().catch(() => {});
}

/** Fetch the module of a view. One that could not be fetched is not asked for again before the page is loaded anew. */
async function loaded(route) {
  try {
    return await route.load();
  } catch (error) {
    onceReachable(() => location.reload());
    throw new Unreachable(error);
  }
}

/** Show a route: its view in the frame, below the session's header if it is a tab of one. */
async function show(route, params, query) {
  if (!frame) return; // The user has to log in first.
  const turn = ++shown;
  closeDialogs();
  frame.mark(route, params);
  if (!route) {
    setTitle("Not there");
    frame.show(emptyPage("Nothing here", "There is no page at this address.", h("a.button", { href: href("/") }, "Sessions")));
    return;
  }
  const target = route.tab ? SessionFrame.in(frame, params.id, VIEWS) : frame;
  const waiting = setTimeout(() => turn === shown && target.show(loading()), 200);
  try {
    const module = await loaded(route);
    if (turn !== shown) return;
    const view = new module.default();
    Object.assign(view, { params, query });
    setTitle(route.title);
    target.show(view, route);
    if (turn > 1) announce(route.title);
  } catch (error) {
    if (turn === shown) target.show(failure(error, () => location.reload()));
  } finally {
    clearTimeout(waiting);
  }
}
