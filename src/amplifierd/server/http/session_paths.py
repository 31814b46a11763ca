"""Which session a request is about, and who can answer it: its holder, or any daemon that has the store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from starlette.types import Scope

from amplifier_sessions.session_directory import is_session_id

from .cross_site import SAFE_METHODS
from .routers import API

Headers = Mapping[bytes, bytes]
Kind = Literal["session", "turn", "completion", "operation"]
"""`turn`: its events are the answer if the client wants them. `completion`: asked for as of OpenAI's servers.
`operation`: not of a session at all, but of long work, which belongs to the member that does it."""

_SESSION = re.compile(rf"{API}/sessions/(?P<session>[^/]+)(?:/(?P<rest>.+))?")
_OPERATION = re.compile(rf"{API}/operations/(?P<operation>[^/]+)")
_NOT_SESSIONS = frozenset({"search", "cleanup", "import", "trash"})
_COMPLETIONS = "/v1/chat/completions"
SESSION_HEADERS = ("X-Amplifier-Session", "X-Session-Id", "X-Client-Session-Id")
"""By which a completion names its session; the first of them counts."""

_NAMED_BY = tuple(name.lower().encode() for name in SESSION_HEADERS)

_PARAMETER = re.compile(r"\{\w+\}")

_WATCHED = "stream"
"""Watched through the daemon that is asked, wherever the session is."""

_IN_THE_STORE = frozenset(
    {
        *("messages", "transcript", "events", "turns", "lineage", "forks", "tree", "fork/preview"),
        *("mount-plan", "config", "requests", "export"),
    }
)
_NEED_MODULES = frozenset({"modules", "tools", "hooks", "capabilities", "agents", "changes", "execute"})
_NEED_NO_MODULES = frozenset({"", "cancel", "messages", "messages/last", "truncate", "clone", "fork"})


@dataclass(frozen=True)
class PathSession:
    """A request for a session, or an operation. One that `loads` it belongs where its modules and its files can be."""

    session_id: str
    kind: Kind
    loads: bool
    is_repeatable: bool
    """True if it may be sent again when its answer was lost; a POST with a key is done once."""


def session_of_path(scope: Scope, headers: Headers) -> PathSession | None:
    """Return the session whose holder has to answer a request; None when this daemon can."""
    method, path = scope["method"], scope["path"]
    if path == _COMPLETIONS:
        named = next((headers[name] for name in _NAMED_BY if name in headers), b"").decode("latin-1")
        return PathSession(named, "completion", True, False) if is_session_id(named) else None
    if (operation := _OPERATION.fullmatch(path)) is not None:
        return PathSession(operation["operation"], "operation", False, method in SAFE_METHODS)
    found = _SESSION.fullmatch(path)
    if found is None or found["session"] in _NOT_SESSIONS:
        return None
    session_id, rest = unquote(found["session"]), found["rest"] or ""
    is_read = method in SAFE_METHODS
    if not is_session_id(session_id) or rest == _WATCHED:
        return None
    if is_read and (rest in _IN_THE_STORE or rest.startswith("requests/")):
        return None
    loads = rest in _NEED_MODULES if is_read else rest not in _NEED_NO_MODULES
    kind: Kind = "turn" if rest == "execute" else "session"
    return PathSession(session_id, kind, loads, is_read or method == "POST")


NEW_WORK = PathSession("", "session", False, False)
"""A request for something that there is no session for yet."""


def is_passed_on(method: str, route: str) -> bool:
    """True if another member may have to answer the requests of a route."""
    scope = {"method": method, "path": _PARAMETER.sub("any", route)}
    return session_of_path(scope, {_NAMED_BY[0]: b"any"}) is not None or is_new_work(scope)


def is_new_work(scope: Scope) -> bool:
    """True if a request makes a session."""
    return scope["method"] == "POST" and scope["path"] in (f"{API}/sessions", f"{API}/sessions/import", _COMPLETIONS)
