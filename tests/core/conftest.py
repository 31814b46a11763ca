"""Real modules for the kernel's tests: folders a resolver can point at, distributions that are installed, plans."""

import asyncio
import importlib
import inspect
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from textwrap import dedent, indent
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ModuleCoordinator, ModuleLoader
from amplifier_core.module_sources import ModuleNotFoundError

_numbers = count(1)  # every module gets a package name of its own: Python keeps one module per name

_ID_PREFIXES = {
    "orchestrator": "loop",
    "context": "context",
    "provider": "provider",
    "tool": "tool",
    "hook": "hooks",
    "resolver": "resolver",
}

_CLASSES = {
    "orchestrator": """
        class Thing:
            async def execute(self, prompt, context, providers, tools, hooks):
                await hooks.emit("prompt:submit", {"prompt": prompt})
                await context.add_message({"role": "user", "content": prompt})
                outputs = [(await tool.execute({"prompt": prompt})).output for tool in tools.values()]
                await hooks.emit("orchestrator:complete", {"outputs": outputs})
                return f"answer to {prompt}"
    """,
    "context": """
        class Thing:
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
                self.messages = []
    """,
    "provider": """
        class Thing:
            name = NAME

            def get_info(self):
                return amplifier_core.ProviderInfo(id=NAME, display_name=NAME)

            async def list_models(self):
                return []

            async def complete(self, request, **options):
                return amplifier_core.ChatResponse(content=[])

            def parse_tool_calls(self, response):
                return []
    """,
    "tool": """
        class Thing:
            name = NAME
            description = "Answers with its own name"

            async def execute(self, input):
                return amplifier_core.ToolResult(output=NAME)
    """,
    "hook": """
        class Thing:
            async def __call__(self, event, data):
                return amplifier_core.HookResult()
    """,
    "resolver": """
        class Thing:
            def resolve(self, module_id, source_hint=None, profile_hint=None):
                raise LookupError(module_id)
    """,
}

_MOUNTS = {
    "orchestrator": 'await coordinator.mount("orchestrator", thing)',
    "context": 'await coordinator.mount("context", thing)',
    "provider": 'await coordinator.mount("providers", thing, name=NAME)',
    "tool": 'await coordinator.mount("tools", thing, name=NAME)',
    "hook": 'coordinator.hooks.register("tool:pre", thing, name=NAME)',
    "resolver": 'await coordinator.mount("module-source-resolver", thing)',
}

_SOURCE = """\
import amplifier_core

NAME = {name!r}
mounts = []  # one entry for every call of mount: the config it was given
{head}
{definition}

async def mount(coordinator, config):
    mounts.append(config)
    thing = Thing()
{body}

{tail}
"""


@dataclass(frozen=True)
class WrittenModule:
    """A module on disk; `name` is what it mounts itself as."""

    module_id: str
    name: str
    folder: Path
    package: str

    @property
    def file(self) -> Path:
        return self.folder / self.package / "__init__.py"

    @property
    def code(self) -> ModuleType:
        """The imported package."""
        return sys.modules[self.package]

    @property
    def times_mounted(self) -> int:
        return len(self.code.mounts) if self.package in sys.modules else 0

    def entry(self, **more: Any) -> dict[str, Any]:
        """The module's place in a plan."""
        return {"module": self.module_id, **more}


