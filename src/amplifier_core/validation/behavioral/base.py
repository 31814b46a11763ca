"""What the behavioural tests share."""

from collections.abc import Awaitable
from typing import TypeVar

import pytest

T = TypeVar("T")

CRASHES = (AttributeError, TypeError, KeyError)


async def answer_or_refusal(call: Awaitable[T], what: str, crashes: tuple[type[Exception], ...] = CRASHES) -> T | None:
    """Return what `call` returns, or None when it refuses with an error of its own choice.

    An error that only carelessness raises fails the test; `what` names the call in its message.
    """
    try:
        return await call
    except crashes as exc:
        pytest.fail(f"{what} crashed with {type(exc).__name__}: {exc}")
    except Exception:  # noqa: BLE001 - any other error is a deliberate answer
        return None
