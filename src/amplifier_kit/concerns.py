"""Concerns: what a tool call touches that a person is asked about by name, whatever else the rules approve.

A tool reports facts: its optional method `concerns_of(input)` returns a `Concern` for each place that runs and for each
host that a call would touch. The guard, `hooks-approval`, judges them: a call with a concern that nobody has agreed to
in this session is asked about, even where a rule, `auto_approve` or a remembered answer approves the call otherwise. A
yes holds for that concern until the session ends.

What a tool meets only while it runs, such as a redirect to another host, it asks about with `refusal_of`.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from amplifier_core.boundary import Boundary
from amplifier_core.exceptions import describe
from amplifier_core.interfaces import ApprovalRequest
from amplifier_system.policy import find_running_place
from amplifier_system.urls import canonical_host

from .approval import GATE, GateVerdict
from .mounting import find_capability

logger = logging.getLogger(__name__)

CONCERN = "approval.concern"
"""The capability that decides about one concern, an `AskConcern`."""

LEDGER = "approval.ledger"
"""The capability that knows what a session has read; `is_tainted` says that it could pass on what is not others'."""

SESSION_TAINTED = "session:tainted"
"""The event of a session that becomes tainted; `tool_name` is the tool whose result completed it, if it was one."""

_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443, "ftp": 21}
_KINDS = frozenset({"place", "host", "unknown"})


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that a call touches and that a person is asked about by name.

    `subject` is a path relative to the working directory, or a host with its port (`example.org:443`). `words` says the
    danger: "AGENTS.md instructs every later session here". `detail` is the whole URL of a host from which nothing but
    that is read, or what has become of a place, line by line. The kind `unknown` is for a tool that cannot say what a
    call touches; nothing is remembered of it.
    """

    kind: Literal["place", "host", "unknown"]
    subject: str
    words: str
    detail: str = ""

    @property
    def key(self) -> str | None:
        """What a yes is remembered under."""
        return None if self.kind == "unknown" else f"{self.kind}:{self.subject}"


def host_and_port(url: str) -> str | None:
    """Return the subject of the concern that the host of a URL is, None for a text without one."""
    try:
        parts = urlsplit(url)
        host = canonical_host(parts.hostname or "")
        port = parts.port or _PORTS.get(parts.scheme, 443)
    except ValueError:
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def place_concerns(path: Path, working_dir: Path) -> tuple[Concern, ...]:
    """Return what is to be asked before a file is written: the running place that it is, by its name or where it leads.

    What the policy denies anyway, `.git` for example, is not asked about.
    """
    real_base = Path(os.path.realpath(working_dir))
    found: dict[str, Concern] = {}
    for place, base in ((Path(os.path.normpath(path)), working_dir), (Path(os.path.realpath(path)), real_base)):
        row = find_running_place(place, base)
        if row is not None and row.treatment != "denied":
            subject = str(place.relative_to(base)) if place.is_relative_to(base) else str(place)
            found[subject] = Concern("place", subject, f"{subject} {row.reason}")
    return tuple(found.values())


AskConcern = Callable[[Concern, str], Awaitable[GateVerdict]]


def concerns_of(tool: Any, tool_input: Any) -> tuple[Concern, ...]:
    """Return what a call of a tool touches; a tool that fails to say so is itself a concern."""
    report = getattr(tool, "concerns_of", None)
    if not callable(report):
        return ()
    with Boundary(logger, "a tool cannot say what its call touches; it is asked about: %s") as boundary:
        reported = report(tool_input)
        if not isinstance(reported, (tuple, list)) or not all(map(_is_concern, reported)):
            raise TypeError(f"concerns_of returned {type(reported).__name__}, not concerns")
        return tuple(reported)
    said = describe(boundary.error) if boundary.error is not None else "no reason"
    return (Concern("unknown", str(getattr(tool, "name", "")), f"the tool cannot say what this call touches: {said}"),)


def is_tainted(coordinator: Any) -> bool:
    """True for a session that has read both outside content and private data."""
    return getattr(find_capability(coordinator, LEDGER), "is_tainted", False) is True


async def refusal_of(coordinator: Any, concern: Concern, tool_name: str) -> str | None:
    """Ask the session's guard about a concern that comes up while a tool runs; returns why not, None for a yes.

    In a session without a guard the policy alone decides about hosts, and places that run stay as they are.
    """
    ask: AskConcern | None = find_capability(coordinator, CONCERN)
    if ask is None:
        is_unguarded = find_capability(coordinator, GATE) is None
        return None if is_unguarded and concern.kind == "host" else f"{concern.words}, and nobody can be asked here"
    message = "the approval of a concern failed and counts as denied: %s"
    with Boundary(logger, message, level=logging.ERROR) as boundary:
        verdict = await ask(concern, tool_name)
        return None if verdict.approved is True else verdict.reason or "denied"
    return f"Approval failed: {describe(boundary.error) if boundary.error is not None else 'no answer'}"


def _is_concern(value: Any) -> bool:
    texts = [getattr(value, name, None) for name in ("subject", "words", "detail")]
    return getattr(value, "kind", None) in _KINDS and all(isinstance(text, str) for text in texts)


# The tool call that a person is asked about: how a guard tells those who put the question what it knows.
#
# A request of the approval protocols names a tool and shows its input. A guard such as `hooks-approval` knows more:
# which call it is, what the tool is and does, what it touches, and for which later calls an "always" would stand.
# It says so with `asking_about` while it asks; the code that answers in the same task finds it with
# `find_pending_call`.
#
# `question_text` puts all of it into words. Whoever shows a question shows that text whole, and makes it harmless
# for the screen it goes to (`amplifier_system.visible`).


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

    @classmethod
    def of_key(cls, key: str) -> Scope:
        """The scope that has this key."""
        tool, mark, covers = re.split("([=:])", key, maxsplit=1)
        return cls(tool, covers, is_exact=mark == "=")

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
class PendingCall:
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


_asked: ContextVar[PendingCall | None] = ContextVar("pending_call", default=None)


class asking_about:
    """Says that the questions asked meanwhile are about this call."""

    __slots__ = ("_call", "_token")

    def __init__(self, call: PendingCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._token = _asked.set(self._call)

    def __exit__(self, *error: object) -> None:
        _asked.reset(self._token)


def find_pending_call() -> PendingCall | None:
    """Return the call that is asked about at the moment, None where no guard says."""
    return _asked.get()


def question_text(request: ApprovalRequest, call: PendingCall | None = None) -> str:
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
        lines += [line for concern in call.concerns for line in _shown_concern(concern)]
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


def _covered_by_yes(call: PendingCall) -> str:
    agreed = [concern for concern in call.concerns if concern.key and not call.only_everywhere]
    lasting = ", ".join(_json(concern.subject) for concern in agreed)
    return f"this call, and {lasting} until the session ends" if lasting else "this call"


def _shown_concern(concern: Concern) -> list[str]:
    """Return the lines about a concern; what has become of places follows as lines that begin with a bar."""
    if concern.kind == "place":
        changed = concern.detail.split("\n") if concern.detail else []
        return [concern.words.replace("\n", "\\n"), *(f"| {line}" for line in changed)]
    shown = f"{concern.words}: {concern.detail}" if concern.detail else concern.words
    return [shown.replace("\n", "\\n")]


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=repr)
