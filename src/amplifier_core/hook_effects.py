"""What a hook's answer does to the session: injections, questions to the user, messages on the display."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .approval import ApprovalTimeoutError
from .boundary import Boundary, settle
from .events import POLICY_VIOLATION
from .hooks import injected_items
from .models import ContextInjection, HookResult
from .utils.serialize import sanitize_text
from .utils.timestamps import utc_timestamp

if TYPE_CHECKING:
    from .coordinator import ModuleCoordinator

logger = logging.getLogger(__name__)

_ALLOWING = frozenset({"allow", "allow once", "allow always"})
_SHOWN_CHARACTERS = 200
_KNOWN_INJECTORS = 256
_NOT_INJECTED: dict[str, Any] = {
    "action": "continue",
    "context_injection": None,
    "context_injection_role": "system",
    "ephemeral": False,
    "append_to_last_tool_result": False,
}


class HookEffects:
    """Carries out hook results for one session and counts the tokens they injected this turn."""

    def __init__(self) -> None:
        self.injected_tokens = 0
        self._injectors: dict[int, tuple[str, str]] = {}

    def find_injector(self, text: str) -> tuple[str, str] | None:
        """Return the hook and the event of a text that was lately injected for one request only."""
        return self._injectors.get(hash(text))

    async def carry_out(
        self, coordinator: "ModuleCoordinator", result: HookResult, event: str, hook_name: str
    ) -> HookResult:
        """Return what is left for the orchestrator to honour."""
        if result.action == "ask_user":
            return await _ask_user(coordinator, result)
        if result.action == "inject_context":
            return await self._inject(coordinator, result, event, hook_name)
        await _tell_user(coordinator, result, hook_name)
        return result

    async def _inject(
        self, coordinator: "ModuleCoordinator", result: HookResult, event: str, hook_name: str
    ) -> HookResult:
        items = await _within_limit(coordinator, _sanitized(result, event, hook_name))
        for item in items:
            self._count(item, coordinator.injection_budget_per_turn)
            if item.ephemeral:
                self._note_injector(item)
        await _tell_user(coordinator, result, hook_name)
        add_message = getattr(coordinator.get("context"), "add_message", None)
        if add_message is not None:
            for item in items:
                if not item.ephemeral:
                    await settle(add_message(_message(item)))
        return _remainder(result, [item for item in items if item.ephemeral])

    def _note_injector(self, item: ContextInjection) -> None:
        self._injectors[hash(item.content)] = (item.hook_name, item.event)
        if len(self._injectors) > _KNOWN_INJECTORS:
            del self._injectors[next(iter(self._injectors))]

    def _count(self, item: ContextInjection, budget: int | None) -> None:
        tokens = len(item.content) // 4
        if budget is not None and self.injected_tokens + tokens > budget:
            logger.warning(
                "Warning: Hook injection budget exceeded: %s on %s adds %d tokens to %d, the budget is %d",
                item.hook_name,
                item.event,
                tokens,
                self.injected_tokens,
                budget,
            )
        self.injected_tokens += tokens
        logger.info(
            "Hook context injection: hook=%s event=%s chars=%d role=%s tokens=%d ephemeral=%s",
            item.hook_name,
            item.event,
            len(item.content),
            item.role,
            tokens,
            item.ephemeral,
        )


def _sanitized(result: HookResult, event: str, hook_name: str) -> list[ContextInjection]:
    """Return what there is to inject: control characters removed, empty items dropped."""
    provenance = {} if getattr(result, "context_injections", None) else {"hook_name": hook_name, "event": event}
    items = (
        item.model_copy(update={"content": sanitize_text(item.content), **provenance})
        for item in injected_items(result)
    )
    return [item for item in items if item.content]


async def _within_limit(coordinator: "ModuleCoordinator", items: list[ContextInjection]) -> list[ContextInjection]:
    """Return the items that are small enough, and report the others.

    Raises `ValueError` instead if the plan itself sets the limit: the default never ends a turn.
    """
    limit = coordinator.injection_size_limit
    sizes = [len(item.content.encode()) for item in items]
    if limit is None or all(size <= limit for size in sizes):
        return items
    too_large = [(item, size) for item, size in zip(items, sizes, strict=True) if size > limit]
    for item, size in too_large:
        logger.error("hook %r on %r injects %d bytes; %d are allowed", item.hook_name, item.event, size, limit)
    if coordinator.has_own_size_limit:
        raise ValueError(f"Context injection exceeds {limit} bytes")
    for item, size in too_large:
        source = {"hook_name": item.hook_name, "event": item.event}
        violation = {"reason": "injection_size_limit", **source, "size": size, "limit": limit}
        await coordinator.hooks.emit(POLICY_VIOLATION, violation)
    return [item for item, size in zip(items, sizes, strict=True) if size <= limit]


def _message(item: ContextInjection) -> dict[str, Any]:
    return {
        "role": item.role,
        "content": item.content,
        "metadata": {
            "source": "hook",  # context managers keep messages that carry this
            "hook_name": item.hook_name,
            "event": item.event,
            "timestamp": utc_timestamp(),
            "requested_role": item.role,
            "ephemeral": False,
            "persisted": True,
        },
    }


def _remainder(result: HookResult, ephemeral: list[ContextInjection]) -> HookResult:
    """Return a copy of `result` that carries only the items the orchestrator itself puts into its next request."""
    if not ephemeral:
        return _copy(result, {**_NOT_INJECTED, "context_injections": []})
    return _copy(
        result,
        {
            "context_injections": ephemeral,
            "context_injection": "\n\n".join(item.content for item in ephemeral),
            "context_injection_role": ephemeral[0].role,
            "ephemeral": True,
            "append_to_last_tool_result": any(item.append_to_last_tool_result for item in ephemeral),
        },
    )


def _copy(result: HookResult, changes: dict[str, Any]) -> HookResult:
    if isinstance(result, HookResult):
        return result.model_copy(update=changes)
    fields = {name: getattr(result, name) for name in HookResult.model_fields if hasattr(result, name)}
    return HookResult.model_validate({**fields, **changes})


async def _ask_user(coordinator: "ModuleCoordinator", result: HookResult) -> HookResult:
    prompt = "Allow this operation?" if result.approval_prompt is None else result.approval_prompt
    options = ["Allow", "Deny"] if result.approval_options is None else result.approval_options
    if coordinator.approval_system is None:
        logger.error("a hook asks the user, but the session has no approval system: denied")
        return HookResult(action="deny", reason="No approval system available")
    try:
        decision = await settle(
            coordinator.approval_system.request_approval(
                prompt, options, result.approval_timeout, result.approval_default
            )
        )
    except ApprovalTimeoutError:
        if _allows(result.approval_default):
            return HookResult(action="continue")
        return HookResult(action="deny", reason=f"Approval timeout - denied by default: {_cut(prompt)}")
    if _allows(decision):
        return HookResult(action="continue")
    if decision.lower() != "deny":
        logger.warning("approval answer %r is not one that allows; it counts as deny", decision)
    return HookResult(action="deny", reason=f"User denied: {_cut(prompt)}")


async def _tell_user(coordinator: "ModuleCoordinator", result: HookResult, hook_name: str) -> None:
    if result.user_message:
        source = hook_name if result.user_message_source is None else result.user_message_source
        if coordinator.display_system is None:
            logger.info("message from hook %s (%s): %s", source, result.user_message_level, _cut(result.user_message))
        else:
            with Boundary(logger, "the display cannot show a message from hook %s: %s", source, level=logging.ERROR):
                show_message: Callable[..., Any] = coordinator.display_system.show_message  # some displays are async
                await settle(show_message(result.user_message, result.user_message_level, f"hook:{source}"))
    if result.suppress_output:
        logger.debug("hook %s asks to suppress output", hook_name)


def _allows(decision: Any) -> bool:
    if not isinstance(decision, str):
        raise TypeError(f"an approval decision must be a str, got {type(decision).__name__}")
    return decision.lower() in _ALLOWING


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...[truncated]"
