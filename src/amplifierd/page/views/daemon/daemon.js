// The daemon itself: how it is, who shares its store, its workers, its long work, its log, the keys of its providers, and who may use it.

import { get } from "../../lib/api.js";
import { fill, h, refill } from "../../lib/dom.js";
import { ago, bytes, duration, moment, number, plural, sessionName } from "../../lib/format.js";
import { load as loadOperations, operations } from "../../lib/operations.js";
import { sessionHref } from "../../lib/router.js";
import { sessions } from "../../lib/sessions.js";
import { shortcut } from "../../lib/shortcuts.js";
import { perFrame } from "../../lib/state.js";
import { failure, loading, View } from "../../lib/view.js";
import { operationRow } from "../../components/operation.js";
import { spark } from "../../components/spark.js";
import { clusterPanel } from "./cluster.js";
import { keysPanel } from "./keys.js";
import { logPanel } from "./log.js";
import { heading, refused } from "./panel.js";
import { tokensPanel } from "./tokens.js";

const EVERY_MS = 2_000;
const REMEMBERED = 90;

class DaemonView extends View {
  #state = h("section.panel", { "aria-labelledby": "daemon-state" });
  #workers = h("section.panel.wide", { "aria-labelledby": "daemon-workers" });
  #operations = h("section.panel", { "aria-labelledby": "daemon-operations" });
  #lags = [];
  #memory = [];
  #timer = null;

  async open() {
    fill(this, h("header.view-head", h("h1", "Daemon")), loading());
    await this.#look();
    this.lastElementChild.replaceWith(
      h("div.daemon-grid", this.#state, this.#operations, clusterPanel(this.signal), this.#workers, keysPanel(this.signal), logPanel(this.signal), tokensPanel(this.signal)));
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
    this.signal.addEventListener("abort", () => clearTimeout(this.#timer));
    shortcut("/", "Filter the log", () => this.querySelector("#log-words")?.select(), { signal: this.signal, group: "Daemon" });
    await loadOperations().catch((error) => fill(this.#operations, heading("daemon-operations", "Operations"), failure(error)));
    this.listen(operations, perFrame(() => this.#renderOperations()));
  }

  /** Look again and again while it is visible. */
  async #look() {
    try {
      if (!document.hidden) {
        const [status, workers] = await Promise.all([
          get("/status", {}, { signal: this.signal }),
          get("/workers", { limit: 1000 }, { signal: this.signal }).catch(refused),
        ]);
        this.#renderState(status, workers);
        this.#renderWorkers(workers);
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(this.#state, heading("daemon-state", "State"), failure(error));
    }
    if (!this.signal.aborted) this.#timer = setTimeout(() => this.#look(), EVERY_MS);
  }

  #renderState(status, { workers = [] }) {
    const memory = workers.reduce((sum, one) => sum + one.rss_bytes, 0);
    remember(this.#lags, status.loop_lag_ms);
    remember(this.#memory, memory);
    const { sessions: counts, profiles, collections, queues } = status;
    fill(this.#state, heading("daemon-state", "State"),
      status.warnings.length > 0 && h("ul.warnings", status.warnings.map((text) => h("li", String(text.message ?? text)))),
      h("dl.fact-cards",
        fact("Version", status.version), fact("Up for", duration(status.uptime_seconds * 1000)),
        fact("Address", status.port ? `${status.host}:${status.port}` : status.host), fact("Home", status.root_dir),
        fact("Sessions", `${number(counts.total)} stored, ${number(counts.active)} active, ${number(counts.executing)} working`),
        fact("Profiles", `${number(profiles.total)}, ${number(profiles.fresh)} fresh, ${number(profiles.stale)} to compile${profiles.invalid ? `, ${number(profiles.invalid)} invalid` : ""}`),
        fact("Collections", `${number(collections.total)}${collections.error ? `, ${number(collections.error)} with errors` : ""}`),
        fact("Watchers", `${plural(queues.subscribers ?? 0, "stream")}, ${plural(queues.dropped ?? 0, "piece")} dropped`)),
      h("div.gauges",
        gauge("Event loop lag", `${status.loop_lag_ms.toFixed(1)} ms`, this.#lags, status.loop_lag_ms > 100),
        gauge("Memory of workers", bytes(memory), this.#memory)));
  }

  #renderWorkers({ workers, refusal }) {
    const rows = (workers ?? []).map((one) => h("tr",
      h("th", { scope: "row" }, h("code", String(one.pid))),
      h("td", one.status), h("td.wide", h("code", servedBy(one))),
      h("td.number", number(one.sessions)), h("td.number", number(one.turns)), h("td.number", bytes(one.rss_bytes)),
      h("td.number", `${one.loop_lag_ms.toFixed(1)} ms`), h("td.wide", { title: moment(one.started_at) }, ago(one.started_at)),
      h("td", h("ul.inline-list", one.session_ids.slice(0, 8).map((id) => h("li", h("a", { href: sessionHref(id) }, nameOf(id)))),
        one.session_ids.length > 8 && h("li.muted", `and ${one.session_ids.length - 8} more`)))));
    refill(this.#workers, heading("daemon-workers", "Workers"),
      refusal ?? h("div.table-box", { tabIndex: 0, role: "group", "aria-label": "Worker processes" }, h("table",
        h("thead", h("tr", ["Process", "Status", "Build", "Sessions", "Turns", "Memory", "Loop lag", "Since", "Loaded"].map((name, at) =>
          h(`th${[3, 4, 5, 6].includes(at) ? ".number" : ""}${[2, 7].includes(at) ? ".wide" : ""}`, { scope: "col" }, name)))),
        h("tbody", rows.length ? rows : h("tr", h("td.muted", { colSpan: 9 }, "No worker runs. The first turn starts one."))))));
  }

  #renderOperations() {
    const all = [...operations.value.values()].slice(0, 50);
    refill(this.#operations, heading("daemon-operations", "Operations"),
      all.length ? h("ul.operation-list", all.map(operationRow)) : h("p.muted", "No long work in the last 24 hours."));
  }
}

const fact = (name, value) => h("div", h("dt", name), h("dd", value));

function gauge(name, value, values, isBad = false) {
  return h("figure.gauge", { dataset: { bad: String(isBad) } }, h("figcaption", name, h("strong", value)), spark(values, `${name}, the last minutes`));
}

function remember(values, value) {
  values.push(value);
  if (values.length > REMEMBERED) values.shift();
}

/** The build that a worker serves: its profile and the beginning of its id. */
function servedBy({ serves }) {
  const [name, build] = serves.split("@");
  return build ? `${name}@${build.slice(0, 8)}` : serves.slice(0, 16);
}

function nameOf(id) {
  const session = sessions.value.byId.get(id);
  return session ? sessionName(session) : id.slice(0, 16);
}

customElements.define("view-daemon", DaemonView);
export default DaemonView;
