"""loop-basic: ask the provider, run the tools it calls, ask again, until there is an answer."""

import logging
from collections.abc import Mapping
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import EXECUTION_END, EXECUTION_START
from amplifier_kit.config import ModuleConfig
from amplifier_kit.loops.orchestrator import LoopOrchestrator
from amplifier_kit.loops.requests import RequestBuilder
from amplifier_kit.loops.settings import LoopSettings
from amplifier_kit.loops.turn import Turn
from amplifier_kit.mounting import contribute_events

__amplifier_module_type__ = "orchestrator"

MODULE_ID = "loop-basic"

logger = logging.getLogger(__name__)


class BasicTurn(Turn):
    """A turn as the kit runs it."""

    orchestrator = MODULE_ID


class BasicOrchestrator(LoopOrchestrator):
    """Runs one turn at a time or many at once; a turn's state is its own."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        settings = ModuleConfig(MODULE_ID, config)
        self.settings = LoopSettings.read(settings)
        settings.warn_unknown()
        self._builder = RequestBuilder()

    def begin(self, *state: Any) -> BasicTurn:
        return BasicTurn(self.settings, self._builder, *state)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the orchestrator."""
    orchestrator = BasicOrchestrator(config)
    contribute_events(coordinator, MODULE_ID, (EXECUTION_START, EXECUTION_END))
    await coordinator.mount("orchestrator", orchestrator)
    logger.info("mounted %s", MODULE_ID)
