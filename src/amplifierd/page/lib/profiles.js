// Profiles and collections as the daemon has them, kept current by its events.

import { get } from "./api.js";
import { isOver } from "./operations.js";
import { onEvents, onGap } from "./stream.js";
import { settled, Store } from "./state.js";

/** {profiles: [], collections: [], isLoaded} */
export const library = new Store({ profiles: [], collections: [], isLoaded: false });

const reload = settled(() => load().catch(() => {}), 150, 1000);
const TELLING = new Set(["collection:synced", "profile:compiled", "profile:stale"]);
let isListening = false;

export async function load() {
  if (!isListening) {
    isListening = true;
    onEvents(({ event, data }) => {
      if (TELLING.has(event) || (event === "operation:updated" && isOver(data))) reload();
    });
    onGap(reload);
  }
  const [{ profiles }, { collections }] = await Promise.all([get("/profiles", { limit: 1000 }), get("/collections", { limit: 1000 })]);
  library.set({ profiles, collections, isLoaded: true });
}

export const ofProfile = (id, rest = "") => `/profiles/${id.split("/").map(encodeURIComponent).join("/")}${rest}`;
export const profileAddress = (id) => `/profiles/${id.split("/").map(encodeURIComponent).join("/")}`;

/** Whether sessions can be begun with a profile; some are there to be extended only. */
export const canRun = (profile) => profile.valid && !profile.issues.some(({ code }) => code === "providers-missing");

const WORDS = {
  compiled: "Compiled", fresh: "Fresh", missing: "Not compiled", stale: "Stale", degraded: "Degraded", invalid: "Invalid",
  orphaned: "Orphaned",
};

export const statusWord = (status) => WORDS[status] ?? status;
