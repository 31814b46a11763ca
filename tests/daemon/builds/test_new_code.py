"""A session of a profile runs the code of its build, also when an earlier build ran in the same process."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amplifier_core import AmplifierSession

TOOL = """
from amplifier_core import ToolResult
{imports}

class Tool:
    name, description = "own", "Says which code it is."

    async def execute(self, input):
        return ToolResult(output={output})

async def mount(coordinator, config=None):
    await coordinator.mount("tools", Tool())
"""


@pytest.fixture(autouse=True)
def same_imports() -> Iterator[None]:
    """Leave the process with the modules it had, so that other tests find those they know."""
    before, path = dict(sys.modules), list(sys.path)
    yield
    for name in sys.modules.keys() - before.keys():
        if name.startswith(("amplifier_module_", "thing")):
            del sys.modules[name]
    sys.modules.update({name: module for name, module in before.items() if name.startswith("amplifier_module_")})
    sys.path[:] = path


class Runs:
    """Sessions of the profile `local/mine`, in one form of its plan, with or without pins."""

    def __init__(self, bench: Any, form: str, is_pinned: bool) -> None:
        self.bench, self.form, self.is_pinned = bench, form, is_pinned

    async def compile(self, version: str, requires: tuple[str, ...] = ()) -> Any:
        source = TOOL.format(imports="", output=repr(version))
        if requires:
            source = TOOL.format(imports="import thing", output=f"({version!r}, thing.VERSION)")
        files = {"amplifier_module_tool_own/__init__.py": source}
        module = self.bench.write_module("tool-own", files, requires=requires)
        self.bench.write_profile(tools=[{"module": "tool-own", "source": module}])
        return await self.bench.home.profiles.compile("local/mine")

    @asynccontextmanager
    async def session(self, session_id: str) -> AsyncIterator[AmplifierSession]:
        home = self.bench.home
        build = home.profiles.find_build("local/mine")
        plan = await home.plans.generate("local/mine", form=self.form)
        with build.import_path():
            session = AmplifierSession(plan, session_id=session_id)
            pins = {"local/mine": build.path} if self.is_pinned else None
            await session.coordinator.mount("module-source-resolver", home.resolver(pins=pins))
            async with session:
                yield session

    async def answer(self, session_id: str = "s") -> Any:
        async with self.session(session_id) as session:
            return await answer_of(session)


async def answer_of(session: AmplifierSession) -> Any:
    assert session.status.load_failures == []
    return (await session.coordinator.get("tools")["own"].execute({})).output


@pytest.fixture(
    params=[("portable", False), ("portable", True), ("resolved", False), ("resolved", True)],
    ids=["portable", "portable and pinned", "resolved", "resolved and pinned"],
)
def runs(bench: Any, request: pytest.FixtureRequest) -> Runs:
    return Runs(bench, *request.param)


async def test_after_a_new_build_the_next_session_has_the_new_code(runs: Runs) -> None:
    first = await runs.compile("one")
    assert await runs.answer() == "one"

    second = await runs.compile("two")

    assert second.build_id != first.build_id
    assert await runs.answer() == "two"


async def test_while_a_session_of_the_old_build_lives_the_new_one_says_who_is_in_the_way(runs: Runs) -> None:
    await runs.compile("one")
    async with runs.session("the-old-one") as old:
        await runs.compile("two")

        async with runs.session("the-new-one") as new:
            (failure,) = new.status.load_failures
            assert new.coordinator.get("tools") == {}
        assert "session 'the-old-one' still uses that code" in failure["error"]
        assert await answer_of(old) == "one"

    assert await runs.answer() == "two"


async def test_the_new_code_has_the_dependencies_of_its_build(runs: Runs, make_wheel: Any) -> None:
    for version in ("1", "2"):
        make_wheel("thing", version)
        await runs.compile(version, (f"thing=={version}",))

        assert await runs.answer() == (version, version)
