"""provider-mock: a model provider without a model, deterministic and offline."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import contribute_events
from amplifier_kit.providers.cost import CostTally
from amplifier_kit.providers.stream import STREAM_EVENTS

from .provider import MockProvider
from .settings import MODULE_ID

__all__ = ["MockProvider", "mount"]

__amplifier_module_type__ = "provider"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], Awaitable[None]]:
    """Mount the provider; returns the cleanup, which closes a recording."""
    tally = CostTally()
    provider = MockProvider(config, coordinator, add_cost=tally.add)
    contribute_events(coordinator, MODULE_ID, STREAM_EVENTS)
    tally.contribute(coordinator, MODULE_ID)
    await coordinator.mount("providers", provider, name=provider.name)
    logger.info("mounted %s", MODULE_ID)
    return provider.close
