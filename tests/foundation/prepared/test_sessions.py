"""Sessions of a prepared bundle: what they have, in which order, and what they leave behind."""

import asyncio
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

import amplifier_core
from amplifier_core import AmplifierSession, module_sources
from amplifier_foundation.bundle import Bundle, PreparedBundle
from amplifier_foundation.prepared.system_prompt import give_system_prompt
from amplifier_foundation.registry import load_bundle

MakeBundle = Callable[..., Bundle]


async def test_the_documented_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    (tmp_path / "bundle.md").write_text(
        "---\nbundle: {name: hello, version: 1.0.0}\n"
        "session: {orchestrator: {module: loop-basic}, context: {module: context-simple}}\n"
        "providers:\n  - {module: provider-mock, config: {mode: echo}}\n---\nBe kind.\n"
    )

    bundle = await load_bundle(str(tmp_path / "bundle.md"))
    prepared = await bundle.prepare()
    async with prepared.create_session() as session:
        response = await session.execute("Hello!")

    assert "Hello!" in response
    assert not session.initialized


async def test_a_session_can_be_awaited_entered_later_or_made_a_task(make_bundle: MakeBundle, cache_dir: Path) -> None:
    prepared = await make_bundle().prepare(cache_dir=cache_dir)

    awaited = await prepared.create_session(session_id="s1", parent_id="p1", is_resumed=True)
    async with await prepared.create_session() as entered:
        assert entered.initialized
    tasked = await asyncio.create_task(prepared.create_session())

    assert (awaited.session_id, awaited.parent_id, awaited.is_resumed, awaited.initialized) == ("s1", "p1", True, True)
    for session in (awaited, tasked):
        await session.cleanup()


async def test_modules_see_resolver_working_directory_and_packages_while_they_mount(
    make_bundle: MakeBundle, make_module: Callable[..., Path], cache_dir: Path, tmp_path: Path
) -> None:
    body = (
        "coordinator.register_capability('seen', [coordinator.get_capability('session.working_dir'), "
        "coordinator.get_capability('bundle_package_paths'), coordinator.get('module-source-resolver')])"
    )
    bundle = make_bundle(hooks=[{"module": "hooks-look", "source": str(make_module("hooks-look", body))}])
    prepared = await bundle.prepare(strict=True, cache_dir=cache_dir)
    prepared.bundle_package_paths = ["/x/src"]

    async with prepared.create_session(session_cwd=tmp_path / "a" / "..") as session:
        seen = session.coordinator.get_capability("seen")
        assert seen == [str(tmp_path), ["/x/src"], prepared.resolver]
        assert session.coordinator.get_capability("hook_metadata")["watcher"] == {"event": "tool:pre"}


async def test_logging_hooks_are_told_of_our_events_and_providers_of_their_ids(
    make_bundle: MakeBundle, cache_dir: Path
) -> None:
    providers = [{"module": "provider-mock"}, {"module": "provider-mock", "id": "second"}]
    prepared = await make_bundle(providers=providers).prepare(cache_dir=cache_dir)
    prepared.mount_plan["hooks"] = [{"module": "hooks-logging", "config": None}]

    async with prepared.create_session() as session:
        assert sorted(session.coordinator.get("providers")) == ["mock", "second"]

    assert prepared.mount_plan["hooks"][0]["config"]["additional_events"] == ["session:config", "mentions:resolved"]
    assert prepared.mount_plan["providers"] == providers
    assert "instance_id" not in providers[1]


@pytest.mark.parametrize(
    ("declaration", "added"),
    [
        ("records_events = true\n", ["own:event", "session:config", "mentions:resolved"]),
        ("records_events = false\n", ["own:event"]),
        ("records_events = tru", ["own:event"]),  # cannot be read
        ("", ["own:event"]),
    ],
)
async def test_a_hook_is_told_of_our_events_if_it_declares_that_it_records_them(
    make_bundle: MakeBundle, make_module: Callable[..., Path], cache_dir: Path, declaration: str, added: list[str]
) -> None:
    folder = make_module("hooks-diary")
    (folder / "amplifier_module_hooks_diary" / "runtime.toml").write_text(declaration)
    diary = {"module": "hooks-diary", "source": str(folder), "config": {"additional_events": ["own:event"]}}
    prepared = await make_bundle(hooks=[diary]).prepare(cache_dir=cache_dir)

    async with prepared.create_session() as session:
        assert session.config["hooks"][0]["config"] == {"additional_events": added}


