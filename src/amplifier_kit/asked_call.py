"""The tool call that a person is asked about: how a guard tells those who put the question what it knows.

A request of the approval protocols names a tool and shows its input. A guard such as `hooks-approval` knows more: which
call it is, what the tool is and does, what it touches, and for which later calls an "always" would stand. It says
so with `asking_about` while it asks; the code that answers in the same task finds it with `find_asked_call`.

`question_text` puts all of it into words. Whoever shows a question shows that text whole, and makes it harmless for the
screen it goes to (`amplifier_system.visible`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from amplifier_core.interfaces import ApprovalRequest

from .concerns import Concern

_EXECUTE = "Execute: "
_LONG = 1_000
_VERBS = {"host": "reach", "place": "change"}


@dataclass(frozen=True, slots=True)
class Scope:
    """The calls that an "always" stands for: what a person is shown is what it is remembered as.

    `covers` is said in the question (`pytest …`, `edit files in src/`). With `is_exact` it is the text of one call, and
    the question says so.
    """

    tool: str
    covers: str
    is_exact: bool = False

    @property
    def key(self) -> str:
        """What an answer is remembered under."""
        return f"{self.tool}{'=' if self.is_exact else ':'}{self.covers}"

    @property
    def words(self) -> str:
        if self.is_exact:
            return "exactly this call"
        return f"{_VERBS[self.tool]} {self.covers}" if self.tool in _VERBS else self.covers

    @classmethod
    def of_concern(cls, concern: Concern) -> Scope | None:
        """Return the scope of a yes to a concern; None where nothing is remembered of it."""
        return None if concern.key is None else cls(concern.kind, concern.subject)

    def to_dict(self) -> dict[str, Any]:
        return {"tool": self.tool, "exactly" if self.is_exact else "covers": self.covers}

    @classmethod
    def read(cls, value: Any) -> Scope:
        """Return the scope that `to_dict` described; raises `ValueError` for anything else."""
        match value:
            case {"tool": str(tool), "covers": str(covers)} if tool and covers and "exactly" not in value:
                return cls(tool, covers)
            case {"tool": str(tool), "exactly": str(covers)} if tool and covers and "covers" not in value:
                return cls(tool, covers, is_exact=True)
        raise ValueError(f"{value!r} does not say which calls it covers: it needs `tool` and `covers` or `exactly`")


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call in question. `identity` is the tool's own name, by whatever name it is mounted.

    `input` is every field that differs from the tool's default. An "always" stands for the calls of all its `scopes`;
    a call without scopes is like no other. `default` is what the guard does when there is no answer in time. A yes
    agrees to the `concerns`, too, for the session. With `only_everywhere`, no answer of this session or project stands
    for it: the session could leak what it read.
    """

    tool_name: str
    identity: str
    action: str
    risk_level: str
    effects: frozenset[str]
    scopes: tuple[Scope, ...] = ()
    tool_call_id: str | None = None
    session_id: str | None = None
    default: Literal["allow", "deny"] = "deny"
    concerns: tuple[Concern, ...] = ()
    input: Mapping[str, Any] = field(default_factory=dict)
    working_dir: str | None = None
    only_everywhere: bool = False


_asked: ContextVar[AskedCall | None] = ContextVar("asked_call", default=None)


class asking_about:
    """Says that the questions asked meanwhile are about this call."""

    __slots__ = ("_call", "_token")

    def __init__(self, call: AskedCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._token = _asked.set(self._call)

    def __exit__(self, *error: object) -> None:
        _asked.reset(self._token)


def find_asked_call() -> AskedCall | None:
    """Return the call that is asked about at the moment, None where no guard says."""
    return _asked.get()


def question_text(request: ApprovalRequest, call: AskedCall | None = None) -> str:
    """Return the question in words, with everything that will run.

    The lines of a command that has several begin with a bar, so that none of them can pass for a line of the question.
    """
    shown = dict(call.input if call is not None else request.details or {})
    risk = f"(risk: {request.risk_level})"
    if request.action.startswith(_EXECUTE):
        shown.pop("command", None)
        lines = _command_lines(request.action.removeprefix(_EXECUTE), risk)
        lines += [f"{name}: {_json(value)}" for name, value in shown.items()]
    else:
        lines = [f"{request.action} {risk}", *([_json(shown, indent=2)] if shown else [])]
    if call is not None:
        lines += [f"working directory: {_json(call.working_dir)}"] if call.working_dir else []
        lines += [_shown_concern(concern) for concern in call.concerns]
        lines += [f"a yes covers: {_covered_by_yes(call)}", f"always covers: {words_of(call.scopes)}"]
    return "\n".join(lines)


def words_of(scopes: Iterable[Scope]) -> str:
    """Return for what an "always" stands, in words."""
    return " and ".join(dict.fromkeys(scope.words for scope in scopes)) or "nothing, this is asked every time"


def _command_lines(command: str, risk: str) -> list[str]:
    lines = command.split("\n")
    if len(lines) == 1 and len(command) <= _LONG:
        return [f"{_EXECUTE}{command} {risk}"]
    counted = f"{len(lines)} lines, " if len(lines) > 1 else ""
    return [f"{_EXECUTE}{counted}{len(command):,} characters {risk}", *(f"| {line}" for line in lines)]


def _covered_by_yes(call: AskedCall) -> str:
    agreed = [concern for concern in call.concerns if concern.key and not call.only_everywhere]
    lasting = ", ".join(_json(concern.subject) for concern in agreed)
    return f"this call, and {lasting} until the session ends" if lasting else "this call"


def _shown_concern(concern: Concern) -> str:
    shown = f"{concern.words}: {concern.detail}" if concern.detail else concern.words
    return shown.replace("\n", "\\n")


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=repr)
