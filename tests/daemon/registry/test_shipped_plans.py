"""Each profile that comes with the product compiles in a new home, and its plan starts a session on the kernel."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_foundation.dicts import merge_module_lists
from amplifierd import Home, ProfileId, open_home
from amplifierd.plans.injection import inject_runtime
from amplifierd.plans.runtime_values import RuntimePlaces
from amplifierd.profiles.documents.document import module_identity
from amplifierd.sessions.conversation.mentions import ProfileMentionResolver, load_mentioned

NO_PROVIDER = "providers-missing: At least one provider must be configured"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A new home: there is nothing in it yet."""
    return open_home(tmp_path / "home", offline=True)


@pytest.fixture
def working_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "notes.md").write_text("# Notes\n\nBuy milk.\n")
    return directory


class Person:
    """Answers what a session asks, and remembers the questions."""

    def __init__(self, answer: str = "Allow") -> None:
        self.answer, self.questions = answer, list[str]()

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:  # noqa: ASYNC109 - the kernel's protocol
        self.questions.append(prompt)
        return self.answer


@asynccontextmanager
async def running(
    home: Home, plan: Mapping[str, Any], working_dir: Path, person: Person | None = None
) -> AsyncIterator[AmplifierSession]:
    """Start a session as whoever runs one does: with the home's resolver, and its places in the plan."""
    places = RuntimePlaces(
        working_dir=working_dir,
        session_dir=home.paths.sessions / "s1",
        sessions_dir=home.paths.sessions,
        approvals_file=home.paths.logs / "approvals.jsonl",
    )
    injected, missing = inject_runtime(
        plan,
        profile_id=ProfileId("foundation", "x"),
        places=places,
        environment={},
        find_key=lambda module_id: None,
        resolver=home.resolver(),
    )
    assert missing == []
    session = AmplifierSession(injected, approval_system=person)
    await session.coordinator.mount("module-source-resolver", home.resolver())
    session.coordinator.register_capability("session.working_dir", str(working_dir))
    async with session:
        yield session


async def planned(home: Home, name: str, form: Any = "portable") -> dict[str, Any]:
    return await home.plans.generate(f"foundation/{name}", form=form)


async def test_a_profile_compiles_and_everything_it_names_is_locked(home: Home, name: str) -> None:
    build = await home.profiles.compile(f"foundation/{name}")

    assert (build.status, build.warnings) == ("fresh", (NO_PROVIDER,) if name == "foundation" else ())
    assert {entry["kind"] for entry in build.lock.modules()} == {"installed"}
    assert {entry["status"] for _, entry in build.lock.resources()} == {"ok"}
    assert (build.path / "contexts/foundation/shared/principles.md").is_file()


async def test_agents_are_compiled_under_their_names_and_embedded_in_the_plan(home: Home) -> None:
    plan = await planned(home, "coding")
    build = await home.profiles.compile("foundation/coding")

    names = ["explorer", "code-expert", "test-writer", "reviewer", "researcher"]
    assert list(plan["agents"]) == names
    for agent in names:
        assert plan["agents"][agent]["content"] == (build.path / f"agents/{agent}.md").read_text()
        assert plan["agents"][agent]["metadata"]["source"] == f"foundation:agents/{agent}.md"


async def test_a_plan_is_valid_except_that_the_common_parent_has_no_provider(home: Home, name: str) -> None:
    report = home.plans.validate(await planned(home, name))

    assert [issue.location for issue in report.errors] == (["providers"] if name == "foundation" else [])
    assert list(report.warnings) == []


async def test_both_forms_of_a_plan_convert_into_each_other(home: Home, name: str) -> None:
    portable = await planned(home, name)
    resolved = await planned(home, name, "resolved")

    assert home.plans.convert(portable, "resolved") == resolved
    assert home.plans.convert(resolved, "portable") == portable


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("form", ["portable", "resolved"])
async def test_a_plan_starts_a_session_with_all_its_modules(
    home: Home, name: str, form: Any, working_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = await planned(home, name, form)

    with caplog.at_level(logging.WARNING):
        async with running(home, plan, working_dir) as session:
            failures = session.status.load_failures
            mounted = {point: session.coordinator.get_mounted(point) for point in ("providers", "tools")}

    assert failures == []
    assert len(mounted["providers"]) == len(plan["providers"])
    assert {"read_file", "write_file", "edit_file", "grep", "glob", "todo"} <= set(mounted["tools"])
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_the_offline_profile_answers_a_prompt_with_real_tools(home: Home, working_dir: Path) -> None:
    plan = await planned(home, "offline")
    used = []

    async with running(home, plan, working_dir) as session:

        async def note(event: str, data: dict[str, Any]) -> None:
            used.append(data["tool_name"])

        session.coordinator.hooks.register("tool:post", note)
        answer = await session.execute("list files, then read notes.md")

    assert used == ["glob", "read_file"]
    assert "Buy milk." in answer


async def test_what_a_body_mentions_is_in_the_build_itself(home: Home, name: str, tmp_path: Path) -> None:
    build = await home.profiles.compile(f"foundation/{name}")
    resolver = ProfileMentionResolver(contexts_dir=build.path / "contexts", collection_roots={}, working_dir=tmp_path)

    loaded = await load_mentioned(home.profiles.merged(f"foundation/{name}").body, resolver)

    assert loaded.unresolved == ()
    assert len(loaded.messages) >= 3


@pytest.mark.parametrize("agent", ["explorer", "reviewer", "researcher"])
async def test_an_agent_that_changes_nothing_cannot_write(home: Home, working_dir: Path, agent: str) -> None:
    plan = await planned(home, "coding")
    overlay = plan["agents"][agent]["tools"]
    tools = merge_module_lists(
        plan["tools"], overlay, lists="replace", identity=lambda entry: module_identity("tools", entry)
    )

    async with running(home, {**plan, "providers": [], "tools": tools}, working_dir, Person("Allow")) as session:
        result = await session.coordinator.get("tools", "write_file").execute({"file_path": "new.md", "content": "x"})

    assert result.error["code"] == "access_denied"
    assert not (working_dir / "new.md").exists()


@pytest.mark.parametrize(
    ("command", "is_asked"),
    [("git status", False), ("ls -la", False), ("git push origin main", True), ("make", True)],
)
async def test_the_coding_profile_asks_before_a_command_that_does_more_than_look(
    home: Home, working_dir: Path, command: str, is_asked: bool
) -> None:
    plan = await planned(home, "coding")
    person = Person("Deny")

    async with running(home, {**plan, "providers": []}, working_dir, person) as session:
        call = {"tool_name": "bash", "tool_input": {"command": command}, "tool_call_id": "call_1"}
        verdict = await session.coordinator.hooks.emit("tool:pre", call)

    assert (len(person.questions), verdict.action) == ((1, "deny") if is_asked else (0, "continue"))
