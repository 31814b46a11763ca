"""The configuration: what is fatal, what is reported and replaced, and what the provider says about itself."""

from typing import Any

import pytest
from amplifier_module_provider_mock import MockProvider, mount

from amplifier_core import ChatRequest, Message
from amplifier_core.testing import MockCoordinator


@pytest.mark.parametrize(
    "config",
    [
        {"record": "a"},
        {"record": "a", "provider": "x", "replay": "b"},
        {"record": "a", "provider": "x", "script": []},
        {"replay": "a", "script": ["x"]},
    ],
)
def test_a_recording_without_provider_or_beside_another_source_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="provider-mock"):
        MockProvider(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "magic"),
        ("responses", "text"),
        ("responses", [{"txt": "a"}]),
        ("responses", [7]),
        ("script", 7),
        ("on_exhausted", "stop"),
        ("errors", {"type": "auth"}),
        ("usage", "much"),
        ("usage", {"input_tokens": "many"}),
        ("use_streaming", "perhaps"),
        ("stream_delay_ms", -1),
        ("latency_ms", "slow"),
        ("context_window", 0),
        ("max_retries", -1),
        ("tool_trigger", {"pattern": "("}),
        ("tool_trigger", "read"),
        ("seed", "x"),
    ],
)
async def test_a_value_that_does_not_fit_is_reported_and_replaced(
    desk: Any, key: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = desk({key: value})

    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert all(part in warning for part in ("provider-mock", repr(key)))
    assert await one.text() == await desk().text()


async def test_an_unknown_key_is_reported_with_the_one_it_resembles(caplog: pytest.LogCaptureFixture) -> None:
    MockProvider({"respones": ["x"], "name": "kept", "instance_id": "quiet"})

    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "'respones'" in warning
    assert "'responses'" in warning


async def test_numbers_and_switches_may_be_text_and_empty_text_is_unset(desk: Any) -> None:
    one = desk({"context_window": "5000", "use_streaming": "off", "script": "", "record": "", "default_model": ""})

    assert one.provider.get_info().defaults["context_window"] == 5000
    assert one.provider.use_streaming is False
    assert one.provider.get_info().defaults["model"] == "mock-model"


async def test_scripted_without_a_script_answers_canned_and_says_so(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = desk({"mode": "scripted", "responses": ["x"]})

    assert await one.text() == "x"
    assert [record for record in caplog.records if "without 'script'" in record.message]


async def test_the_provider_describes_itself_and_its_model() -> None:
    info = MockProvider().get_info()
    (model,) = await MockProvider().list_models()

    assert info.model_dump() == {
        "id": "mock",
        "display_name": "Mock Provider",
        "credential_env_vars": [],
        "capabilities": ["tools", "testing", "streaming"],
        "defaults": {
            "model": "mock-model",
            "max_tokens": 4096,
            "temperature": 0.7,
            "timeout": 30.0,
            "context_window": 100000,
            "max_output_tokens": 4096,
        },
        "config_fields": [],
    }
    assert model.model_dump() == {
        "id": "mock-model",
        "display_name": "Mock Model",
        "context_window": 100000,
        "max_output_tokens": 4096,
        "capabilities": ["tools", "testing", "streaming"],
        "defaults": {"temperature": 0.7, "max_tokens": 4096},
        "pricing": None,
    }


async def test_the_model_can_be_given_another_name_and_size() -> None:
    provider = MockProvider({"model": "mock-2", "context_window": 10, "max_output_tokens": 5})
    (model,) = await provider.list_models()

    assert (model.id, model.context_window, model.max_output_tokens) == ("mock-2", 10, 5)
    assert provider.get_info().defaults["model"] == "mock-2"


async def test_costs_of_answers_are_summed_for_the_session() -> None:
    coordinator = MockCoordinator()
    await mount(coordinator, {"responses": [{"text": "x", "usage": {"cost_usd": "0.10"}}, "free"]})
    provider = coordinator.get("providers", "mock")
    collect = coordinator.collect_contributions

    before = await collect("session.cost")
    for _ in range(3):
        await provider.complete(_request())

    assert before == []
    assert await collect("session.cost") == [{"cost_usd": "0.20"}]


def _request() -> Any:
    return ChatRequest(messages=[Message(role="user", content="x")])
