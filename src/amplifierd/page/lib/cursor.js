// Where an event stands in its tree: `<epoch>-<number>.<piece>`, or a plain number where the epoch is not known.

/** Compare two places; below zero when the first comes before the other. Without an epoch, numbers alone decide. */
export function compare(one, other) {
  const [epoch, ...numbers] = parts(one);
  const [otherEpoch, ...otherNumbers] = parts(other);
  const known = epoch && otherEpoch ? epoch - otherEpoch : 0;
  return known || numbers[0] - otherNumbers[0] || numbers[1] - otherNumbers[1];
}

/** Return events as they happened. One without a place of its own belongs after the one that it came after. */
export function inOrder(events) {
  let place = "0";
  const placed = events.map((event) => ({ event, place: (place = event.cursor ?? place) }));
  return placed.sort((one, other) => compare(one.place, other.place)).map(({ event }) => event);
}

function parts(cursor) {
  const found = cursor.split(/[-.]/).map(Number);
  return found.length === 1 ? [0, found[0], 0] : found;
}
