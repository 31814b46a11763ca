"""Commands of the shipped profile for coding: what its rules let pass changes nothing, what a person approved does."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sandboxes import fingerprint, needs_sandbox, place_outside_tmp

from amplifier_core import AmplifierSession, ChatResponse, TextBlock, ToolCall
from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse
from amplifier_core.testing import MockProvider

pytestmark = needs_sandbox

PROFILE = Path(__file__).parents[2] / "registry/profiles/coding.md"


class Person:
    def __init__(self, says_yes: bool) -> None:
        self._says_yes = says_yes
        self.asked: list[str] = []

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
        self.asked.append(request.details["command"])
        return ApprovalResponse(approved=self._says_yes, reason="so be it")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home, and a repository whose configuration names programs of an attacker."""
    with place_outside_tmp() as directory:
        home, work = directory / "home", directory / "work"
        home.mkdir()
        work.mkdir()
        (work / "file").write_text("old\n")
        evil = f"sh -c 'touch {work}/stolen {home}/stolen; echo attacked' #"
        settings = ["user.name=x", "user.email=x@localhost"]
        options = [word for setting in settings for word in ("-c", setting)]
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
            subprocess.run(["git", *options, *arguments], cwd=work, check=True)
        for name in ("core.fsmonitor", "diff.external"):
            subprocess.run(["git", "config", name, evil], cwd=work, check=True)
        (work / "file").write_text("new\n")
        monkeypatch.setenv("HOME", str(home))
        yield directory


async def run(place: Path, loop: str, person: Person, *commands: str) -> list[Any]:
    """Let a model run the commands in a session of the shipped profile, and return what its tool answered."""
    profile = yaml.safe_load(PROFILE.read_text(encoding="utf-8").split("---")[1])
    of_kind = {kind: {entry["module"]: entry for entry in profile[kind]} for kind in ("tools", "hooks")}
    bash, approval = of_kind["tools"]["tool-bash"], of_kind["hooks"]["hooks-approval"]
    plan = {
        "session": {"orchestrator": {"module": loop}, "context": {"module": "context-simple"}},
        "tools": [{**bash, "config": {**bash["config"], "working_dir": str(place / "work")}}],
        "hooks": [{**approval, "config": {**approval["config"], "audit": {"enabled": False}}}],
    }
    session = AmplifierSession(plan)
    await session.initialize()
    coordinator = session.coordinator
    coordinator.get_capability("approval.register_provider")(person)
    calls = [ToolCall(id=f"c{n}", name="bash", arguments={"command": text}) for n, text in enumerate(commands)]
    answers = [ChatResponse(content=[TextBlock(text="")], tool_calls=calls), "finished"]
    await coordinator.mount("providers", MockProvider(answers), name="mock")
    results: list[Any] = []

    async def record(event: str, data: dict[str, Any]) -> None:
        results.append(data["result"])

    coordinator.hooks.register("tool:post", record)
    try:
        await session.execute("go")
    finally:
        await session.cleanup()
    return results


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming", "loop-events"])
async def test_a_hostile_repository_gets_nothing_from_what_no_one_was_asked_about(place: Path, loop: str) -> None:
    before, person = fingerprint(place), Person(says_yes=False)

    results = await run(place, loop, person, "git status", "git diff", "ls", "touch stolen")

    assert person.asked == ["touch stolen"]
    assert len(results) == 3
    assert "attacked" in str(results)  # the program ran, and could do nothing
    assert fingerprint(place) == before


async def test_what_a_person_approved_changes_the_repository_and_nothing_else(place: Path) -> None:
    person = Person(says_yes=True)

    await run(place, "loop-basic", person, "touch made ~/made; git add made")

    assert person.asked == ["touch made ~/made; git add made"]
    assert [(place / name).exists() for name in ("work/made", "home/made")] == [True, False]
