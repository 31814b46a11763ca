"""Providers of others that derive from ours: what they may reach for, and what they may put in its place."""

import importlib
from collections.abc import AsyncIterator, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_provider_openai import OpenAIChatResponse, OpenAIProvider
from openai_server import KEY, OpenAIServer, failed

from amplifier_core import ChatRequest, ChatResponse, Message
from amplifier_core.llm_errors import AuthenticationError, ConfigurationError, InvalidRequestError
from amplifier_core.testing import MockCoordinator

openai = importlib.import_module("openai")
Response = importlib.import_module("openai.types.responses").Response

MODEL = "gpt-5.5"
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": MODEL,
    "output": [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
        {"type": "function_call", "call_id": "call_1", "name": "echo", "arguments": '{"a": 1}'},
    ],
    "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
}


class TenantProvider(OpenAIProvider):
    """A deployment of the vendor's models that has its own client and its own mark on every response."""

    name = "tenant-openai"
    api_label = "Tenant OpenAI"

    def __init__(self, config: Mapping[str, Any], coordinator: Any = None) -> None:
        super().__init__(api_key="placeholder", config=config, coordinator=coordinator)
        self._api_key = self.config["tenant_key"]
        self.built = 0

    @property
    def client(self) -> Any:
        if self._client is None:
            self.built += 1
            self._client = openai.AsyncOpenAI(
                api_key=self._api_key,
                base_url=self.config["tenant_url"],
                max_retries=0,
                default_headers={"x-tenant": "t"},
            )
        return self._client

    def _convert_to_chat_response(self, response: Any) -> OpenAIChatResponse:
        converted = super()._convert_to_chat_response(response)
        converted.metadata = {**(converted.metadata or {}), "tenant": self.config["tenant"]}
        return converted


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(key="tenant-key-0123456789") as running:
        yield running


@pytest.fixture
async def tenant(server: OpenAIServer) -> AsyncIterator[TenantProvider]:
    config = {"tenant_key": server.key, "tenant_url": server.base_url, "tenant": "north", "max_retries": 0}
    provider = TenantProvider(config, MockCoordinator())
    yield provider
    await provider.close()


async def ask(provider: OpenAIProvider, **options: Any) -> ChatResponse:
    return await provider.complete(ChatRequest(messages=[Message(role="user", content="Hi")], **options))


@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_a_subclass_brings_its_client_and_changes_every_response(server: OpenAIServer, api: str) -> None:
    config = {"tenant_key": server.key, "tenant_url": server.base_url, "tenant": "north", "api": api}
    provider = TenantProvider(config)

    response = await ask(provider)
    await provider.close()

    assert response.text == "Hello"
    assert response.metadata is not None
    assert response.metadata["tenant"] == "north"
    assert server.requests[0].headers["x-tenant"] == "t"
    assert provider.built == 1


async def test_its_client_is_closed_and_built_anew(tenant: TenantProvider) -> None:
    await ask(tenant)
    first = tenant.client

    await tenant.close()
    assert first.is_closed()
    await ask(tenant)

    assert tenant.built == 2


async def test_closing_builds_no_client(tenant: TenantProvider) -> None:
    await tenant.close()

    assert tenant.built == 0


async def test_its_models_are_listed_through_its_client(tenant: TenantProvider) -> None:
    assert [model.id for model in await tenant.list_models()] == ["gpt-5.5"]


async def test_it_speaks_under_its_own_name(tenant: TenantProvider) -> None:
    assert (tenant.get_info().id, tenant.get_info().display_name) == ("tenant-openai", "Tenant OpenAI")
    with pytest.raises(InvalidRequestError) as caught:
        await ask(tenant, model="gpt-5.5-pro", reasoning_effort="low")
    assert caught.value.provider == "tenant-openai"


async def test_a_key_that_it_sets_is_used_by_our_client_and_told_to_nobody(server: OpenAIServer) -> None:
    provider = OpenAIProvider(config={"base_url": server.base_url, "max_retries": 0, "api": "responses"})
    provider._api_key = str(server.key)
    server.script("POST /v1/responses", failed(401, "invalid_api_key", f"Incorrect API key provided: {server.key}"))

    with pytest.raises(AuthenticationError) as caught:
        await ask(provider)
    await provider.close()

    assert server.requests[0].headers["authorization"] == f"Bearer {server.key}"
    assert str(server.key) not in str(caught.value)