async def test_an_applications_own_resolver_need_not_say_where_modules_are(
    make_bundle: MakeBundle, cache_dir: Path
) -> None:
    prepared = await make_bundle().prepare(cache_dir=cache_dir)
    prepared.mount_plan["hooks"] = [{"module": "hooks-redaction"}, {"module": "hooks-logging"}]

    class Refusing:
        def get_module_source(self, module_id: str) -> str:
            raise RuntimeError("ask someone else")

        def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
            raise module_sources.ModuleNotFoundError(module_id)

    prepared.resolver = Refusing()  # type: ignore[assignment]

    async with prepared.create_session() as session:
        hooks = session.config["hooks"]

    assert ["config" in hook for hook in hooks] == [False, True]


async def test_a_plan_without_ids_is_the_sessions_own(make_bundle: MakeBundle, cache_dir: Path) -> None:
    prepared = await make_bundle().prepare(cache_dir=cache_dir)

    async with prepared.create_session() as session:
        assert session.config is prepared.mount_plan


async def test_import_paths_go_with_the_last_session_and_come_back_with_the_next(
    make_bundle: MakeBundle, make_module: Callable[..., Path], cache_dir: Path
) -> None:
    folder = make_module("hooks-path")
    bundle = make_bundle(hooks=[{"module": "hooks-path", "source": str(folder)}])
    prepared = await bundle.prepare(strict=True, cache_dir=cache_dir)
    assert str(folder) in sys.path

    first, second = await prepared.create_session(), await prepared.create_session()
    await first.cleanup()
    assert str(folder) in sys.path
    await second.cleanup()
    assert str(folder) not in sys.path
    async with prepared.create_session():
        assert str(folder) in sys.path
    assert str(folder) not in sys.path


async def test_a_session_that_cannot_be_initialized_leaves_nothing(
    make_bundle: MakeBundle, make_module: Callable[..., Path], cache_dir: Path
) -> None:
    folder = make_module("hooks-left")
    bundle = make_bundle(
        session={"orchestrator": "loop-nowhere", "context": "context-simple"},
        hooks=[{"module": "hooks-left", "source": str(folder)}],
    )
    prepared = await bundle.prepare(strict=True, cache_dir=cache_dir)

    with pytest.raises(RuntimeError, match="Cannot initialize without orchestrator"):
        await prepared.create_session()

    assert str(folder) not in sys.path


async def test_an_empty_bundle_offers_no_mentions(make_bundle: MakeBundle, cache_dir: Path) -> None:
    prepared = await make_bundle().prepare(cache_dir=cache_dir)

    async with prepared.create_session() as session:
        assert session.coordinator.get_capability("mention_resolver") is None
        assert await session.coordinator.collect_contributions("observability.events") is not None


