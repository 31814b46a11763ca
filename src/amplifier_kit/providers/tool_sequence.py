"""Tool calls and their results in the order that vendors insist on: every call answered, at once, and only once.

A conversation that was interrupted, compacted or begun elsewhere may break that. `ToolSequence.repair` puts in what is
missing; `ToolSequence.arrange` moves what is displaced and leaves out what belongs to no call.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Iterable

from amplifier_core import ChatRequest, Message
from amplifier_core.events import PROVIDER_TOOL_SEQUENCE_REPAIRED
from amplifier_core.utils.tool_messages import with_stand_ins
from amplifier_kit.types import Block, EventData

from .messages import IdentityCache, NormalMessage, normalize
from .stream import ProviderEvents

logger = logging.getLogger(__name__)

MISSING_RESULT = "[SYSTEM ERROR: Tool result missing from conversation history]"

_CLOSING = "The previous tool calls were interrupted before their results arrived."
_REMEMBERED = 1000


class ToolSequence:
    """Repairs the requests of one provider; what was repaired is announced once, however often it comes back.

    With `closes_turn` an interrupted turn is ended by an assistant message, for vendors that want one before the
    user's next.
    """

    def __init__(self, provider: str, events: ProviderEvents, *, closes_turn: bool = False) -> None:
        self._provider = provider
        self._events = events
        self._closes_turn = closes_turn
        self._normal: IdentityCache[NormalMessage] = IdentityCache()
        self._announced: dict[str, None] = {}  # ids, oldest first

    def normalized(self, messages: Iterable[Message]) -> list[NormalMessage]:
        """Return the messages in plain form, each converted once."""
        return self._normal.get_all(messages, normalize)

    async def repair(self, request: ChatRequest) -> list[NormalMessage]:
        """Insert into `request.messages` a result for every call that has none; returns the messages in plain form."""
        messages = request.messages
        normal = self.normalized(messages)
        missing = _unanswered(normal)
        if not missing:
            return normal
        stand_ins: dict[int, list[Message]] = {}
        closings = 0
        for place, calls in missing.items():
            stand_ins[place] = [_missing_result(call["id"], call["name"]) for call in calls]
            if self._closes_turn and place + 1 < len(normal) and normal[place + 1].is_real_user:
                stand_ins[place].append(Message(role="assistant", content=_CLOSING))
                closings += 1
        messages[:] = with_stand_ins(messages, stand_ins)
        repaired = [
            {"tool_call_id": call["id"], "tool_name": call["name"]} for calls in missing.values() for call in calls
        ]
        await self._announce(repaired, closings)
        return self.normalized(messages)

    def arrange(self, messages: list[NormalMessage]) -> list[NormalMessage]:
        """Return the messages with each result directly after its call, and without results that answer none."""
        if _is_in_order(messages):
            return messages
        waiting = _results_by_call(messages)
        arranged: list[NormalMessage] = []
        for place, message in enumerate(messages):
            if not message.results:
                arranged.append(message)
            elif message.blocks:
                arranged.append(NormalMessage("user", message.blocks, (), message.name, message.metadata))
            for call in message.calls:
                results = waiting[call["id"]]
                while results and results[0][0] < place:  # a result from before its call
                    self._report_dropped(results.popleft()[1])
                if results:
                    arranged.append(results.popleft()[1])
        for unanswered in waiting.values():
            for _, source in unanswered:
                self._report_dropped(source)
        return arranged

    async def _announce(self, repaired: list[dict[str, str]], closings: int) -> None:
        new = [repair for repair in repaired if self._is_new(repair["tool_call_id"])]
        if not new:
            return
        ids = ", ".join(repair["tool_call_id"] for repair in new)
        logger.warning("%s: tool calls without a result were answered as failed: %s", self._provider, ids)
        payload: EventData = {"provider": self._provider, "repair_count": len(new), "repairs": new}
        if closings:
            payload["synthetic_assistant_count"] = closings
        await self._events.emit(PROVIDER_TOOL_SEQUENCE_REPAIRED, payload)

    def _report_dropped(self, source: NormalMessage) -> None:
        for result in source.results:
            if self._is_new(f"dropped {result.call_id}"):
                logger.warning(
                    "%s: no tool call waits for a result, it is not sent: %s", self._provider, result.call_id
                )

    def _is_new(self, key: str) -> bool:
        """Take note of something that is announced once."""
        if key in self._announced:
            return False
        self._announced[key] = None
        if len(self._announced) > _REMEMBERED:
            del self._announced[next(iter(self._announced))]
        return True


def _unanswered(messages: list[NormalMessage]) -> dict[int, list[Block]]:
    """Return the calls that no later message answers, by the place of the message that makes them."""
    found: dict[int, list[Block]] = {}
    answered: set[str] = set()  # by messages further on
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.results:  # of most messages there are none
            answered.update(result.call_id for result in message.results)
        if message.calls:
            if missing := [call for call in message.calls if call["id"] not in answered]:
                found[place] = missing
            answered.difference_update(call["id"] for call in message.calls)
    return dict(reversed(found.items()))


def _missing_result(call_id: str, tool_name: str) -> Message:
    text = f"{MISSING_RESULT}\n\nTool: {tool_name}\nCall ID: {call_id}\n\nThe call may have been interrupted."
    return Message(role="tool", content=text, tool_call_id=call_id, name=tool_name)


def _is_in_order(messages: list[NormalMessage]) -> bool:
    """True if the results of each message's calls follow it, one by one and in the order of the calls."""
    expected: list[str] = []
    for message in messages:
        if results := message.results:
            if message.blocks or len(results) > 1 or not expected or results[0].call_id != expected.pop():
                return False
        elif expected:
            return False
        elif message.calls:
            expected = [call["id"] for call in reversed(message.calls)]
    return True


def _results_by_call(messages: list[NormalMessage]) -> defaultdict[str, deque[tuple[int, NormalMessage]]]:
    """Return for each call id its results in order, each a message of its own, and where it stands."""
    found: defaultdict[str, deque[tuple[int, NormalMessage]]] = defaultdict(deque)
    for place, message in enumerate(messages):
        for result in message.results:
            is_alone = len(message.results) == 1 and not message.blocks
            found[result.call_id].append((place, message if is_alone else NormalMessage("tool", (), (result,))))
    return found
