"""The contract of providers, held against every provider in `modules/`: a new one inherits these tests by being there.

A provider answers here on a stage of its own: the fixture `<module>_stage`, like `provider_mock_stage`, gives the
configuration under which `complete()` answers every request with thinking signed `sig-1`, the text `two words`, and one
call of the tool `echo` with `{"text": "hi"}`.
"""

import asyncio
import copy
import importlib
import inspect
import json
import re
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from module_folders import folders_of_type, package_of

from amplifier_core import ChatRequest, ChatResponse, HookRegistry, Message, ToolSpec
from amplifier_core.events import ALL_EVENTS
from amplifier_core.interfaces import Provider
from amplifier_core.loader import ModuleLoader
from amplifier_core.message_models import ToolCall, ToolCallBlock
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation import ProviderValidator
from amplifier_core.validation.behavioral import ProviderBehaviorTests
from amplifier_core.validation.structural import ProviderStructuralTests
from amplifier_foundation.observability import read_declaration
from amplifier_kit.providers.stream import STREAM_EVENTS

ROOT = Path(__file__).parents[2]
USAGE_KEYS = {"input_tokens", "output_tokens", "cost_usd"}
CACHE_KEYS = {"cache_read_tokens", "cache_write_tokens"}


PROVIDERS = folders_of_type("provider")
NEEDS_CREDENTIALS = {  # without a key they mount nothing
    folder.name
    for folder in PROVIDERS
    if (read_declaration(package_of(folder)) or {}).get("credentials", {}).get("environment")
}


