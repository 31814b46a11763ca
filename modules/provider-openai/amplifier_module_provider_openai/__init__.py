"""provider-openai: OpenAI's models and those of compatible servers, by the Responses or the Chat Completions API."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import contribute_events
from amplifier_kit.providers.cost import CostTally
from amplifier_kit.providers.events import STREAM_EVENTS
from amplifier_kit.providers.gate import CONCURRENCY

from .provider import API_SELECTED, OpenAIChatResponse, OpenAIProvider
from .responses.api import CHAIN_INVALIDATED, CONTINUATION
from .settings import MODULE_ID

__all__ = ["OpenAIChatResponse", "OpenAIProvider", "mount"]

__amplifier_module_type__ = "provider"

logger = logging.getLogger(__name__)

EVENTS = (
    CONCURRENCY,
    CONTINUATION,
    CHAIN_INVALIDATED,
    API_SELECTED,
    *STREAM_EVENTS,
)


async def mount(
    coordinator: ModuleCoordinator, config: dict[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount the provider and return its cleanup; without a key for OpenAI itself, warn and mount nothing."""
    tally = CostTally()
    provider = OpenAIProvider(config=config, coordinator=coordinator, add_cost=tally.add)
    if not provider.has_credentials:
        logger.warning("%s is not mounted: no API key; set OPENAI_API_KEY or configure api_key", MODULE_ID)
        return None
    contribute_events(coordinator, MODULE_ID, EVENTS)
    tally.contribute(coordinator, MODULE_ID)
    await coordinator.mount("providers", provider, name=provider.name)
    logger.info("mounted %s", MODULE_ID)
    return provider.close
