"""A named source is used, or the entry fails where a person sees it; an installed module never takes its place."""

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_foundation import Bundle

MISSING = "git+file:///nowhere/at/all@main"


def bundle(**extra: Any) -> Bundle:
    session = {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}}
    return Bundle(name="b", session=session, providers=[{"module": "provider-mock"}], **extra)


async def test_a_tool_whose_source_cannot_be_used_is_a_failure_and_not_the_installed_one(tmp_path: Path) -> None:
    named = bundle(tools=[{"module": "tool-todo", "source": MISSING}])
    prepared = await named.prepare(cache_dir=tmp_path, offline=True)

    session = await prepared.create_session(session_cwd=tmp_path)

    assert session.coordinator.get("tools") == {}
    assert [failure["module_id"] for failure in failures(session)] == ["tool-todo"]
    await session.cleanup()


async def test_a_required_module_whose_source_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    named = bundle(hooks=[{"module": "hooks-logging", "source": MISSING, "required": True}])
    prepared = await named.prepare(cache_dir=tmp_path, offline=True)

    with pytest.raises(RuntimeError, match="Cannot initialize without required module 'hooks-logging'"):
        await prepared.create_session(session_cwd=tmp_path)


@pytest.mark.parametrize("entry", [{}, {"source": "amplifier_module_tool_todo"}])
async def test_an_entry_without_a_source_or_with_a_package_s_name_is_the_installed_one(
    tmp_path: Path, entry: dict[str, str]
) -> None:
    prepared = await bundle(tools=[{"module": "tool-todo", **entry}]).prepare(cache_dir=tmp_path, offline=True)

    session = await prepared.create_session(session_cwd=tmp_path)

    assert (list(session.coordinator.get("tools")), failures(session)) == (["todo"], [])
    await session.cleanup()


def failures(session: AmplifierSession) -> list[Any]:
    return list(session.status.load_failures)
