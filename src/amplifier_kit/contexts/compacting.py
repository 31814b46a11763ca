"""A context manager that keeps everything and shows a request what fits.

The history is complete and never changed by a request. A request gets a view of it: tool calls with their results,
oversized results clipped, and, when it grows too large, older parts cut level by level (`compaction`). What was cut
stays cut, so the beginning of consecutive views is the same, and prompt caches of providers hold.

To keep the history somewhere else as well, subclass `CompactingContext` and override `refresh`, `record`, `rewrite`
and `close`. `mount_context` mounts any of them.
"""

import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, ClassVar

from amplifier_core import HookRegistry, HookResult, ModuleCoordinator, Provider
from amplifier_core.boundary import Boundary, emit_quietly, settle
from amplifier_core.events import CONTEXT_COMPACTION, CONTEXT_POST_COMPACT, CONTEXT_PRE_COMPACT, LLM_RESPONSE
from amplifier_kit.config import ModuleConfig
from amplifier_kit.messages.conversation import answers_of
from amplifier_kit.messages.stored_messages import (
    StoredMessages,
    check_message,
    estimate_message,
    estimate_messages,
    stamped,
)
from amplifier_kit.mounting import Handlers, contribute_events, hook_registry
from amplifier_kit.types import EventData, Message

from .compacted_view import CompactedView
from .groups import Form
from .settings import CompactionSettings, find_budget
from .shortening import clip_result

logger = logging.getLogger(__name__)

CONTEXT_TOOL_RESULT_CLIPPED = "context:tool_result_ingress_truncated"
COMPACTION_EVENTS = (CONTEXT_PRE_COMPACT, CONTEXT_POST_COMPACT, CONTEXT_COMPACTION, CONTEXT_TOOL_RESULT_CLIPPED)

SystemPromptFactory = Callable[[], str | Awaitable[str]]

_METER_PRIORITY = 50


