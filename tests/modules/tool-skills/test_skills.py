"""Skills: which file counts, what the model reads of it, what it may run, and what is carried out elsewhere."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from agents_at_work import Agent, call, open_home
from amplifier_module_tool_skills import SkillsDiscovery, SkillsTool, mount
from amplifier_module_tool_skills.discovery import (
    SkillSource,
    discover_skills,
    discover_skills_multi_source,
    extract_skill_body,
    parse_skill_frontmatter,
)

from amplifier_core import HookResult, ModuleCoordinator
from amplifier_core.testing import MockTool
from amplifierd.home import Home
from amplifierd.sessions.questions.approval import Approval, Callback, DenyAll

SKILLS = {"module": "tool-skills"}
FILES = {"module": "tool-filesystem"}
BASH = {"module": "tool-bash", "config": {"sandbox": "off"}}
NOTES = "description: Writes notes. Use when notes are wanted.\n"


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    person = tmp_path / "person"
    person.mkdir()
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.delenv("AMPLIFIER_SKILLS_DIR", raising=False)
    return person


@pytest.fixture
def work(tmp_path: Path, person: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
async def home(tmp_path: Path, person: Path) -> AsyncIterator[Home]:
    home = open_home(tmp_path)
    yield home
    await home.sessions.close()


def write_skill(folder: Path, name: str, front: str = NOTES, body: str = "Write.", *, head: str = "") -> Path:
    file = folder / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{head}---\nname: {name}\n{front}---\n{body}\n", encoding="utf-8")
    return file


def coordinator_in(work: Path, *, is_trusted: bool = False) -> ModuleCoordinator:
    coordinator = ModuleCoordinator()
    coordinator.register_capability("session.working_dir", str(work))
    coordinator.register_capability("project.is_trusted", lambda _: is_trusted)
    return coordinator


def discovery_in(work: Path, *sources: Path, is_trusted: bool = False, **options: Any) -> SkillsDiscovery:
    configured = [SkillSource(str(source)) for source in sources]
    return SkillsDiscovery(configured, coordinator_in(work, is_trusted=is_trusted), **options)


def tool_in(work: Path, config: Mapping[str, Any], coordinator: ModuleCoordinator | None = None) -> SkillsTool:
    return SkillsTool(dict(config), coordinator or coordinator_in(work))


def rules(discovery: SkillsDiscovery) -> list[tuple[str, str]]:
    return [(found.field, found.rule) for found in discovery.diagnostics]


# --- files


@pytest.mark.parametrize(
    ("front", "head", "description"),
    [
        (NOTES, "\ufeff", "Writes notes. Use when notes are wanted."),
        ("description: One --- two\n", "", "One --- two"),
        ("description: Use when: notes are 'wanted'\n", "", "Use when: notes are 'wanted'"),
    ],
)
def test_a_file_is_read_whatever_its_description_has(tmp_path: Path, front: str, head: str, description: str) -> None:
    file = write_skill(tmp_path, "notes", front, head=head)

    assert discover_skills(tmp_path)["notes"].description == description
    assert (parse_skill_frontmatter(file) or {})["name"] == "notes"
    assert extract_skill_body(file) == "Write."


INVALID = {
    "uppercase": ("Notes", NOTES),
    "hyphen at the end": ("notes-", NOTES),
    "two hyphens": ("my--notes", NOTES),
    "underscore": ("my_notes", NOTES),
    "too long": ("n" * 65, NOTES),
    "long description": ("notes", f"description: {'d' * 1025}\n"),
    "long compatibility": ("notes", f"{NOTES}compatibility: {'c' * 501}\n"),
    "metadata of numbers": ("notes", f"{NOTES}metadata: {{a: 1}}\n"),
    "unquoted colon": ("notes", "description: Use when: asked\n"),
}


@pytest.mark.parametrize("case", INVALID)
def test_what_breaks_the_standard_is_a_finding_and_in_strict_mode_no_skill(
    tmp_path: Path, work: Path, case: str
) -> None:
    name, front = INVALID[case]
    write_skill(tmp_path / "skills", name, front)

    lenient, strict = (discovery_in(work, tmp_path / "skills", strict=each) for each in (False, True))

    assert [name for name, _ in lenient.list_skills()] == [name]
    assert [found.severity for found in lenient.diagnostics] == ["warning"]
    assert strict.list_skills() == []
    assert [found.severity for found in strict.diagnostics] == ["error"]


def test_a_skill_without_a_description_or_in_a_wrong_directory(tmp_path: Path, work: Path) -> None:
    write_skill(tmp_path, "empty", "license: MIT\n")
    write_skill(tmp_path, "notes").rename(tmp_path / "empty/../SKILL.md")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/SKILL.md").write_text((tmp_path / "SKILL.md").read_text())

    discovery = discovery_in(work, tmp_path)

    assert [name for name, _ in discovery.list_skills()] == ["notes"]
    assert rules(discovery) == [("description", "required"), ("name", "directory"), ("name", "shadowed")]


# --- where they come from


def test_of_one_name_the_first_source_counts_and_the_others_are_named(tmp_path: Path, work: Path) -> None:
    for folder in ("one", "two"):
        write_skill(tmp_path / folder, "notes", f"description: {folder}\n")

    discovery = discovery_in(work, tmp_path / "one", tmp_path / "two")

    assert discovery.list_skills() == [("notes", "one")]
    assert rules(discovery) == [("name", "shadowed")]
    assert str(tmp_path / "two") in discovery.diagnostics[0].message
    found = discover_skills_multi_source([tmp_path / "two", tmp_path / "one"])
    assert found["notes"].description == "two"


def test_what_is_near_counts_before_what_is_configured(
    tmp_path: Path, work: Path, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_SKILLS_DIR", str(tmp_path / "variable"))
    near_to_far = [
        *(work / ".amplifier/skills", work / ".agents/skills", tmp_path / "variable"),
        *(person / ".amplifier/skills", person / ".agents/skills", tmp_path / "configured"),
    ]
    for folder in near_to_far:
        write_skill(folder, "notes", f"description: {folder}\n")
    discovery = discovery_in(work, tmp_path / "configured", is_trusted=True)

    for folder in near_to_far:
        discovery.refresh()
        assert discovery.list_skills() == [("notes", str(folder))]
        (folder / "notes/SKILL.md").unlink()


def test_a_project_that_nobody_trusts_has_no_skills(work: Path) -> None:
    write_skill(work / ".amplifier/skills", "notes")
    write_skill(work / "more", "others")

    untrusted = discovery_in(work, work / "more")
    assert untrusted.list_skills() == []
    assert rules(untrusted) == [("source", "trust"), ("source", "trust")]
    assert [name for name, _ in discovery_in(work, work / "more", is_trusted=True).list_skills()] == ["notes", "others"]
    trusted = discovery_in(work, work / "more", is_trusted=True).catalogue().skills
    assert {name: skill.trusted for name, skill in trusted.items()} == {"notes": True, "others": False}
    vouched = SkillsDiscovery([SkillSource(str(work / "more"), trusted=True)], coordinator_in(work))
    assert [name for name, _ in vouched.list_skills()] == ["others"]


def test_links_are_followed_within_the_source_and_circles_end(tmp_path: Path, work: Path) -> None:
    source = tmp_path / "source"
    write_skill(source / "real", "notes")
    write_skill(tmp_path / "elsewhere", "secret")
    write_skill(source / "node_modules", "dependency")
    (source / "out").symlink_to(tmp_path / "elsewhere")
    (source / "etc").symlink_to("/etc")
    (source / "real/circle").symlink_to(source)
    (source / "file").mkdir()
    (source / "file/SKILL.md").symlink_to(tmp_path / "elsewhere/secret/SKILL.md")

    assert [name for name, _ in discovery_in(work, source).list_skills()] == ["notes"]


def test_a_remote_source_is_used_where_it_was_cloned_and_trusted_only_where_that_is_said(
    person: Path, work: Path
) -> None:
    address = "git+https://example.org/team/skills@v1#subdirectory=all"
    key = hashlib.sha256(b"https://example.org/team/skills@v1").hexdigest()[:16]
    missing = discovery_in(work, *[])
    missing.add_source(SkillSource(address))
    missing.add_source(SkillSource("http://example.org/skills"))
    assert rules(missing) == [("source", "cached"), ("source", "scheme")]

    write_skill(person / f".amplifier/cache/skills/skills-{key}/all", "notes")
    assert (found := missing.find("notes")) is not None
    assert (found.source, found.trusted) == (address, False)
    trusted = SkillsDiscovery([SkillSource(address, trusted=True)], coordinator_in(work)).find("notes")
    assert trusted is not None
    assert trusted.trusted


def test_shortcuts_are_those_of_people_and_collisions_are_told(tmp_path: Path, work: Path) -> None:
    for name in ("alpha", "beta"):
        write_skill(tmp_path, name, f"{NOTES}user-invocable: true\nshortcut: Go\n")
    write_skill(tmp_path, "gamma", f"{NOTES}shortcut: g\n")
    discovery = discovery_in(work, tmp_path)

    assert {command: one["name"] for command, one in discovery.get_shortcuts().items()} == {
        **{"alpha": "alpha", "beta": "beta", "go": "alpha"}
    }
    assert rules(discovery) == [("shortcut", "unique")]


# --- the tool


async def test_it_lists_finds_describes_and_loads(tmp_path: Path, work: Path) -> None:
    file = write_skill(tmp_path, "notes", f"{NOTES}version: 2\n", "In ${SKILL_DIR}: $5, !`touch ran`")
    write_skill(tmp_path, "hello", f"{NOTES}argument-hint: NAME\n", "Hello $0, $1 and $ARGUMENTS.")
    tool = tool_in(work, {"skills": str(tmp_path)})

    listed = await tool.execute({"list": True, "search": "hel"})
    assert [skill["name"] for skill in listed.output["skills"]] == ["hello", "notes"]
    found = await tool.execute({"search": "HEL"})
    assert [skill["name"] for skill in found.output["matches"]] == ["hello"]
    info = (await tool.execute({"info": "notes"})).output
    assert (info["version"], info["path"], info["trusted"]) == ("2", str(file), True)
    loaded = (await tool.execute({"skill_name": "notes"})).output
    assert loaded == {
        "content": f"# notes\n\nIn {file.parent}: $5, !`touch ran`",
        "skill_name": "notes",
        "skill_directory": str(file.parent),
        "loaded_from": str(tmp_path),
    }
    hello = (await tool.execute({"skill_name": "hello", "arguments": "Ada !`x`"})).output
    assert hello["content"].endswith("Hello Ada, !`x` and Ada !`x`.")
    missing = await tool.execute({"skill_name": "ghost"})
    assert missing.error is not None
    assert (missing.error["code"], missing.error["available"]) == ("not_found", ["hello", "notes"])


async def test_a_source_of_the_model_is_read_and_never_trusted(tmp_path: Path, work: Path) -> None:
    write_skill(tmp_path / "more", "notes", f"{NOTES}hooks: {{PreToolUse: []}}\n")
    tool = tool_in(work, {})

    added = await tool.execute({"source": str(tmp_path / "more")})
    assert "1 of them new" in added.output
    assert (await tool.execute({"info": "notes"})).output["trusted"] is False
    for source in (str(tmp_path / "nowhere"), "http://example.org/x", "@ns:skills"):
        refused = await tool.execute({"source": source})
        assert refused.error is not None
        assert refused.error["code"] == "source_unresolved"


async def test_what_only_people_invoke_is_hidden_and_refused_where_they_can(tmp_path: Path, work: Path) -> None:
    write_skill(tmp_path, "notes", f"{NOTES}disable-model-invocation: true\n")
    coordinator = coordinator_in(work)
    await mount(coordinator, {"skills": str(tmp_path), "visibility": {"placement": "request"}})
    tool = coordinator.get("tools")["load_skill"]

    assert (await coordinator.hooks.emit("provider:request", {})).context_injection is None
    assert (await tool.execute({"skill_name": "notes"})).success
    coordinator.register_capability("skills.direct_invocation", True)
    assert not (await tool.execute({"skill_name": "notes"})).success
    assert (await tool.invoke("notes")).success


# --- the index


async def test_the_index_fits_its_budget(tmp_path: Path, work: Path) -> None:
    for number in range(9):
        write_skill(tmp_path, f"skill-{number}", f"description: {'Long. ' * 60}Use when it rains.\n")

    async def index(**visibility: Any) -> str:
        coordinator = coordinator_in(work)
        config = {"skills": str(tmp_path), "visibility": {"placement": "request", **visibility}}
        cleanup = await mount(coordinator, config)
        answer = await coordinator.hooks.emit("provider:request", {})
        await cleanup()
        assert answer.context_injection_role == "system"
        return answer.context_injection or ""

    whole = await index()
    assert whole.startswith('<system-reminder source="hooks-skills-visibility">\nSkills that you can load')
    lines = whole.splitlines()[2:-1]
    assert all(line.endswith("… Use when it rains.") and len(line) <= 180 for line in lines)
    assert "- skill-0: Long…" in await index(visibility_token_budget=150)
    assert "- skill-8\n" in await index(visibility_token_budget=60)
    assert "… 6 more: load_skill(list=true)" in await index(max_skills_visible=3)


async def test_another_placement_is_refused(work: Path) -> None:
    with pytest.raises(ValueError, match="placement"):
        await mount(coordinator_in(work), {"visibility": {"placement": "footer"}})


async def test_an_overlay_skill_is_there_until_it_is_revoked(tmp_path: Path, work: Path) -> None:
    file = write_skill(tmp_path, "notes", f"{NOTES}context: fork\n")

    class Resolver:
        def resolve(self, mention: str) -> Path | None:
            return file.parent if mention == "@ns:notes" else None

    coordinator = coordinator_in(work)
    tool = tool_in(work, {}, coordinator)
    coordinator.register_capability("mention_resolver", Resolver())
    coordinator.register_capability("runtime_skill_overlay", ["@ns:notes"])
    assert (await tool.execute({"info": "notes"})).output["context"] == "fork"
    assert (await tool.execute({"skill_name": "notes"})).success
    coordinator.register_capability("runtime_skill_overlay", [])
    assert tool.discovery.list_skills() == []


# --- forks


class Spawning:
    """What an application offers as `session.spawn`, with what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, **keywords: Any) -> dict[str, Any]:
        self.asked.append(keywords)
        return {"output": "Done.", "session_id": "child", "turn_count": 2, "status": "success"}


