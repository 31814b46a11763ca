"""Concerns: what a tool call touches that a person is asked about by name, whatever else the rules approve.

A tool reports facts: its optional method `concerns_of(input)` returns a `Concern` for each place that runs and for each
host that a call would touch. The guard, `hooks-approval`, judges them: a call with a concern that nobody has agreed to
in this session is asked about, even where a rule, `auto_approve` or a remembered answer approves the call otherwise. A
yes holds for that concern until the session ends.

What a tool meets only while it runs, such as a redirect to another host, it asks about with `refusal_of`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from amplifier_core.boundary import Boundary
from amplifier_core.exceptions import describe
from amplifier_system.addresses import canonical_host
from amplifier_system.policy import find_running_place

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
    that is read. The kind `unknown` is for a tool that cannot say what a call touches; nothing is remembered of it.
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
