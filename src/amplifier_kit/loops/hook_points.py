"""What hooks decide during a turn, and what they inject into it.

A turn emits its events through a `HookPoints`. At four of them hooks decide: `prompt:submit`, `provider:request`,
`tool:pre` and `tool:post`; everywhere else their answers do not count.
"""

import inspect
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from amplifier_core import ContextManager, HookRegistry, HookResult, ModuleCoordinator
from amplifier_core.boundary import Boundary, emit_quietly, settle
from amplifier_core.correlation import TERMINAL_EVENTS
from amplifier_core.events import POLICY_VIOLATION, TOOL_PRE
from amplifier_core.exceptions import describe
from amplifier_core.hooks import injected_items
from amplifier_core.models import ContextInjection
from amplifier_core.utils.tool_messages import field_of
from amplifier_kit.approval import fingerprint, own_copy
from amplifier_kit.mounting import hook_registry
from amplifier_kit.types import Coordinator, EventData, Message, is_log_view

logger = logging.getLogger(__name__)

V = TypeVar("V")

NO_REASON = "no reason given"

_KERNEL_METHODS = (HookRegistry.emit, HookRegistry.has_handlers)


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """Text that goes into one request and is never stored."""

    text: str
    role: str = "system"
    append_to_last_tool_result: bool = False


@dataclass(frozen=True, slots=True)
class Injection:
    """What hooks want in the conversation, until there is a place for it."""

    result: HookResult
    event: str
    hook_name: str


@dataclass(slots=True)
class Decision:
    """The joint answer of the hooks at one point."""

    denied: bool = False
    reason: str = ""
    data: EventData = field(default_factory=dict)
    injection: Injection | None = None
    has_stored: bool = False

    @property
    def is_stamped(self) -> bool:
        """True if the data is a masked view for logs."""
        return is_log_view(self.data)

    def changed(self, key: str, kind: type[V], sent: object) -> V | None:
        """Return the value that hooks put in place of what was sent, None when there is none of that type."""
        value = self.data.get(key)
        if value is sent or not isinstance(value, kind) or self.is_stamped or value == sent:
            return None
        return value


