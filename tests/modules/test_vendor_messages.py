"""What a person reads when a vendor cannot be used: which provider, which server, and why."""

from importlib import import_module
from typing import Any

import pytest
from anthropic_server import AnthropicServer
from openai_server import OpenAIServer
from vendor_server import Answer, cut, hang, json_answer, sse_answer, text_answer

from amplifier_core import AmplifierSession, ChatRequest, LLMError, Message
from amplifier_core.testing import MockCoordinator

REQUEST = ChatRequest(messages=[Message(role="user", content="Hi")])
VENDORS = {
    "anthropic": (AnthropicServer, "POST /v1/messages", "", "ANTHROPIC_API_KEY"),
    "openai": (OpenAIServer, "POST /v1/responses", "/v1", "OPENAI_API_KEY"),
}


def provider_of(vendor: str, config: dict[str, Any]) -> Any:
    module = import_module(f"amplifier_module_provider_{vendor}")
    kind = {"anthropic": "AnthropicProvider", "openai": "OpenAIProvider"}[vendor]
    return getattr(module, kind)(config={"max_retries": 0, "api_key": "sk-0123456789", **config})


async def failure(provider: Any) -> LLMError:
    with pytest.raises(LLMError) as caught:
        await provider.complete(REQUEST)
    await provider.close()
    return caught.value


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (cut(), "Connection error."),
        (hang(), "no answer within 0.3 seconds"),
        (text_answer("upstream is away", 502), "upstream is away"),
        (Answer(headers={"content-type": "text/event-stream"}, pieces=[b": begun\n\n"]), "the stream ended"),
        (sse_answer([(None, {"type": "ping"})], cut_after=1), "peer closed connection"),
    ],
    ids=["cut", "silent", "text", "nothing", "torn"],
)
@pytest.mark.parametrize("vendor", VENDORS)
async def test_an_error_names_provider_and_server(vendor: str, answer: Answer, reason: str) -> None:
    kind, endpoint, path, _ = VENDORS[vendor]
    with kind() as server:
        server.script(endpoint, answer)
        config = {
            "base_url": f"{server.url}{path}",
            "api_key": server.key,
            "timeout": 0.3 if reason.startswith("no answer") else 30,
        }

        error = await failure(provider_of(vendor, config))

    assert str(error).startswith(f"{vendor} at {server.url}{path}: ")
    assert reason in str(error)


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_server_that_is_not_there_is_named_without_what_is_secret_in_its_address(vendor: str) -> None:
    error = await failure(provider_of(vendor, {"base_url": "http://user:hidden@127.0.0.1:1/v1?key=hidden"}))

    assert str(error).startswith(f"{vendor} at http://127.0.0.1:1/v1: Connection error.")
    assert "hidden" not in str(error)


@pytest.mark.parametrize("vendor", VENDORS)
async def test_what_the_vendor_says_stays_as_it_is_and_a_note_says_who(vendor: str) -> None:
    kind, endpoint, path, _ = VENDORS[vendor]
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": "No."}}
    with kind() as server:
        server.script(endpoint, json_answer(body, 400))
        config = {"base_url": f"{server.url}{path}", "api_key": server.key}

        error = await failure(provider_of(vendor, config))

    assert str(error).startswith("{")
    assert error.__notes__ == [f"{vendor} at {server.url}{path}"]


@pytest.mark.parametrize("vendor", VENDORS)
async def test_without_a_key_a_provider_says_what_it_needs(
    vendor: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    variable = VENDORS[vendor][3]
    monkeypatch.delenv(variable, raising=False)

    assert await import_module(f"amplifier_module_provider_{vendor}").mount(MockCoordinator(), {}) is None

    (record,) = caplog.records
    reason = f"no API key; set {variable}, or api_key in its configuration"
    assert (record.levelname, record.getMessage()) == ("WARNING", f"provider-{vendor} is not mounted: {reason}")


async def test_a_session_without_a_provider_gives_each_ones_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for *_, variable in VENDORS.values():
        monkeypatch.delenv(variable, raising=False)
    plan = {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": f"provider-{vendor}"} for vendor in VENDORS],
    }
    session = AmplifierSession(plan)
    await session.initialize()

    with pytest.raises(RuntimeError) as caught:
        await session.execute("Hi")
    await session.cleanup()

    for vendor, (*_, variable) in VENDORS.items():
        assert f"provider-{vendor} is not mounted: no API key; set {variable}" in str(caught.value)
