// Where a moment of a turn is drawn. Long waits, a night for an approval, are folded so that the work stays visible.

const TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000];
const FOLD_FROM = 0.6;
const FOLD_TO = 0.12;

export class TimeScale {
  /** `folds` are the waits that are drawn shorter than they were: `{from, to, place, length}`. */
  folds = [];
  #begin;
  #pieces = [];
  #shown = 0;

  /** Take the time to show, and the times `{begin, end}` in which something worked. */
  constructor(begin, end, work) {
    this.#begin = begin;
    const busy = union(work.filter((one) => one.end > one.begin), begin, end);
    const worked = busy.reduce((sum, one) => sum + one.end - one.begin, 0);
    let at = begin;
    for (const part of busy) {
      this.#piece(at, part.begin, worked);
      this.#piece(part.begin, part.end, 0);
      at = part.end;
    }
    this.#piece(at, Math.max(end, begin + 1), worked);
    for (const fold of this.folds) {
      fold.place = this.percent(fold.from);
      fold.length = this.percent(fold.to) - fold.place;
    }
  }

  /** Where a moment is, from 0 to 100. */
  percent(at) {
    let shown = 0;
    for (const piece of this.#pieces) {
      if (at >= piece.end) {
        shown += piece.length;
        continue;
      }
      if (at > piece.begin) shown += ((at - piece.begin) / (piece.end - piece.begin)) * piece.length;
      break;
    }
    return this.#shown ? (100 * shown) / this.#shown : 0;
  }

  /** Marks for the axis, `{place, ms}`, about as many as asked for. */
  ticks(count = 6) {
    const step = TICKS.find((one) => this.#shown / one <= count) ?? Math.ceil(this.#shown / count / 3_600_000) * 3_600_000;
    const found = [];
    for (const piece of this.#pieces) {
      if (piece.isFolded) continue;
      const first = Math.ceil((piece.begin - this.#begin) / step) * step;
      for (let ms = first; ms < piece.end - this.#begin && found.length < 200; ms += step) {
        const place = this.percent(this.#begin + ms);
        if (place <= 97 && (!found.length || place - found.at(-1).place > 6)) found.push({ place, ms });
      }
    }
    return found;
  }

  #piece(begin, end, worked) {
    if (end <= begin) return;
    const isFolded = worked > 0 && end - begin > worked * FOLD_FROM && end - begin > 2000;
    const length = isFolded ? Math.max(worked * FOLD_TO, 1) : end - begin;
    this.#pieces.push({ begin, end, length, isFolded });
    this.#shown += length;
    if (isFolded) this.folds.push({ from: begin, to: end });
  }
}

function union(parts, begin, end) {
  const joined = [];
  for (const part of parts.toSorted((one, other) => one.begin - other.begin)) {
    const last = joined.at(-1);
    const from = Math.max(part.begin, begin);
    const to = Math.min(part.end, end);
    if (last && from <= last.end) last.end = Math.max(last.end, to);
    else joined.push({ begin: from, end: to });
  }
  return joined;
}
