// System notices for users who look elsewhere: an agent asks something, or its turn is over.

import { approvals } from "./approvals.js";
import { LOGO } from "./dom.js";
import { plain, sessionName } from "./format.js";
import { showSession } from "./navigation.js";
import { refresh, sessions } from "./sessions.js";
import { kept, Store } from "./state.js";
import { onEvents } from "./stream.js";

const ENDS = { completed: "has answered", failed: "failed", cancelled: "was stopped" };

/** Whether this browser lets a page of this address tell something. */
export const canNotify = "Notification" in window;

/** Whether notices are wanted. */
export const notices = new Store(canNotify && Notification.permission === "granted" && kept.get("notices", false));

/** Turn notices on or off; the browser asks the person before they are on. Returns whether the browser allowed it. */
export async function toggleNotices() {
  const isAllowed = notices.value || (await Notification.requestPermission()) === "granted";
  notices.set(isAllowed && !notices.value);
  kept.set("notices", notices.value || null);
  return isAllowed;
}

/** Begin to tell; once per page. Tabs that tell the same replace each other's notice. */
export function listenForNotices() {
  let known = approvals.value;
  approvals.subscribe((all) => {
    for (const [id, approval] of all) if (!known.has(id)) tell(approval.session_id, "waits for approval", approval.action);
    known = all;
  }, { now: false });
  onEvents(({ event, session_id: id, part, data }) => {
    if (event === "execution:done" && part === "overview" && sessions.value.byId.get(id)?.created_by === "user") tell(id, ENDS[data.status] ?? "is done");
  });
}

async function tell(id, what, detail = "") {
  if (!notices.value || !document.hidden) return;
  const session = sessions.value.byId.get(id) ?? (await refresh(id).catch(() => null)); // A new one is not in the list yet.
  const notice = new Notification(`${session ? plain(sessionName(session)) : "A session"} ${what}`, { body: plain(detail).slice(0, 200), tag: `${id} ${what}`, icon: LOGO });
  notice.addEventListener("click", () => {
    window.focus();
    showSession(session?.root_session_id ?? id);
    notice.close();
  });
}
