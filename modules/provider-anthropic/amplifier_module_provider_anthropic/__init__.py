"""provider-anthropic: Claude models through Anthropic's Messages API."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import contribute_events
from amplifier_kit.providers.cost import CostTally
from amplifier_kit.providers.events import STREAM_EVENTS
from amplifier_kit.providers.gate import CONCURRENCY

from .attempts import CLOUDFLARE_CHALLENGE, THINKING_BINDING_RETRY
from .provider import AnthropicProvider
from .response import AnthropicChatResponse
from .settings import MODULE_ID

__all__ = ["AnthropicChatResponse", "AnthropicProvider", "mount"]

__amplifier_module_type__ = "provider"

logger = logging.getLogger(__name__)

EVENTS = (
    CONCURRENCY,
    THINKING_BINDING_RETRY,
    CLOUDFLARE_CHALLENGE,
    *STREAM_EVENTS,
)


async def mount(
    coordinator: ModuleCoordinator, config: dict[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount the provider; returns the cleanup, which closes the client. Without a key nothing is mounted."""
    tally = CostTally()
    provider = AnthropicProvider(None, config, coordinator, tally.add)
    if not provider.has_credentials:
        logger.warning("%s: no API key, not mounted; set ANTHROPIC_API_KEY, or api_key in its configuration", MODULE_ID)
        return None
    contribute_events(coordinator, MODULE_ID, EVENTS)
    tally.contribute(coordinator, MODULE_ID)
    await coordinator.mount("providers", provider, name=provider.name)
    logger.info("mounted %s", MODULE_ID)
    return provider.close
