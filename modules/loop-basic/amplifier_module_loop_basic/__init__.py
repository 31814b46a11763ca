"""loop-basic: ask the provider, run the tools it calls, ask again, until there is an answer."""

from collections.abc import Mapping
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import EXECUTION_END, EXECUTION_START
from amplifier_kit.config import ModuleConfig
from amplifier_kit.loops.orchestrator import LoopOrchestrator, mount_loop
from amplifier_kit.loops.requests import RequestBuilder
from amplifier_kit.loops.settings import STEERING_INJECTED, LoopSettings
from amplifier_kit.loops.turn import Turn

__amplifier_module_type__ = "orchestrator"

MODULE_ID = "loop-basic"


class BasicTurn(Turn):
    """A turn as the kit runs it."""

    orchestrator = MODULE_ID


class BasicOrchestrator(LoopOrchestrator):
    """Runs one turn at a time or many at once; a turn's state is its own."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        keys = ModuleConfig(MODULE_ID, config)
        super().__init__(LoopSettings.read(keys))
        keys.warn_unknown()
        self._builder = RequestBuilder()

    def begin(self, *state: Any) -> BasicTurn:
        return BasicTurn(self.settings, self._builder, *state)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the orchestrator and offer `session.steer`."""
    emitted = (EXECUTION_START, EXECUTION_END, STEERING_INJECTED)
    await mount_loop(coordinator, MODULE_ID, BasicOrchestrator(config), emitted)
