"""Runs the tests in several processes, which are forked once every test is known: `pytest --processes 4`.

So the tests are collected once, and what they import is imported once. A process is given one file after the other, and
stays in a folder as long as that has files, for the sake of what its tests share. What the processes report is reported
here. A test whose process ends under it has failed, and another process goes on with its file.
"""

from __future__ import annotations

import os
import selectors
import traceback
from collections import deque
from collections.abc import Sequence
from itertools import groupby
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn

import pytest

Numbers = Sequence[int]  # tests, by their place among those that were collected

_WAITING = ("end_to_end", "page", "security", "cli", "docs", "daemon", "foundation", "architecture")
"""Folders whose tests often wait, for processes that they started; those that take longest are begun first, so that
none is left alone at the end. The tests of all others keep a core busy."""

_TESTS = Path(__file__).parents[1]


class Files:
    """The files that no process has been given yet."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._left: dict[Path, deque[Numbers]] = {}
        for path, numbers in groupby(range(len(items)), lambda number: items[number].path):
            self.put(path.parent, list(numbers))
        self._untouched = deque(sorted(self._left, key=_place))

    def put(self, folder: Path, numbers: Numbers) -> None:
        self._left.setdefault(folder, deque()).append(numbers)

    def take(self, folder: Path | None, *, from_end: bool) -> tuple[Path | None, Numbers]:
        """Return a file of the folder, or else of one that no process was in, or else of the one with most files."""
        if folder not in self._left:
            if self._untouched:
                folder = self._untouched.pop() if from_end else self._untouched.popleft()
            elif self._left:
                folder = max(self._left, key=lambda one: len(self._left[one]))
            else:
                return None, []
        numbers = self._left[folder].popleft()
        if not self._left[folder]:
            del self._left[folder]
        return folder, numbers


def _place(folder: Path) -> int:
    """Return the place of a folder in the order in which folders are begun."""
    return next((at for at, name in enumerate(_WAITING) if folder.is_relative_to(_TESTS / name)), len(_WAITING))


class TestProcess:
    """A process that runs tests, seen from the one that forked it."""

    def __init__(self, name: str, session: pytest.Session, temporary: Path, others: Sequence[TestProcess]) -> None:
        self.name = name
        self.folder: Path | None = None
        self.given: deque[int] = deque()  # the first of them is the one that it runs
        self.connection, theirs = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for process in (self, *others):
                process.connection.close()  # so that it breaks when the run ends
            _run_what_is_given(session, theirs, temporary / f"p{os.getpid()}")
        theirs.close()

    def give(self, numbers: Numbers) -> None:
        self.given.extend(numbers)
        self.connection.send(numbers)

    def end(self) -> int:
        """Wait until it has ended, and return how."""
        self.connection.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class ForkedRun:
    """The run, in the process that started it: here no test runs."""

    def __init__(self, processes: int) -> None:
        self._names = [f"p{number}" for number in range(processes)]
        self._running: list[TestProcess] = []
        self._connections = selectors.DefaultSelector()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None
        self._session, self._files = session, Files(session.items)
        for name in self._names:
            self._start(name)
        try:
            while self._running:
                for ready, _ in self._connections.select():
                    self._listen(ready.data)
        finally:
            for process in self._running:
                process.end()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        return True

    def _start(self, name: str) -> None:
        temporary = self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        process = TestProcess(name, self._session, temporary, self._running)
        self._running.append(process)
        self._connections.register(process.connection, selectors.EVENT_READ, process)

    def _listen(self, process: TestProcess) -> None:
        """Take what a process sends: nothing if it wants a file, else the reports of a test, or its end."""
        try:
            reports = process.connection.recv()
        except EOFError:
            self._bury(process)
        else:
            if reports is None:
                self._feed(process)
            else:
                process.given.popleft()
                for report in reports:
                    self._report(report)

    def _feed(self, process: TestProcess) -> None:
        numbers: Numbers = []
        if not self._session.shouldfail:
            from_end = process.name == self._names[-1]  # one keeps a core busy while the others wait
            process.folder, numbers = self._files.take(process.folder, from_end=from_end)
        process.give(numbers)

    def _bury(self, process: TestProcess) -> None:
        """Report what a process left undone, and have another do the rest."""
        self._running.remove(process)
        self._connections.unregister(process.connection)
        code = process.end()
        if code == 0:
            return
        if not process.given:
            self._session.shouldfail = f"a process of this run ended with {code}"
            return
        item = self._session.items[process.given.popleft()]
        told = f"the process that ran this test ended with {code}"
        self._session.config.hook.pytest_runtest_logreport(
            report=pytest.TestReport(item.nodeid, item.location, {}, "failed", told, "call")
        )
        if process.given:
            self._files.put(item.path.parent, list(process.given))
        self._start(process.name)

    def _report(self, told: pytest.TestReport | dict[str, Any]) -> None:
        hook = self._session.config.hook
        is_plain = isinstance(told, pytest.TestReport)
        report = told if is_plain else hook.pytest_report_from_serializable(config=self._session.config, data=told)
        hook.pytest_runtest_logreport(report=report)


class _Reports:
    """The reports of a test, in the process that runs it: as they are, or as data where they hold tracebacks."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.told: list[pytest.TestReport | dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        is_plain = report.longrepr is None
        to_data = self._config.hook.pytest_report_to_serializable
        self.told.append(report if is_plain else to_data(config=self._config, report=report))


def _run_what_is_given(session: pytest.Session, connection: Connection, temporary: Path) -> NoReturn:
    """Be a process of the run."""
    code = 1
    try:
        _separate(session.config, temporary)
        _run(session, connection)
        code = 0
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass  # the run is over
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        session.config.pluginmanager.getplugin("runner").pytest_sessionfinish(session)  # what tests share, ends
        os._exit(code)


def _separate(config: pytest.Config, temporary: Path) -> None:
    """Share neither terminal nor captured output nor temporary files with other processes."""
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    temporary.mkdir()
    config._tmp_path_factory._basetemp = temporary  # type: ignore[attr-defined]


def _run(session: pytest.Session, connection: Connection) -> None:
    reports = _Reports(session.config)
    session.config.pluginmanager.register(reports)
    queue: deque[int] = deque()

    def ask() -> None:
        connection.send(None)
        queue.extend(connection.recv())

    ask()
    while queue and not session.shouldfail:
        item = session.items[queue.popleft()]
        if not queue:
            ask()
        following = session.items[queue[0]] if queue else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        connection.send(reports.told)
        reports.told = []
