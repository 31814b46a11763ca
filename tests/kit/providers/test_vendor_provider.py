"""A provider in front of a vendor: settings, a client at first use, and mounting."""

import asyncio
import logging
import threading
from typing import Any

import pytest

from amplifier_core.llm_errors import ConfigurationError, LLMTimeoutError
from amplifier_core.testing import MockCoordinator
from amplifier_kit.config import LenientConfig
from amplifier_kit.providers.settings import Vendor, VendorSettings, access_fields, read_shared
from amplifier_kit.providers.vendor import VENDOR_EVENTS, VendorProvider, import_sdk, mount_vendor

ACME = Vendor("provider-acme", "ACME_KEY", "ACME_URL", "https://api.acme.example/v1", "acme-1")


class Client:
    """Notes where it was built, and that it was closed."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.thread = threading.current_thread()
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class AcmeProvider(VendorProvider[VendorSettings]):
    name = "acme"

    def build_client(self) -> Client:
        return Client(self._api_key)


def settings_of(**config: Any) -> VendorSettings:
    return VendorSettings(**read_shared(LenientConfig(ACME.module_id, config), ACME, api_key=None))


def provider_of(add_cost: Any = None, coordinator: Any = None, **config: Any) -> AcmeProvider:
    settings, priced_as = settings_of(**config), {"provider_id": "acme"}
    return AcmeProvider(settings, config, coordinator=coordinator, add_cost=add_cost, priced_as=priced_as)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ACME.key_variable, ACME.url_variable):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("address", "server", "host"),
    [
        ("https://api.acme.example/v1/", "https://api.acme.example/v1", "api.acme.example"),
        ("http://user:secret@127.0.0.1:8080/v1?key=secret#part", "http://127.0.0.1:8080/v1", "127.0.0.1"),
        ("ftp://acme.example", "", ""),
        ("no address at all", "", ""),
        ("http://[broken", "", ""),
        ("http://host:port", "", ""),
    ],
)
def test_the_server_is_shown_without_secrets(address: str, server: str, host: str) -> None:
    settings = settings_of(base_url=address)

    assert (settings.server, settings.host) == (server, host)
    assert bool(settings.problem_with("key")) is (server == "")


def test_key_address_and_model_come_from_configuration_then_environment_then_vendor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = settings_of()
    monkeypatch.setenv(ACME.key_variable, "of the environment")
    monkeypatch.setenv(ACME.url_variable, "http://environment.example")
    set_outside, set_here = settings_of(), settings_of(api_key="k", base_url="http://here.example", model="acme-2")

    assert (bare.api_key, bare.base_url, bare.default_model) == (None, ACME.default_url, "acme-1")
    assert (set_outside.api_key, set_outside.base_url) == ("of the environment", "http://environment.example")
    assert (set_here.api_key, set_here.base_url, set_here.default_model) == ("k", "http://here.example", "acme-2")
    assert "of the environment" not in repr(set_outside)


def test_an_application_asks_for_key_and_address() -> None:
    key, address = access_fields(ACME, "Acme")

    assert (key.id, key.field_type, key.env_var) == ("api_key", "secret", "ACME_KEY")
    assert (address.id, address.required, address.default) == ("base_url", False, ACME.default_url)


async def test_the_client_is_built_once_in_another_thread_and_anew_after_closing() -> None:
    provider = provider_of(api_key="k")

    await provider.close()
    first = await provider.ready_client()
    second = await provider.ready_client()
    await provider.close()
    third = await provider.ready_client()

    assert first is second
    assert (first.key, first.is_closed) == ("k", True)
    assert first.thread is not threading.current_thread()
    assert third is not first
    await provider.close()


async def test_another_client_can_be_put_in_its_place_and_is_closed() -> None:
    provider, own = provider_of(), Client("own")
    provider.client = own

    assert await provider.ready_client() is own
    await provider.close()

    assert own.is_closed


@pytest.mark.parametrize(("config", "problem"), [({}, "set ACME_KEY"), ({"base_url": "nowhere"}, "base_url")])
async def test_a_client_that_cannot_work_is_not_built(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"provider-acme: .*{problem}") as caught:
        await provider_of(**config).ready_client()

    assert caught.value.provider == "acme"


def test_a_package_that_is_missing_is_named_with_what_to_install() -> None:
    with pytest.raises(ConfigurationError, match=r"provider-acme needs the package 'acme_sdk'.*provider install acme"):
        import_sdk("acme_sdk", ACME.module_id, "acme")


async def test_a_call_that_takes_too_long_names_provider_and_server() -> None:
    call = provider_of(base_url="http://127.0.0.1:1/v1").begin_call("acme-1")

    with pytest.raises(LLMTimeoutError, match=r"^acme at http://127\.0\.0\.1:1/v1: no answer within 0 seconds$"):
        async with call.in_time(0):
            await asyncio.Event().wait()


async def test_mounting_announces_events_and_costs_and_returns_the_cleanup() -> None:
    coordinator = MockCoordinator()

    cleanup = await mount_vendor(
        coordinator, lambda add: provider_of(add, coordinator, api_key="k"), events=(*VENDOR_EVENTS, "acme:blinked")
    )

    assert coordinator.get_mounted("providers") == ["acme"]
    assert "acme:blinked" in (await coordinator.collect_contributions("observability.events"))[0]
    assert cleanup is not None
    await cleanup()


async def test_without_a_key_nothing_is_mounted_and_the_module_says_why(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = MockCoordinator()

    with caplog.at_level(logging.WARNING):
        assert await mount_vendor(coordinator, lambda add: provider_of(add, coordinator), events=()) is None

    (record,) = caplog.records
    reason = "no API key; set ACME_KEY, or api_key in its configuration"
    assert record.getMessage() == f"provider-acme is not mounted: {reason}"
    assert record.name == AcmeProvider.__module__
    assert coordinator.get("providers") == {}


async def test_a_call_is_estimated_at_the_configured_rates() -> None:
    provider = provider_of(rates={"acme-1": {"input_per_m": 2, "output_per_m": 10}})

    assert await provider.estimate_cost("acme-1", 1_000_000, 100_000) == 3
