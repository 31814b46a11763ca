"""`sources.replace`: a named source is replaced by the installed module on purpose only, and that is said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifierd.exceptions import SettingsError

MARKED = "async def mount(coordinator, config=None):\n    coordinator.register_capability('theirs', True)\n"


def _said(source: str) -> str:
    return f"'hooks-backup' is the installed module, not {source}, as sources.replace says"


@pytest.fixture
def source(bench: Any, new_repository: Callable[..., Any]) -> str:
    """A repository with another module of the id of an installed one."""
    files = bench.module_files("hooks-backup", {"amplifier_module_hooks_backup/__init__.py": MARKED})
    return f"{new_repository('theirs', files).source}@main"


async def test_a_named_source_is_used_until_the_settings_replace_it(bench: Any, source: str) -> None:
    bench.write_profile(hooks=[{"module": "hooks-backup", "source": source}])
    named = await bench.home.profiles.compile("local/mine")
    assert bench.lock()["resources"]["hooks"][0]["kind"] == "git"

    home = bench.reopen(sources={"replace": {"hooks-backup": "installed"}})
    replaced = await home.profiles.compile("local/mine")

    locked = bench.lock()["resources"]["hooks"][0]
    assert (locked["kind"], locked["ref"], locked["path"]) == ("installed", None, None)
    assert replaced.build_id != named.build_id
    assert _said(source) in "\n".join(replaced.warnings)
    assert (await home.profiles.compile("local/mine")).build_id == replaced.build_id

    told = await home.plans.explain(replaced, "hooks[hooks-backup].source")
    assert told["origin"]["profile"] == "sources.replace"
    assert [old["value"] for old in told["overrode"]] == [source]
    assert told["overrode"][0]["origin"]["profile"] == "local/mine"
    assert (await home.plans.explain(named, "hooks[hooks-backup].source"))["overrode"] == []

    back = await bench.reopen().profiles.compile("local/mine")
    assert back.build_id == named.build_id
    assert not any("source-replaced" in text for text in back.warnings)


@pytest.mark.parametrize("replace", [{}, {"hooks-backup": "installed"}])
async def test_a_bundle_has_the_installed_module_as_well(
    bench: Any, source: str, tmp_path: Path, replace: dict[str, str]
) -> None:
    session = "session: {orchestrator: {module: loop-basic}, context: {module: context-simple}}"
    hooks = f"hooks: [{{module: hooks-backup, source: '{source}'}}]"
    bundle = tmp_path / "bundle.md"
    bundle.write_text(f"---\nbundle: {{name: own}}\n{session}\nproviders: [{{module: provider-mock}}]\n{hooks}\n---\n")
    home = bench.reopen(sources={"replace": replace})

    async with home.sessions.open(bundle=str(bundle), working_dir=tmp_path) as opened:
        coordinator = await opened.load()
        assert coordinator.get_capability("theirs") is (None if replace else True)
        told = [warning["message"] for warning in opened.record.load_warnings]
        assert told == [f"source-replaced: {_said(source)}"] * bool(replace)

    await home.sessions.close()


def test_nothing_but_the_installed_module_can_be_named(bench: Any) -> None:
    with pytest.raises(SettingsError, match="installed"):
        bench.reopen(sources={"replace": {"tool-web": "git+https://example.org/other"}})
