"""The vocabulary of events and model capabilities."""

from types import ModuleType

import pytest

from amplifier_core import capabilities, events

EVENTS = [
    "session:start", "session:end", "session:fork", "session:resume", "prompt:submit", "prompt:complete",
    "plan:start", "plan:end", "provider:request", "provider:response", "provider:retry", "provider:error",
    "provider:throttle", "provider:tool_sequence_repaired", "provider:resolve", "llm:request", "llm:response",
    "content_block:start", "content_block:delta", "content_block:end", "thinking:delta", "thinking:final", "tool:pre",
    "tool:post", "tool:error", "context:pre_compact", "context:post_compact", "context:compaction", "context:include",
    "orchestrator:complete", "execution:start", "execution:end", "user:notification", "artifact:write",
    "artifact:read", "policy:violation", "approval:required", "approval:granted", "approval:denied",
    "cancel:requested", "cancel:completed", "module:on_session_ready_failed", "module:load_failed",
]  # fmt: skip

CAPABILITIES = [
    "tools", "streaming", "thinking", "vision", "json_mode", "fast", "code_execution", "web_search", "deep_research",
    "local", "audio", "image_generation", "computer_use", "embeddings", "long_context", "batch",
]  # fmt: skip


def constants(module: ModuleType) -> dict[str, object]:
    return {name: value for name, value in vars(module).items() if name.isupper()}


def test_all_events_are_listed_in_order() -> None:
    assert type(events.ALL_EVENTS) is list
    assert events.ALL_EVENTS == EVENTS


def test_an_event_constant_is_named_after_its_value_and_nothing_else_is_upper_case() -> None:
    named = {value.replace(":", "_").upper(): value for value in EVENTS}

    assert constants(events) == {**named, "ALL_EVENTS": EVENTS}


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_name_is_a_namespace_and_an_action(event: str) -> None:
    namespace, colon, action = event.partition(":")

    assert namespace
    assert colon
    assert action
    assert ":" not in action


def test_capability_constants_are_named_after_their_values_and_nothing_else_is_upper_case() -> None:
    named = {value.upper(): value for value in CAPABILITIES}

    assert constants(capabilities) == {**named, "ALL_WELL_KNOWN_CAPABILITIES": CAPABILITIES}


def test_all_well_known_capabilities_are_listed_in_order() -> None:
    assert type(capabilities.ALL_WELL_KNOWN_CAPABILITIES) is list
    assert capabilities.ALL_WELL_KNOWN_CAPABILITIES == CAPABILITIES
