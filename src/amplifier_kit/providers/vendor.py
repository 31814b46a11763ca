"""A provider in front of a vendor: its client, its events, and how it is mounted."""

import asyncio
import importlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Generic, TypeVar

from amplifier_core import ChatResponse, ModuleCoordinator, ToolCall
from amplifier_core.llm_errors import ConfigurationError
from amplifier_kit.client_slot import ClientSlot
from amplifier_kit.mounting import contribute_events

from .call import CONCURRENCY, ConcurrencyGate, ProviderCall
from .cost import CostTally, Prices, TokenCounts
from .response import parse_tool_calls
from .settings import VendorSettings
from .stream import STREAM_EVENTS, ProviderEvents

S = TypeVar("S", bound=VendorSettings)
VENDOR_EVENTS = (CONCURRENCY, *STREAM_EVENTS)  # what every one of them emits beyond the kernel's list

AddCost = Callable[[Decimal | None], None]


class VendorProvider(ABC, Generic[S]):
    """What every vendor's provider has; nothing is imported, opened or looked up before the first call.

    `add_cost` gets the cost of every exchange, even of failed ones; `priced_as` is what `Prices` calls the vendor.
    Providers of other modules may derive from one of ours. For them `config` is a copy of the configuration, `_api_key`
    the key that is sent, `client` the vendor's client, which `_client` keeps; each may be set or overridden, and so may
    `name`.
    """

    name: str

    def __init__(
        self,
        settings: S,
        config: Mapping[str, Any] | None,
        *,
        coordinator: Any,
        add_cost: AddCost | None,
        priced_as: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self.config: dict[str, Any] = dict(config or {})
        self._api_key = settings.api_key
        self.coordinator = coordinator
        self.default_model = settings.default_model
        self.priority = settings.priority
        self._add_cost: AddCost = add_cost or (lambda cost: None)
        self._prices = Prices(settings.vendor.module_id, settings.rates, **priced_as)
        self._events = ProviderEvents(coordinator)
        self._gate = ConcurrencyGate(self.name, settings.max_concurrent_requests, self._events)
        self._slot: ClientSlot[Any] = ClientSlot(
            settings.vendor.module_id, self._build, lambda client: client.close(), timeout_s=settings.close_timeout_s
        )
        self._is_client_ready = False

    @property
    def client(self) -> Any:
        """The vendor's own async client, built when it is first needed; another can be put in its place."""
        return self._slot.get()

    @client.setter
    def client(self, client: Any) -> None:
        self._slot.put(client)

    @property
    def _client(self) -> Any:
        """The client as far as there is one; what is kept here is closed with the provider."""
        return self._slot.get() if self._slot.is_filled else None

    @_client.setter
    def _client(self, client: Any) -> None:
        self._slot.put(client)

    @property
    def has_credentials(self) -> bool:
        """True if calls can be made: there is a key, or a server that needs none."""
        return self._api_key is not None or not self._settings.needs_key

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the tool calls of a response."""
        return parse_tool_calls(response)

    async def estimate_cost(self, model: str, input_tokens: int, output_tokens: int) -> Decimal | None:
        """Return what a call of that size costs when nothing of it is cached, None when no price is known."""
        return await self._prices.cost_of(model, TokenCounts(input_tokens, output_tokens))

    async def close(self) -> None:
        """Close the client, if there is one; may be called any number of times."""
        self._is_client_ready = False
        await self._slot.close()

    @abstractmethod
    def build_client(self) -> Any:
        """Return a new client of the vendor's, which does not retry; runs in a worker thread."""

    async def ready_client(self) -> Any:
        """Return the client; importing and building it takes long enough to be done beside the event loop."""
        if not self._is_client_ready:
            await asyncio.to_thread(lambda: self.client)
            self._is_client_ready = True
        return self.client

    def begin_call(self, model: str) -> ProviderCall:
        """Return a call that is about to be announced."""
        return ProviderCall(self._events, provider=self.name, model=model, server=self._settings.server)

    def _build(self) -> Any:
        if problem := self._settings.problem_with(self._api_key):
            raise ConfigurationError(f"{self._settings.vendor.module_id}: {problem}", provider=self.name)
        return self.build_client()


def import_sdk(package: str, module_id: str, provider: str) -> Any:
    """Return a vendor's package; without it no call can be made, and the error says what to install."""
    try:
        return importlib.import_module(package)
    except ImportError as exc:
        message = f"{module_id} needs the package {package!r}; this installs it: amplifier provider install {provider}"
        raise ConfigurationError(message, provider=provider) from exc


async def mount_vendor(
    coordinator: ModuleCoordinator, make: Callable[[AddCost], VendorProvider[Any]], *, events: Iterable[str]
) -> Callable[[], Awaitable[None]] | None:
    """Mount the provider that `make` returns, and announce its events; returns its cleanup.

    Without a key it warns and mounts nothing.
    """
    tally = CostTally()
    provider = make(tally.add)
    vendor = provider._settings.vendor
    logger = logging.getLogger(type(provider).__module__)  # what the module logs is the reason given if it is missing
    if not provider.has_credentials:
        logger.warning("%s is not mounted: %s", vendor.module_id, provider._settings.problem_with(None))
        return None
    contribute_events(coordinator, vendor.module_id, events)
    tally.contribute(coordinator, vendor.module_id)
    await coordinator.mount("providers", provider, name=provider.name)
    logger.info("mounted %s", vendor.module_id)
    return provider.close