class HookPoints:
    """Emits a turn's events, carries out what hooks answer, and keeps what they want in the next request."""

    def __init__(self, hooks: HookRegistry | None, coordinator: Coordinator, context: ContextManager) -> None:
        self._hooks = hooks = hook_registry(coordinator) if hooks is None else hooks
        self._context = context
        self._process = getattr(coordinator, "process_hook_result", None)
        is_replaced = "process_hook_result" in getattr(coordinator, "__dict__", ())
        self._is_kernels_answer = issubclass(type(coordinator), ModuleCoordinator) and not is_replaced
        self._queued: list[Ephemeral] = []
        # `listens` says whether anyone hears an event, `reaches` whether emitting it has any effect: one that the
        # kernel's registry would drop has none. A turn asks them all the time, so they are the registry's own method.
        self.listens: Callable[[str], bool] = _always
        self.reaches: Callable[[str], bool] = _always
        if hooks is None:
            self.listens = self.reaches = _never
        elif _is_the_kernels(hooks):
            self.listens = self.reaches = hooks.has_handlers
        elif callable(has_handlers := getattr(hooks, "has_handlers", None)):
            self.listens = _always if inspect.iscoroutinefunction(has_handlers) else has_handlers

    async def emit(self, event: str, payload: EventData) -> None:
        """Emit an event at which hooks have no say; a registry that fails is logged."""
        if self.reaches(event) or event in TERMINAL_EVENTS:  # which end a model call, heard or not
            await emit_quietly(self._hooks, event, payload)

    async def collect(self, event: str, payload: EventData, timeout_s: float) -> list[EventData]:
        """Ask every handler of a decision event for its answer."""
        collect = getattr(self._hooks, "emit_and_collect", None)
        if collect is None:
            return []
        answers: list[object] = []
        with Boundary(logger, "no answers to %s could be collected: %s", event, level=logging.ERROR):
            answers = await collect(event, payload, timeout=timeout_s)
        return [answer for answer in answers if isinstance(answer, dict)]

    async def decide(self, event: str, payload: EventData, hook_name: str = "orchestrator") -> Decision:
        """Emit an event at which hooks decide, and carry out their answer at once."""
        decision = await self.offer(event, payload, hook_name)
        if decision.injection is not None:
            decision.has_stored = await self.inject(decision.injection)
        return decision

    async def offer(
        self, event: str, payload: EventData, hook_name: str, *, original: EventData | None = None
    ) -> Decision:
        """Emit an event at which hooks decide; what they inject is left in the decision, to be injected when it fits.

        A registry that fails leaves everything as it is, except that no tool runs which its guards could not see.
        `original` is the input of a tool call as it was before the hooks saw it.
        """
        if self._hooks is None or not self.reaches(event):
            return Decision()
        try:
            result = await self._hooks.emit(event, payload)
        except Exception:
            logger.exception("%s could not be emitted", event)
            return Decision(denied=True, reason="the hooks could not be asked") if event == TOOL_PRE else Decision()
        found = getattr(result, "data", None)
        data: EventData = found if isinstance(found, dict) else {}
        match getattr(result, "action", None):
            case "continue" | "modify":
                if getattr(result, "user_message", None):
                    await self._show_message(result, event, hook_name)
                return Decision(data=data)
            case "deny":
                if getattr(result, "user_message", None):
                    await self._show_message(result, event, hook_name)
                return Decision(denied=True, reason=getattr(result, "reason", None) or "")
            case "ask_user":
                if event == TOOL_PRE:
                    return await self._ask_about_call(result, payload, data, original or {})
                return await self._ask_user(result, event, hook_name, data)
            case "inject_context":
                return Decision(data=data, injection=Injection(result, event, hook_name))
        return Decision()

    async def inject(self, injection: Injection) -> bool:
        """Store what is to be stored and queue what is ephemeral; True when something was stored."""
        with Boundary(logger, "an injection at %s is left out: %s", injection.event):
            items = injected_items(injection.result)
            if self._process is None:
                await self._store([item for item in items if not item.ephemeral], injection.event)
                left = items
            else:
                rest = await settle(self._process(injection.result, injection.event, injection.hook_name))
                left = self._left_of(items, rest)
            self._queued += [
                Ephemeral(item.content, item.role, item.append_to_last_tool_result)
                for item in left
                if item.ephemeral and item.content
            ]
            return any(not item.ephemeral for item in items)
        return False

    def _left_of(self, items: list[ContextInjection], rest: HookResult) -> list[ContextInjection]:
        """Return the items of an injection that a coordinator left.

        The kernel's hands them back, without those that are too large; one that stands in for it may have no more to
        say about them.
        """
        match getattr(rest, "action", None):
            case "inject_context":
                return list(injected_items(rest))
            case "deny":
                return []
        return [] if self._is_kernels_answer else items

    async def count(self, text: str, event: str, hook_name: str = "orchestrator") -> None:
        """Have text that the loop itself adds to a request counted like an ephemeral injection."""
        if self._process is not None:
            addition = HookResult(action="inject_context", context_injection=text, ephemeral=True)
            message = "what %s adds at %s could not be counted: %s"
            with Boundary(logger, message, hook_name, event, level=logging.DEBUG):
                await settle(self._process(addition, event, hook_name))

    def take(self) -> list[Ephemeral]:
        """Return what is queued for the next request, and empty the queue."""
        taken, self._queued = self._queued, []
        return taken

    async def _store(self, items: list[ContextInjection], event: str) -> None:
        add_message = getattr(self._context, "add_message", None)
        for item in items:
            if item.content and add_message is not None:
                metadata = {"source": "hook", "event": event}
                await add_message({"role": item.role, "content": item.content, "metadata": metadata})

    async def changed_after_approval(self, tool_name: str, tool_call_id: str) -> str:
        """Announce that a call was changed after it had been approved; returns the reason to deny it."""
        details = {"tool_name": tool_name, "tool_call_id": tool_call_id, "reason": "changed-after-approval"}
        await self.emit(POLICY_VIOLATION, details)
        return "its input was changed after it had been approved"

    async def _ask_about_call(
        self, result: HookResult, payload: EventData, data: EventData, original: EventData
    ) -> Decision:
        """Ask about the input that would run: where hooks changed it, the question shows it."""
        tool_name, call_id = payload.get("tool_name", ""), payload.get("tool_call_id", "")
        decision = Decision(data=data if "tool_input" in data else payload)  # hooks may change what they were given
        changed = decision.changed("tool_input", dict, original)
        tool_input = original if changed is None else changed
        frozen = own_copy(tool_input)
        approved = fingerprint(frozen)
        if changed is not None:
            shown = json.dumps(frozen, ensure_ascii=False, default=repr)
            prompt = f"{getattr(result, 'approval_prompt', None) or ''}\n\n{tool_name}: {shown}"
            result = HookResult.model_validate(result, from_attributes=True).model_copy(
                update={"approval_prompt": prompt.lstrip()}
            )
        answer = await self._ask_user(result, TOOL_PRE, tool_name, {**data, "tool_input": frozen})
        if not answer.denied and (fingerprint(tool_input) != approved or fingerprint(frozen) != approved):
            reason = await self.changed_after_approval(tool_name, call_id)
            return Decision(denied=True, reason=reason)
        return answer

    async def _ask_user(self, result: HookResult, event: str, hook_name: str, data: EventData) -> Decision:
        if self._process is None:
            return Decision(denied=True, reason="No approval system available", data=data)
        answer = None
        with Boundary(logger, "the approval asked for at %s failed and counts as denied: %s", event) as boundary:
            answer = await settle(self._process(result, event, hook_name))
        if boundary.error is not None:
            return Decision(denied=True, reason=f"Approval failed: {describe(boundary.error)}", data=data)
        if getattr(answer, "action", None) == "continue":
            return Decision(data=data)
        return Decision(denied=True, reason=getattr(answer, "reason", None) or "", data=data)

    async def _show_message(self, result: HookResult, event: str, hook_name: str) -> None:
        """Let the user see a message that came with an answer."""
        if self._process is not None:
            with Boundary(logger, "the message of a hook at %s could not be shown: %s", event):
                await settle(self._process(result, event, hook_name))


