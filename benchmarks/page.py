"""How soon the page shows a long conversation, and how it fares while a model talks fast.

The floor of opening is an empty answer of the same daemon in the same browser. It needs the Chromium and the Playwright
that the tests of the page use; run it with `make bench`, or alone:

    python benchmarks/page.py [--quick]
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _harness import REPOSITORY, Figure, MeasurementFailed, Report, Row, Target, in_turn

sys.path.append(str(REPOSITORY))

from playwright.sync_api import Browser, Page

from tests.page.chromium import Chromium, find_chromium, new_context
from tests.page.page_daemon import PageDaemon, page_daemon
from tests.page.sample_sessions import create, plan_of, write_history

TURNS = 2_500  # of four messages each
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
  const frames = [], begun = performance.now();
  const tick = (now) => {
    frames.push(now);
    if (now - begun < ms) requestAnimationFrame(tick);
    else done(frames.slice(1).map((at, place) => at - frames[place]).sort((one, other) => one - other));
  };
  requestAnimationFrame(tick);
})
"""
COUNT = "() => document.querySelector('conversation-log').textContent.match(/word\\d+/g)?.length ?? 0"


class Measurement:
    def __init__(self, report: Report, browser: Browser, daemon: PageDaemon, rounds: int) -> None:
        self._report, self._browser, self._daemon, self._rounds = report, browser, daemon, rounds

    def opening(self) -> None:
        """Open 10,000 messages by their address: in a browser that was never here, and in one that was."""
        session_id = self._daemon.session(name="Long")
        write_history(self._daemon, session_id, TURNS)
        address = f"/app/sessions/{session_id}"
        self._report.add(
            "10,000 messages, by address",
            [self._row("a browser with the files", address, is_new=False), self._row("a new browser", address)],
        )

    def streaming(self, seconds: float) -> None:
        """Watch a model that talks as fast as everything goes."""
        plan = plan_of(" ".join(f"word{number}" for number in range(200_000)))
        plan["providers"][0]["config"]["stream_delay_ms"] = 0.1
        session_id = create(self._daemon, plan, "Talks")
        page = self._page()
        page.goto(f"/app/sessions/{session_id}")
        self._daemon.begin(session_id, "talk")
        page.wait_for_selector("conversation-log :text('word100 ')")
        before = page.evaluate(COUNT)
        frames = page.evaluate(FRAMES, seconds * 1000)
        words = (page.evaluate(COUNT) - before) / seconds
        self._daemon.api.post(f"/sessions/{session_id}/cancel", json={"immediate": True}).raise_for_status()
        page.context.close()
        parts = {"frame, median": 0.5, "frame, 95 of 100": 0.95, "frame, longest": 1.0}
        rows = [
            Row(label, "ms", {"ours": Figure([frames[min(len(frames) - 1, int(len(frames) * part))]])})
            for label, part in parts.items()
        ]
        self._report.add("while a model talks", [Row("words a second", "", {"ours": Figure([words])}), *rows])

    def _row(self, label: str, address: str, *, is_new: bool = True) -> Row:
        sides: dict[str, Callable[[], float]] = {
            "ours": partial(self._shown, address, is_new=is_new),
            "floor": partial(self._shown, "/health", is_new=is_new),
        }
        taken = in_turn(self._report, label, sides, self._rounds)
        figures = {side: Figure(times) for side, times in taken.items() if times}
        best = figures["ours"].best if "ours" in figures else None
        return Row(label, "ms", figures, [Target("best", best, 1000, "ms")])

    def _shown(self, address: str, *, is_new: bool) -> float:
        page = self._page()
        page.goto(address)
        taken: float = page.evaluate("window.shown")
        if not is_new:
            page.reload()
            taken = page.evaluate("window.shown")
        page.context.close()
        return taken

    def _page(self) -> Page:
        """Return a tab of a browser that is logged in and has nothing else."""
        context = new_context(self._browser, self._daemon.url)
        context.add_init_script(SHOWN)
        context.request.get(self._daemon.login_link(), max_redirects=0)
        return context.new_page()


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
        finally:
            chromium.close()
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
