// How anything on the page goes to another address, without knowing the router.

/** Go to an address below /app, for example "/sessions/abc". */
export function navigate(address, options = {}) {
  dispatchEvent(new CustomEvent("amplifier:navigate", { detail: { address, ...options } }));
}

/** Go to a session. */
export const showSession = (id, options) => navigate(`/sessions/${encodeURIComponent(id)}`, options);