async def test_a_client_can_be_put_in_the_place_of_ours(server: OpenAIServer) -> None:
    provider = OpenAIProvider(api_key="sk-unused", config={"api": "responses"})
    provider.client = openai.AsyncOpenAI(api_key=server.key, base_url=server.base_url, max_retries=0)

    assert (await ask(provider)).text == "Hello"
    await provider.close()


def test_the_configuration_is_there_as_it_was_given_and_not_the_same_object() -> None:
    given = {"base_url": "http://127.0.0.1:1/v1", "deployment": "d"}

    provider = OpenAIProvider(KEY, config=given)
    provider.config["deployment"] = "other"

    assert provider.config["base_url"] == given["base_url"]
    assert given["deployment"] == "d"
    assert (provider._api_key, OpenAIProvider().config) == (KEY, {})


@pytest.mark.parametrize(
    "given",
    [RESPONSE, Response.construct(**RESPONSE), SimpleNamespace(**RESPONSE)],
    ids=["mapping", "the vendor's object", "a double"],
)
def test_a_response_of_the_vendor_is_converted_by_itself(given: Any) -> None:
    response = OpenAIProvider(KEY)._convert_to_chat_response(given)

    assert [block.type for block in response.content] == ["text", "tool_call"]
    assert (response.text, response.output_text, response.finish_reason) == ("Hello", "Hello", "tool_calls")
    assert response.tool_calls is not None
    assert response.tool_calls[0].arguments == {"a": 1}
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (10, 5)
    assert response.metadata is not None
    assert response.metadata["openai:response_id"] == "resp_1"


class RegionProvider(OpenAIProvider):
    """A provider of another vendor that brings no client; its configuration has other names for its server."""

    name = "region-openai"


@pytest.fixture
def of_openai(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> OpenAIServer:
    """What the environment says about OpenAI itself: its server, and the person's key for it."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", server.key)
    return server


@pytest.mark.parametrize("key", [{}, {"api_key": "region-key"}])
async def test_a_prompt_goes_to_no_host_that_the_configuration_of_a_subclass_does_not_name(
    of_openai: OpenAIServer, key: dict[str, str]
) -> None:
    provider = RegionProvider(config={"azure_endpoint": "https://region.example", "max_retries": 0, **key})

    with pytest.raises(ConfigurationError, match="names no server"):
        await ask(provider)
    with pytest.raises(ConfigurationError):
        await provider.list_models()

    assert of_openai.requests == []


async def test_the_key_of_openai_is_not_sent_to_the_server_of_a_subclass(
    of_openai: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer(key=None) as region:
        provider = RegionProvider(config={"base_url": region.base_url, "max_retries": 0})
        await ask(provider)
        await provider.close()

    assert of_openai.requests == []
    assert of_openai.key not in str([request.headers for request in region.requests])


@pytest.mark.parametrize("way", ["argument", "attribute", "property"])
async def test_a_client_that_a_subclass_brings_is_the_only_one(of_openai: OpenAIServer, way: str) -> None:
    with OpenAIServer(key=None) as region:
        endpoint = region.base_url.removesuffix("/v1")
        client = openai.AsyncAzureOpenAI(
            api_key="region-key", azure_endpoint=endpoint, base_url=None, api_version="v1", max_retries=0
        )
        client.base_url = region.base_url
        config = {"azure_endpoint": endpoint, "api_key": "region-key", "api": "responses"}

        class Bringing(RegionProvider):
            client = property(lambda self: client)  # type: ignore[assignment] # what such a module does

        provider = {
            "argument": lambda: RegionProvider(config=config, client=client),
            "attribute": lambda: RegionProvider(config=config),
            "property": lambda: Bringing(config=config),
        }[way]()
        if way == "attribute":
            provider._client = client
        response = await ask(provider)
        await client.close()

    assert response.text == "Hello"
    assert of_openai.requests == []
    assert region.requests