async def test_the_session_class_is_looked_up_when_a_session_is_created(
    make_bundle: MakeBundle, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(AmplifierSession):
        pass

    prepared = await make_bundle().prepare(cache_dir=cache_dir)
    monkeypatch.setattr(amplifier_core, "AmplifierSession", Own)

    async with prepared.create_session() as session:
        assert type(session) is Own


async def test_a_stand_in_of_coroutines_for_a_session_is_asked_nothing_in_vain(
    make_bundle: MakeBundle, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = await make_bundle().prepare(cache_dir=cache_dir)
    stand_in = AsyncMock(coordinator=MagicMock(mount=AsyncMock()))
    monkeypatch.setattr(amplifier_core, "AmplifierSession", lambda *_, **__: stand_in)

    assert await prepared.create_session() is stand_in
    gc.collect()  # what nobody has waited for is reported now


class PlainContext:
    """A context manager without system prompt factories."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    async def add_message(self, message: dict[str, Any]) -> None:
        self.messages.append(message)


async def test_a_context_without_prompt_factories_gets_the_prompt_as_a_message() -> None:
    async def factory() -> str:
        return "Be kind."

    context = PlainContext()
    await give_system_prompt(context, factory)
    await give_system_prompt(None, factory)

    assert context.messages == [{"role": "system", "content": "Be kind."}]


async def prompt_of(prepared: PreparedBundle, **options: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the system prompt of two requests and the events about it."""
    events: list[dict[str, Any]] = []

    async def note(event: str, data: dict[str, Any]) -> amplifier_core.HookResult:
        events.append(data)
        return amplifier_core.HookResult()

    async with prepared.create_session(**options) as session:
        session.coordinator.hooks.register("mentions:resolved", note)
        factory = prepared._create_system_prompt_factory(prepared.bundle, session, options.get("session_cwd"))
        return [await factory(), await factory()], events


async def test_the_system_prompt_has_the_mentioned_files_then_the_declared_ones(
    tmp_path: Path, make_bundle: MakeBundle, cache_dir: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "b.md").write_text("B")
    (tmp_path / "m.md").write_text("M")
    (project / "AGENTS.md").write_text("A")
    bundle = make_bundle(
        "pb",
        instruction="Main @pb:m.md @AGENTS.md @pb:gone.md",
        context={"pb:b.md": tmp_path / "b.md", "missing": tmp_path / "none.md", "folder": tmp_path},
    )
    prepared = await bundle.prepare(cache_dir=cache_dir)

    (first, second), events = await prompt_of(prepared, session_cwd=project)

    assert (
        first
        == second
        == (
            "Main @pb:m.md @AGENTS.md @pb:gone.md\n\n---\n\n"
            f'<context_file paths="@pb:m.md → {tmp_path / "m.md"}">\nM\n</context_file>\n\n'
            f'<context_file paths="@AGENTS.md → {project / "AGENTS.md"}">\nA\n</context_file>\n\n'
            f'<context_file paths="pb:b.md → {tmp_path / "b.md"}">\nB\n</context_file>'
        )
    )
    (event,) = events
    assert (event["source"], event["turn"], event["deduplicated_count"]) == ("bundle_context", None, 0)
    assert [(entry["mention"], entry["source_type"], entry["is_new"]) for entry in event["resolutions"]] == [
        ("@pb:m.md", "bundle_namespace", True),
        ("@AGENTS.md", "relative_path", True),
        ("pb:b.md", "bundle_namespace", True),
    ]
    assert event["resolutions"][2]["resolved_path"] == str(tmp_path / "b.md")
    assert {(entry["mention"], entry["reason"]) for entry in event["failed"]} == {
        ("folder", "directory"),
        ("@pb:gone.md", "not_found"),
    }


async def test_a_changed_file_is_read_and_announced_again(
    tmp_path: Path, make_bundle: MakeBundle, cache_dir: Path
) -> None:
    file = tmp_path / "a.md"
    file.write_text("one")
    (tmp_path / "bad.md").write_bytes(b"\xff\xfe")
    (tmp_path / "same.md").write_text("same")
    context = {"a": file, "bad": tmp_path / "bad.md", "same": tmp_path / "same.md"}
    prepared = await make_bundle(context=context).prepare(cache_dir=cache_dir)
    events: list[dict[str, Any]] = []

    async def note(event: str, data: dict[str, Any]) -> amplifier_core.HookResult:
        events.append(data)
        return amplifier_core.HookResult()

    async with prepared.create_session() as session:
        session.coordinator.hooks.register("mentions:resolved", note)
        factory = prepared._create_system_prompt_factory(prepared.bundle, session)
        await factory()
        file.write_text("two")
        assert "two" in await factory()

    assert [len(event["resolutions"]) for event in events] == [2, 1]
    assert events[0]["failed"] == [{"mention": "bad", "reason": "binary"}]
    assert (events[1]["failed"], events[1]["deduplicated_count"]) == ([], 1)


async def test_the_model_gets_the_system_prompt_and_modules_the_resolver(
    tmp_path: Path, make_bundle: MakeBundle, cache_dir: Path
) -> None:
    (tmp_path / "note.md").write_text("the note")
    bundle = make_bundle(instruction="Know @base:note.md", _pending_context={"base:note.md": "base:note.md"})
    prepared = await bundle.prepare(cache_dir=cache_dir)

    async with prepared.create_session() as session:
        coordinator = session.coordinator
        assert coordinator.get_capability("mention_resolver").resolve("@base:note.md") == tmp_path / "note.md"
        assert coordinator.get_capability("mention_deduplicator").get_unique_files() == []
        assert ["mentions:resolved"] in await coordinator.collect_contributions("observability.events")
        messages = await coordinator.get("context").get_messages_for_request()

    assert messages[0]["role"] == "system"
    assert messages[0]["content"].count("the note") == 1


async def test_a_refusal_of_the_policy_names_the_bundle_and_the_line_of_its_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    (tmp_path / "base.md").write_text(
        "---\nbundle: {name: base, version: 1.0.0}\n"
        "session:\n  orchestrator: {module: loop-basic}\n  context: {module: context-simple}\n"
        "  policy:\n    read:\n      deny:\n      - ledger\n      - drafts\n"
        "providers: [{module: provider-mock}]\n---\n"
    )
    (tmp_path / "bundle.md").write_text(
        "---\nbundle: {name: top, version: 1.0.0}\nincludes: [./base.md]\n"
        "session: {policy: {read: {deny: [plans]}}}\n---\n"
    )
    prepared = await (await load_bundle(str(tmp_path / "bundle.md"))).prepare()

    async with prepared.create_session(session_cwd=tmp_path) as session:
        policy = session.coordinator.get_capability("session.policy")
        refusals = []
        for path in ("drafts/a", "plans/a", "/proc/self/environ"):
            with pytest.raises(PermissionError) as refused:
                policy.check_read(path)
            refusals.append(str(refused.value))

    assert refusals == [
        "not readable: drafts/a (policy.read.deny, base line 10)",
        "not readable: plans/a (policy.read.deny, top line 4)",
        "not readable: /proc/self/environ (policy.read.deny)",
    ]
