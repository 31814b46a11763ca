"""Text that hooks add to what the model reads: blocks with the name of their source, and where they are placed."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from amplifier_core import HookResult
from amplifier_core.boundary import settle
from amplifier_kit.config import ModuleConfig
from amplifier_kit.mounting import find_mounted

Placement = Literal["prefix", "request"]
Role = Literal["system", "user", "assistant"]
PLACEMENTS = ("prefix", "request")
ROLES: tuple[Role, ...] = ("system", "user", "assistant")
NOTHING = HookResult()

PartFactory = Callable[[], str | Awaitable[str]]

logger = logging.getLogger(__name__)


def reminder(source: str, body: str) -> str:
    """Return a block as the ecosystem has it."""
    return f'<system-reminder source="{source}">\n{body.strip()}\n</system-reminder>'


def injected(text: str, role: Role, *, to_last_tool_result: bool = False) -> HookResult:
    """Return the answer of a handler of `provider:request` that shows the model a text once and stores nothing."""
    return HookResult(
        action="inject_context",
        context_injection=text,
        context_injection_role=role,
        ephemeral=True,
        append_to_last_tool_result=to_last_tool_result,
        suppress_output=True,
    )


def read_role(config: ModuleConfig, default: Role = "user") -> Role:
    chosen = config.choice("inject_role", default, ROLES)
    return next(role for role in ROLES if role == chosen)


def place_in_prompt(coordinator: Any, name: str, part: PartFactory) -> Callable[[], None] | None:
    """Have a text stand in the session's system prompt; returns what takes it out, None where that is not possible.

    A context of ours takes it as a part. One that takes a factory for its prompt gets the part with the next factory
    that an application sets; it keeps its own way of setting one.
    """
    context = find_mounted(coordinator, "context")
    if callable(add := getattr(context, "add_system_prompt_part", None)):
        remove: Callable[[], None] = add(name, part)
        return remove
    if callable(take := getattr(context, "set_system_prompt_factory", None)):
        return _wrap(context, name, take, part)
    return None


def _wrap(context: Any, name: str, take: Callable[[Any], Any], part: PartFactory) -> Callable[[], None] | None:
    is_on = True

    async def set_system_prompt_factory(factory: Callable[[], Any] | None) -> None:
        async def whole() -> str:
            text = str(await settle(factory())) if factory is not None else ""
            return "\n\n".join(each for each in (text, str(await settle(part())) if is_on else "") if each)

        await settle(take(whole))

    def remove() -> None:
        nonlocal is_on
        is_on = False

    try:
        context.set_system_prompt_factory = set_system_prompt_factory
    except (AttributeError, TypeError):
        logger.debug("%s: the context takes no attribute", name)
        return None
    return remove
