"""The bundle that people of the ecosystem start every day, loaded unchanged: with stand-ins, and with our modules."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anchors import ADDRESS, AGENTS, HOOKS, INTELLIGENCE, LATER_ADDRESS, TOOLS, make_mirrors
from git_repository import use_plain_git

from amplifier_core.mount_plan import MountPlan
from amplifier_foundation import BundleRegistry, load_bundle
from amplifier_foundation.prepared import PreparedBundle
from amplifier_foundation.spawn import register_spawn
from amplifierd.home import open_home
from amplifierd.sessions.questions.approval import Approval, Callback


class Mirrors:
    """The repositories of one kind, and a home that has fetched them."""

    def __init__(self, folder: Path, *, ours: bool) -> None:
        self.folder = folder / "mirrors"
        self.folder.mkdir(parents=True)
        self.configuration = make_mirrors(self.folder, ours=ours)
        self.home = folder / "home"

    async def prepare(self, address: str = ADDRESS, **options: Any) -> PreparedBundle:
        registry = BundleRegistry(self.home)
        bundle = await load_bundle(address, registry=registry)
        return await bundle.prepare(cache_dir=registry.home / "cache", **options)


@pytest.fixture(scope="module", params=["stand-ins", "ours"])
def mirrors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrors]:
    with pytest.MonkeyPatch.context() as patch:
        use_plain_git(patch)
        made = Mirrors(tmp_path_factory.mktemp("anchors"), ours=request.param == "ours")
        patch.setenv("GIT_CONFIG_GLOBAL", str(made.configuration))
        patch.setenv("HOME", str(made.home / "person"))
        yield made


def modules(prepared: PreparedBundle) -> list[str]:
    return sorted(entry.module_id for entry in MountPlan(prepared.mount_plan).entries())


@pytest.mark.parametrize("address", [ADDRESS, LATER_ADDRESS])
async def test_the_plan_has_every_module_and_every_agent(mirrors: Mirrors, address: str) -> None:
    prepared = await mirrors.prepare(address)

    assert modules(prepared) == sorted([*TOOLS, *HOOKS, "loop-streaming", "context-simple"])
    assert sorted(prepared.mount_plan["agents"]) == sorted(
        [*(f"anchors:{name}" for name in AGENTS), *(f"context-intelligence:{name}" for name in INTELLIGENCE)]
    )
    assert prepared.mount_plan["session"]["raw"] is True
    assert prepared.mount_plan["agents"]["anchors:explorer"]["model_role"] == ["general", "fast"]
    async with prepared.create_session(session_cwd=mirrors.folder) as session:
        assert session.status.load_failures == []
        factory = prepared._create_system_prompt_factory(prepared.bundle, session, mirrors.folder)
        prompt = await factory()
    assert prompt.index("Four principles.") < prompt.index("Name a model role")
    assert "display_name" not in str(prepared.mount_plan)


CALLS = [
    ("delegate", {"agent": "anchors:explorer", "instruction": "Look around"}, "Look around"),
    ("load_skill", {"list": True}, ""),
    ("mode", {"operation": "list"}, ""),
    ("recipes", {"operation": "list"}, ""),
    ("apply_patch", {"patch": "*** Begin Patch\n*** Add File: made.txt\n+x\n*** End Patch"}, ""),
    (
        "todo",
        {"action": "create", "todos": [{"content": "A", "activeForm": "A", "status": "pending"}]},
        "",
    ),
]


async def test_a_turn_with_each_tool_succeeds_and_modules_are_told_when_all_is_ready(
    mirrors: Mirrors, tmp_path: Path
) -> None:
    prepared = await mirrors.prepare()
    script = [{"tool_calls": [{"name": name, "arguments": given}]} for name, given, _ in CALLS]
    steps = [step for each in script for step in (each, "Done: {{last_tool_result}}")]
    prepared.mount_plan["providers"] = [{"module": "provider-mock", "config": {"script": steps}}]

    async with prepared.create_session(session_id="root", session_cwd=tmp_path) as session:
        register_spawn(session, prepared)
        session.config["providers"] = [{"module": "provider-mock", "config": {"mode": "echo"}}]  # for its children
        answers = [await session.execute(name) for name, _, _ in CALLS]
        state = session.coordinator.session_state
        results = [
            message for message in await session.coordinator.get("context").get_messages() if message["role"] == "tool"
        ]

    for (name, _, expected), answer in zip(CALLS, answers, strict=True):
        assert answer.startswith("Done: "), (name, answer)
        assert expected in answer
    assert len(results) == len(CALLS)
    assert not any('"error"' in str(result["content"]) or "Error" in str(result["content"]) for result in results)
    assert "hook-context-intelligence" in state["ready"]
    assert "hook-context-intelligence" in state["ended"]


async def test_what_was_fetched_once_starts_again_without_the_repositories(mirrors: Mirrors) -> None:
    await mirrors.prepare()
    aside = mirrors.folder.with_name("gone")
    shutil.move(mirrors.folder, aside)
    try:
        prepared = await mirrors.prepare()
        async with prepared.create_session(session_cwd=mirrors.home) as session:
            assert session.status.load_failures == []
    finally:
        shutil.move(aside, mirrors.folder)


@pytest.mark.parametrize("mirrors", ["ours"], indirect=True)
async def test_the_bundle_does_not_open_our_gate(mirrors: Mirrors, tmp_path: Path) -> None:
    """Its `policy_driven_only: true, default_action: continue` would; what asks is the host of the session."""
    call = {"tool_calls": [{"name": "bash", "arguments": {"command": "touch made"}}]}
    provider = {"module": "provider-mock", "config": {"script": [call, "{{last_tool_result}}"]}}
    file = tmp_path / "bundle.md"
    head = {"bundle": {"name": "mine", "version": "1"}, "includes": [{"bundle": ADDRESS}], "providers": [provider]}
    file.write_text(f"---\n{json.dumps(head)}\n---\n")
    work = tmp_path / "work"
    work.mkdir()
    asked: list[str | None] = []

    def no(approval: Approval) -> bool:
        asked.append(approval.tool_name)
        return False

    home = open_home(tmp_path / "home")
    try:
        async with home.sessions.open(bundle=file.as_uri(), working_dir=work, approver=Callback(no)) as session:
            result = await session.execute("Make a file")
    finally:
        await home.sessions.close()

    assert asked == ["bash"], result.response
    assert not (work / "made").exists()
