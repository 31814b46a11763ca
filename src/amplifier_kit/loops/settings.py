"""The configuration that all loops share."""

from dataclasses import dataclass
from typing import Self

from amplifier_kit.config import ModuleConfig

from .steering import DEFAULT_MAXSIZE

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How a loop runs its turns."""

    max_iterations: int = UNLIMITED
    default_provider: str | None = None
    extended_thinking: bool = False
    reasoning_effort: str | None = None
    timeout: float | None = None
    parallel_tools: bool = True
    max_parallel_tools: int = 0
    provider_failover: bool = False
    max_empty_responses: int = 3
    max_queued_steers: int = DEFAULT_MAXSIZE

    @classmethod
    def read(cls, config: ModuleConfig, *, has_parallel_tools: bool = True) -> Self:
        """Read the shared keys; the caller reads its own and then calls `warn_unknown`."""
        timeout = config.number("timeout", None)
        return cls(
            max_iterations=config.integer("max_iterations", UNLIMITED, minimum=UNLIMITED),
            default_provider=config.text("default_provider", None),
            extended_thinking=config.boolean("extended_thinking", False),
            reasoning_effort=config.text("reasoning_effort", None) or None,
            timeout=timeout if timeout is not None and timeout > 0 else None,
            parallel_tools=config.boolean("parallel_tools", True) if has_parallel_tools else False,
            max_parallel_tools=config.integer("max_parallel_tools", 0, minimum=0) if has_parallel_tools else 0,
            provider_failover=config.boolean("provider_failover", False),
            max_empty_responses=config.integer("max_empty_responses", 3, minimum=1),
            max_queued_steers=config.integer("max_queued_steers", DEFAULT_MAXSIZE, minimum=1),
        )
