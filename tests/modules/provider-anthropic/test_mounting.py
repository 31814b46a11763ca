"""Mounting with and without a key, configuration, and what is open and closed when."""

import asyncio
import json
import logging
import subprocess
import sys
from typing import Any

import amplifier_module_provider_anthropic
import anthropic
import pytest
from amplifier_module_provider_anthropic import AnthropicProvider, mount
from anthropic_server import MESSAGES, AnthropicServer, reply, text
from vendor_server import hang

from amplifier_core.llm_errors import ConfigurationError
from amplifier_core.testing import MockCoordinator


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


# --- the key


@pytest.mark.parametrize("config", [None, {}, {"api_key": ""}, {"api_key": "${ANTHROPIC_API_KEY}"}], ids=str)
async def test_without_a_key_nothing_is_mounted_and_the_log_says_why(
    config: Any, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = MockCoordinator()

    assert await mount(coordinator, config) is None

    assert coordinator.get("providers") == {}
    assert "ANTHROPIC_API_KEY" in warned(caplog)[-1]


async def test_the_first_call_without_a_key_says_what_is_missing() -> None:
    provider = AnthropicProvider()

    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY") as caught:
        await provider.list_models()

    assert not caught.value.retryable
    await provider.close()


async def test_key_and_address_may_come_from_the_environment(
    server: AnthropicServer, monkeypatch: pytest.MonkeyPatch, make_request: Any
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", server.key)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    coordinator = MockCoordinator()
    cleanup = await mount(coordinator)

    response = await coordinator.get("providers")["anthropic"].complete(make_request("Hi"))

    assert response.text == "Hello"
    assert cleanup is not None
    await cleanup()


@pytest.mark.parametrize("address", ["api.anthropic.com", "ftp://host", "http://", "http://[::1"])
async def test_an_address_that_cannot_be_used_is_a_configuration_error(desk: Any, address: str) -> None:
    one = desk(base_url=address)

    with pytest.raises(ConfigurationError, match="base_url"):
        await one.ask("Hi")

    assert one.heard("llm:response")[0]["error_type"] == "ConfigurationError"
    assert one.names("provider:retry") == []


async def test_a_key_that_is_no_text_is_not_even_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert await mount(MockCoordinator(), {"api_key": 12345678}) is None
    assert "12345678" not in caplog.text


# --- configuration


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"max_retries": "many"}, "max_retries"),
        ({"thinking_type": "deep"}, "thinking_type"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"beta_headers": 7}, "beta_headers"),
        ({"extended_thinking": "perhaps"}, "extended_thinking"),
        ({"effort": "low"}, "deprecated"),
        ({"enable_web_search": True}, "enable_web_search"),
    ],
)
def test_what_does_not_fit_is_reported_once_and_never_fatal(
    config: dict[str, Any], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    AnthropicProvider(config=config)

    (message,) = warned(caplog)
    assert named in message


def test_extra_parameters_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(ValueError, match="extra_request_params"):
        AnthropicProvider(config={"extra_request_params": ["x"]})


async def test_the_older_spelling_of_the_effort_still_counts(desk: Any) -> None:
    assert (await desk(effort="high").body("Hi"))["output_config"] == {"effort": "high"}


# --- packages


async def test_without_the_vendors_package_a_call_says_what_to_install(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)

    with pytest.raises(ConfigurationError, match="amplifier provider install anthropic"):
        await desk().ask("Hi")


PROGRAM = """
import asyncio, json, sys, threading

class Watch:
    seen = {}
    def find_spec(self, name, path=None, target=None):
        if name in ("anthropic", "anthropic.resources.messages", "genai_prices"):
            self.seen[name] = threading.current_thread() is threading.main_thread()

sys.meta_path.insert(0, Watch())
from amplifier_core import ChatRequest, Message
from amplifier_module_provider_anthropic import AnthropicProvider

provider = AnthropicProvider(config=json.loads(sys.argv[1]))
before = dict(Watch.seen)

async def main():
    await provider.complete(ChatRequest(messages=[Message(role="user", content="Hi")]))
    await provider.close()

asyncio.run(main())
print(json.dumps([before, Watch.seen]))
"""


async def test_heavy_packages_are_imported_at_the_first_call_and_off_the_event_loop(server: AnthropicServer) -> None:
    config = json.dumps({"api_key": server.key, "base_url": server.url})
    folder = amplifier_module_provider_anthropic.__path__[0] + "/.."
    program = f"import sys; sys.path.append({folder!r})\n{PROGRAM}"

    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program, config], capture_output=True, text=True, check=True
    )

    before, seen = json.loads(run.stdout)
    assert before == {}
    assert seen == {"anthropic": False, "anthropic.resources.messages": False, "genai_prices": False}


# --- the client


async def test_the_client_is_the_vendors_own_without_retries_of_its_own(desk: Any) -> None:
    one = desk()

    client = one.provider.client

    assert isinstance(client, anthropic.AsyncAnthropic)
    assert (client.max_retries, client is one.provider.client) == (0, True)


async def test_another_client_can_be_put_in_its_place(desk: Any, server: AnthropicServer) -> None:
    one = desk(base_url="http://127.0.0.1:9")
    one.provider.client = anthropic.AsyncAnthropic(auth_token=server.key, base_url=server.url, max_retries=0)

    assert (await one.ask("Hi")).text == "Hello"


async def test_cleanup_without_a_call_creates_no_client(
    server: AnthropicServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleanup = await mount(MockCoordinator(), {"api_key": server.key, "base_url": server.url})
    monkeypatch.setitem(sys.modules, "anthropic", None)  # building one would fail from here on

    assert cleanup is not None
    assert [await cleanup(), await cleanup()] == [None, None]
    assert server.requests == []


async def test_cleanup_returns_in_time_while_the_server_hangs(
    server: AnthropicServer, make_request: Any, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"api_key": server.key, "base_url": server.url, "close_timeout": 0.5, "max_retries": 0}
    coordinator = MockCoordinator()
    cleanup = await mount(coordinator, config)
    provider = coordinator.get("providers")["anthropic"]
    server.script(MESSAGES, hang(), reply(text("Hello there"), hang_after=4))
    calls = [asyncio.create_task(provider.complete(make_request("Hi"))) for _ in range(2)]
    await server.until(lambda: len(server.requests) == 2)

    assert cleanup is not None
    async with asyncio.timeout(1.0):
        await cleanup()

    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert (await provider.complete(make_request("Hi"))).text == "Hello", "after close it starts afresh"
    await provider.close()


async def test_mounting_is_logged_and_offers_events_and_costs(
    server: AnthropicServer, make_request: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    coordinator = MockCoordinator()
    cleanup = await mount(coordinator, {"api_key": server.key, "base_url": server.url})
    before = await coordinator.collect_contributions("session.cost")
    await coordinator.get("providers")["anthropic"].complete(make_request("Hi"))

    (cost,) = await coordinator.collect_contributions("session.cost")
    (events,) = await coordinator.collect_contributions("observability.events")

    assert before == []
    assert float(cost["cost_usd"]) > 0
    assert {"provider:thinking_binding_retry", "provider:cloudflare_challenge", "provider:concurrency"} <= set(events)
    assert "mounted provider-anthropic" in caplog.text
    assert cleanup is not None
    await cleanup()
