"""How soon the page shows a long conversation, how it fares while a model talks fast, and what a hundred tabs cost.

The floor of opening is an empty answer of the same daemon in the same browser. Processor time is that of all processes
of the browser. It needs the Chromium and the Playwright that the tests of the page use; run it with `make bench`, or
alone:

    python benchmarks/page.py [--quick]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _harness import REPOSITORY, Figure, MeasurementFailed, Report, Row, Target, in_turn

sys.path += [str(REPOSITORY), *(str(REPOSITORY / "tests" / folder) for folder in ("stand_ins", "cli", "daemon/http"))]

from playwright.sync_api import Browser, Page

from tests.page.chromium import Chromium, find_chromium, new_context
from tests.page.page_daemon import PageDaemon, page_daemon
from tests.page.sample_sessions import create, plan_of, write_history

TURNS = 2_500  # of four messages each
WORDS_A_SECOND = 2_000
SHOWN = """
window.shown = new Promise((done) => {
  const look = () => {
    if (document.querySelector(location.pathname.startsWith("/app/") ? ".message" : "body"))
      requestAnimationFrame(() => setTimeout(() => done(performance.now())));
    else requestAnimationFrame(look);
  };
  look();
});
"""
FRAMES = """
(ms) => new Promise((done) => {
  const count = () => document.querySelector("conversation-log").textContent.match(/word\\d+/g).length;
  const frames = [], begun = performance.now(), before = count();
  const tick = (now) => {
    frames.push(now);
    if (now - begun < ms) return requestAnimationFrame(tick);
    const lengths = frames.slice(1).map((at, place) => at - frames[place]).sort((one, other) => one - other);
    done([(count() - before) / (now - begun) * 1000, lengths]);
  };
  requestAnimationFrame(tick);
})
"""
"""Returns how many words a second came, and how long each frame took, the shortest first."""


class Measurement:
    def __init__(self, report: Report, browser: Browser, daemon: PageDaemon, rounds: int) -> None:
        self._report, self._browser, self._daemon, self._rounds = report, browser, daemon, rounds

    def opening(self) -> None:
        """Open 10,000 messages by their address: in a browser that was never here, and in one that was."""
        session_id = self._daemon.session(name="Long")
        write_history(self._daemon, session_id, TURNS)
        address = f"/app/sessions/{session_id}"
        rows = [*self._rows("a browser with the files", address, is_new=False), *self._rows("a new browser", address)]
        self._report.add("10,000 messages, by address", rows)

    def streaming(self, seconds: float) -> None:
        """Watch a model that says 2,000 words a second."""
        plan = plan_of(" ".join(f"word{number}" for number in range(200_000)))
        plan["providers"][0]["config"]["stream_delay_ms"] = 1000 / WORDS_A_SECOND
        session_id = create(self._daemon, plan, "Talks")
        page = self._page()
        page.goto(f"/app/sessions/{session_id}")
        self._daemon.begin(session_id, "talk")
        page.wait_for_selector("conversation-log :text('word100 ')")
        busy, begun = self._processor_s(), time.monotonic()
        rate, frames = page.evaluate(FRAMES, seconds * 1000)
        busy, taken = self._processor_s() - busy, time.monotonic() - begun
        self._daemon.api.post(f"/sessions/{session_id}/cancel", json={"immediate": True}).raise_for_status()
        page.context.close()
        parts = {"frame, median": 0.5, "frame, 95 of 100": 0.95, "frame, longest": 1.0}
        self._report.add(
            "while a model talks",
            [
                Row("words a second", "", ours(rate), [Target("", rate, 0.9 * WORDS_A_SECOND, "", at_least=True)]),
                Row("processor of the browser", "%", ours(100 * busy / taken)),
                *(Row(label, "ms", ours(frames[int((len(frames) - 1) * part)])) for label, part in parts.items()),
            ],
        )

    def tabs(self, count: int) -> None:
        """Open so many tabs of one browser; all of them hear of a new session."""
        first = self._page()
        first.goto("/app/")
        first.wait_for_selector("page-frame")
        served, busy = self._streams(), self._processor_s()
        opened = [first, *(first.context.new_page() for _ in range(count - 1))]
        for page in opened[1:]:
            page.goto("/app/")
            page.wait_for_selector("page-frame")
        busy = self._processor_s() - busy
        begun = time.monotonic()
        self._daemon.session(name="Seen by every tab")
        for page in opened:
            page.wait_for_selector("page-frame :text('Seen by every tab')", state="attached")
        told, streams = time.monotonic() - begun, self._streams()
        first.context.close()
        self._report.add(
            f"{count} tabs of one browser",
            [
                Row("processor, per tab", "ms", ours(1000 * busy / max(1, count - 1))),
                Row("until all show a new session", "ms", ours(1000 * told)),
                Row("streams of the daemon", "", ours(streams), [Target("", streams, served, "")]),
            ],
        )

    def _rows(self, label: str, address: str, *, is_new: bool = True) -> list[Row]:
        sides: dict[str, Callable[[], tuple[float, float]]] = {
            "ours": partial(self._shown, address, is_new=is_new),
            "floor": partial(self._shown, "/health", is_new=is_new),
        }
        taken = in_turn(self._report, label, sides, self._rounds)
        until = {side: Figure([shown for shown, _ in samples]) for side, samples in taken.items() if samples}
        busy = {side: Figure([spent for _, spent in samples]) for side, samples in taken.items() if samples}
        best = until["ours"].best if "ours" in until else None
        return [Row(label, "ms", until, [Target("best", best, 1000, "ms")]), Row("… processor", "ms", busy)]

    def _shown(self, address: str, *, is_new: bool) -> tuple[float, float]:
        """Return after how many milliseconds something is seen, and how many of processor time that took."""
        page = self._page()
        page.add_init_script(SHOWN)
        busy = self._processor_s()
        page.goto(address)
        shown: float = page.evaluate("window.shown")
        if not is_new:
            busy = self._processor_s()
            page.reload()
            shown = page.evaluate("window.shown")
        busy = self._processor_s() - busy
        page.context.close()
        return shown, 1000 * busy

    def _processor_s(self) -> float:
        """Return what the processes of the browser have used so far."""
        asked = self._browser.new_browser_cdp_session()
        used = sum(process["cpuTime"] for process in asked.send("SystemInfo.getProcessInfo")["processInfo"])
        asked.detach()
        return float(used)

    def _streams(self) -> int:
        count: int = self._daemon.api.get("/status").json()["queues"]["subscribers"]
        return count

    def _page(self) -> Page:
        """Return a tab of a browser that is logged in and has nothing else."""
        context = new_context(self._browser, self._daemon.url)
        context.request.get(self._daemon.login_link(), max_redirects=0)
        return context.new_page()


def ours(value: float) -> dict[str, Figure]:
    return {"ours": Figure([value])}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the page in a real browser.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    report = Report("page", peer=None)
    chromium = Chromium()
    if find_chromium() is None:
        report.fail("the page", MeasurementFailed("there is no Chromium here"))
        return report.finish(check=arguments.check)
    with tempfile.TemporaryDirectory() as directory, page_daemon(Path(directory)) as daemon:
        try:
            measurement = Measurement(report, chromium.browser(), daemon, 3 if arguments.quick else 10)
            measurement.opening()
            measurement.streaming(3 if arguments.quick else 10)
            measurement.tabs(10 if arguments.quick else 100)
        finally:
            chromium.close()
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
