"""What the session runtime adds to a bare kernel session: starting, a turn, a delta, and memory while it is idle.

Both sides run the shipped profile `foundation/offline`, compiled, with a provider that answers at once; the floor is
the kernel session alone, which keeps nothing. Checkpoints have a benchmark of their own and are off. What is compared
are CPU times of all threads, since a turn waits for nothing but the disk; what it takes by the clock stands below. Both
are without `fsync`, which has a row of its own. Run it with `make bench`, or alone:

    python benchmarks/sessions.py [--quick] [--check]
"""

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from _harness import Figure, Report, Row, Target

import amplifierd
from amplifier_core import AmplifierSession, ChatResponse, ProviderInfo, TextBlock, ToolCall, ToolCallBlock
from amplifierd.home import Home
from amplifierd.profiles.builds.build import Build

PROFILE = "foundation/offline"
MOST_START_MS = 30
MOST_TURN_MS = 3
MOST_DELTA_US = 20
MOST_IDLE_KIB = 60
CALLS = (0, 1, 5)
DELTAS = 500
DELTA = {"request_id": "request_1", "block_index": 0, "block_type": "text", "text": "lorem ipsum ", "sequence": 1}
DONE = ChatResponse(content=[TextBlock(text="Done.")])


class Moment:
    """A moment, by the clock and by what the CPUs did for this process."""

    def __init__(self) -> None:
        self.cpu_s, self.clock_s = time.process_time(), time.perf_counter()

    def until(self, later: "Moment", disk: "Disk") -> "Taken":
        clock_ms, cpu_ms = disk.take_ms()
        elapsed_ms = (later.clock_s - self.clock_s) * 1e3 - clock_ms
        return Taken((later.cpu_s - self.cpu_s) * 1e3 - cpu_ms, elapsed_ms, clock_ms)


class Taken(NamedTuple):
    """How long something took, in ms: on the CPUs and by the clock, both without the disk, and for the disk."""

    cpu: float
    clock: float
    fsync: float


class Provider:
    """Asks for a file so many times, then answers; knows when it was first asked."""

    name = "mock"
    priority = 1

    def __init__(self) -> None:
        self.calls = 0
        self.first_asked: Moment | None = None

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id="mock", display_name="Mock", capabilities=[])

    async def list_models(self) -> list[Any]:
        return []

    async def complete(self, request: Any, **options: Any) -> ChatResponse:
        self.first_asked = self.first_asked or Moment()
        if not self.calls:
            return DONE
        self.calls -= 1
        call_id, arguments = f"call_{self.calls}", {"file_path": "notes.md"}
        return ChatResponse(
            content=[ToolCallBlock(id=call_id, name="read_file", input=arguments)],
            tool_calls=[ToolCall(id=call_id, name="read_file", arguments=arguments)],
        )

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []


class Disk:
    """Counts what `fsync` takes."""

    def __init__(self) -> None:
        self._clock_s = self._cpu_s = 0.0

    def take_ms(self) -> tuple[float, float]:
        """Return the ms since this was last asked, by the clock and on the CPU."""
        taken = self._clock_s * 1e3, self._cpu_s * 1e3
        self._clock_s = self._cpu_s = 0.0
        return taken

    @contextmanager
    def watched(self) -> Iterator[None]:
        real = os.fsync

        def timed(descriptor: int) -> None:
            clock_s, cpu_s = time.perf_counter(), time.thread_time()
            real(descriptor)
            self._clock_s += time.perf_counter() - clock_s
            self._cpu_s += time.thread_time() - cpu_s

        os.fsync = timed  # type: ignore[assignment] # it takes whatever has a file number
        try:
            yield
        finally:
            os.fsync = real


async def mounted(coordinator: Any) -> Provider:
    """Put a provider of ours in the place of whatever the session has."""
    for name in list(coordinator.get("providers")):
        await coordinator.unmount("providers", name=name)
    provider = Provider()
    await coordinator.mount("providers", provider, name="mock")
    return provider


