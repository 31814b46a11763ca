"""Bounds of memory, processes and time."""

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from sandboxes import PYTHON, needs_sandbox

from amplifier_kit.sandbox.limits import Limits, make_group


@needs_sandbox
async def test_memory_is_bounded(run: Any) -> None:
    hungry = f"{shlex.quote(PYTHON)} -S -c 'print(len(bytes(300 << 20)))'"

    assert (await run(hungry)).code == 0
    assert "MemoryError" in (await run(hungry, limits=Limits(memory_mb=200))).err


@needs_sandbox
async def test_processor_time_is_bounded(run: Any) -> None:
    outcome = await run("while :; do :; done", limits=Limits(cpu_seconds=1))

    assert outcome.code in (-9, -24)


@needs_sandbox
@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel exempts root from the limit on processes")
async def test_processes_are_bounded(run: Any) -> None:
    outcome = await run("for i in {1..20}; do sleep 1 & done; wait", limits=Limits(processes=5))

    assert "Resource temporarily unavailable" in outcome.err


def test_without_limits_a_program_is_started_as_it_is() -> None:
    assert Limits().apply(["a", "b"], has_group=False) == ["a", "b"]
    assert Limits(memory_mb=1, processes=1).apply(["a"], has_group=True) == ["a"]


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    """Control groups as a system shows them: this process is in one of several below a group that can be written to."""
    (tmp_path / "user/ours").mkdir(parents=True)
    (tmp_path / "user/cgroup.subtree_control").write_text("cpu memory pids\n")
    (tmp_path / "user/cgroup.procs").write_text("")
    (tmp_path / "membership").write_text("1:name=systemd:/x\n0::/user/ours\n")
    return tmp_path


def test_a_group_is_made_beside_ours_with_the_limits(groups: Path) -> None:
    group = make_group(Limits(memory_mb=64, processes=9), groups, groups / "membership")

    assert group is not None
    assert group.directory.parent == groups / "user"
    assert (group.directory / "memory.max").read_text() == str(64 << 20)
    assert (group.directory / "pids.max").read_text() == "9"
    assert group.join(["a"])[-2:] == [str(group.directory), "a"]


@pytest.mark.parametrize("controllers", ["", "cpu", "memory"])
def test_where_a_group_cannot_be_limited_there_is_none(groups: Path, controllers: str) -> None:
    (groups / "user/cgroup.subtree_control").write_text(controllers)

    assert make_group(Limits(memory_mb=64), groups, groups / "membership") is None


def test_there_is_none_for_time_alone_nor_at_the_root_nor_where_there_are_no_groups(groups: Path) -> None:
    (groups / "root").write_text("0::/\n")

    assert make_group(Limits(cpu_seconds=5), groups, groups / "membership") is None
    assert make_group(Limits(memory_mb=5), groups, groups / "root") is None
    assert make_group(Limits(memory_mb=5), groups, groups / "missing") is None
