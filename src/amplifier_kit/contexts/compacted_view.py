"""The request view of a growing history: kept up to date, measured, and compacted when it grows too large."""

import logging

from amplifier_kit.messages.stored_messages import StoredMessages, estimate_message
from amplifier_kit.types import Config, EventData, Message

from .escalation import Escalation
from .groups import COMPACTION_SOURCE, Cut, Entry, Form, GroupedConversation
from .settings import HIGHEST_LEVEL, CompactionSettings
from .shortening import clip_result

logger = logging.getLogger(__name__)

_PATIENCE = 4  # an unreachable target is looked at again when the view has grown by one part in so many


class CompactedView:
    """What requests are shown of one history. Decisions are final: a new view takes them back.

    The order of use is `update`, `plan`, `apply` if there is a plan, `render`. Not safe for threads. The system prompt
    that a factory makes is not part of the history; it is passed in with its tokens.
    """

    def __init__(self, settings: CompactionSettings, module_id: str) -> None:
        self.stats: EventData | None = None
        self.conversation = GroupedConversation(self._measure)
        self._settings = settings
        self._module_id = module_id
        self._history: StoredMessages | None = None
        self._revision = 0
        self._entries: list[Entry] = []
        self._notice: Form | None = None
        self._level = self._truncated = self._stubbed = 0
        self._has_warned_of_target = self._is_over_budget = False
        self._settled: tuple[Form | None, int, GroupedConversation] | None = None  # what an escalation was about
        self._settled_revision = 0
        self._settled_until = 0  # as many messages, when the target was unreachable

    def update(self, history: StoredMessages, *, hides_system_messages: bool = False) -> None:
        """Take in what was added since the last time, or everything again when more than the end has changed."""
        known: dict[int, Entry] = {}
        if (
            history is not self._history
            or history.revision != self._revision
            or hides_system_messages is not self.conversation.hides_system_messages
        ):
            known = {id(entry.message): entry for entry in self._entries}
            self._history, self._revision, self._entries = history, history.revision, []
            self.conversation = GroupedConversation(self._measure, hides_system_messages=hides_system_messages)
        entries, conversation = self._entries, self.conversation
        while len(entries) < len(history):
            message = history[len(entries)]
            entry = known.pop(id(message), None) or Entry(message)
            entries.append(entry)
            conversation.append(entry)

    def plan(self, prompt: Form | None, budget: int, measured_tokens: int | None = None) -> Escalation | None:
        """Return what to cut, None when nothing is to be.

        `measured_tokens` is what the last request really took; it decides instead of the estimate whether to cut.
        """
        settings = self._settings
        prompt_tokens = prompt[1] if prompt else 0
        total = prompt_tokens + self.conversation.tokens
        size = total if measured_tokens is None else measured_tokens
        if logger.isEnabledFor(logging.DEBUG):
            meter = "estimate" if measured_tokens is None else "actual"
            ratio = size / budget
            logger.debug("%s: %d of %d tokens (%s), ratio %.3f", self._module_id, size, budget, meter, ratio)
        is_triggered = settings.auto_compact and size >= settings.compact_threshold * budget
        if (
            not is_triggered
            or total <= int(budget * settings.target_usage)
            or self._is_settled(prompt, budget, fits=total <= budget)
        ):
            self._note_fit(total, budget)
            return None
        escalation = Escalation(self.conversation, settings, prompt_tokens=prompt_tokens, budget=budget)
        self._note_target(escalation, prompt)
        if escalation.is_target_reachable or total > budget:
            escalation.run()
        if escalation.cuts or (escalation.total > budget and not self._is_over_budget):
            return escalation
        self._settle(escalation, prompt)
        self._note_fit(total, budget)
        return None

    def is_current(self, escalation: Escalation) -> bool:
        """True if nothing was added since the escalation was planned."""
        return escalation.conversation is self.conversation and escalation.revision == self.conversation.revision

    def apply(self, escalation: Escalation, prompt: Form | None) -> None:
        """Cut what was planned."""
        conversation, settings = self.conversation, self._settings
        conversation.apply(escalation.cuts)
        self._settle(escalation, prompt)
        cuts = list(escalation.cuts.values())
        self._truncated += cuts.count(Cut.TRUNCATE)
        self._stubbed += cuts.count(Cut.STUB)
        self._level = max(self._level, escalation.level)
        after_messages = len(conversation.messages) + bool(prompt)
        self.stats = {
            "before_tokens": escalation.total + conversation.saved_tokens,
            "after_tokens": escalation.total,
            "before_messages": after_messages + conversation.removed_messages,
            "after_messages": after_messages,
            "messages_removed": conversation.removed_messages,
            "messages_truncated": self._truncated,
            "user_messages_stubbed": self._stubbed,
            "system_messages_preserved": conversation.system_messages + bool(prompt),
            "strategy_level": self._level,
            "budget": escalation.budget,
            "target_tokens": escalation.target,
            "protected_recent": settings.protected_recent,
            "protected_tool_results": settings.protected_tool_results,
            "over_budget": escalation.total > escalation.budget,
        }
        self._warn_over_budget(escalation, prompt)
        self._note_fit(escalation.total, escalation.budget)
        is_noted = settings.compaction_notice_enabled and self._level >= settings.compaction_notice_min_level
        if is_noted and (conversation.removed_messages or self._truncated or self._stubbed):
            notice = compaction_notice(self.stats, settings.compaction_notice_verbosity)
            self._notice = (notice, estimate_message(notice))

    def render(self, prompt: Form | None, budget: int) -> list[Message]:
        """Return the messages of a request, in a list of its own; `budget` is what they may take with the notice."""
        conversation = self.conversation
        messages = [prompt[0], *conversation.messages] if prompt else conversation.messages.copy()
        if self._notice and not conversation.is_awaiting_results:
            notice, tokens = self._notice
            if (prompt[1] if prompt else 0) + conversation.tokens + tokens <= budget:
                messages.append(notice)
        return messages

    def _measure(self, message: Message, is_result: bool) -> Form:
        clipped = clip_result(message, self._settings.max_tool_result_bytes) if is_result else None
        shown = clipped.message if clipped else message
        return shown, estimate_message(shown, self._settings.image_token_estimate)

    def _note_fit(self, total: int, budget: int) -> None:
        self._is_over_budget = total > budget
        if self.stats is not None:
            self.stats["over_budget"] = self._is_over_budget

    def _settle(self, escalation: Escalation, prompt: Form | None) -> None:
        """Remember that all was cut that is to be cut now."""
        self._settled = (prompt, escalation.budget, self.conversation)
        self._settled_revision = self.conversation.revision
        count = len(self.conversation.messages)
        self._settled_until = 0 if escalation.is_target_reachable else count + 1 + count // _PATIENCE

    def _is_settled(self, prompt: Form | None, budget: int, *, fits: bool) -> bool:
        """True if another look would find nothing to cut.

        That is so as long as nothing was added, and, since it takes many messages to bring an unreachable target into
        reach, for a while longer when the view fits all the same.
        """
        if self._settled != (prompt, budget, self.conversation):
            return False
        is_unchanged = self.conversation.revision == self._settled_revision
        return is_unchanged or (fits and len(self.conversation.messages) < self._settled_until)

    def _note_target(self, escalation: Escalation, prompt: Form | None) -> None:
        if escalation.is_target_reachable:
            self._has_warned_of_target = False
            return
        if self._has_warned_of_target:
            return
        self._has_warned_of_target = True
        system_tokens = (prompt[1] if prompt else 0) + self.conversation.system_tokens
        logger.warning(
            "%s: the target is unreachable: %.0f%% of %d tokens are aimed at, but at least %d have to stay, %d of them"
            " (%.0f%%) in system messages; all of the budget is used instead\n"
            "  fix: shorten the system prompt, or raise max_tokens or target_usage",
            self._module_id,
            100 * self._settings.target_usage,
            escalation.budget,
            escalation.floor,
            system_tokens,
            100 * system_tokens / escalation.floor,
        )

    def _warn_over_budget(self, escalation: Escalation, prompt: Form | None) -> None:
        if escalation.total <= escalation.budget or self._is_over_budget:
            return
        logger.warning(
            "%s: a request takes %d tokens, more than its budget of %d, and nothing is left to cut: system messages"
            " take %d, the other messages that have to stay %d\n"
            "  fix: raise max_tokens, or lower protected_recent or protected_tool_results",
            self._module_id,
            escalation.total,
            escalation.budget,
            (prompt[1] if prompt else 0) + self.conversation.system_tokens,
            self.conversation.tokens - self.conversation.system_tokens,
        )


