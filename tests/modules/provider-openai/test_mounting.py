"""Mounting with and without credentials, and the configuration."""

import importlib
import subprocess
import sys
from typing import Any

import pytest
from amplifier_module_provider_openai import OpenAIProvider, mount
from openai_server import OpenAIServer

from amplifier_core import ChatRequest, Message
from amplifier_core.testing import MockCoordinator


async def test_without_a_key_nothing_is_mounted_and_a_warning_says_why(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = MockCoordinator()

    assert await mount(coordinator, {}) is None

    assert coordinator.get("providers") == {}
    assert ["OPENAI_API_KEY" in record.message for record in caplog.records if record.levelname == "WARNING"] == [True]


@pytest.mark.parametrize(
    ("config", "environment"),
    [
        ({"base_url": "http://127.0.0.1:1/v1"}, {}),
        ({}, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}),
        ({"api_key": "sk-1"}, {}),
        ({"base_url": "", "api_key": "${MISSING}"}, {"OPENAI_API_KEY": "sk-1"}),
    ],
    ids=["server", "server of the environment", "key", "key of the environment"],
)
async def test_a_key_or_another_server_is_enough_to_mount(
    monkeypatch: pytest.MonkeyPatch, config: Any, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    coordinator = MockCoordinator()

    cleanup = await mount(coordinator, config)

    assert coordinator.get_mounted("providers") == ["openai"]
    assert cleanup is not None
    await cleanup()


async def test_openais_address_without_a_key_is_not_enough() -> None:
    assert await mount(MockCoordinator(), {"base_url": "https://api.openai.com/v1/"}) is None


async def test_a_local_server_is_asked_without_a_key_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer(key=None) as local:
        monkeypatch.setenv("OPENAI_BASE_URL", local.base_url + "/")
        provider = OpenAIProvider()

        models = await provider.list_models()
        await provider.close()

        assert [model.id for model in models] == ["gpt-5.5"]
        assert local.requests[0].path == "/v1/models"
        assert local.requests[0].headers["authorization"] == "Bearer not-needed"


async def test_the_client_is_the_vendors_own_and_does_not_retry(desks: Any) -> None:
    openai = importlib.import_module("openai")

    client = desks().provider.client

    assert isinstance(client, openai.AsyncOpenAI)
    assert client.max_retries == 0


async def test_cleanup_without_a_call_builds_no_client(server: OpenAIServer) -> None:
    coordinator = MockCoordinator()
    cleanup = await mount(coordinator, {"base_url": "no address at all"})

    assert cleanup is not None
    await cleanup()
    await cleanup()


async def test_costs_are_summed_for_the_session(server: OpenAIServer) -> None:
    coordinator = MockCoordinator()
    rates = {"gpt-5.5": {"input_per_m": "1", "output_per_m": "1"}}
    cleanup = await mount(coordinator, {"base_url": server.base_url, "api_key": server.key, "rates": rates})
    provider = coordinator.get("providers")["openai"]
    before = await coordinator.collect_contributions("session.cost")

    for _ in range(2):
        await provider.complete(ChatRequest(messages=[Message(role="user", content="Hi")]))
    assert cleanup is not None
    await cleanup()

    assert [cost for cost in before if cost] == []
    (cost,) = await coordinator.collect_contributions("session.cost")
    assert cost == {"cost_usd": "0.000030"}


def test_a_value_that_does_not_fit_is_reported_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    config = {
        "api_key": 12345678,
        "timeout": "soon",
        "max_tokens": "100",
        "use_streaming": "off",
        "enable_response_chaining": "perhaps",
        "reasoning": 3,
        "text_verbosity": "loud",
        "background": True,
        "max_tokns": 1,
    }

    provider = OpenAIProvider(config=config)

    warnings = [record.message for record in caplog.records]
    for key in ("api_key", "timeout", "enable_response_chaining", "reasoning", "text_verbosity", "background"):
        assert any(f"'{key}'" in warning for warning in warnings), key
    assert any("'max_tokns'" in warning and "'max_tokens'" in warning for warning in warnings)
    assert not any("12345678" in warning for warning in warnings)
    assert provider.use_streaming is False


def test_importing_and_mounting_need_no_vendor_package() -> None:
    script = """
import asyncio, sys
sys.modules["openai"] = sys.modules["genai_prices"] = None
from amplifier_core import ChatRequest, Message
from amplifier_core.testing import MockCoordinator
from amplifier_module_provider_openai import mount

async def main():
    coordinator = MockCoordinator()
    await mount(coordinator, {"base_url": "http://127.0.0.1:1/v1"})
    provider = coordinator.get("providers")["openai"]
    provider.get_info()
    try:
        await provider.complete(ChatRequest(messages=[Message(role="user", content="Hi")]))
    except Exception as error:
        print(type(error).__name__, error)

asyncio.run(main())
"""
    path = [entry for entry in sys.path if entry]
    code = f"import sys; sys.path[:0] = {path!r}\n{script}"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.startswith("ConfigurationError")
    assert "amplifier provider install openai" in ran.stdout
