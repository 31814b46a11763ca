"""Children of a prepared bundle: one instruction each, on behalf of a parent."""

import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import amplifier_core
from amplifier_core import AmplifierSession, HookRegistry, HookResult
from amplifier_foundation.bundle import Bundle
from amplifier_foundation.registry import load_bundle
from amplifier_foundation.spawn import register_spawn
from amplifier_foundation.spawn_utils import ProviderPreference

MakeBundle = Callable[..., Bundle]


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[AmplifierSession]:
    """Every session that is created, with the capabilities it had when it executed."""
    created: list[AmplifierSession] = []

    class Noted(AmplifierSession):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            created.append(self)

    monkeypatch.setattr(amplifier_core, "AmplifierSession", Noted)
    return created


async def test_a_child_answers_in_a_session_of_its_own(
    make_bundle: MakeBundle, cache_dir: Path, sessions: list[AmplifierSession]
) -> None:
    prepared = await make_bundle().prepare(cache_dir=cache_dir)

    result = await prepared.spawn(Bundle("agent", instruction="Be brief."), "Say it", session_id="child-1")

    assert result.keys() == {"output", "session_id", "status", "turn_count", "metadata"}
    assert "Say it" in result["output"]
    assert (result["session_id"], result["status"], result["turn_count"]) == ("child-1", "success", 1)
    assert not sessions[0].initialized
    assert "_spawn_completion_capture" not in str(sessions[0].coordinator.hooks.list_handlers())


async def test_a_child_shares_its_parents_systems_directory_paths_and_account(
    tmp_path: Path, make_bundle: MakeBundle, cache_dir: Path, sessions: list[AmplifierSession]
) -> None:
    provider = {"module": "provider-mock", "config": {"responses": [{"text": "ok", "usage": {"cost_usd": "0.25"}}]}}
    prepared = await make_bundle(providers=[provider]).prepare(cache_dir=cache_dir)
    prepared.bundle_package_paths = ["/x/src"]
    approval, display = object(), object()

    async with prepared.create_session(
        approval_system=approval, display_system=display, session_cwd=tmp_path / "work"
    ) as parent:
        await prepared.spawn(Bundle("agent"), "go", parent_session=parent, self_delegation_depth=2)
        costs = await parent.coordinator.collect_contributions("session.cost")

    child = sessions[-1]
    assert child.parent_id == parent.session_id
    assert (child.coordinator.approval_system, child.coordinator.display_system) == (approval, display)
    assert child.coordinator.get_capability("session.working_dir") == str(tmp_path / "work")
    assert child.coordinator.get_capability("bundle_package_paths") == ["/x/src"]
    assert child.coordinator.get_capability("self_delegation_depth") == 2
    assert {"cost_usd": Decimal("0.25")} in costs


async def test_a_child_has_what_the_application_added_to_the_plan(
    make_bundle: MakeBundle, cache_dir: Path, sessions: list[AmplifierSession]
) -> None:
    prepared = await make_bundle(providers=[]).prepare(cache_dir=cache_dir)
    prepared.mount_plan["providers"] = [{"module": "provider-mock", "config": {"mode": "echo"}}]

    result = await prepared.spawn(Bundle("agent", tools=[{"module": "tool-todo"}]), "hello")

    assert "hello" in result["output"]
    assert [entry["module"] for entry in sessions[0].config["tools"]] == ["tool-todo"]


@pytest.mark.parametrize(
    ("policy", "child", "tools", "hooks"),
    [
        ({}, [], ["tool-todo", "tool-search"], ["hooks-logging"]),
        ({"exclude_tools": ["tool-todo"], "exclude_hooks": ["hooks-logging"]}, [], ["tool-search"], []),
        ({"exclude_tools": ["tool-todo"]}, ["tool-todo"], ["tool-todo", "tool-search"], ["hooks-logging"]),
        ({"tools": ["tool-todo"]}, [], ["tool-todo"], ["hooks-logging"]),
    ],
)
async def test_a_child_gets_what_the_policy_of_its_parents_bundle_hands_down(
    make_bundle: MakeBundle,
    cache_dir: Path,
    sessions: list[AmplifierSession],
    policy: dict[str, Any],
    child: list[str],
    tools: list[str],
    hooks: list[str],
) -> None:
    listed = [{"module": "tool-todo"}, {"module": "tool-search"}]
    parent = make_bundle(tools=listed, hooks=[{"module": "hooks-logging"}], spawn=policy)
    prepared = await parent.prepare(cache_dir=cache_dir)

    await prepared.spawn(Bundle("agent", tools=[{"module": name} for name in child]), "go")

    config = sessions[-1].config
    assert [entry["module"] for entry in config.get("tools", ())] == tools
    assert [entry["module"] for entry in config.get("hooks", ())] == hooks


