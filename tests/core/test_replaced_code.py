"""A session runs the code it asks for: other code of that name makes way, or the load is refused while it is used."""

import asyncio
import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.module_sources import ModuleLoadError

pytestmark = pytest.mark.usefixtures("frozen_past")

TOOL = """
    from amplifier_core import ToolResult
    from .answers import ANSWER

    class Tool:
        name, description = "versioned", "Says which code it is."

        async def execute(self, input):
            from . import later
            return ToolResult(output=(ANSWER, later.ANSWER))

    async def mount(coordinator, config):
        await coordinator.mount("tools", Tool())
"""


class Versions:
    """One module id with different code in different folders, and sessions that use it."""

    def __init__(self, modules: Any) -> None:
        self.modules = modules
        self.module_id = modules.write("tool").module_id

    def write(self, version: str) -> Path:
        folder: Path = self.modules.root / version / "tool"
        module = self.modules.write("tool", module_id=self.module_id, folder=folder, source=_dedent(TOOL))
        for name in ("answers", "later"):
            (module.file.parent / f"{name}.py").write_text(f"ANSWER = {version!r}\n")
        return folder

    async def session(self, source: Any, session_id: str = "s") -> AmplifierSession:
        entry = {"module": self.module_id} if source is None else {"module": self.module_id, "source": str(source)}
        plan = {
            "session": {"orchestrator": "loop-x", "context": "context-x"},
            "providers": [{"module": "provider-x"}],
            "tools": [entry],
        }
        session = AmplifierSession(plan, session_id=session_id)
        for module_id, point in (("loop-x", "orchestrator"), ("context-x", "context")):
            session.config["session"][point] = self.stand_in(point, module_id)
        session.config["providers"] = [self.stand_in("provider", "provider-x")]
        await session.initialize()
        return session

    def stand_in(self, kind: str, module_id: str) -> dict[str, str]:
        if module_id not in self.modules.resolver.folders:
            self.modules.write(kind, module_id=module_id)
        return {"module": module_id, "source": str(self.modules.resolver.folders[module_id])}


def _dedent(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())


async def answer_of(session: AmplifierSession) -> tuple[str, str]:
    assert session.status.load_failures == []
    return (await session.coordinator.get("tools")["versioned"].execute({})).output  # type: ignore[no-any-return]


def refusal_of(session: AmplifierSession) -> str:
    assert session.coordinator.get("tools") == {}
    (failure,) = session.status.load_failures
    return str(failure["error"])


@pytest.fixture
def versions(modules: Any) -> Versions:
    return Versions(modules)


async def test_the_next_session_has_the_code_of_its_source(versions: Versions) -> None:
    one, two = versions.write("one"), versions.write("two")

    for source, version in ((one, "one"), (two, "two"), (one, "one")):
        session = await versions.session(source)
        assert await answer_of(session) == (version, version)
        await session.cleanup()


async def test_code_that_a_session_uses_stays_and_the_refusal_names_the_session(versions: Versions) -> None:
    one, two = versions.write("one"), versions.write("two")
    first = await versions.session(one, "the-first")

    second = await versions.session(two, "the-second")

    text = refusal_of(second)
    assert text.startswith(f"Refusing to load '{versions.module_id}' from {two}")
    assert f"it is already loaded from {one}" in text
    assert "session 'the-first' still uses that code" in text
    assert "fix: end that session first" in text
    assert await answer_of(first) == ("one", "one")

    await first.cleanup()
    await second.cleanup()
    assert await answer_of(await versions.session(two)) == ("two", "two")


async def test_a_session_that_is_gone_holds_nothing(versions: Versions) -> None:
    one, two = versions.write("one"), versions.write("two")
    session = await versions.session(one)
    session.coordinator.session_state["cycle"] = session
    del session

    assert await answer_of(await versions.session(two)) == ("two", "two")


async def test_a_link_that_was_moved_leads_to_other_code(versions: Versions) -> None:
    one, two = versions.write("one"), versions.write("two")
    link = versions.modules.root / "current"
    link.symlink_to(one.parent)
    before = await versions.session(link / "tool", "before")
    link.unlink()
    link.symlink_to(two.parent)

    assert "session 'before' still uses" in refusal_of(await versions.session(link / "tool"))
    assert await answer_of(before) == ("one", "one")  # also what it imports only now

    await before.cleanup()
    assert await answer_of(await versions.session(link / "tool")) == ("two", "two")


async def test_one_session_does_not_mix_the_code_of_two_builds(versions: Versions) -> None:
    one, two = versions.write("one"), versions.write("two")
    link = versions.modules.root / "current"
    link.symlink_to(one.parent)
    session = await versions.session(link / "tool")
    link.unlink()
    link.symlink_to(two.parent)

    with pytest.raises(ModuleLoadError, match="Refusing to load"):
        await session.coordinator.loader.load(versions.module_id, source_hint=str(link / "tool"))  # type: ignore[union-attr]


async def test_an_installed_module_and_one_from_a_folder_take_turns(versions: Versions) -> None:
    installed, folder = versions.write("installed"), versions.write("folder")
    package = "amplifier_module_" + versions.module_id.replace("-", "_")
    site = versions.modules.root / "site"
    site.mkdir()
    (installed / package).rename(site / package)
    sys.path.append(str(site))

    for source, version in ((None, "installed"), (folder, "folder"), (None, "installed"), (folder, "folder")):
        session = await versions.session(source)
        assert await answer_of(session) == (version, version)
        await session.cleanup()

    holding = await versions.session(folder, "holding")
    assert "session 'holding' still uses" in refusal_of(await versions.session(None))
    await holding.cleanup()


async def test_code_of_a_folder_that_nobody_named_is_not_found(versions: Versions) -> None:
    session = await versions.session(versions.write("one"))
    await session.cleanup()

    assert "not found via entry points or filesystem" in refusal_of(await versions.session(None))


def test_sessions_in_several_threads_run_their_own_code_or_say_so(versions: Versions) -> None:
    folders = {version: versions.write(version) for version in ("one", "two")}
    asyncio.run(_ended(versions, folders["one"]))

    def run(version: str) -> list[str]:
        return [asyncio.run(_outcome(versions, folders[version], version)) for _ in range(15)]

    with ThreadPoolExecutor(4) as pool:
        outcomes = {outcome for part in pool.map(run, ["one", "two", "one", "two"]) for outcome in part}

    assert outcomes <= {"its own", "refused"}
    assert "its own" in outcomes


async def _ended(versions: Versions, folder: Path) -> None:
    await (await versions.session(folder)).cleanup()


async def _outcome(versions: Versions, folder: Path, version: str) -> str:
    session = await versions.session(folder)
    try:
        if session.status.load_failures:
            return "refused" if "still use" in refusal_of(session) else refusal_of(session)
        return "its own" if await answer_of(session) == (version, version) else "another's"
    finally:
        await session.cleanup()


async def test_unloaded_code_can_be_collected(versions: Versions) -> None:
    one, two = versions.write("one"), versions.write("two")
    await _ended(versions, one)
    await _ended(versions, two)
    gc.collect()

    modules = [found for found in gc.get_objects() if isinstance(found, type(sys))]
    assert [module for module in modules if str(getattr(module, "__file__", "")).startswith(str(one))] == []
