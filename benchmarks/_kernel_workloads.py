"""The work that `kernel.py` measures, written once for every side.

It uses only names that the reference release of the kernel has, so that the peer's interpreter can run it as it is.
The floor offers the same few names over plain dicts, lists and `await`.
"""

import asyncio
import contextlib
import gc
import importlib
import resource
import sys
import time
import tracemalloc
import weakref
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Operation = Callable[[], Awaitable[object]]

PROMPT = "Which files changed since yesterday?"
EVENT = "tool:pre"
SMALL_PAYLOAD = {"tool_name": "read_file", "tool_call_id": "call_1", "tool_input": {"path": "README.md"}}

ORCHESTRATOR = """
class Loop:
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        await context.add_message({"role": "user", "content": prompt})
        return "done"


async def mount(coordinator, config):
    await coordinator.mount("orchestrator", Loop())
"""

CONTEXT = """
class Context:
    def __init__(self):
        self.messages = []

    async def add_message(self, message):
        self.messages.append(message)

    async def get_messages_for_request(self, token_budget=None, provider=None):
        return list(self.messages)

    async def get_messages(self):
        return list(self.messages)

    async def set_messages(self, messages):
        self.messages = list(messages)

    async def clear(self):
        self.messages.clear()


async def mount(coordinator, config):
    await coordinator.mount("context", Context())
"""

PROVIDER = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock


class Provider:
    name = NAME

    def get_info(self):
        return ProviderInfo(id=self.name, display_name=self.name)

    async def list_models(self):
        return []

    async def complete(self, request, **kwargs):
        return ChatResponse(content=[TextBlock(text="done")])

    def parse_tool_calls(self, response):
        return []


async def mount(coordinator, config):
    await coordinator.mount("providers", Provider(), name=NAME)
"""

TOOL = """
from amplifier_core import ToolResult


class Tool:
    name = NAME
    description = "Say what was asked."
    input_schema = {"type": "object", "properties": {"text": {"type": "string"}}}

    async def execute(self, input):
        return ToolResult(success=True, output=input)


async def mount(coordinator, config):
    await coordinator.mount("tools", Tool(), name=NAME)
"""

HOOK = """
from amplifier_core import HookResult


async def observe(event, data):
    return HookResult(action="continue")


async def mount(coordinator, config):
    return coordinator.hooks.register("tool:pre", observe, priority=10, name=NAME)
"""

MODULES = {
    "loop-bench": ORCHESTRATOR,
    "context-bench": CONTEXT,
    **{f"provider-bench{n}": PROVIDER for n in range(2)},
    **{f"tool-bench{n}": TOOL for n in range(5)},
    **{f"hooks-bench{n}": HOOK for n in range(2)},
}
PLAN = {
    "session": {"orchestrator": {"module": "loop-bench"}, "context": {"module": "context-bench"}},
    **{
        f"{kind}s": [{"module": name, "config": {"size": 1}} for name in MODULES if name.startswith(kind)]
        for kind in ("provider", "tool", "hook")
    },
}


def package_name(module_id: str) -> str:
    return f"amplifier_module_{module_id.replace('-', '_')}"


def write_modules(root: Path) -> None:
    """Write one folder per module, as a resolver returns it."""
    for module_id, source in MODULES.items():
        package = root / module_id / package_name(module_id)
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"NAME = {module_id.partition('-')[2]!r}\n{source}")


class FolderResolver:
    """The module-source-resolver of the benchmark: a module ID is a folder under one root."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
        path = self._root / module_id
        return SimpleNamespace(resolve=lambda: path)


class BareHooks:
    """The floor of a hook registry: await every handler."""

    def __init__(self) -> None:
        self._handlers: dict[str, list[Any]] = {}

    def set_default_fields(self, **fields: Any) -> None:
        pass

    def register(self, event: str, handler: Any, priority: int = 0, name: str | None = None) -> Callable[[], None]:
        handlers = self._handlers.setdefault(event, [])
        handlers.append(handler)
        return lambda: handlers.remove(handler)

    def list_handlers(self, event: str) -> dict[str, list[Any]]:
        return {event: self._handlers.get(event, [])}

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        for handler in self._handlers.get(event, ()):
            await handler(event, data)


class BareCoordinator:
    """The floor of a coordinator: dicts to mount in."""

    def __init__(self) -> None:
        self.hooks = BareHooks()
        self._points: dict[str, Any] = {"providers": {}, "tools": {}}

    async def mount(self, point: str, module: Any, name: str | None = None) -> None:
        if name is None:
            self._points[point] = module
        else:
            self._points[point][name] = module

    def get(self, point: str) -> Any:
        return self._points[point]