_STATEMENT = "Earlier parts of this conversation were compacted to fit the model's context window."
_NORMAL = """
- level: {strategy_level}/{highest_level}
- messages: {before_messages} before, {after_messages} after
- removed: {messages_removed}, user messages stubbed: {user_messages_stubbed}, \
tool results truncated: {messages_truncated}
- tokens: about {before_tokens} before, {after_tokens} after, target {target_tokens}
- preserved: system messages ({system_messages_preserved}), the first and the latest user message, recent messages
- may be missing: older replies, tool calls with their results, the full text of older user messages
If something you need is missing, call the tool again or ask the user."""
_VERBOSE = """
- protection: the newest {protected_recent:.0%} of the messages, the newest {protected_tool_results} tool results
- budget: {budget} tokens"""

_TEXTS = {"minimal": _STATEMENT, "normal": _STATEMENT + _NORMAL, "verbose": _STATEMENT + _NORMAL + _VERBOSE}


def compaction_notice(stats: Config, verbosity: str) -> Message:
    """Return the message that ends a compacted view; `stats` are those of the event `context:compaction`."""
    text = _TEXTS[verbosity].format(**stats, highest_level=HIGHEST_LEVEL)
    return {
        "role": "user",
        "content": f'<system-reminder source="{COMPACTION_SOURCE}">\n{text}\n</system-reminder>',
        "metadata": {"source": COMPACTION_SOURCE, "ephemeral": True},
    }