async def test_a_child_that_is_not_composed_stands_alone(
    make_bundle: MakeBundle, cache_dir: Path, sessions: list[AmplifierSession]
) -> None:
    prepared = await make_bundle(tools=[{"module": "tool-todo"}], instruction="Parent").prepare(cache_dir=cache_dir)

    await prepared.spawn(make_bundle("alone"), "hello", compose=False)

    assert "tools" not in sessions[0].config
    assert sessions[0].coordinator.get_capability("mention_resolver") is None


@pytest.mark.parametrize("orchestrator", ["loop-basic", {"module": "loop-basic", "config": {"max_iterations": 9}}])
async def test_the_orchestrators_configuration_reaches_whichever_form_is_used(
    make_bundle: MakeBundle,
    cache_dir: Path,
    sessions: list[AmplifierSession],
    caplog: pytest.LogCaptureFixture,
    orchestrator: Any,
) -> None:
    bundle = make_bundle(session={"orchestrator": orchestrator, "context": "context-simple"})
    prepared = await bundle.prepare(cache_dir=cache_dir)

    await prepared.spawn(Bundle("agent"), "go", orchestrator_config={"max_iterations": 3})

    config = sessions[0].config
    used = config["session"]["orchestrator"] if isinstance(orchestrator, dict) else config["orchestrator"]
    assert used["config"]["max_iterations"] == 3
    assert bundle.session["orchestrator"] == orchestrator
    assert "is not read" not in caplog.text


async def test_preferences_choose_provider_and_model(
    make_bundle: MakeBundle, cache_dir: Path, sessions: list[AmplifierSession]
) -> None:
    prepared = await make_bundle().prepare(cache_dir=cache_dir)

    await prepared.spawn(Bundle("agent"), "go", provider_preferences=[ProviderPreference("mock", "small")])

    assert sessions[0].config["providers"][0]["config"]["default_model"] == "small"


async def test_messages_of_the_parent_become_history_unless_an_id_is_given(
    make_bundle: MakeBundle, cache_dir: Path, sessions: list[AmplifierSession]
) -> None:
    prepared = await make_bundle().prepare(cache_dir=cache_dir)
    history = [{"role": "user", "content": "earlier"}, {"role": "assistant", "content": "yes"}]

    await prepared.spawn(Bundle("agent"), "go", parent_messages=history)
    await prepared.spawn(Bundle("agent"), "go", parent_messages=history, session_id="own")

    contents = [str(await session.coordinator.get("context").get_messages()) for session in sessions]
    assert ["earlier" in text for text in contents] == [True, False]


async def test_mentions_of_a_child_count_from_its_working_directory(
    tmp_path: Path, make_bundle: MakeBundle, cache_dir: Path, sessions: list[AmplifierSession]
) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    for directory, text in ((work, "from work"), (home, "from home")):
        directory.mkdir()
        (directory / "note.md").write_text(text)
    prepared = await make_bundle(base_path=home).prepare(cache_dir=cache_dir)
    child = Bundle(
        "agent", instruction="Read @note.md", base_path=home, _pending_context={"base:note.md": "base:note.md"}
    )

    result = await prepared.spawn(child, "Do @note.md", session_cwd=work)

    assert "from work" in result["output"]
    resolver = sessions[0].coordinator.get_capability("mention_resolver")
    assert resolver.resolve("@note.md") == work / "note.md"
    assert resolver.resolve("@base:note.md") == home / "note.md"


async def test_a_mention_that_ends_a_sentence_counts_in_bundles_and_not_in_agents(
    tmp_path: Path, make_bundle: MakeBundle, cache_dir: Path, sessions: list[AmplifierSession]
) -> None:
    (tmp_path / "guide.md").write_text("the guide")
    agent_file = tmp_path / "agents" / "scout.md"
    agent_file.parent.mkdir()
    agent_file.write_text("---\nmeta: {name: scout, description: Looks around.}\n---\nAgent, see @base:guide.md.")
    (tmp_path / "other.md").write_text("---\nbundle: {name: other}\n---\nBundle, see @base:guide.md.")
    prepared = await make_bundle(instruction="See @base:guide.md.").prepare(cache_dir=cache_dir)
    agent, other = await load_bundle(agent_file), await load_bundle(tmp_path / "other.md")

    children = [agent, Bundle("scout", instruction="Agent, see @base:guide.md."), other, Bundle("self")]
    for child in children:
        await prepared.spawn(child, "go")
    async with prepared.create_session() as session:
        register_spawn(session, prepared)
        definition = {"scout": {"instruction": "Agent, see @base:guide.md."}}
        await session.coordinator.get_capability("session.spawn")("scout", "go", agent_configs=definition)
        prompts = [await system_prompt_of(session) for session in sessions]

    assert ["the guide" in prompt for prompt in prompts] == [False, False, True, True, True, False]


