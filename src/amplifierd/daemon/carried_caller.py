"""A caller that one member has let in, as another one is told of it."""

from __future__ import annotations

import base64
import json
from typing import Any, get_args

from amplifierd.exceptions import UnauthorizedError
from amplifierd.limits import Limits

from .callers import SCOPES, Caller, Via

_VIAS: tuple[Via, ...] = get_args(Via)


def carried(caller: Caller | None, address: str) -> str:
    """Return a caller, and where it calls from, as the value of a header; None for a request without one."""
    said: dict[str, Any] = {"address": address}
    if caller is not None:
        said |= {"name": caller.name, "owner": caller.owner, "scope": caller.scope, "via": caller.via}
        said |= {"token_hash": caller.token_hash, "login_hash": caller.login_hash}
        said["roots"] = list(caller.roots)
        said["limits"] = caller.limits.to_json() if caller.limits else None
    return base64.urlsafe_b64encode(json.dumps(said).encode()).decode()


def read_carried(text: str) -> tuple[Caller | None, str]:
    """Return the caller that a header tells of, and where it calls from.

    Raises:
        UnauthorizedError: it cannot be read.
    """
    try:
        said = json.loads(base64.urlsafe_b64decode(text))
        address = str(said["address"])
        if "name" not in said:
            return None, address
        caller = Caller(
            str(said["name"]),
            str(said["owner"]),
            next(scope for scope in SCOPES if scope == said["scope"]),
            via=next(via for via in _VIAS if via == said["via"]),
            limits=Limits.read(said["limits"]) if said["limits"] else None,
            roots=tuple(map(str, said.get("roots") or ())),
            token_hash=str(said["token_hash"]),
            login_hash=str(said["login_hash"]),
        )
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise UnauthorizedError("whom a member asks for cannot be read") from error
    return caller, address