def forking(work: Path, **capabilities: Any) -> tuple[ModuleCoordinator, Spawning]:
    coordinator, spawning = coordinator_in(work), Spawning()
    for name, value in {"session.spawn": spawning, **capabilities}.items():
        coordinator.register_capability(name, value)
    return coordinator, spawning


class Roles:
    async def resolve(self, role: str) -> list[dict[str, Any]]:
        return [{"provider": "mock", "model": role}] if role != "unknown" else []


@pytest.mark.parametrize(
    ("front", "models"),
    [
        ("provider_preferences: [{provider: p, model: m}]\nmodel_role: fast\n", ["m"]),
        ("model_role: [unknown, writing]\nmodel: opus\n", ["writing"]),
        ("model: claude-haiku\nagent: Plan\n", ["fast"]),
        ("agent: Review\n", ["critique"]),
        ("", None),
    ],
)
async def test_a_fork_is_spawned_with_exactly_this(
    tmp_path: Path, work: Path, front: str, models: list[str] | None
) -> None:
    write_skill(tmp_path, "notes", f"{NOTES}context: fork\n{front}", "Write for $0.\n$ARGUMENTS")
    coordinator, spawning = forking(work, model_role_resolver=Roles())
    tool = tool_in(work, {"skills": str(tmp_path)}, coordinator)

    result = await tool.execute({"skill_name": "notes", "arguments": "v1 now"})

    (asked,) = spawning.asked
    preferences = asked.pop("provider_preferences")
    assert (None if preferences is None else [one.model for one in preferences]) == models
    assert asked == {
        "agent_name": "self",
        "instruction": "# notes\n\nWrite for v1.\nv1 now",
        "parent_session": coordinator.session,
        "agent_configs": {},
        "sub_session_id": None,
        "session_metadata": {"skill_name": "notes", "context": "fork", "is_forked_skill_session": True},
    }
    message = result.output.pop("message")
    assert "notes" in message
    assert result.output == {
        **{"response": "Done.", "session_id": "child", "skill_name": "notes", "context": "fork"},
        **{"turn_count": 2, "status": "success"},
    }