class Sides:
    """A bare kernel session and one of the runtime, of the same build in the same directory."""

    def __init__(self, home: Home, build: Build, plan: dict[str, Any], work: Path) -> None:
        self._home, self._build, self._plan, self._work = home, build, plan, work
        self.disk = Disk()

    async def bare_start(self) -> Taken:
        started = Moment()
        async with AsyncExitStack() as stack:
            session = await self._bare(stack)
            return await self._until_asked(session.coordinator, session.execute, started)

    async def start(self) -> Taken:
        self.disk.take_ms()
        started = Moment()
        async with self._home.sessions.open(PROFILE, working_dir=self._work) as session:
            return await self._until_asked(session.runner.kernel.session.coordinator, session.execute, started)

    async def bare_turns(self, calls: int, count: int) -> list[Taken]:
        async with AsyncExitStack() as stack:
            session = await self._bare(stack)
            return await self._timed(session.coordinator, session.execute, calls, count)

    async def turns(self, calls: int, count: int) -> list[Taken]:
        async with self._home.sessions.open(PROFILE, working_dir=self._work) as session:
            coordinator = session.runner.kernel.session.coordinator
            return await self._timed(coordinator, session.execute, calls, count)

    async def bare_deltas(self, rounds: int) -> list[float]:
        async with AsyncExitStack() as stack:
            session = await self._bare(stack)
            return [await _emitted(session.coordinator) for _ in range(rounds)]

    async def deltas(self, rounds: int) -> list[float]:
        """Return the µs that each piece of an answer takes, with one who watches."""
        async with self._home.sessions.open(PROFILE, working_dir=self._work) as session:
            taken = []
            for _ in range(rounds):
                watching = session.subscribe()
                taken.append(await _emitted(session.runner.kernel.session.coordinator))
                watching.close()
            await session.runner.partial.settle()
            return taken

    async def memory(self, count: int) -> tuple[float, float]:
        """Return the KiB that each of many idle sessions takes: of the kernel alone, and of ours."""
        async with AsyncExitStack() as stack:

            async def bare() -> None:
                await self._bare(stack)

            async def ours() -> None:
                await stack.enter_async_context(self._home.sessions.open(PROFILE, working_dir=self._work))

            await _grown(bare, 10)
            await _grown(ours, 10)
            return await _grown(bare, count), await _grown(ours, count)

    async def _bare(self, stack: AsyncExitStack) -> AmplifierSession:
        session = AmplifierSession(self._plan)
        await session.coordinator.mount("module-source-resolver", self._home.resolver())
        session.coordinator.register_capability("session.working_dir", str(self._work))
        stack.enter_context(self._build.import_path())
        return await stack.enter_async_context(session)

    async def _until_asked(self, coordinator: Any, execute: Callable[[str], Any], started: Moment) -> Taken:
        provider = await mounted(coordinator)
        await execute("Hello")
        assert provider.first_asked is not None
        return started.until(provider.first_asked, self.disk)

    async def _timed(self, coordinator: Any, execute: Callable[[str], Any], calls: int, count: int) -> list[Taken]:
        provider, taken = await mounted(coordinator), list[Taken]()
        for _ in range(count + 1):
            provider.calls = calls
            self.disk.take_ms()
            started = Moment()
            await execute("Hello")
            taken.append(started.until(Moment(), self.disk))
        return taken[1:]


async def _emitted(coordinator: Any) -> float:
    """Return the µs of CPU time that one of many deltas takes with everyone who hears it."""
    emit, started_s = coordinator.hooks.emit, time.process_time()
    for _ in range(DELTAS):
        await emit("llm:stream_block_delta", DELTA)
    return (time.process_time() - started_s) * 1e6 / DELTAS


async def _grown(add: Callable[[], Awaitable[None]], count: int) -> float:
    """Return the KiB by which each of the sessions that are added makes this process larger."""
    gc.collect()
    before = _resident_bytes()
    for _ in range(count):
        await add()
    gc.collect()
    return (_resident_bytes() - before) / count / 1024


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def rows_of(label: str, floor: list[Taken], ours: list[Taken], limit_ms: float | None) -> list[Row]:
    """Return the rows of one workload; the target is what ours takes beyond the floor, by the best rounds of both."""

    def figures(field: str) -> dict[str, Figure]:
        sides = {"ours": ours, "floor": floor}
        return {side: Figure([getattr(taken, field) for taken in samples]) for side, samples in sides.items()}

    cpu = figures("cpu")
    beyond = cpu["ours"].best - cpu["floor"].best
    targets = [Target("over the floor", beyond, limit_ms, "ms")] if limit_ms else []
    return [
        Row(label, "ms", cpu, targets),
        Row("  by the clock", "ms", figures("clock")),
        Row("  fsync", "ms", {"ours": figures("fsync")["ours"]}),
    ]


async def measure(report: Report, folder: Path, *, rounds: int, idle: int) -> None:
    work = folder / "work"
    work.mkdir()
    (work / "notes.md").write_text("- buy milk\n")
    home = amplifierd.open_home(folder / "home", offline=True, overrides={"checkpoints": {"enabled": False}})
    build = await home.profiles.compile(PROFILE)
    sides = Sides(home, build, await home.plans.generate(build), work)
    with sides.disk.watched():
        floor, ours = list[Taken](), list[Taken]()
        for _ in range(rounds + 1):
            floor.append(await sides.bare_start())
            ours.append(await sides.start())
        report.add("start to the first provider call", rows_of("warm start", floor[1:], ours[1:], MOST_START_MS))
        rows: list[Row] = []
        for calls in CALLS:
            bare, stored = await sides.bare_turns(calls, rounds), await sides.turns(calls, rounds)
            rows += rows_of(f"turn, {calls} tool calls", bare, stored, MOST_TURN_MS if calls <= 1 else None)
        report.add("a turn, stored", rows)
        pieces = {"ours": Figure(await sides.deltas(rounds)), "floor": Figure(await sides.bare_deltas(rounds))}
        beyond = pieces["ours"].best - pieces["floor"].best
        report.add("streaming", [Row("a delta", "µs", pieces, [Target("over the floor", beyond, MOST_DELTA_US, "µs")])])
        if idle:
            bare_kib, kib = await sides.memory(idle)
            target = Target("over the floor", kib - bare_kib, MOST_IDLE_KIB, "KiB")
            kept = {"ours": Figure([kib]), "floor": Figure([bare_kib])}
            report.add("memory", [Row(f"each of {idle:,} idle sessions", "KiB", kept, [target])])
    await home.sessions.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what the session runtime adds to a kernel session.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    rounds, idle = (5, 50) if arguments.quick else (40, 1000)
    report = Report("sessions", peer=None)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(report, Path(folder), rounds=rounds, idle=idle if sys.platform == "linux" else 0))
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
