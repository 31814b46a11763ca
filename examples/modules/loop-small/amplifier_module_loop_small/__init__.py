"""loop-small: an orchestrator small enough to read in one sitting.

It asks the provider, runs the tools the model wants, and asks again until an answer comes without tool calls.
Configuration: `max_rounds` (tool rounds in a turn, 20), `default_provider` (a mount name; else the first provider).
"""

from typing import Any

from amplifier_core import ContextManager, HookRegistry, ModuleCoordinator, Provider, Tool

from .turn import Turn

__amplifier_module_type__ = "orchestrator"


class SmallLoop:
    def __init__(self, config: dict[str, Any]) -> None:
        self._max_rounds = int(config.get("max_rounds", 20))
        self._default_provider = config.get("default_provider")

    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: dict[str, Provider],
        tools: dict[str, Tool],
        hooks: HookRegistry,
        coordinator: ModuleCoordinator | None = None,
    ) -> str:
        """Run one turn; what a turn has to remember lives in a `Turn`, so calls may overlap."""
        name = self._default_provider if self._default_provider in providers else next(iter(providers))
        turn = Turn(context, (name, providers[name]), tools, hooks, coordinator)
        return await turn.run(prompt, max_rounds=self._max_rounds)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    await coordinator.mount("orchestrator", SmallLoop(config or {}))