class CompactingContext(CompactionSettings):
    """The compacting context view. Every config key is a keyword of the constructor and an attribute.

    Safe for threads. Messages in a view are the stored ones, for reading only.
    """

    module_id: ClassVar[str] = "context"
    default_protected_recent: ClassVar[float] = 0.30

    def __init__(
        self, *, hooks: HookRegistry | None = None, max_tokens_explicit: bool = False, **settings: Any
    ) -> None:
        super().__init__(ModuleConfig(self.module_id, settings), protected_recent=self.default_protected_recent)
        if unknown := settings.keys() - vars(self).keys() - {"compaction_threshold"}:
            raise TypeError(f"{type(self).__name__} has no keyword {', '.join(sorted(unknown))}")
        if self.target_usage >= self.compact_threshold:
            logger.warning(
                "%s: target_usage %s is not below compact_threshold %s: nothing is cut up to the target",
                self.module_id,
                self.target_usage,
                self.compact_threshold,
            )
        self.max_tokens_explicit = max_tokens_explicit
        self.hooks = hooks
        self.lock = threading.RLock()
        self._messages = StoredMessages()
        self._view = CompactedView(self, self.module_id)
        self._factory: SystemPromptFactory | None = None
        self._prompt_parts: dict[str, SystemPromptFactory] = {}
        self._prompt: Form | None = None
        self._measured_tokens: int | None = None
        self._has_warned_of_reserve = False

    # For subclasses that keep the history somewhere else as well. All but `close` are called under `lock`.

    def refresh(self) -> None:
        """Bring `messages` up to date; called before it is read or added to."""

    def record(self, message: Message) -> None:
        """Write down one message; called before it joins `messages`. It must not raise: the message is kept."""

    def rewrite(self, messages: list[Message]) -> None:
        """Write down a history that replaces the present one. It must not raise."""

    def close(self) -> None:
        """Release what is held; called at the end of the session, perhaps more than once."""

    @property
    def messages(self) -> list[Message]:
        """The stored history. A subclass may change or replace it; the next view takes it as it finds it."""
        return self._messages

    @messages.setter
    def messages(self, messages: Iterable[Message]) -> None:
        self._messages = StoredMessages(messages)

    @property
    def compaction_stats(self) -> EventData | None:
        """The statistics of the last compaction, as in `context:compaction`; `over_budget` is that of the last view."""
        with self.lock:
            return dict(self._view.stats) if self._view.stats else None

    async def add_message(self, message: Message) -> None:
        """Keep a copy of `message`, whatever its size. Raises `ValueError` unless it is a dict with a role."""
        stored = stamped(message)
        with self.lock:
            self.refresh()
            self.record(stored)
            self._messages.append(stored)
            self._update_view()
        if stored["role"] == "tool" or isinstance(stored.get("content"), list):
            await self._announce_clipped(stored)

    async def get_messages(self) -> list[Message]:
        """Return the whole history, in copies."""
        with self.lock:
            self.refresh()
            return [dict(message) for message in self._messages]

    async def set_messages(self, messages: list[Message]) -> None:
        """Replace the history and forget all decisions. Raises `ValueError`, and changes nothing, for a bad message."""
        self._replace([dict(check_message(message)) for message in messages])

    async def clear(self) -> None:
        """Forget the history and all decisions."""
        self._replace([])

    async def set_system_prompt_factory(self, factory: SystemPromptFactory | None) -> None:
        """Have `factory` asked for the system prompt of every view, in place of stored system messages."""
        self._factory, self._prompt = factory, None

    def add_system_prompt_part(self, name: str, factory: SystemPromptFactory) -> Callable[[], None]:
        """Have what `factory` returns stand in the system prompt of every view; returns what takes it out again.

        It follows the prompt of `set_system_prompt_factory`, or precedes the stored system messages. One of that name
        is replaced. A text that stays the same keeps the beginning of every request as it is.
        """
        self._prompt_parts[name] = factory

        def remove() -> None:
            if self._prompt_parts.get(name) is factory:
                del self._prompt_parts[name]

        return remove

    async def should_compact(self) -> bool:
        """Say that there is nothing for a caller to compact: views do it themselves."""
        return False

    async def compact(self) -> None:
        """Do nothing: views compact themselves."""

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Provider | None = None
    ) -> list[Message]:
        """Return the messages for the next request, compacted to the budget."""
        budget, source = find_budget(
            token_budget,
            provider,
            max_tokens=self.max_tokens,
            is_ceiling=self.max_tokens_explicit,
            output_reserve_fraction=self.output_reserve_fraction,
        )
        logger.debug("%s: the budget is %d tokens, from %s", self.module_id, budget, source)
        effective = self._without_reserve(budget)
        prompt = await self._ask_for_prompt()
        with self.lock:
            self.refresh()
            self._update_view()
            plan = self._view.plan(prompt, effective, self._metered())
            if plan is None:
                return self._view.render(prompt, budget)
            conversation = self._view.conversation
            announcement = {
                "message_count": len(conversation.messages) + bool(prompt),
                "token_count": conversation.tokens + (prompt[1] if prompt else 0),
                "budget": effective,
                "target_tokens": plan.target,
            }
        await self.emit(CONTEXT_PRE_COMPACT, announcement)
        with self.lock:
            self._update_view()
            if not self._view.is_current(plan):  # messages were added while the event was handled
                plan = self._view.plan(prompt, effective, self._metered())
            if plan is not None:
                self._view.apply(plan, prompt)
            messages = self._view.render(prompt, budget)
            stats = dict(self._view.stats or {})
        if stats:
            await self._announce_compacted(stats)
        return messages

    async def record_usage(self, event: str, data: EventData) -> HookResult:
        """Take note of how many tokens a request really took; the handler of `llm:response`."""
        usage = data.get("usage") if isinstance(data, dict) else None
        if isinstance(usage, dict) and (tokens := _number(usage.get("input_tokens"))) is not None:
            with self.lock:
                self._measured_tokens = tokens + (_number(usage.get("cache_write_tokens")) or 0)
        return HookResult()

    async def emit(self, event: str, data: EventData) -> None:
        """Emit an event without waiting for an answer that counts; errors are logged."""
        await emit_quietly(self.hooks, event, data)

    def _estimate_tokens(self, messages: list[Message]) -> int:
        """Return the estimate of a list; subclasses of the ecosystem call it by this name."""
        return estimate_messages(messages, self.image_token_estimate)

    def _replace(self, messages: list[Message]) -> None:
        with self.lock:
            self.rewrite(messages)
            self._messages = StoredMessages(messages)
            self._view = CompactedView(self, self.module_id)
            self._measured_tokens = None
            self._update_view()

    def _update_view(self) -> None:
        self._view.update(self._messages, hides_system_messages=self._factory is not None)

    def _metered(self) -> int | None:
        return self._measured_tokens if self.token_meter == "actual" else None

    def _without_reserve(self, budget: int) -> int:
        reserve = self.compaction_notice_token_reserve if self.compaction_notice_enabled else 0
        if budget > reserve:
            return budget - reserve
        if not self._has_warned_of_reserve:
            self._has_warned_of_reserve = True
            logger.warning(
                "%s: compaction_notice_token_reserve %d is ignored, the budget is only %d tokens",
                self.module_id,
                reserve,
                budget,
            )
        return budget

    async def _ask_for_prompt(self) -> Form | None:
        if self._factory is None and not self._prompt_parts:
            return None
        try:
            texts = [str(await settle(self._factory()))] if self._factory is not None else []
            text = "\n\n".join(part for part in (*texts, *await self._ask_for_parts()) if part)
        except Exception:
            if self._prompt is None:
                raise
            logger.warning("%s: no new system prompt, the last one is used", self.module_id, exc_info=True)
            return self._prompt
        if not text:
            return None
        if self._prompt is None or self._prompt[0]["content"] != text:
            message = {"role": "system", "content": text}
            self._prompt = (message, estimate_message(message, self.image_token_estimate))
        return self._prompt

    async def _ask_for_parts(self) -> list[str]:
        """Return the parts that modules add to the prompt; one that fails is left out."""
        parts: list[str] = []
        for name, factory in list(self._prompt_parts.items()):
            with Boundary(logger, "%s: the part %s of the system prompt is left out: %s", self.module_id, name):
                parts.append(str(await settle(factory())))
        return parts

    async def _announce_clipped(self, message: Message) -> None:
        call_ids = answers_of(message)
        clipped = clip_result(message, self.max_tool_result_bytes) if call_ids is not None else None
        if clipped is None:
            return
        call_id = call_ids[0] if call_ids else ""
        with self.lock:
            tool_name = message.get("name") or self._view.conversation.find_tool_name(call_id)
        await self.emit(
            CONTEXT_TOOL_RESULT_CLIPPED,
            {
                "tool_name": tool_name,
                "tool_call_id": call_id,
                "original_text_utf8_bytes": clipped.original_bytes,
                "stored_text_utf8_bytes": clipped.clipped_bytes,
                "max_tool_result_bytes": self.max_tool_result_bytes,
                "content_kind": clipped.content_kind,
            },
        )

    async def _announce_compacted(self, stats: EventData) -> None:
        logger.info(
            "%s: compacted to level %d: %d → %d tokens, %d → %d messages",
            self.module_id,
            *(stats[key] for key in ("strategy_level", "before_tokens", "after_tokens")),
            *(stats[key] for key in ("before_messages", "after_messages")),
        )
        counts = {key: stats[key] for key in ("strategy_level", "messages_removed", "messages_truncated")}
        after = {"message_count": stats["after_messages"], "token_count": stats["after_tokens"]}
        await self.emit(CONTEXT_POST_COMPACT, {**after, **counts})
        await self.emit(CONTEXT_COMPACTION, stats)


async def mount_context(
    coordinator: ModuleCoordinator, context: CompactingContext, events: Iterable[str] = COMPACTION_EVENTS
) -> Callable[[], None]:
    """Mount a context, announce its `events` and let it hear what requests really take; returns the cleanup."""
    module_id = context.module_id
    contribute_events(coordinator, module_id, events)
    await coordinator.mount("context", context)
    handlers = Handlers(module_id, coordinator) if hook_registry(coordinator) is not None else None
    if handlers is not None:
        handlers.register(LLM_RESPONSE, context.record_usage, priority=_METER_PRIORITY, name=f"{module_id}-meter")
    logger.info("mounted %s", module_id)

    def cleanup() -> None:
        if handlers is not None:
            handlers.clear()
        context.close()

    return cleanup


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
