// Who is logged in, and what that allows: what would be refused is not asked for.

import { get } from "./api.js";

const SCOPES = ["read", "run", "admin"];
let asked = null;

/** Whether the login allows what a scope does. */
export async function may(scope) {
  asked ??= get("/auth/me").catch((error) => {
    asked = null; // The next one asks again.
    throw error;
  });
  return SCOPES.indexOf((await asked).scope) >= SCOPES.indexOf(scope);
}