class FolderResolver:
    """Knows the folders of modules by id; `calls` has the id and hints of every question."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}
        self.calls: list[tuple[str, Any, Any]] = []

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> SimpleNamespace:
        self.calls.append((module_id, source_hint, profile_hint))
        if module_id not in self.folders:
            raise ModuleNotFoundError(f"no folder for {module_id!r}")
        return SimpleNamespace(resolve=lambda: self.folders[module_id])


class ModuleFolders:
    """Writes modules below `root` and tells its `resolver` about each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.resolver = FolderResolver()

    def write(
        self,
        module_type: str = "tool",
        *,
        module_id: str | None = None,
        folder: Path | None = None,
        package: str | None = None,
        head: str = "",
        definition: str | None = None,
        mount: str | None = None,
        tail: str = "",
        source: str | None = None,
    ) -> WrittenModule:
        """Write a conforming module, or one with other code in a chosen place.

        `head` stands before the class, `definition` in its place; `mount` is the body of the mount function, where
        `thing` is a fresh instance; `tail` ends the file; `source` is all of it.
        """
        number = next(_numbers)
        module_id = module_id or f"{_ID_PREFIXES[module_type]}-m{number}"
        name = module_id.removeprefix("provider-")
        package = package or "amplifier_module_" + module_id.replace("-", "_")
        folder = folder or self.root / f"folder-{number}" / f"amplifier-module-{module_id}"
        if source is None:
            source = _SOURCE.format(
                name=name,
                head=dedent(head) + ('\n__amplifier_module_type__ = "resolver"' if module_type == "resolver" else ""),
                definition=dedent(_CLASSES[module_type] if definition is None else definition),
                body=indent(dedent(_MOUNTS[module_type] if mount is None else mount), "    "),
                tail=dedent(tail),
            )
        written = WrittenModule(module_id, name, folder, package)
        written.file.parent.mkdir(parents=True, exist_ok=True)
        written.file.write_text(source, encoding="utf-8")
        self.resolver.folders.setdefault(module_id, folder)
        return written

    def install(self, module: WrittenModule, entry_points: dict[str, str] | None = None) -> Path:
        """Install a distribution with the module's package in a site directory of its own; returns the directory.

        Without `entry_points` it offers the package's `mount` under the module's id.
        """
        site = self.root / f"site-{next(_numbers)}"
        shutil.copytree(module.file.parent, site / module.package)
        info = site / f"{module.package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.package}\nVersion: 1.0\n")
        points = {module.module_id: f"{module.package}:mount"} if entry_points is None else entry_points
        lines = [f"{name} = {target}" for name, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[amplifier.modules]", *lines, ""]))
        sys.path.append(str(site))
        importlib.invalidate_caches()
        return site

    def forget_the_past(self) -> None:
        """Empty the lists in which resolver and modules note their calls."""
        self.resolver.calls.clear()
        for module in list(sys.modules.values()):
            if (getattr(module, "__file__", None) or "").startswith(str(self.root)):
                module.mounts.clear()

    def plan(self, **sections: Any) -> dict[str, Any]:
        """Return a small plan that can be executed, with modules of its own; `sections` are added to it."""
        orchestrator, context = self.write("orchestrator"), self.write("context")
        return {
            "session": {"orchestrator": orchestrator.module_id, "context": context.module_id},
            "providers": [self.write("provider").entry()],
            **sections,
        }

    def session(self, plan: dict[str, Any] | None = None, **options: Any) -> AmplifierSession:
        """Return a session that is not initialized yet and finds the modules of these folders."""
        session = AmplifierSession(self.plan() if plan is None else plan, **options)
        session.coordinator.mount_points["module-source-resolver"] = self.resolver
        return session

    async def failures_of(self, session: AmplifierSession) -> list[dict[str, Any]]:
        """Initialize a session and return what failed to load."""
        await session.initialize()
        return session.status.load_failures

    def loader(self, resolver: Any = None, **options: Any) -> ModuleLoader:
        """Return a loader on whose coordinator `resolver` is mounted, else the one of these folders."""
        coordinator = ModuleCoordinator()
        coordinator.mount_points["module-source-resolver"] = resolver or self.resolver
        return ModuleLoader(coordinator, **options)

    async def mounted_by(
        self, loader: ModuleLoader, module: WrittenModule, config: dict[str, Any] | None = None, **options: Any
    ) -> ModuleCoordinator:
        """Load a module and mount it on a fresh coordinator."""
        coordinator = ModuleCoordinator()
        mount = await loader.load(module.module_id, config, **options)
        await mount(coordinator)
        return coordinator

    async def refusal_of(self, loader: ModuleLoader, module_id: str, source: Any = None) -> Exception:
        """Return the error of a load that has to fail, at the latest when the module is mounted."""
        try:
            mount = await loader.load(module_id, {}, source_hint=source)
            await mount(ModuleCoordinator())
        except Exception as exc:  # noqa: BLE001 - it is what the tests look at
            return exc
        pytest.fail(f"{module_id!r} was loaded")


class Answering:
    """An orchestrator with exactly the parameters of the contract; its outcome is returned, raised or awaited."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.calls: list[dict[str, Any]] = []

    async def execute(self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any) -> Any:
        self.calls.append(
            {"prompt": prompt, "context": context, "providers": providers, "tools": tools, "hooks": hooks}
        )
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return await self.outcome() if inspect.iscoroutinefunction(self.outcome) else self.outcome


class StandInLoader(ModuleLoader):
    """A loader that needs no files: it mounts the objects it was made with, or raises those that are errors."""

    def __init__(self, outcome: Any = "done", *, orchestrator: Any = None, context: Any = None) -> None:
        super().__init__()
        context = object() if context is None else context
        self.things = {
            "loop-x": orchestrator or Answering(outcome),
            "context-x": context,
            "provider-x": object(),
        }
        self.loads: list[str] = []

    async def load(self, module_id: str, config: Any = None, source_hint: Any = None, *_: Any, **more: Any) -> Any:
        self.loads.append(module_id)
        await asyncio.sleep(0)

        async def mount(coordinator: ModuleCoordinator) -> None:
            thing = self.things[module_id]
            if isinstance(thing, BaseException):
                raise thing
            point = {"loop-x": "orchestrator", "context-x": "context", "provider-x": "providers"}[module_id]
            await coordinator.mount(point, thing, name=module_id)

        return mount


@contextmanager
def _interpreter_restored(root: Path) -> Iterator[None]:
    """Drop what was imported from below `root`, and give `sys.path` back as it was.

    Modules imported before are out of the way meanwhile, so that a test may write one that has the same id.
    """
    path = list(sys.path)
    others = {name: module for name, module in sys.modules.items() if name.startswith("amplifier_module_")}
    for name in others:
        del sys.modules[name]
    before = dict(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if before.get(name) is not module and (getattr(module, "__file__", None) or "").startswith(str(root)):
                del sys.modules[name]
        sys.modules.update(others)


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[ModuleFolders]:
    """Folders for modules whose packages are forgotten after the test."""
    with _interpreter_restored(tmp_path):
        yield ModuleFolders(tmp_path)


@pytest.fixture
def loader_for() -> type[StandInLoader]:
    """Makes loaders for plans of `loop-x`, `context-x` and `provider-x`, given the outcome of a turn."""
    return StandInLoader


@pytest.fixture
def started() -> Callable[..., Awaitable[AmplifierSession]]:
    """Returns a function that gives an initialized session, given the outcome of its turns or an orchestrator."""
    small_plan = {
        "session": {"orchestrator": "loop-x", "context": "context-x"},
        "providers": [{"module": "provider-x"}],
    }

    async def start(
        outcome: Any = "done", *, orchestrator: Any = None, plan: Any = None, loader: Any = None, **options: Any
    ) -> AmplifierSession:
        loader = loader or StandInLoader(outcome, orchestrator=orchestrator)
        session = AmplifierSession(plan or small_plan, loader=loader, **options)
        await session.initialize()
        return session

    return start


@pytest.fixture
def listen() -> Callable[..., list[tuple[str, dict[str, Any]]]]:
    """Returns a function that notes the given events of a coordinator in the list it returns."""

    def listen_to(coordinator: ModuleCoordinator, *events: str) -> list[tuple[str, dict[str, Any]]]:
        heard: list[tuple[str, dict[str, Any]]] = []
        for event in events:
            coordinator.hooks.register(event, lambda event, data: heard.append((event, data)))
        return heard

    return listen_to
