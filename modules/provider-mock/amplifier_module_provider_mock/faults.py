"""Errors on demand: every class of the kernel's taxonomy, at chosen calls, also in the middle of a stream."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import ChatRequest, LLMError, llm_errors
from amplifier_kit.providers.messages import NormalMessage

# A request as the mock looks at it: what the user asked last, and what has happened since.


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
        """True if the model is asked for the first time in this turn."""
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


_TYPES: dict[str, type] = {
    "contains": str,
    "regex": str,
    "role": str,
    "tool": str,
    "call": int,
    "min_messages": int,
    "tools_include": list,
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """All that are given must hold; `contains`, `regex`, `role` and `tool` look at the last message."""

    contains: str | None = None
    regex: str | None = None
    role: str | None = None
    tool: str | None = None
    call: int | None = None
    min_messages: int | None = None
    tools_include: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: Any, *, allow_tools: bool = False) -> "Conditions":
        """Read a mapping, None meaning no condition; raises `TypeError` or `ValueError`."""
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            raise TypeError(f"conditions are a mapping, got {given!r}")
        for key, value in given.items():
            if key not in _TYPES or (key == "tools_include" and not allow_tools):
                raise ValueError(f"there is no condition {key!r}")
            if not isinstance(value, _TYPES[key]) or isinstance(value, bool):
                raise TypeError(f"the condition {key!r} is a {_TYPES[key].__name__}, got {value!r}")
        if "regex" in given:
            try:
                re.compile(given["regex"])
            except re.error as exc:
                raise ValueError(f"{given['regex']!r} is not a regular expression: {exc}") from exc
        return cls(**{**given, "tools_include": tuple(given.get("tools_include", ()))})

    def broken(self, view: TurnView) -> str | None:
        """Return the first condition that does not hold, in words; None when all hold."""
        role = view.last.role if view.last else None
        missing = [name for name in self.tools_include if name not in view.offered]
        checks = (
            (self.contains is None or self.contains in view.last_text, f"contains {self.contains!r}"),
            (self.regex is None or re.search(self.regex, view.last_text), f"regex {self.regex!r}"),
            (self.role is None or self.role == role, f"role {self.role!r}, it is {role!r}"),
            (self.tool is None or self.tool in view.answered_tools, f"tool {self.tool!r}"),
            (self.call is None or self.call == view.call_number, f"call {self.call}, it is {view.call_number}"),
            (
                self.min_messages is None or self.min_messages <= view.message_count,
                f"min_messages {self.min_messages}, there are {view.message_count}",
            ),
            (not missing, f"tools_include {missing!r}, offered are {view.offered!r}"),
        )
        return next((words for holds, words in checks if not holds), None)


CLASSES: dict[str, type[LLMError]] = {
    name: kind for name, kind in vars(llm_errors).items() if isinstance(kind, type) and issubclass(kind, LLMError)
}
_SHORT_NAMES: dict[str, tuple[str, int | None, float]] = {  # class, status code, delay multiplier
    "timeout": ("LLMTimeoutError", None, 1.0),
    "rate_limit": ("RateLimitError", 429, 1.0),
    "overloaded": ("ProviderUnavailableError", 529, 10.0),
    "stream": ("StreamError", None, 1.0),
    "auth": ("AuthenticationError", 401, 1.0),
    "context_length": ("ContextLengthError", 400, 1.0),
}
_ERROR_KEYS = frozenset({"type", "message", "retry_after", "status_code", "after_deltas"})
_FAULT_KEYS = _ERROR_KEYS | {"call", "every", "when", "times"}


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """An error to raise; with `after_deltas` only after that many fragments were streamed."""

    type: str
    message: str
    retry_after: float | None = None
    status_code: int | None = None
    after_deltas: int | None = None

    @classmethod
    def parse(cls, given: Any) -> "ErrorSpec":
        """Read a class name, a short name, or a mapping with `type`; raises `TypeError` or `ValueError`."""
        fields = {"type": given} if isinstance(given, str) else given
        if not isinstance(fields, Mapping):
            raise TypeError(f"an error is a name or a mapping, got {given!r}")
        if unknown := sorted(set(fields) - _ERROR_KEYS):
            raise ValueError(f"an error has no {', '.join(map(repr, unknown))}")
        kind = fields.get("type")
        if kind not in CLASSES and kind not in _SHORT_NAMES:
            known = ", ".join((*_SHORT_NAMES, *CLASSES))
            raise ValueError(f"{kind!r} is not an error; known are {known}")
        return cls(
            type=str(kind),
            message=str(fields.get("message") or f"mock error: {kind}"),
            retry_after=_number(fields, "retry_after"),
            status_code=_count(fields, "status_code"),
            after_deltas=_count(fields, "after_deltas"),
        )

    def error(self, *, provider: str, model: str) -> LLMError:
        """Return the exception."""
        name, status_code, delay_multiplier = _SHORT_NAMES.get(self.type, (self.type, None, 1.0))
        return CLASSES[name](
            self.message,
            provider=provider,
            model=model,
            status_code=status_code if self.status_code is None else self.status_code,
            retry_after=self.retry_after,
            delay_multiplier=delay_multiplier,
        )


@dataclass(slots=True)
class Fault:
    """When an error happens: at call `call`, at every `every`-th call, or where `when` holds; without any, always.

    It happens on the first attempt of such a call; with `times` on every attempt, until it has happened that often.
    """

    spec: ErrorSpec
    call: int | None = None
    every: int | None = None
    when: Conditions = field(default_factory=Conditions)
    times: int | None = None
    happened: int = 0

    @classmethod
    def parse(cls, given: Any) -> "Fault":
        """Read an item of the key `errors`; raises `TypeError` or `ValueError`."""
        if not isinstance(given, Mapping):
            raise TypeError(f"a fault is a mapping, got {given!r}")
        if unknown := sorted(set(given) - _FAULT_KEYS):
            raise ValueError(f"a fault has no {', '.join(map(repr, unknown))}")
        return cls(
            spec=ErrorSpec.parse({key: value for key, value in given.items() if key in _ERROR_KEYS}),
            call=_count(given, "call"),
            every=_count(given, "every", minimum=1),
            when=Conditions.parse(given.get("when")),
            times=_count(given, "times"),
        )

    def happens(self, view: TurnView, attempt: int) -> bool:
        """True if it happens now, and count it; `attempt` is 0 for the first of a call."""
        is_due = (
            (self.call is None or view.call_number == self.call)
            and (self.every is None or view.call_number % self.every == 0)
            and (attempt == 0 if self.times is None else self.happened < self.times)
            and self.when.broken(view) is None
        )
        self.happened += is_due
        return is_due


class Faults:
    """The faults of one provider; the first that is due happens."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = faults

    def next(self, view: TurnView, attempt: int) -> ErrorSpec | None:
        return next((fault.spec for fault in self._faults if fault.happens(view, attempt)), None)


def _number(fields: Mapping[str, Any], key: str) -> float | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"{key} is a number that is not negative, got {value!r}")
    return float(value)


def _count(fields: Mapping[str, Any], key: str, *, minimum: int = 0) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{key} is a whole number of at least {minimum}, got {value!r}")
    return value