class BareSession:
    """The floor of a session: import the modules, call `mount`, later call what that returned."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.coordinator = BareCoordinator()
        self._cleanups: list[Callable[[], None]] = []

    async def initialize(self) -> None:
        for module_id in MODULES:
            cleanup = await importlib.import_module(package_name(module_id)).mount(self.coordinator, {})
            if cleanup:
                self._cleanups.append(cleanup)

    async def execute(self, prompt: str) -> str:
        get = self.coordinator.get
        everything = (get("context"), get("providers"), get("tools"), self.coordinator.hooks)
        answer: str = await get("orchestrator").execute(prompt, *everything)
        return answer

    async def cleanup(self) -> None:
        while self._cleanups:
            self._cleanups.pop()()


class Measurements:
    """Answers measurement requests on one side; the kernel is imported here, after the process was pinned."""

    def __init__(self, side: str, modules: Path) -> None:
        self._resolver = FolderResolver(modules)
        self._operations: dict[str, tuple[Operation, float]] = {}
        if side == "floor":
            sys.path[:0] = [str(modules / module_id) for module_id in MODULES]
            self._kernel: Any = SimpleNamespace(AmplifierSession=BareSession, HookRegistry=BareHooks, HookResult=dict)
        else:
            self._kernel = importlib.import_module("amplifier_core")

    async def seconds(self, work: str, batch_s: float, **parameters: Any) -> float:
        """Repeat an operation for about `batch_s` seconds and return what one of them took on average.

        The first request for an operation prepares it and warms it up.
        """
        key = f"{work} {parameters}"
        if key not in self._operations:
            operation: Operation = await getattr(self, f"_{work}")(**parameters)
            self._operations[key] = operation, await _warmed_up(operation, batch_s)
        operation, estimate_s = self._operations[key]
        elapsed_s = await _timed(operation, max(1, round(batch_s / estimate_s)))
        self._operations[key] = operation, min(estimate_s, elapsed_s)
        return elapsed_s

    async def memory(self, sessions: int, traced: bool) -> dict[str, float]:
        """Return the bytes that each of `sessions` sessions holds while it lives, and keeps when it is gone.

        They are counted as Python allocates them (`traced`) or as the process occupies them. `alive` is the share of
        context managers, and with them conversations, that can still be reached after cleanup.
        """
        for _ in range(10):
            await (await self._live_session()).cleanup()
        if traced:
            tracemalloc.start()
        before = _memory(traced)
        live = [await self._live_session() for _ in range(sessions)]
        held = _memory(traced) - before
        contexts = [weakref.ref(session.coordinator.get("context")) for session in live]
        while live:
            await live.pop().cleanup()
        gc.collect()
        alive = sum(context() is not None for context in contexts)
        del contexts

        before = _memory(traced)
        for _ in range(sessions):
            await (await self._live_session()).cleanup()
        kept = _memory(traced) - before
        return {"held": held / sessions, "kept": kept / sessions, "alive": alive / sessions}

    async def _emit(self, handlers: int, messages: int) -> Operation:
        result_type = self._kernel.HookResult
        hooks = self._kernel.HookRegistry()
        hooks.set_default_fields(session_id="benchmark", parent_id=None)
        payload: dict[str, Any] = dict(SMALL_PAYLOAD)
        if messages:
            payload["messages"] = [{"role": "user", "content": f"message {n} " + "x" * 200} for n in range(messages)]

        async def handler(event: str, data: dict[str, Any]) -> Any:
            return result_type(action="continue")

        for n in range(handlers):
            hooks.register(EVENT, handler, n, f"handler-{n}")
        return partial(hooks.emit, EVENT, payload)

    async def _session(self) -> Operation:
        async def life() -> None:
            await (await self._initialized_session()).cleanup()

        session = await self._initialized_session()
        _check_mounted(session.coordinator)
        await session.cleanup()
        return life

    async def _initialized_session(self) -> Any:
        session = self._kernel.AmplifierSession(PLAN)
        await session.coordinator.mount("module-source-resolver", self._resolver)
        await session.initialize()
        return session

    async def _live_session(self) -> Any:
        session = await self._initialized_session()
        await session.execute(PROMPT)
        return session


def _check_mounted(coordinator: Any) -> None:
    """A side that skips modules would be fast for the wrong reason."""
    found = [len(coordinator.get("providers")), len(coordinator.get("tools"))]
    found.append(len(coordinator.hooks.list_handlers(EVENT)[EVENT]))
    if found != [2, 5, 2] or None in (coordinator.get("orchestrator"), coordinator.get("context")):
        raise RuntimeError(f"the session has {found} providers, tools and handlers, not [2, 5, 2]")


async def _warmed_up(operation: Operation, batch_s: float) -> float:
    """Run an operation for a while and return how many seconds one takes."""
    estimates: list[float] = []
    number = 1
    while len(estimates) < 3 or estimates[-1] * number < batch_s:
        estimates.append(await _timed(operation, number))
        number *= 2
    return min(estimates)


async def _timed(operation: Operation, number: int) -> float:
    started = time.perf_counter()
    for _ in range(number):
        await operation()
    return (time.perf_counter() - started) / number


def _memory(traced: bool) -> int:
    """Bytes in use by this process after a collection."""
    for _ in range(3):  # what a finalizer frees may free more
        gc.collect()
    if traced:
        return tracemalloc.get_traced_memory()[0]
    with contextlib.suppress(FileNotFoundError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def serve(side: str, modules: Path, answer_requests: Callable[[Callable[[dict[str, Any]], Any]], None]) -> None:
    """Answer requests such as `{"measure": "seconds", "work": "emit", …}` until the input ends."""
    with asyncio.Runner() as runner:
        measurements = Measurements(side, modules)
        answer_requests(lambda request: runner.run(getattr(measurements, request.pop("measure"))(**request)))