def apply_ephemerals(messages: list[Message], ephemerals: list[Ephemeral]) -> list[Message]:
    """Return the request's messages with ephemeral text added; only the list and a changed message are copied."""
    if not ephemerals:
        return messages
    view = list(messages)
    for ephemeral in ephemerals:
        if ephemeral.append_to_last_tool_result and view and field_of(view[-1], "role") == "tool":
            last = dict(view[-1])  # a dict, or a message of the kernel
            content = last.get("content")
            if isinstance(content, list):
                last["content"] = [*content, {"type": "text", "text": ephemeral.text}]
            else:
                last["content"] = f"{content or ''}\n\n{ephemeral.text}"
            view[-1] = last
        else:
            metadata = {"ephemeral": True, "source": "hook"}
            view.append({"role": ephemeral.role, "content": ephemeral.text, "metadata": metadata})
    return view


def _always(event: str) -> bool:
    return True


def _never(event: str) -> bool:
    return False


def _is_the_kernels(hooks: HookRegistry) -> bool:
    """True if nothing but the kernel's own code sees what is emitted, so that the unheard can be left out."""
    if type(hooks) is not HookRegistry or (HookRegistry.emit, HookRegistry.has_handlers) != _KERNEL_METHODS:
        return False
    own = vars(hooks)
    return "emit" not in own and "has_handlers" not in own