async def test_allowed_tools_are_modules_and_what_means_none_is_refused(tmp_path: Path, work: Path) -> None:
    write_skill(tmp_path, "good", f"{NOTES}context: fork\nallowed-tools: tool-search Skill Skill(x y) load_skill\n")
    write_skill(tmp_path, "bad", f"{NOTES}context: fork\nallowed-tools: [tool-search, Teleport]\n")
    coordinator, spawning = forking(work)
    coordinator.config["tools"] = [{"module": "tool-search"}, {"module": "tool-skills"}]
    await mount(coordinator, {"skills": str(tmp_path)})
    tool = coordinator.get("tools")["load_skill"]

    assert (await tool.execute({"skill_name": "good"})).success
    assert spawning.asked[0]["tool_inheritance"] == {"inherit_tools": ["tool-search", "tool-skills"]}
    refused = await tool.execute({"skill_name": "bad"})
    assert refused.error is not None
    assert (refused.error["code"], "Teleport" in refused.error["message"]) == ("invalid_input", True)
    assert len(spawning.asked) == 1


async def test_commands_run_only_for_a_trusted_source_with_somebody_to_ask(tmp_path: Path, work: Path) -> None:
    file = write_skill(tmp_path / "own", "notes", f"{NOTES}context: fork\n", "A !`echo one` B")
    write_skill(tmp_path / "theirs", "foreign", f"{NOTES}context: fork\n", "A !`echo two` B")
    coordinator, spawning = forking(work)
    bash = MockTool("bash")
    await coordinator.mount("tools", bash, name="bash")
    sources = [str(tmp_path / "own"), {"source": str(tmp_path / "theirs"), "trusted": False}]

    async def said(skill: str, allow_shell: str) -> str:
        await tool_in(work, {"skills": sources, "allow_shell": allow_shell}, coordinator).execute({"skill_name": skill})
        return str(spawning.asked[-1]["instruction"])

    for skill, allow_shell, why in (
        ("notes", "ask", "nobody to ask"),
        ("notes", "never", "the configuration forbids it"),
        ("notes", "no such value", "the configuration forbids it"),
        ("foreign", "trusted", "is not trusted"),
    ):
        assert why in await said(skill, allow_shell)
    assert bash.execute.call_args_list == []

    seen: list[Any] = []

    async def see(event: str, data: dict[str, Any]) -> HookResult:
        seen.append(data["tool_input"]["command"])
        return HookResult(action="deny", reason="not now") if len(seen) > 1 else HookResult()

    coordinator.hooks.register("tool:pre", see)
    assert "A <shell-output>" in await said("notes", "trusted")
    assert "not now" in await said("notes", "trusted")
    assert seen[0].endswith(f"{file.parent} && echo one")
    assert len(bash.execute.call_args_list) == 1


