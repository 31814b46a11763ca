"""Pairs the events of one model call by a `request_id`, without the emitters passing it along.

A request event opens a call, interim events belong to it, a terminal event closes it. The id in flight lives in a
context variable, so calls in separate tasks stay apart.
"""

import uuid
from contextvars import ContextVar

REQUEST_ID_FIELD = "request_id"
REQUEST_EVENTS = frozenset({"llm:request"})
TERMINAL_EVENTS = frozenset({"llm:response", "provider:error"})
INTERIM_EVENTS = frozenset({"provider:retry", "provider:throttle"})

_CORRELATED_EVENTS = REQUEST_EVENTS | TERMINAL_EVENTS | INTERIM_EVENTS
_in_flight: ContextVar[str | None] = ContextVar("amplifier_core_request_in_flight", default=None)


def new_request_id() -> str:
    return str(uuid.uuid4())


def current_request_id() -> str | None:
    """Return the id of the call in flight in this context, if any."""
    return _in_flight.get()


def reset_request_id() -> None:
    """Forget the call in flight in this context."""
    _in_flight.set(None)


def resolve_request_id(event: str, explicit: object = None) -> str | None:
    """Return the id `event` belongs to and open or close the call accordingly.

    `explicit` is the id the emitter gave, taken over when it is a non-empty string. Without one a request event
    opens a call with a new id, and the others belong to the call in flight, `None` if there is none. Events that
    take no part in model calls always get `None`.
    """
    if event not in _CORRELATED_EVENTS:
        return None
    given = explicit if isinstance(explicit, str) else ""
    request_id = given or (new_request_id() if event in REQUEST_EVENTS else _in_flight.get())
    _in_flight.set(None if event in TERMINAL_EVENTS else request_id)
    return request_id