async def system_prompt_of(session: AmplifierSession) -> str:
    messages = await session.coordinator.get("context").get_messages_for_request()
    return str(messages[0]["content"])


async def test_the_orchestrators_report_is_returned(make_bundle: MakeBundle, cache_dir: Path) -> None:
    prepared = await make_bundle().prepare(cache_dir=cache_dir)

    result = await prepared.spawn(Bundle("agent"), "go")

    assert result["turn_count"] == 1
    assert isinstance(result["metadata"], dict)


async def test_a_parents_cancellation_reaches_the_running_child_and_only_that(
    make_bundle: MakeBundle, cache_dir: Path, sessions: list[AmplifierSession]
) -> None:
    prepared = await make_bundle().prepare(cache_dir=cache_dir)
    parent = await prepared.create_session()
    states: list[bool] = []

    async def cancel_parent(event: str, data: dict[str, Any]) -> HookResult:
        await parent.coordinator.request_cancel()
        states.append(sessions[-1].coordinator.cancellation.is_cancelled)
        return HookResult()

    def listen(session: AmplifierSession) -> None:
        session.coordinator.hooks.register("execution:start", cancel_parent)

    class Listening(AmplifierSession):
        async def initialize(self) -> None:
            await super().initialize()
            listen(self)
            sessions.append(self)

    amplifier_core.AmplifierSession = Listening  # the fixture puts the original back
    await prepared.spawn(Bundle("agent"), "go", parent_session=parent)
    parent.coordinator.cancellation.reset()
    sessions[-1].coordinator.cancellation.reset()
    await parent.coordinator.request_cancel()

    assert states == [True]
    assert not sessions[-1].coordinator.cancellation.is_cancelled
    await parent.cleanup()


async def test_a_failing_child_is_cleaned_up_and_its_error_comes_through(
    make_bundle: MakeBundle, make_module: Callable[..., Path], cache_dir: Path, sessions: list[AmplifierSession]
) -> None:
    folder = make_module("hooks-child")
    failing = {"module": "provider-mock", "config": {"script": [{"error": "auth"}]}}
    bundle = make_bundle(providers=[failing], hooks=[{"module": "hooks-child", "source": str(folder)}])
    prepared = await bundle.prepare(strict=True, cache_dir=cache_dir)

    with pytest.raises(amplifier_core.AuthenticationError):
        await prepared.spawn(Bundle("agent"), "go")

    assert not sessions[0].initialized
    assert str(folder) not in sys.path


class PlainCoordinator:
    """What an application's own kind of session may have for a coordinator: only what the foundation asks for."""

    approval_system = display_system = None

    def __init__(self) -> None:
        self.hooks = HookRegistry()

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None: ...

    def get(self, mount_point: str) -> Any: ...

    def register_capability(self, name: str, value: Any) -> None: ...

    def register_contributor(self, channel: str, name: str, callback: Any) -> None: ...

    async def collect_contributions(self, channel: str) -> list[Any]:
        return []


class PlainSession:
    def __init__(self, config: dict[str, Any], *, session_id: str | None = None, **options: Any) -> None:
        self.session_id, self.coordinator = session_id or "plain", PlainCoordinator()

    async def initialize(self) -> None: ...

    async def execute(self, prompt: str) -> str:
        return f"plain: {prompt}"

    async def cleanup(self) -> None: ...


async def test_a_child_may_be_a_session_of_the_applications_own_kind(
    make_bundle: MakeBundle, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = await make_bundle().prepare(cache_dir=cache_dir)
    async with prepared.create_session() as parent:
        monkeypatch.setattr(amplifier_core, "AmplifierSession", PlainSession)

        result = await prepared.spawn(Bundle("agent", instruction="Be brief."), "go", parent_session=parent)

    assert result["output"] == "plain: go"