# --- in real sessions


def agent(*script: Any, tools: Any = (FILES, SKILLS), hooks: Any = (), **more: Any) -> dict[str, Any]:
    return Agent(script, tools=tools, hooks=hooks, **more).sections()


def events(home: Home, session_id: str) -> list[tuple[str, Mapping[str, Any]]]:
    found = home.sessions.events(session_id)
    return [(event["event"], event["data"]) for event in found if event["event"].startswith("skill")]


def results(home: Home, session_id: str) -> list[str]:
    return [str(one["content"]) for one in home.sessions.messages(session_id) if one["role"] == "tool"]


async def test_a_session_sees_loads_and_unloads_the_skills_of_a_trusted_project(home: Home, work: Path) -> None:
    write_skill(work / ".amplifier/skills", "notes", f"{NOTES}hooks: {{PreToolUse: []}}\n", "Write short ones.")
    home.trust.add(work)
    plan = agent(call("load_skill", skill_name="notes"), "Done.")
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        await session.execute("Go")

    assert "Write short ones." in results(home, session.session_id)[0]
    asked = [str([part.message for part in one.parts]) for one in home.sessions.requests(session.session_id)]
    assert all(text.count("- notes: Writes notes.") == 1 for text in asked)
    told = events(home, session.session_id)
    assert [name for name, _ in told] == ["skills:discovered", "skill:loaded", "skill:unloaded"]
    assert (told[1][1]["source"], told[1][1]["hooks"]) == ("project", {"PreToolUse": []})

    async with home.sessions.resume(session.session_id, approver=DenyAll()) as again:
        await again.execute("On")
    again_told = events(home, session.session_id)[3:]
    assert next(data for name, data in again_told if name == "skill:loaded")["auto_loaded"] is True


