// The table of views: which module shows which address. A view that is not in it does not exist for the page.
//
// `nav` puts a view into the navigation; `tab` makes it a tab of a session, shown below the session's header.

export const VIEWS = [
  {
    path: "/",
    title: "Sessions",
    nav: { label: "Sessions", icon: "sessions", keys: "g s" },
    load: () => import("./views/sessions.js"),
  },
  { path: "/new", title: "New session", load: () => import("./views/new-session.js") },
  {
    path: "/sessions/:id",
    title: "Conversation",
    tab: { label: "Conversation", path: "" },
    load: () => import("./views/conversation/conversation.js"),
  },
  {
    path: "/sessions/:id/timeline",
    title: "Timeline",
    tab: { label: "Timeline", path: "timeline" },
    load: () => import("./views/timeline/timeline.js"),
  },
  {
    path: "/sessions/:id/why",
    title: "Why",
    tab: { label: "Why", path: "why" },
    load: () => import("./views/why/why.js"),
  },
  { path: "/sessions/:id/why/:message", title: "Why", tab: { path: "why" }, load: () => import("./views/why/why.js") },
  {
    path: "/sessions/:id/plan",
    title: "Plan and lock",
    tab: { label: "Plan", path: "plan" },
    load: () => import("./views/plan/plan.js"),
  },
  {
    path: "/inbox",
    title: "Inbox",
    nav: { label: "Inbox", icon: "inbox", keys: "g i", badge: "approvals" },
    load: () => import("./views/inbox.js"),
  },
  {
    path: "/profiles",
    title: "Profiles",
    nav: { label: "Profiles", icon: "profiles", keys: "g p" },
    load: () => import("./views/profiles/profiles.js"),
  },
  { path: "/profiles/:collection/:name", title: "Profile", load: () => import("./views/profiles/profile.js") },
  {
    path: "/daemon",
    title: "Daemon",
    nav: { label: "Daemon", icon: "daemon", keys: "g d" },
    load: () => import("./views/daemon/daemon.js"),
  },
];
