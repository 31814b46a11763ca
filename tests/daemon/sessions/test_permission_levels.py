"""Permission levels hold in every session: with or without the approval hook, for children, forks and resumed ones."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, Kind, call
from sandboxes import needs_sandbox, place_outside_tmp

from amplifier_core import ModuleCoordinator, ToolResult
from amplifier_system.permission_levels import LEVELS, PermissionLevel, Permissions, narrowest
from amplifierd.exceptions import MountPlanError, SessionStateError
from amplifierd.home import Home
from amplifierd.sessions.questions.approval import Approval, Callback, DenyAll
from amplifierd.sessions.session import Session

GUARD = {"module": "hooks-approval"}
LENIENT = {"module": "hooks-approval", "config": {"policy_driven_only": True, "default_action": "continue"}}
BASH = {"module": "tool-bash"}
FILES = {"module": "tool-filesystem"}
CONNECTS = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 9))\""
WRITE = call("write_file", file_path="new.txt", content="new")
EDIT = call("edit_file", file_path="notes.md", old_string="milk", new_string="tea")


class Person:
    """Answers every question, and keeps what was asked."""

    def __init__(self, answer: bool = False) -> None:
        self.answer, self.asked = answer, list[str]()

    def __call__(self, approval: Approval) -> bool:
        self.asked.append(approval.action)
        return self.answer


class Pen:
    """A foreign tool that says nothing of what it does."""

    name = "pen"
    description = "Scribbles."
    input_schema: Mapping[str, Any] = {"type": "object", "properties": {}}

    def __init__(self, file: Path) -> None:
        self._file = file

    def get_schema(self) -> Mapping[str, Any]:
        return self.input_schema

    async def execute(self, input: Any) -> ToolResult:
        self._file.write_text("scribble")
        return ToolResult(output="done")


@pytest.fixture
def outside_tmp() -> Iterator[Path]:
    with place_outside_tmp() as place:
        yield place


def results(home: Home, session: Session) -> list[str]:
    messages = home.sessions.messages(session.session_id)
    return [str(message["content"]) for message in messages if message["role"] == "tool"]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def work_at(
    home: Home, work: Path, level: PermissionLevel | None, agent: Agent, person: Person
) -> tuple[Session, list[str]]:
    """Run one turn and return the session, and what became of the tool calls."""
    opening = home.sessions.open(
        plan=agent.sections(), working_dir=work, approver=Callback(person), permission_level=level
    )
    async with opening as session:
        await session.execute("Go")
    return session, results(home, session)


@pytest.mark.parametrize("hooks", [(), (GUARD,), (LENIENT,)], ids=["unguarded", "guarded", "lenient"])
async def test_at_the_level_plan_nothing_is_written_or_executed_and_nobody_is_asked(
    home: Home, work: Path, hooks: tuple[Mapping[str, Any], ...]
) -> None:
    script = [WRITE, EDIT, call("bash", command="touch ran"), call("read_file", file_path="notes.md"), "The plan."]
    person = Person(answer=True)

    _, said = await work_at(home, work, "plan", Agent(script, tools=[FILES, BASH], hooks=hooks), person)

    assert ["permission level plan" in text for text in said] == [True, True, True, False]
    assert (names_in(work), person.asked) == (["notes.md"], [])
    assert "milk" in (work / "notes.md").read_text()


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming", "loop-events"])
async def test_a_tool_that_says_nothing_of_itself_counts_as_doing_everything(home: Home, work: Path, loop: str) -> None:
    agent = Agent([call("pen"), "Done."], orchestrator=loop)
    async with home.sessions.open(plan=agent.sections(), working_dir=work, permission_level="plan") as session:
        coordinator: ModuleCoordinator = await session.load()
        await coordinator.mount("tools", Pen(work / "scribble"), name="pen")
        await session.execute("Go")
        direct = await coordinator.get("tools")["pen"].execute({})

    assert "permission level plan: pen writes and executes commands" in results(home, session)[0]
    assert not direct.success
    assert not (work / "scribble").exists()


async def test_the_model_is_shown_the_level_plan_in_its_request_and_nowhere_else(home: Home, work: Path) -> None:
    agent = Agent(["A plan.", "Done."])
    async with home.sessions.open(plan=agent.sections(), working_dir=work, permission_level="plan") as session:
        await session.execute("Go")
        await home.sessions.update(session.session_id, permission_level="ask")
        await session.execute("Go on")

    planned, asked = (str([part.message for part in one.parts]) for one in home.sessions.requests(session.session_id))
    assert "permission level of this session is plan" in planned
    assert "permission level" not in asked
    assert "permission level" not in str(home.sessions.messages(session.session_id))


@pytest.mark.parametrize("hooks", [(), (GUARD,), (LENIENT,)], ids=["unguarded", "guarded", "lenient"])
async def test_at_the_level_ask_a_person_is_asked_whatever_the_profile_says(
    home: Home, work: Path, hooks: tuple[Mapping[str, Any], ...]
) -> None:
    person = Person()

    _, said = await work_at(home, work, "ask", Agent([WRITE, "Done."], hooks=hooks), person)

    assert (person.asked, (work / "new.txt").exists()) == (["Execute write_file"], False)
    assert "Denied" in said[0]


async def test_where_nobody_has_chosen_a_level_the_profile_decides(home: Home, work: Path) -> None:
    person = Person()

    session, _ = await work_at(home, work, None, Agent([WRITE, "Done."]), person)

    assert (person.asked, (work / "new.txt").read_text()) == ([], "new")
    assert session.record.permission_level is None


async def test_at_the_level_edits_files_of_the_directory_are_edited_unasked_and_nothing_else(
    home: Home, work: Path, tmp_path: Path
) -> None:
    (work / "link.txt").symlink_to(tmp_path / "elsewhere.txt")
    elsewhere = call("write_file", file_path=str(tmp_path / "other.txt"), content="x")
    through_link = call("write_file", file_path="link.txt", content="x")
    instructs = call("write_file", file_path="AGENTS.md", content="x")
    script = [WRITE, EDIT, elsewhere, through_link, instructs, call("bash", command="touch ran"), "Done."]
    person = Person()

    await work_at(home, work, "edits", Agent(script, tools=[FILES, BASH], hooks=[GUARD]), person)

    assert names_in(work) == ["link.txt", "new.txt", "notes.md"]
    assert "tea" in (work / "notes.md").read_text()
    assert len(person.asked) == 4
    assert not (tmp_path / "elsewhere.txt").exists()


async def test_a_rule_that_denies_counts_at_every_level(home: Home, work: Path) -> None:
    rule = {"tool": "write_file", "pattern": "./*", "action": "auto_deny"}
    guard = {"module": "hooks-approval", "config": {"rules": [rule]}}

    for level in LEVELS:
        await work_at(home, work, level, Agent([WRITE, "Done."], hooks=[guard]), Person(answer=True))

    assert not (work / "new.txt").exists()


@needs_sandbox
async def test_at_the_level_auto_contained_commands_run_unasked_and_reach_nobody(home: Home, outside_tmp: Path) -> None:
    work = outside_tmp / "work"
    work.mkdir()
    commands = ["echo made > made.txt", f"echo out > {outside_tmp}/out.txt", CONNECTS]
    person = Person()
    agent = Agent([*(call("bash", command=command) for command in commands), WRITE, "Done."], tools=[FILES, BASH])

    _, said = await work_at(home, work, "auto", agent, person)

    assert person.asked == []
    assert names_in(work) == ["made.txt", "new.txt"]
    assert not (outside_tmp / "out.txt").exists()
    assert "unreachable" in said[2] or "refused" in said[2]


async def test_at_the_level_auto_what_no_sandbox_contains_is_asked_about(home: Home, work: Path) -> None:
    bare = {"module": "tool-bash", "config": {"sandbox": "off"}}
    person = Person()

    await work_at(home, work, "auto", Agent([call("bash", command="touch ran"), "Done."], tools=[bare]), person)

    assert (person.asked, (work / "ran").exists()) == (["Execute: touch ran"], False)


async def test_a_child_is_held_to_the_level_of_the_session_that_started_it(home: Home, work: Path) -> None:
    begin = {**call("task", agent="maker", instruction="Make it"), "when": {"contains": "Begin", "role": "user"}}
    make = {**WRITE, "when": {"contains": "Make it", "role": "user"}}
    maker = {"description": "Makes", "instruction": "You make."}
    tools = [FILES, {"module": "tool-task", "config": {"exclude_tools": ["tool-task"]}}]
    agent = Agent([begin, make, "Made.", "Done."], tools=tools, agents={"maker": maker})
    async with home.sessions.open(plan=agent.sections(), working_dir=work, permission_level="plan") as session:
        await session.execute("Begin")

    (child,) = home.sessions.children(session.session_id)
    denied = [message for message in home.sessions.messages(child.session_id) if message["role"] == "tool"]
    assert "permission level plan" in str(denied)
    assert not (work / "new.txt").exists()


async def test_the_level_outlives_the_process_and_goes_on_in_forks(home: Home, work: Path) -> None:
    session, _ = await work_at(home, work, "plan", Agent(["Hi.", WRITE, "Done."]), Person())

    forked = await home.sessions.fork(session.session_id)
    async with home.sessions.resume(forked.session_id, approver=DenyAll()) as again:
        await again.execute("Write")

    assert (forked.permission_level, again.record.permission_level) == ("plan", "plan")
    assert not (work / "new.txt").exists()


async def test_a_level_that_is_chosen_later_counts_from_then_on(home: Home, work: Path) -> None:
    person = Person()
    agent = Agent(
        [{**WRITE, "when": {"contains": "Write", "role": "user"}}, "Done."], provider={"on_exhausted": "canned"}
    )
    async with home.sessions.open(plan=agent.sections(), working_dir=work, approver=Callback(person)) as session:
        await session.execute("Hi")
        await home.sessions.update(session.session_id, permission_level="ask")
        await session.execute("Write")

    assert (person.asked, (work / "new.txt").exists()) == (["Execute write_file"], False)
    assert home.sessions.get(session.session_id).permission_level == "ask"


async def test_a_level_that_there_is_not_is_refused(home: Home, work: Path) -> None:
    session, _ = await work_at(home, work, None, Agent(["Hi."]), Person())

    with pytest.raises(SessionStateError, match="permission_level"):
        await home.sessions.update(session.session_id, permission_level="anything")
    with pytest.raises(MountPlanError, match="there is no permission level 'wild'; there are plan, ask, edits, auto"):
        await home.sessions.create(plan=_with_level(Agent().sections(), "wild"), working_dir=work)


@pytest.mark.parametrize(("written", "counts"), [("plan", "plan"), ("ask", "ask"), ("edits", None), ("auto", None)])
async def test_a_plan_or_bundle_can_only_narrow(
    home: Home, work: Path, tmp_path: Path, written: PermissionLevel, counts: str | None
) -> None:
    agent = Agent()
    plan = _with_level(agent.sections(), written)
    of_plan = await home.sessions.create(plan=plan, working_dir=work)
    file = tmp_path / "bundle.md"
    source = agent.source(home, "bundle", tmp_path)
    file.write_text(file.read_text().replace("session:\n", f"session:\n  permission_level: {written}\n"))
    of_bundle = await home.sessions.create(**source, working_dir=work)

    assert (of_plan.permission_level, of_bundle.permission_level) == (counts, counts)


async def test_a_profile_of_the_person_s_own_may_widen_and_a_person_may_choose_another(home: Home, work: Path) -> None:
    source = Agent().source(home, "profile", work)
    file = home.paths.own_profiles / "worker.md"
    file.write_text(file.read_text().replace("session:\n", "session:\n  permission_level: edits\n"))

    own = await home.sessions.create(**source, working_dir=work)
    narrowed = {"session": {"permission_level": "plan"}}
    overridden = await home.sessions.create(**source, working_dir=work, overrides=narrowed)
    widened = {"session": {"permission_level": "auto"}}
    not_widened = await home.sessions.create(**source, working_dir=work, overrides=widened)
    chosen = await home.sessions.create(**source, working_dir=work, permission_level="ask")

    levels = [one.permission_level for one in (own, overridden, not_widened, chosen)]
    assert levels == ["edits", "plan", "edits", "ask"]


def _with_level(plan: Mapping[str, Any], level: str) -> dict[str, Any]:
    return {**plan, "session": {**plan["session"], "permission_level": level}}


def test_the_narrowest_level_counts_and_one_that_nobody_chose_is_as_wide_as_ask() -> None:
    assert narrowest("auto", "plan", "ask") == "plan"
    assert narrowest(None, "edits") is None
    assert narrowest(None, "ask") == "ask"
    outer = Permissions("edits")
    inner = Permissions(outer=outer)
    inner.narrow("mode", "plan")
    assert (outer.level, inner.level) == ("edits", "plan")
    inner.narrow("mode", None)
    assert inner.level == "edits"
    inner.chosen, outer.chosen = "auto", "ask"
    assert inner.level == "ask"
    outer.chosen = None
    inner.narrow("mode", "auto")
    assert inner.level is None


@pytest.mark.parametrize("kind", ["plan"])
async def test_a_mode_of_a_session_narrows_what_its_children_may_do(kind: Kind, home: Home, work: Path) -> None:
    agent = Agent([WRITE, "Done."])
    async with home.sessions.open(plan=agent.sections(), working_dir=work, permission_level="edits") as session:
        coordinator = await session.load()
        coordinator.get_capability("session.permissions").narrow("mode", "plan")
        await session.execute("Go")

    assert not (work / "new.txt").exists()