async def test_a_session_in_an_untrusted_project_says_so(home: Home, work: Path) -> None:
    write_skill(work / ".amplifier/skills", "notes")
    async with home.sessions.open(plan=agent(call("load_skill", list=True), "Done."), working_dir=work) as session:
        await session.execute("Go")

    assert "There are no skills" in results(home, session.session_id)[0]
    assert {data["rule"] for name, data in events(home, session.session_id) if name == "skill:diagnostic"} == {"trust"}


async def test_a_fork_is_a_session_below_in_which_no_skill_forks(home: Home, work: Path, person: Path) -> None:
    front = f"{NOTES}context: fork\nallowed-tools: Skill\n"
    write_skill(person / ".amplifier/skills", "notes", front, "Make notes of !`touch ran`.")
    begin = {**call("load_skill", skill_name="notes"), "when": {"contains": "Begin", "role": "user"}}
    deeper = {**call("load_skill", skill_name="notes"), "when": {"contains": "Make notes", "role": "user"}}
    plan = agent(begin, deeper, "Made.", "Done.", tools=(FILES, SKILLS, BASH), hooks=({"module": "hooks-approval"},))
    async with home.sessions.open(plan=plan, working_dir=work, approver=DenyAll()) as session:
        await session.execute("Begin")

    assert "skill:fork_completed" in [name for name, _ in events(home, session.session_id)]
    (child,) = home.sessions.children(session.session_id)
    assert "is one already" in results(home, child.session_id)[0]
    first = str([part.message for part in home.sessions.requests(child.session_id)[0].parts])
    assert "[not run: touch ran:" in first
    assert "- notes:" not in first
    assert [found for place in (work, person) for found in ran_below(place)] == []


