"""Errors on their way between processes: described as JSON here, raised as the same exception there."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from types import ModuleType
from typing import Any

from amplifier_core import exceptions as kernel
from amplifier_core import llm_errors
from amplifier_core.exceptions import AmplifierError, describe
from amplifier_core.utils import json_safe
from amplifier_foundation import exceptions as foundation
from amplifierd import exceptions as ours
from amplifierd.exceptions import RemoteError
from amplifierd.issues import Issue
from amplifierd.problems import problem_document
from amplifierd.session_store.hold import Holder

logger = logging.getLogger(__name__)


def _errors_of(module: ModuleType) -> dict[str, type[Exception]]:
    found = inspect.getmembers(module, inspect.isclass)
    return {name: kind for name, kind in found if issubclass(kind, Exception) and kind is not RemoteError}


KNOWN: Mapping[str, type[Exception]] = {
    "TimeoutError": TimeoutError,
    **_errors_of(llm_errors),
    **_errors_of(kernel),
    **_errors_of(foundation),
    **_errors_of(ours),
}
"""The errors that are raised again as what they were, by the names of their classes."""


def described_error(error: BaseException) -> dict[str, Any]:
    """Return an error as the `message` and `data` of a JSON-RPC error; an unexpected one leaves its traceback here."""
    name = type(error).__name__
    if KNOWN.get(name) is not type(error) and not isinstance(error, RemoteError):
        logger.error("a request failed: %s", describe(error), exc_info=error)
    facts = {key: _plain(value) for key, value in vars(error).items() if not key.startswith("_")}
    data = {"class": name, "facts": facts, "problem": problem_document(error)}
    return {"message": describe(error), "data": data}


def error_of(described: Mapping[str, Any]) -> Exception:
    """Return the exception that was described."""
    message, data = str(described.get("message") or "it failed"), described.get("data")
    if not isinstance(data, Mapping):
        return RemoteError(message, problem=problem_document(AmplifierError(message)))
    facts, problem = dict(data.get("facts") or {}), dict(data.get("problem") or {})
    kind = KNOWN.get(str(data.get("class")))
    if kind is None:
        return RemoteError(message, problem=problem)
    error = kind.__new__(kind)
    error.args = (message,)
    vars(error).update({name: _REBUILT.get(name, _as_it_is)(value) for name, value in facts.items()})
    return error


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return json_safe(asdict(value))
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return json_safe(value)


def _as_it_is(value: Any) -> Any:
    return value


def _issues(value: Any) -> Any:
    return tuple(Issue(**one) if isinstance(one, dict) else one for one in value or ())


def _holder(value: Any) -> Any:
    return Holder(**value) if isinstance(value, dict) else value


_REBUILT = {"issues": _issues, "holder": _holder}
"""Facts that are values of ours, and how they are made again."""
