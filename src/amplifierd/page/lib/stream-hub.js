// The daemon's events for all tabs: one stream of what every list shows, one of the conversations that are open.
//
// It runs in the SharedWorker, or in the page of a browser without one. However many tabs there are, the daemon serves
// two streams: pieces of texts come only for sessions that some tab shows, and come merged, at most every 40 ms. The
// record of a session that changed is fetched here, too, once for all of them.

import { get, ofSession, queryString } from "./api.js";
import { ReconnectingStream } from "./event-source.js";
import { settled } from "./state.js";

const OVERVIEW = [
  "session:*", "approval:*", "execution:*", "user_message:saved", "operation:updated", "collection:*", "profile:*",
  "settings:changed", "daemon:*", "budget:*", "message:deleted",
].join(",");
const PASS_ON_MS = 40;
const WATCH_MS = 60;
const MOST_RECORDS = 20; // More of them at once are fetched as a list.

/** A client is `{post(message), sessions: Set}`; a page has one, each tab of a worker is one. */
export class StreamHub {
  #clients = new Set();
  #overview = null;
  #detail = null;
  #watched = "";
  #isDetailOpen = false;
  #state = { link: "connecting" };
  #waiting = [];
  #timer = null;
  #watchTimer = null;
  #changedRecords = new Set();
  #tellRecords = settled(() => this.#fetchRecords(), 120, 600);

  join(client) {
    this.#clients.add(client);
    if (this.#state.link === "unauthorized") this.retry(); // A tab that comes anew may have logged in.
    client.post({ type: "link", ...this.#state });
    this.#overview ??= this.#openOverview();
    this.#changed();
  }

  leave(client) {
    this.#clients.delete(client);
    this.#changed();
    if (this.#clients.size) return;
    this.#overview?.close();
    this.#overview = null;
    this.#state = { link: "connecting" };
  }

  /** A tab says which sessions it shows. */
  watch(client, sessions) {
    client.sessions = new Set(sessions);
    this.#changed();
  }

  /** A tab has logged in, or its person does not want to wait. */
  retry() {
    if (this.#state.link === "unauthorized") {
      this.#overview?.close();
      this.#state = { link: "connecting" };
      this.#overview = this.#openOverview();
      this.#watched = "";
      this.#changed();
    }
    this.#overview?.hurry();
    this.#detail?.hurry();
  }

  #changed() {
    clearTimeout(this.#watchTimer);
    this.#watchTimer = setTimeout(() => this.#rewatch(), WATCH_MS);
  }

  #rewatch() {
    const sessions = [...new Set([...this.#clients].flatMap((client) => [...client.sessions]))].sort();
    if (sessions.join() === this.#watched) {
      if (this.#isDetailOpen) this.#tellWatched();
      return;
    }
    this.#watched = sessions.join();
    this.#isDetailOpen = false;
    const lastId = this.#detail?.lastId ?? null;
    this.#detail?.close();
    this.#detail = null;
    if (!sessions.length) return;
    const address = `/api/v1/events${queryString({ session: sessions, render: "html" })}`;
    this.#detail = this.#open(address, "detail", lastId);
  }

  #openOverview() {
    return this.#open(`/api/v1/events${queryString({ filter: OVERVIEW })}`, "overview");
  }

  #open(address, part, lastId = null) {
    return new ReconnectingStream(address, {
      onEvent: (envelope) => this.#heard(envelope, part),
      onState: (link, facts) => this.#stands(link, facts, part),
    }, lastId);
  }

  #stands(link, facts, part) {
    if (part === "detail") {
      this.#isDetailOpen = link === "open";
      if (this.#isDetailOpen) this.#tellWatched();
      if (facts.refusal === 404) this.#unwatchMissing();
      return;
    }
    if (link === "connecting" && this.#state.link === "lost") return;
    const wasLost = this.#state.link === "lost";
    this.#state = { link, ...facts };
    this.#tell({ type: "link", ...this.#state });
    if (link === "open" && wasLost) this.#detail?.hurry();
  }

  /** One session that is gone would have the stream of all others refused. */
  async #unwatchMissing() {
    const isMissing = (id) => get(ofSession(id)).then(() => false, (error) => error.status === 404);
    for (const id of this.#watched.split(",")) if (await isMissing(id)) this.#unwatch(id);
  }

  #unwatch(id) {
    this.#clients.forEach((client) => client.sessions.delete(id));
    this.#changed();
  }

  /** Say whose events come from now on without a gap. */
  #tellWatched() {
    this.#tell({ type: "watched", sessions: this.#watched.split(",") });
  }

  #heard(envelope, part) {
    if (envelope.event === "stream:gap") {
      this.#flush();
      this.#tell({ type: "gap", part, reason: envelope.data.reason });
      return;
    }
    if (envelope.event.startsWith("stream:")) return;
    if (envelope.event === "session:deleted") this.#unwatch(envelope.session_id);
    envelope.part = part;
    if (part === "overview" && changesRecord(envelope)) {
      this.#changedRecords.add(envelope.session_id);
      this.#tellRecords();
    }
    const last = this.#waiting.at(-1);
    if (last && mergeable(last, envelope)) {
      last.data = joined(last.data, envelope.data);
      last.cursor = envelope.cursor ?? last.cursor;
    } else {
      this.#waiting.push(envelope);
    }
    this.#timer ??= setTimeout(() => this.#flush(), PASS_ON_MS);
  }

  async #fetchRecords() {
    const ids = [...this.#changedRecords];
    this.#changedRecords.clear();
    if (ids.length > MOST_RECORDS) {
      this.#tell({ type: "records" });
      return;
    }
    const read = async (id) => {
      try {
        this.#tell({ type: "record", id, session: await get(ofSession(id)) });
      } catch (error) {
        if (error.status === 404) this.#tell({ type: "record", id, session: null });
      }
    };
    await Promise.all(ids.map(read));
  }

  #flush() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const events = this.#waiting;
    this.#waiting = [];
    for (const client of this.#clients) {
      const wanted = events.filter((event) => event.part === "overview" || concerns(event, client.sessions));
      if (wanted.length) client.post({ type: "events", events: wanted });
    }
  }

  #tell(message) {
    this.#flush();
    this.#clients.forEach((client) => client.post(message));
  }
}

function changesRecord({ event, session_id: id }) {
  if (!id || event === "session:deleted") return false;
  return event.startsWith("session:") || event === "execution:done" || event === "user_message:saved";
}

function concerns(event, sessions) {
  if (sessions.has(event.session_id) || sessions.has(event.root_session_id)) return true;
  return [...sessions].some((id) => event.session_id?.startsWith(`${id}-`));
}

/** Join two pieces of a block; the HTML of the later one is of more of the text. */
function joined(one, other) {
  const { html, length } = typeof other.html === "string" ? other : one;
  const text = (key) => typeof one[key] === "string" || typeof other[key] === "string" ? { [key]: (one[key] ?? "") + (other[key] ?? "") } : {};
  return { ...one, ...other, ...text("text"), ...text("delta"), html, length };
}

function mergeable(one, other) {
  return (
    one.part === other.part &&
    one.event === other.event &&
    one.session_id === other.session_id &&
    (one.event === "llm:stream_block_delta" || one.event.endsWith(":delta")) &&
    one.data.request_id === other.data.request_id &&
    one.data.block_index === other.data.block_index
  );
}