def ran_below(place: Path) -> list[Path]:
    return list(place.rglob("ran"))


async def test_many_sessions_mount_at_once(home: Home, work: Path, person: Path) -> None:
    write_skill(person / ".amplifier/skills", "notes")
    coordinators = [coordinator_in(work) for _ in range(20)]

    cleanups = await asyncio.gather(*(mount(coordinator, {}) for coordinator in coordinators))

    for coordinator in coordinators:
        assert coordinator.get_capability("skills_discovery").list_skills()[0][0] == "notes"
    await asyncio.gather(*(cleanup() for cleanup in cleanups))


async def test_a_command_that_a_person_allows_brings_its_output(home: Home, work: Path, person: Path) -> None:
    front = f"{NOTES}context: fork\n"
    write_skill(person / ".amplifier/skills", "notes", front, "Here: !`echo $((20 + 3)) in $(basename $PWD)`.")
    begin = {**call("load_skill", skill_name="notes"), "when": {"contains": "Begin", "role": "user"}}
    plan = agent(begin, "Made.", "Done.", tools=(SKILLS, BASH), hooks=({"module": "hooks-approval"},))
    asked: list[str] = []

    def allow(question: Approval) -> bool:
        asked.append(question.prompt)
        return True

    async with home.sessions.open(plan=plan, working_dir=work, approver=Callback(allow)) as session:
        await session.execute("Begin")

    (child,) = home.sessions.children(session.session_id)
    first = str([part.message for part in home.sessions.requests(child.session_id)[0].parts])
    assert "Here: <shell-output>23 in notes</shell-output>." in first
    assert any("echo $((20 + 3))" in question for question in asked)