@pytest.fixture(params=PROVIDERS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def module(folder: Path) -> ModuleType:
    return importlib.import_module(package_of(folder).name)


@pytest.fixture
def module_path(folder: Path) -> Path:
    """What the kernel's own suites mount."""
    return package_of(folder)


@pytest.fixture
def provider_mock_stage() -> dict[str, Any]:
    call = {"name": "echo", "arguments": {"text": "hi"}}
    return {"responses": [{"thinking": "hm", "signature": "sig-1", "text": "two words", "tool_calls": [call]}]}


@pytest.fixture
def stage(folder: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The configuration under which the provider answers."""
    config: dict[str, Any] = request.getfixturevalue(f"{folder.name.replace('-', '_')}_stage")
    return config


class Heard:
    """A coordinator with the provider on it, and the events of its calls."""

    def __init__(self) -> None:
        self.coordinator = MockCoordinator()
        self.events: list[tuple[str, dict[str, Any]]] = []
        for event in (*ALL_EVENTS, *STREAM_EVENTS):
            self.coordinator.hooks.register(event, self._keep)

    @property
    def provider(self) -> Any:
        (provider,) = self.coordinator.get("providers").values()
        return provider

    def payloads(self, event: str) -> list[dict[str, Any]]:
        return [data for name, data in self.events if name == event]

    def stream(self) -> list[tuple[str, dict[str, Any]]]:
        return [(name, data) for name, data in self.events if name in STREAM_EVENTS]

    async def _keep(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, dict(data)))


@pytest.fixture
async def heard(module: ModuleType, stage: dict[str, Any]) -> Any:
    """The provider, mounted on its stage."""
    mounted = Heard()
    cleanup = await module.mount(mounted.coordinator, stage)
    yield mounted
    await cleanup()


def request_of(*messages: Any, **options: Any) -> ChatRequest:
    given = [Message.model_validate(message) for message in messages or ({"role": "user", "content": "Hello"},)]
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return ChatRequest(messages=given, tools=[ToolSpec(name="echo", parameters=schema)], **options)


def history() -> list[dict[str, Any]]:
    """Return a conversation with every role and every type of block."""
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}}
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "A file."}]},
        {"role": "user", "content": [{"type": "text", "text": "Look."}, image]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig-0", "visibility": "internal"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "reasoning", "content": [], "summary": []},
                {"type": "text", "text": "I will ask."},
                {"type": "tool_call", "id": "c1", "name": "echo", "input": {"text": "a"}},
            ],
            "tool_calls": [{"id": "c1", "tool": "echo", "arguments": {"text": "a"}}],
        },
        {"role": "tool", "content": "a", "tool_call_id": "c1"},
        {"role": "user", "content": "Go on."},
    ]


# --- required


def test_every_provider_has_a_stage() -> None:
    assert PROVIDERS
    stages = set(globals()) | {
        name
        for file in Path(__file__).parent.rglob("conftest.py")
        for name in re.findall(r"def (\w+_stage)\(", file.read_text())
    }
    assert [folder.name for folder in PROVIDERS if f"{folder.name.replace('-', '_')}_stage" not in stages] == []


class TestBehaviour(ProviderBehaviorTests, ProviderStructuralTests):
    """What the kernel asks of every provider."""

    @pytest.fixture(autouse=True)
    def credentials(self, folder: Path, stage: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the stage into the environment: these suites mount without a configuration."""
        vendor = folder.name.removeprefix("provider-")
        for key in {"api_key", "base_url"} & set(stage):
            monkeypatch.setenv(f"{vendor}_{key}".upper(), stage[key])


async def test_it_passes_the_kernels_validator(folder: Path) -> None:
    result = await ProviderValidator().validate(folder)

    failed = [check for check in result.checks if not check.passed]
    assert [
        check.message for check in failed if check.severity == "error" or folder.name not in NEEDS_CREDENTIALS
    ] == []


def test_it_implements_the_five_methods(heard: Heard) -> None:
    provider = heard.provider

    assert isinstance(provider, Provider)
    assert all(inspect.iscoroutinefunction(getattr(provider, name)) for name in ("list_models", "complete", "close"))
    assert not any(inspect.iscoroutinefunction(getattr(provider, name)) for name in ("get_info", "parse_tool_calls"))
    assert not hasattr(provider, "stream"), "loops would stream through it instead of the events"


def test_its_entry_point_leads_to_mount(folder: Path, module: ModuleType) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package, _, attribute = project["entry-points"]["amplifier.modules"][folder.name].partition(":")

    mount = getattr(importlib.import_module(package), attribute)

    assert mount is module.mount
    assert inspect.iscoroutinefunction(mount)
    assert mount.__module__ == module.__name__, "the kernel looks for on_session_ready beside it"


async def test_it_mounts_under_its_own_name(folder: Path, heard: Heard) -> None:
    assert heard.coordinator.get_mounted("providers") == [folder.name.removeprefix("provider-")]
    assert heard.provider.name == folder.name.removeprefix("provider-")


async def test_complete_returns_a_response_with_every_block(heard: Heard) -> None:
    response = await heard.provider.complete(request_of(), unknown_option=True)

    assert isinstance(response, ChatResponse)
    assert [block.type for block in response.content] == ["thinking", "text", "tool_call"]
    thinking: Any = response.content[0]  # signed, or with the vendor's sealed state
    assert "sig-1" in (thinking.signature, *(thinking.content or ()))
    calls = [(block.id, block.name, block.input) for block in response.content if isinstance(block, ToolCallBlock)]
    assert calls == [(call.id, call.name, call.arguments) for call in response.tool_calls or []]
    assert calls[0][1:] == ("echo", {"text": "hi"})


async def test_the_response_mirrors_its_content_for_events(heard: Heard) -> None:
    response: Any = await heard.provider.complete(request_of())

    assert [block.type.value for block in response.content_blocks] == ["thinking", "text", "tool_call"]
    assert response.text == "two words"


async def test_usage_is_reported(heard: Heard) -> None:
    usage = (await heard.provider.complete(request_of())).usage

    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0


async def test_a_history_with_every_role_and_block_is_taken_and_left_as_it_is(heard: Heard) -> None:
    request = request_of(*history())
    before = request.model_dump(mode="json")

    await heard.provider.complete(request)

    assert request.model_dump(mode="json") == before


async def test_tool_calls_are_parsed_from_a_response(heard: Heard) -> None:
    parse = heard.provider.parse_tool_calls
    empty = ToolCall(id="1", name="a", arguments={})
    without = ToolCall.model_construct(id="2", name="b", arguments=None)

    assert parse(ChatResponse(content=[])) == []
    assert parse(ChatResponse.model_construct(content=[], tool_calls=[empty, without])) == [empty]


# --- recommended


@pytest.mark.parametrize("config", [{}, None], ids=["empty", "none"])
async def test_without_configuration_it_mounts_or_says_why_not(
    folder: Path, module: ModuleType, config: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    coordinator = MockCoordinator()

    cleanup = await module.mount(coordinator, config)

    if folder.name in NEEDS_CREDENTIALS:
        assert cleanup is None
        assert coordinator.get("providers") == {}
        assert [record for record in caplog.records if record.levelname == "WARNING"]
    else:
        assert callable(cleanup)
        assert coordinator.get("providers")


def orphaned() -> list[dict[str, Any]]:
    call = {"id": "lost", "tool": "echo", "arguments": {}}
    return [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "user", "content": "Go on."},
    ]


async def test_a_tool_call_without_result_is_repaired_in_every_request_and_announced_once(heard: Heard) -> None:
    requests = [request_of(*orphaned()) for _ in range(2)]

    for request in requests:
        await heard.provider.complete(request)
        await heard.provider.complete(request)

    for request in requests:
        results = [message for message in request.messages if message.role == "tool"]
        assert [(message.tool_call_id, message.name) for message in results] == [("lost", "echo")]
        assert str(results[0].content).startswith("[SYSTEM ERROR: Tool result missing from conversation history]")
        assert request.messages.index(results[0]) == 2
    (repaired,) = heard.payloads("provider:tool_sequence_repaired")
    assert repaired["repair_count"] == 1
    assert repaired["repairs"] == [{"tool_call_id": "lost", "tool_name": "echo"}]


@pytest.mark.parametrize("key", ["raw", "debug", "raw_debug"])
async def test_full_payloads_are_a_matter_of_configuration(module: ModuleType, stage: dict[str, Any], key: str) -> None:
    loud, quiet = Heard(), Heard()
    for one, config in ((loud, {**stage, key: True}), (quiet, stage)):
        cleanup = await module.mount(one.coordinator, config)
        await one.provider.complete(request_of())
        await cleanup()

    assert all("raw" in loud.payloads(event)[0] for event in ("llm:request", "llm:response"))
    assert not any("raw" in quiet.payloads(event)[0] for event in ("llm:request", "llm:response"))


async def test_cleanup_is_idempotent_and_ends_no_other_mount(module: ModuleType, stage: dict[str, Any]) -> None:
    one, other = Heard(), Heard()
    cleanup = await module.mount(one.coordinator, stage)
    cleanup_other = await module.mount(other.coordinator, stage)

    assert [await cleanup(), await cleanup()] == [None, None]
    await one.provider.close()

    assert isinstance(await other.provider.complete(request_of()), ChatResponse)
    assert isinstance(await one.provider.complete(request_of()), ChatResponse), "after close it starts afresh"
    await cleanup_other()
    await cleanup()


async def test_events_beyond_the_kernels_are_announced(heard: Heard) -> None:
    await heard.provider.complete(request_of())

    announced = [
        event for events in await heard.coordinator.collect_contributions("observability.events") for event in events
    ]

    assert {name for name, _ in heard.events} - set(ALL_EVENTS) <= set(announced)
    assert not set(ALL_EVENTS) & set(announced), "a hook that subscribes to both lists would hear these twice"


async def test_costs_are_offered_to_the_session(folder: Path, heard: Heard) -> None:
    names = [contributor["name"] for contributor in heard.coordinator.channels["session.cost"]]

    assert names == [folder.name]


# --- what a call is heard of


async def test_one_request_and_one_response_event_enclose_a_call(heard: Heard) -> None:
    await heard.provider.complete(request_of())

    names = [name for name, _ in heard.events if name.startswith("llm:")]
    assert (names[0], names[-1]) == ("llm:request", "llm:response")
    assert Counter(names)["llm:request"] == Counter(names)["llm:response"] == 1
    (asked,), (answered,) = heard.payloads("llm:request"), heard.payloads("llm:response")
    assert asked["provider"] == answered["provider"] == heard.provider.name
    assert {"provider", "model", "message_count"} <= set(asked)
    assert answered["status"] == "ok"
    assert isinstance(answered["duration_ms"], int)
    assert USAGE_KEYS <= set(answered["usage"]) <= USAGE_KEYS | CACHE_KEYS | {"total_tokens"}
    assert "stop_reason" in answered


async def test_the_stream_tells_every_block_once_and_in_order(heard: Heard) -> None:
    await heard.provider.complete(request_of())

    stream = heard.stream()
    assert len({data["request_id"] for _, data in stream}) == 1
    starts = [(d["block_index"], d["block_type"]) for name, d in stream if name.endswith("start")]
    ends = [(d["block_index"], d["block_type"]) for name, d in stream if name.endswith("end")]
    assert starts == sorted(ends) == [(0, "thinking"), (1, "text"), (2, "tool_use")]
    for index in (0, 1):
        deltas = [d for name, d in stream if name.endswith("delta") and d["block_index"] == index]
        assert [delta["sequence"] for delta in deltas] == list(range(len(deltas)))
        assert all(delta["text"] for delta in deltas)
    assert "".join(d["text"] for n, d in stream if n.endswith("delta") and d["block_index"] == 1).strip() == "two words"
    assert [d.get("name") for name, d in stream if name.endswith("start")] == [None, None, "echo"]


async def test_a_call_can_ask_not_to_be_streamed(heard: Heard) -> None:
    await heard.provider.complete(request_of(metadata={"stream": False}))
    silent = heard.stream()
    await heard.provider.complete(request_of())

    assert silent == []
    assert heard.stream()


async def test_calls_at_the_same_time_do_not_mix(heard: Heard) -> None:
    responses = await asyncio.gather(*(heard.provider.complete(request_of()) for _ in range(5)))

    assert len(responses) == 5
    by_id = Counter(data["request_id"] for name, data in heard.stream() if name.endswith("start"))
    assert sorted(by_id.values()) == [3] * 5
    pairs = Counter(data["request_id"] for name, data in heard.events if name in ("llm:request", "llm:response"))
    assert sorted(pairs.values()) == [2] * 5


class BrokenRegistry(HookRegistry):
    def emit(self, event: str, data: dict[str, Any]) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "extras",
    [{}, {"hooks": None}, {"hooks": object()}, {"hooks": BrokenRegistry()}],
    ids=["bare", "none", "odd", "broken"],
)
async def test_it_answers_on_a_stub_of_a_coordinator(
    module: ModuleType, stage: dict[str, Any], extras: dict[str, Any]
) -> None:
    mounted: dict[str, Any] = {}

    async def mount(point: str, provider: Any, name: str | None = None) -> None:
        mounted[point] = provider

    cleanup = await module.mount(SimpleNamespace(mount=mount, **extras), stage)

    assert isinstance(await mounted["providers"].complete(request_of()), ChatResponse)
    await cleanup()


# --- configuration and documentation


async def test_the_configuration_it_is_given_is_never_changed(module: ModuleType, stage: dict[str, Any]) -> None:
    before = copy.deepcopy(stage)
    one = Heard()

    cleanup = await module.mount(one.coordinator, stage)
    await one.provider.complete(request_of(*history()))
    await cleanup()

    assert stage == before


async def test_infrastructure_keys_are_ignored_and_unknown_ones_reported(
    folder: Path, module: ModuleType, stage: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    keys = dict.fromkeys(("id", "module", "source", "instance_id", "name"), "x")

    cleanup = await module.mount(MockCoordinator(), {**stage, **keys, "priority": 3, "use_streming": True})

    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert all(part in warning for part in (folder.name, "'use_streming'", "'use_streaming'"))
    await cleanup()


@pytest.fixture
def readme(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


async def test_the_readmes_mount_plan_entry_mounts(folder: Path, readme: str, caplog: pytest.LogCaptureFixture) -> None:
    blocks = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)]
    entry = next(block for block in blocks if block.get("module") == folder.name)
    coordinator = MockCoordinator()
    loader = ModuleLoader(coordinator)

    mount = await loader.load(entry["module"], entry.get("config"), source_hint=str(folder), coordinator=coordinator)
    cleanup = await mount(coordinator)

    assert coordinator.get("providers") or folder.name in NEEDS_CREDENTIALS
    assert [record.message for record in caplog.records if "config key" in record.message] == []
    if cleanup is not None:
        await cleanup()
    loader.cleanup()
