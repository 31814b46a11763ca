"""Modes: what they allow, where they are found, and that everything below a session is held to them."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call, open_home
from amplifier_module_hooks_mode import ModeDiscovery, mount, parse_mode_file

from amplifier_core import ModuleCoordinator
from amplifier_core.testing import MockTool
from amplifierd.home import Home
from amplifierd.sessions.questions.approval import Approval, Callback, DenyAll

MODES = {"module": "hooks-mode"}
TOOL = {"module": "tool-mode", "config": {"gate_policy": "auto"}}
FILES = {"module": "tool-filesystem"}
BASH = {"module": "tool-bash", "config": {"sandbox": "off"}}
GUARD = {"module": "hooks-approval"}
WRITE = call("write_file", file_path="new.txt", content="new")


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = open_home(tmp_path)
    yield home
    await home.sessions.close()


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def write_mode(folder: Path, stem: str, front: str, body: str = "Work like this.") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{stem}.md"
    file.write_text(f"---\nmode:\n{front}---\n{body}\n")
    return file


def project_mode(work: Path, stem: str, front: str, body: str = "Work like this.") -> Path:
    return write_mode(work / ".amplifier/modes", stem, front, body)


def agent(*script: Any, tools: Any = (FILES, TOOL), hooks: Any = (MODES,), **more: Any) -> dict[str, Any]:
    return Agent(script, tools=tools, hooks=hooks, **more).sections()


def said_to_model(home: Home, session_id: str) -> list[str]:
    return [str([part.message for part in one.parts]) for one in home.sessions.requests(session_id)]


def results(home: Home, session_id: str) -> list[str]:
    return [str(one["content"]) for one in home.sessions.messages(session_id) if one["role"] == "tool"]


def events(home: Home, session_id: str, prefix: str = "mode:") -> list[tuple[str, Mapping[str, Any]]]:
    found = home.sessions.events(session_id)
    return [(event["event"], event["data"]) for event in found if event["event"].startswith(prefix)]


# --- files


@pytest.mark.parametrize(
    ("line", "shortcut"),
    [
        ("", "audit"),
        ("  shortcut: Check-It\n", "check-it"),
        ("  shortcut: false\n", None),
        ("  shortcut: null\n", None),
        ("  shortcut: ''\n", None),
        ("  shortcut: 0\n", None),
        ("  shortcut: true\n", "audit"),
        ("  shortcut: 'false'\n", "false"),
        ("  shortcut: 9lives\n", None),
        ("  shortcut: two words\n", None),
    ],
)
def test_a_shortcut_is_a_word_or_none(tmp_path: Path, line: str, shortcut: str | None) -> None:
    mode = parse_mode_file(write_mode(tmp_path, "audit", f"  name: audit\n{line}"))

    assert mode is not None
    assert mode.shortcut == shortcut


@pytest.mark.parametrize(
    "text", ["No front matter.", "---\nskill: {}\n---\n", "---\nmode: text\n---\n", "---\nmode: [\n---\n"]
)
def test_other_files_are_no_modes(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.md"
    file.write_text(text)

    assert parse_mode_file(file) is None


def test_of_one_stem_the_project_counts_before_the_person_and_the_module(work: Path, tmp_path: Path) -> None:
    coordinator = ModuleCoordinator()
    coordinator.register_capability("session.working_dir", str(work))
    discovery = ModeDiscovery([str(tmp_path / "more")], coordinator)
    found = discovery.find("plan")
    assert found is not None
    assert (found.source, found.permissions) == ("modes", "plan")

    write_mode(tmp_path / "more", "plan", "  description: configured\n")
    write_mode(tmp_path / "more", "other", "  name: Another\n  shortcut: oth\n")
    assert {mode.name: mode.source for mode in discovery.list_modes()} == {
        **{"plan": "modes", "explore": "modes", "careful": "modes"},
        "Another": "config",
    }
    write_mode(tmp_path / "person/.amplifier/modes", "plan", "  description: the person's\n")
    assert discovery.find("plan").source == "user"  # type: ignore[union-attr]
    file = project_mode(work, "plan", "  description: the project's\n")
    assert discovery.find("plan").description == "the project's"  # type: ignore[union-attr]
    file.write_text("---\nmode:\n  description: written again\n---\n")
    assert discovery.find("plan").description == "written again"  # type: ignore[union-attr]
    assert {discovery.find(name).stem for name in ("other", "Another", "oth", "OTH")} == {"other"}  # type: ignore[union-attr]


# --- tools


async def judged(coordinator: ModuleCoordinator, tool: str, **tool_input: Any) -> str:
    answer = await coordinator.hooks.emit("tool:pre", {"tool_name": tool, "tool_input": tool_input})
    return answer.action


async def coordinator_in(work: Path, *tools: str, **config: Any) -> ModuleCoordinator:
    coordinator = ModuleCoordinator()
    coordinator.register_capability("session.working_dir", str(work))
    for name in tools:
        await coordinator.mount("tools", MockTool(name), name=name)
    await mount(coordinator, config)
    return coordinator


async def test_lists_judge_calls_in_their_order(work: Path) -> None:
    front = "  tools: {safe: [read_file, 'mcp_*', 'bash(git diff*)'], block: [edit_file], warn: [bash, grep]}\n"
    project_mode(work, "audit", front)
    coordinator = await coordinator_in(work, "read_file", "bash", "grep", "edit_file", "write_file", "mcp_list")
    assert await judged(coordinator, "write_file") == "continue"

    coordinator.session_state["active_mode"] = "audit"

    assert [await judged(coordinator, name) for name in ("read_file", "mcp_list", "mode", "todo")] == ["continue"] * 4
    assert [await judged(coordinator, name) for name in ("edit_file", "write_file")] == ["deny"] * 2
    assert [await judged(coordinator, "grep") for _ in range(2)] == ["deny", "continue"]
    assert await judged(coordinator, "bash", command="git diff HEAD") == "continue"
    assert await judged(coordinator, "bash", command="git diff; touch x") == "deny"
    await coordinator.session_state["mode_hooks"].clear()
    assert await judged(coordinator, "write_file") == "continue"


async def test_a_tool_that_is_mounted_under_another_name_is_what_it_is(work: Path) -> None:
    project_mode(work, "audit", "  tools: {block: [bash]}\n  default_action: allow\n")
    coordinator = await coordinator_in(work)
    await coordinator.mount("tools", MockTool("bash"), name="helper")
    coordinator.session_state["active_mode"] = "audit"

    assert await judged(coordinator, "helper") == "deny"
    direct = await coordinator.get("tools")["helper"].execute({})
    assert not direct.success


async def test_infrastructure_can_be_locked_too(work: Path) -> None:
    project_mode(work, "audit", "  tools: {safe: [grep]}\n")
    coordinator = await coordinator_in(work, "mode", "grep", infrastructure_tools=[])
    coordinator.session_state["active_mode"] = "audit"

    assert await judged(coordinator, "mode") == "deny"


async def test_what_a_mode_wants_confirmed_is_asked_about_and_denied_where_nobody_can_be(
    home: Home, work: Path
) -> None:
    asked: list[str] = []

    def answer(approval: Approval) -> bool:
        asked.append(approval.action)
        return True

    lenient = {"module": "hooks-approval", "config": {"policy_driven_only": True}}
    for hooks, written in (((MODES,), False), ((MODES, lenient), True)):
        script = agent(call("mode", operation="set", name="careful"), WRITE, "Done.", hooks=hooks)
        async with home.sessions.open(plan=script, working_dir=work, approver=Callback(answer)) as session:
            await session.execute("Go")
        assert (work / "new.txt").exists() is written, results(home, session.session_id)
    assert asked == ["Execute write_file"]


async def test_a_mode_of_unknown_or_only_missing_tools_says_so(home: Home, work: Path) -> None:
    project_mode(work, "typo", "  tools: {safe: [read_fil, read_file]}\n  default_action: allow\n")
    project_mode(work, "hollow", "  tools: {safe: [telescope]}\n")
    script = agent(call("mode", operation="set", name="typo"), call("mode", operation="set", name="hollow"), "Done.")
    async with home.sessions.open(plan=script, working_dir=work) as session:
        await session.execute("Go")

    typo, hollow = results(home, session.session_id)
    assert "did you mean read_file?" in typo
    assert "allows only tools that this session does not have" in hollow
    assert [name for name, _ in events(home, session.session_id)][-1] == "mode:activation_failed"


# --- the tool


async def test_the_model_enters_and_leaves_modes_within_its_bounds(home: Home, work: Path) -> None:
    project_mode(work, "first", "  tools: {safe: [read_file]}\n  allowed_transitions: [second]\n")
    project_mode(work, "second", "  tools: {safe: [read_file]}\n  allow_clear: false\n  advertised: false\n")
    calls = [
        call("mode", operation="set", name="first"),
        call("mode", operation="current"),
        call("mode", operation="set", name="explore"),
        call("mode", operation="set", name="second"),
        call("mode", operation="clear"),
        call("mode", operation="list"),
        call("mode", operation="set", name="third"),
        call("mode", operation="set"),
    ]
    async with home.sessions.open(plan=agent(*calls, "Done."), working_dir=work) as session:
        await session.execute("Go")
        hooks = (await session.load()).session_state["mode_hooks"]
        await hooks.clear()  # as a person does
        await session.execute("And now?")

    said = results(home, session.session_id)
    assert "activated" in said[0]
    assert "first" in said[1]
    assert "it leads to second" in said[2]
    assert "activated" in said[3]
    assert "ended by the person only" in said[4]
    assert "explore" in said[5]
    assert "'second'" not in said[5].replace("'active_mode': 'second'", "").replace('"active_mode": "second"', "")
    assert "there is no mode 'third'" in said[6]
    assert "needs the name" in said[7]
    names = [name for name, _ in events(home, session.session_id) if "context" not in name]
    assert names == [
        *("mode:activated", "mode:transition_completed", "mode:transition_denied", "mode:changed"),
        *("mode:transition_completed", "mode:transition_completed", "mode:cleared", "mode:transition_completed"),
    ]


async def test_the_gate_refuses_once_or_asks_a_person(home: Home, work: Path) -> None:
    enter = call("mode", operation="set", name="explore")
    warning = {"module": "tool-mode"}
    async with home.sessions.open(
        plan=agent(enter, enter, "Done.", tools=(FILES, warning)), working_dir=work
    ) as session:
        await session.execute("Go")
    first, second = results(home, session.session_id)
    assert "ask for it again" in first
    assert "activated" in second

    confirming = {"module": "tool-mode", "config": {"gate_policy": "confirm"}}
    for answer, status in ((True, "activated"), (False, "has not agreed")):
        plan = agent(enter, "Done.", tools=(FILES, confirming))
        approver = Callback(lambda approval, answer=answer: answer)
        async with home.sessions.open(plan=plan, working_dir=work, approver=approver) as session:
            await session.execute("Go")
        assert status in results(home, session.session_id)[0]


async def test_without_hooks_mode_the_tool_says_what_is_missing(home: Home, work: Path) -> None:
    plan = agent(call("mode", operation="list"), "Done.", hooks=())
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        await session.execute("Go")

    assert "hooks-mode is not mounted" in results(home, session.session_id)[0]


# --- guidance


async def test_the_model_reads_the_mode_while_it_is_on_and_once_that_it_has_ended(home: Home, work: Path) -> None:
    (work / "rules.md").write_text("Always count to three.\n")
    project_mode(work, "audit", "  tools: {safe: [read_file]}\n", "Look closely.\n@rules.md\n@gone:file.md\nReport.")
    steps = ["One.", "Two.", "Three.", "Four."]
    async with home.sessions.open(plan=agent(*steps), working_dir=work) as session:
        state = (await session.load()).session_state
        await session.execute("Before")
        state["active_mode"] = "audit"
        await session.execute("In it")
        await state["mode_hooks"].clear()
        await session.execute("After")
        await session.execute("Later")

    before, within, after, later = said_to_model(home, session.session_id)
    assert "mode" not in before.replace("model", "")
    assert 'source="mode-audit"' in within
    assert "MODE ACTIVE: audit" in within
    assert "Look closely." in within
    assert "gone:file" not in within
    assert 'source="mode-status"' in after
    assert "mode-status" not in later
    assert [name for name, _ in events(home, session.session_id, "mode:context")] == ["mode:context_injected"]


# --- below the session, and after it


async def test_an_agent_below_is_held_to_the_mode_and_its_own_events_say_so(home: Home, work: Path) -> None:
    begin = {**call("task", agent="maker", instruction="Make it"), "when": {"contains": "Begin", "role": "user"}}
    make = {**WRITE, "when": {"contains": "Make it", "role": "user"}}
    maker = {"description": "Makes", "instruction": "You make."}
    project_mode(work, "look", "  tools: {safe: [read_file, task]}\n")
    tools = (FILES, {"module": "tool-task", "config": {"exclude_tools": ["tool-task"]}})
    plan = agent(begin, make, "Made.", "Done.", tools=tools, agents={"maker": maker})
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        (await session.load()).session_state["active_mode"] = "look"
        await session.execute("Begin")

    (child,) = home.sessions.children(session.session_id)
    assert "mode look does not allow write_file" in results(home, child.session_id)[0]
    assert not (work / "new.txt").exists()
    ((name, data),) = events(home, child.session_id, "mode:tool_blocked")
    assert (name, data["mode"], data["tool_name"]) == ("mode:tool_blocked", "look", "write_file")


async def test_a_mode_outlives_its_process_and_its_file(home: Home, work: Path) -> None:
    file = project_mode(work, "look", "  tools: {safe: [read_file]}\n")
    plan = agent("Hi.", {**WRITE, "when": {"contains": "Write", "role": "user"}}, "Done.")
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        (await session.load()).session_state["active_mode"] = "look"
        await session.execute("Hi")
    file.unlink()

    async with home.sessions.resume(session.session_id, approver=DenyAll()) as again:
        assert (await again.load()).session_state["active_mode"] == "look"
        await again.execute("Write")
        await (await again.load()).session_state["mode_hooks"].clear()
    assert not (work / "new.txt").exists()

    async with home.sessions.resume(session.session_id, approver=DenyAll()) as later:
        assert (await later.load()).session_state["active_mode"] is None


async def test_a_mode_that_was_never_known_allows_nothing(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=agent(WRITE, "Done."), working_dir=work) as session:
        (await session.load()).session_state["active_mode"] = "ghost"
        await session.execute("Go")

    assert not (work / "new.txt").exists()


async def test_the_mode_plan_has_the_level_plan_for_everything_below(home: Home, work: Path) -> None:
    plan = agent(call("bash", command="touch ran"), call("bash", command="touch ran"), "Done.", tools=(FILES, BASH))
    async with home.sessions.open(plan=plan, working_dir=work, permission_level="edits") as session:
        coordinator = await session.load()
        await coordinator.session_state["mode_hooks"].activate("plan")
        assert coordinator.get_capability("session.permissions").level == "plan"
        await session.execute("Go")
        await coordinator.session_state["mode_hooks"].clear()
        assert coordinator.get_capability("session.permissions").level == "edits"

    assert not (work / "ran").exists()


async def test_two_sessions_of_one_process_share_no_mode(home: Home, work: Path) -> None:
    project_mode(work, "look", "  tools: {safe: [read_file]}\n")
    plan = agent(WRITE, "Done.")
    async with (
        home.sessions.open(plan=plan, working_dir=work) as one,
        home.sessions.open(plan=plan, working_dir=work) as other,
    ):
        (await one.load()).session_state["active_mode"] = "look"
        await one.execute("Go")
        assert not (work / "new.txt").exists()
        await other.execute("Go")

    assert (work / "new.txt").exists()


async def test_what_a_mode_contributes_is_there_while_it_is_on(home: Home, work: Path) -> None:
    helper = "{description: Helps, instruction: Help.}"
    project_mode(work, "team", f"  tools: {{safe: [task]}}\n  contributes: {{agents: {{helper: {helper}}}}}\n")
    tools = (FILES, {"module": "tool-task"})
    async with home.sessions.open(plan=agent("Hi.", tools=tools), working_dir=work) as session:
        coordinator = await session.load()
        hooks = coordinator.session_state["mode_hooks"]
        await hooks.activate("team")
        assert "helper" in coordinator.config["agents"]
        await hooks.clear()
        assert "helper" not in coordinator.config["agents"]
