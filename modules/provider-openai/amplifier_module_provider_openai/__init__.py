"""provider-openai: OpenAI's models and those of compatible servers, by the Responses or the Chat Completions API."""

from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.providers.vendor import VENDOR_EVENTS, mount_vendor

from .provider import API_SELECTED, OpenAIChatResponse, OpenAIProvider
from .responses_api import CHAIN_INVALIDATED, CONTINUATION

__all__ = ["OpenAIChatResponse", "OpenAIProvider", "mount"]

__amplifier_module_type__ = "provider"

EVENTS = (*VENDOR_EVENTS, CONTINUATION, CHAIN_INVALIDATED, API_SELECTED)


async def mount(
    coordinator: ModuleCoordinator, config: dict[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount the provider and return its cleanup; without a key for OpenAI itself, warn and mount nothing."""
    return await mount_vendor(
        coordinator,
        lambda add_cost: OpenAIProvider(config=config, coordinator=coordinator, add_cost=add_cost),
        events=EVENTS,
    )
