"""Builds, locks, caches and packages that somebody changed: what was made and locked runs, or nothing does."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifierd.exceptions import ProfileCompilationError

TOOL = """
from amplifier_core import ToolResult

class Tool:
    name, description = "own", "Says which code it is."

    async def execute(self, input):
        return ToolResult(output={output!r})

async def mount(coordinator, config=None):
    await coordinator.mount("tools", Tool())
"""
CODE = "tools/tool-own/amplifier_module_tool_own/__init__.py"
EVIL_HOOK = "async def mount(coordinator, config=None):\n    coordinator.register_capability('evil', True)\n"


@pytest.fixture(autouse=True)
def same_imports() -> Iterator[None]:
    """Leave the process with the modules it had."""
    before, path = dict(sys.modules), list(sys.path)
    yield
    for name in sys.modules.keys() - before.keys():
        if name.startswith(("amplifier_module_", "evil")):
            del sys.modules[name]
    sys.modules.update({name: module for name, module in before.items() if name.startswith("amplifier_module_")})
    sys.path[:] = path


@pytest.fixture
async def build(bench: Any, new_repository: Callable[..., Any]) -> Any:
    files = bench.module_files("tool-own", {"amplifier_module_tool_own/__init__.py": TOOL.format(output="made")})
    tools = [{"module": "tool-own", "source": f"{new_repository('own', files).source}@main"}]
    bench.write_profile(tools=tools, hooks=[{"module": "hooks-redaction", "required": True}])
    return await bench.home.profiles.compile("local/mine")


def change(file: Path, text: str) -> None:
    """Change a file of a build, and put back the times of it and of its directory, and its size."""
    before, above = file.stat(), file.parent.stat()
    text = text.ljust(before.st_size, "\n")
    file.chmod(0o644)
    file.write_text(text)
    file.chmod(before.st_mode)
    for path, status in ((file, before), (file.parent, above)):
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


async def run(home: Any, build: Any) -> AmplifierSession:
    with build.import_path():
        session = AmplifierSession(await home.plans.generate(build), session_id="s")
        await session.coordinator.mount("module-source-resolver", home.resolver(pins={"local/mine": build.path}))
        await session.initialize()
        return session


async def answer(home: Any, build: Any) -> Any:
    session = await run(home, build)
    try:
        return (await session.coordinator.get("tools")["own"].execute({})).output
    finally:
        await session.cleanup()


async def test_code_that_was_changed_does_not_run_though_its_times_were_put_back(bench: Any, build: Any) -> None:
    await bench.home.profiles.compile("local/mine")
    change(build.path / CODE, TOOL.format(output="evil"))

    again = await bench.home.profiles.compile("local/mine")

    assert await answer(bench.home, again) == "made"
    assert await answer(bench.home, await bench.home.profiles.open_build("local/mine", build.build_id)) == "made"


async def test_a_plan_that_was_changed_does_not_take_the_guards_away(bench: Any, build: Any) -> None:
    plan = json.loads((build.path / "plan.json").read_text())
    change(build.path / "plan.json", json.dumps(plan | {"hooks": []}))

    with pytest.raises(ProfileCompilationError, match=r"has another plan\.json than the one that was locked") as caught:
        build.plan()
    again = await bench.home.profiles.compile("local/mine")

    assert caught.value.code == "build-damaged"
    assert [hook["module"] for hook in again.plan()["hooks"]] == ["hooks-redaction"]


async def test_a_lock_that_was_changed_with_its_files_is_not_believed(bench: Any, build: Any) -> None:
    plan = json.loads((build.path / "plan.json").read_text())
    change(build.path / "plan.json", json.dumps(plan | {"hooks": []}))
    lock = json.loads((build.path / "profile.lock").read_text())
    lock["written"]["plan.json"] = f"sha256:{hashlib.sha256((build.path / 'plan.json').read_bytes()).hexdigest()}"
    change(build.path / "profile.lock", json.dumps(lock))

    assert (await bench.home.profiles.status("local/mine")).codes == ("lock-corrupt",)
    again = await bench.home.profiles.compile("local/mine")
    assert [hook["module"] for hook in again.plan()["hooks"]] == ["hooks-redaction"]


async def test_code_that_was_changed_with_its_hash_does_not_run(bench: Any, build: Any) -> None:
    change(build.path / CODE, TOOL.format(output="evil"))
    lock = json.loads((build.path / "profile.lock").read_text())
    lock["resources"]["tools"][0]["content_hash"] = None
    change(build.path / "profile.lock", json.dumps(lock))

    assert await answer(bench.home, await bench.home.profiles.compile("local/mine")) == "made"


@pytest.mark.parametrize(
    "added",
    ["hooks/hooks-redaction/amplifier_module_hooks_redaction/__init__.py", ".deps/amplifier_kit/__init__.py"],
    ids=["module", "dependency"],
)
async def test_what_was_added_to_a_build_is_not_used(bench: Any, build: Any, added: str) -> None:
    file = build.path / added
    file.parent.mkdir(parents=True)
    file.write_text(EVIL_HOOK)

    again = await bench.home.profiles.compile("local/mine")

    assert not (again.path / added).exists()
    session = await run(bench.home, again)
    assert session.coordinator.get_capability("evil") is None
    await session.cleanup()


async def test_an_old_build_that_was_changed_is_refused_with_the_reason(bench: Any, build: Any) -> None:
    bench.write_profile(tools=[], body="Another profile by now.")
    await bench.home.profiles.compile("local/mine")
    change(build.path / CODE, TOOL.format(output="evil"))

    with pytest.raises(ProfileCompilationError, match="is not what was made: tools/tool-own changed") as caught:
        await bench.home.profiles.open_build("local/mine", build.build_id)

    assert caught.value.code == "build-damaged"


async def test_without_compiling_a_changed_build_is_refused(bench: Any, build: Any) -> None:
    change(build.path / CODE, TOOL.format(output="evil"))
    home = bench.reopen(startup={"auto_compile": False})

    with pytest.raises(ProfileCompilationError, match="is not what was made"):
        await home.profiles.ensure("local/mine")


async def test_a_build_that_nobody_remembers_is_compared_with_its_lock(bench: Any, build: Any) -> None:
    for file in (bench.home.paths.cache / "builds").rglob("*.json"):
        file.unlink()
    change(build.path / CODE, TOOL.format(output="evil"))

    assert (await bench.home.profiles.status("local/mine")).codes == ("resource-modified",)
    assert await answer(bench.home, await bench.home.profiles.compile("local/mine")) == "made"


async def test_a_changed_cache_is_not_compiled(bench: Any, build: Any) -> None:
    cached = next((bench.home.paths.cache / "git").rglob("amplifier_module_tool_own/__init__.py"))
    change(cached, TOOL.format(output="evil"))

    with pytest.raises(ProfileCompilationError, match="are not those that were locked") as caught:
        await bench.home.profiles.compile("local/mine", force=True)

    assert "delete" in (caught.value.hint or "")
    assert await answer(bench.home, await bench.home.profiles.compile("local/mine")) == "made"


@pytest.mark.parametrize("brought", ["a package", "an entry point"])
async def test_a_dependency_does_not_take_the_place_of_a_guard(
    bench: Any, make_wheel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, brought: str
) -> None:
    info = "helper-1.0.dist-info/entry_points.txt"
    more = {
        "a package": {"amplifier_module_hooks_redaction/__init__.py": EVIL_HOOK.encode()},
        "an entry point": {info: b"[amplifier.modules]\nhooks-redaction = evil_hook:mount\n", "evil_hook.py": b""},
    }[brought]
    make_wheel("helper", "1.0", more=more | {"evil_hook.py": EVIL_HOOK.encode()})
    tools = [{"module": "tool-own", "source": bench.write_module("tool-own", requires=["helper"])}]
    bench.write_profile(tools=tools, hooks=[{"module": "hooks-redaction"}])
    sys.modules.pop("amplifier_module_hooks_redaction", None)

    build = await bench.home.profiles.compile("local/mine")
    monkeypatch.syspath_prepend(bench.tmp_path)  # so that entry points are read again
    session = await run(bench.home, build)

    assert session.coordinator.get_capability("evil") is None
    assert "evil_hook" not in sys.modules
    await session.cleanup()
    if brought == "a package":
        assert build.status == "degraded"
        assert "brings amplifier_module_hooks_redaction, which Amplifier has" in "\n".join(build.warnings)
