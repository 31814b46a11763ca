"""A request as the mock looks at it: what the user asked last, and what has happened since."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amplifier_core import ChatRequest
from amplifier_kit.providers.messages import NormalMessage

_REMINDER = "<system-reminder>"


@dataclass(frozen=True, slots=True)
class Answered:
    """One tool result: which tool it came from, and what it says."""

    tool: str
    text: str


class TurnView:
    """The turn at the end of a request; what hooks injected does not count.

    `messages` are the request's messages in plain form, `call_number` counts the provider's calls from 1.
    """

    def __init__(self, request: ChatRequest, messages: Sequence[NormalMessage], call_number: int) -> None:
        self.call_number = call_number
        self.message_count = len(messages)
        self.offered = [tool.name for tool in request.tools or []]
        self._messages = messages
        places = range(len(messages) - 1, -1, -1)  # the last ones are asked for most, in conversations of any length
        self._start = next((place for place in places if _is_of_user(messages[place])), None)

    @property
    def user_text(self) -> str:
        """What the user said last, empty when there is nothing."""
        return "" if self._start is None else self._messages[self._start].text

    @property
    def first_user_text(self) -> str:
        """The first text block of that."""
        blocks = () if self._start is None else self._messages[self._start].blocks
        return next((block["text"] for block in blocks if block["type"] == "text"), "")

    @property
    def last(self) -> NormalMessage | None:
        """The last message."""
        return next(self._said_before(), None)

    @property
    def last_text(self) -> str:
        """What the last message says, be it a tool's result."""
        if self.last is None:
            return ""
        return self.last.text or "\n\n".join(result.text for result in self.last.results)

    @property
    def last_tool_result(self) -> str:
        """The newest tool result of the conversation, empty when there is none."""
        texts = (result.text for message in self._said_before() for result in reversed(message.results))
        return next(texts, "")

    @property
    def since_user(self) -> list[NormalMessage]:
        """What came after the user's message."""
        if self._start is None:
            return []
        return [message for message in self._messages[self._start + 1 :] if not _is_injected(message)]

    @property
    def is_first_call(self) -> bool:
        """Whether the model is asked for the first time in this turn."""
        return not any(message.role in ("assistant", "tool") for message in self.since_user)

    @property
    def rounds(self) -> int:
        """How many answers of this turn called tools."""
        return sum(bool(message.calls) for message in self.since_user)

    @property
    def results(self) -> list[Answered]:
        """The tool results of this turn, in order."""
        return [
            Answered(self._tool_of(result.call_id, message), result.text)
            for message in self.since_user
            for result in message.results
        ]

    @property
    def answered_tools(self) -> list[str]:
        """The tools whose results the last message holds."""
        return [self._tool_of(result.call_id, self.last) for result in self.last.results] if self.last else []

    def _tool_of(self, call_id: str, message: NormalMessage) -> str:
        calls = (call for said in self._said_before() for call in said.calls)
        return next((call["name"] for call in calls if call["id"] == call_id), message.name or "tool")

    def _said_before(self) -> Iterator[NormalMessage]:
        """Yield what was said, the newest first."""
        return (message for message in reversed(self._messages) if not _is_injected(message))


def _is_of_user(message: NormalMessage) -> bool:
    return message.is_real_user and not _is_injected(message)


def _is_injected(message: NormalMessage) -> bool:
    return bool(message.metadata.get("ephemeral")) or (message.role == "user" and message.text.startswith(_REMINDER))
