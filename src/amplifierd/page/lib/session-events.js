// What is stored of the events of a session.

import { get, ofSession } from "./api.js";

const MOST = 1000;

/** Return the last events of a kind, the oldest first. */
export async function lastEvents(id, type, { signal }) {
  const read = (offset) => get(ofSession(id, "/events"), { event_type: type, limit: MOST, offset }, { signal });
  const first = await read(0);
  return (first.has_more ? await read(first.total - MOST) : first).events;
}

/** Return the events of a kind after another one, those of agents too, with their texts cut short. */
export async function eventsAfter(id, seq, type, { signal }) {
  const query = { event_type: type, after_seq: seq, include_children: true, shorten: 20, limit: MOST };
  return (await get(ofSession(id, "/events"), query, { signal })).events;
}
