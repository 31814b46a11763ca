"""One table from errors to problems: the documents that clients get, and what a failed turn leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core import llm_errors
from amplifier_core.exceptions import AmplifierError, NoProviderError, describe
from amplifier_foundation.exceptions import (
    BundleDependencyError,
    BundleError,
    BundleLoadError,
    BundleNotFoundError,
)

from . import exceptions as ours


@dataclass(frozen=True)
class Problem:
    """A kind of problem: its HTTP status, its stable code, whether trying again may help, and what to do.

    In a hint, `{provider}` is the name of the provider that failed.
    """

    status: int
    code: str
    retryable: bool = False
    hint: str = ""


_KEY = "store another key: amplifier provider add {provider}; then try it: amplifier provider test {provider}"
_NETWORK = "check the network and base_url, then try it: amplifier provider test {provider}"
_ANOTHER = "try again later, or go on with another provider: amplifier run --resume last -p NAME"
_MODELS = "see which models there are: amplifier provider models {provider}"
_NO_PROVIDER = "store a key: amplifier provider add anthropic; without one: amplifier run --profile offline"

INTERNAL = Problem(500, "internal-error")

PROBLEMS: Mapping[type[BaseException], Problem] = {
    llm_errors.QuotaExceededError: Problem(429, "quota-exceeded", hint=_ANOTHER),
    llm_errors.RateLimitError: Problem(429, "rate-limit", retryable=True, hint="wait a little, then try again"),
    llm_errors.AccessDeniedError: Problem(502, "provider-access-denied", hint=_ANOTHER),
    llm_errors.AuthenticationError: Problem(502, "provider-auth", hint=_KEY),
    llm_errors.ContextLengthError: Problem(413, "context-too-large", hint="ask for less, or start a new session"),
    llm_errors.ContentFilterError: Problem(422, "content-filtered"),
    llm_errors.InvalidRequestError: Problem(400, "invalid-request"),
    llm_errors.NetworkError: Problem(503, "network-error", retryable=True, hint=_NETWORK),
    llm_errors.ProviderUnavailableError: Problem(503, "provider-unavailable", retryable=True, hint=_ANOTHER),
    llm_errors.LLMTimeoutError: Problem(504, "provider-timeout", retryable=True, hint=_NETWORK),
    llm_errors.NotFoundError: Problem(502, "provider-not-found", hint=_MODELS),
    llm_errors.StreamError: Problem(502, "stream-error", retryable=True),
    llm_errors.AbortError: Problem(499, "aborted"),
    llm_errors.InvalidToolCallError: Problem(502, "invalid-tool-call"),
    llm_errors.ConfigurationError: Problem(500, "configuration-error"),
    llm_errors.LLMError: Problem(502, "llm-error"),
    NoProviderError: Problem(500, "configuration-error", hint=_NO_PROVIDER),
    ours.ProfileNotFoundError: Problem(404, "profile-not-found"),
    ours.ProfileValidationError: Problem(422, "profile-invalid"),
    ours.ProfileCompilationError: Problem(500, "compile-failed"),
    ours.MountPlanError: Problem(422, "mount-plan-invalid"),
    ours.RefResolutionError: Problem(502, "ref-resolution-failed", retryable=True),
    ours.AgentNotFoundError: Problem(400, "invalid-request"),
    ours.FormatUnsupportedError: Problem(409, "format-unsupported"),
    ours.SettingsError: Problem(500, "configuration-error"),
    ours.InvalidSessionIdError: Problem(400, "invalid-identifier"),
    ours.InvalidTurnError: Problem(422, "validation-error"),
    ours.SessionNotFoundError: Problem(404, "session-not-found"),
    ours.SessionExistsError: Problem(409, "session-already-exists"),
    ours.SessionStateError: Problem(409, "session-state-conflict"),
    ours.SessionHeldError: Problem(409, "session-held", retryable=True),
    ours.HoldLostError: Problem(409, "session-held"),
    ours.MountPlanMissingError: Problem(409, "mount-plan-missing"),
    ours.ExecutionInProgressError: Problem(409, "execution-in-progress", retryable=True),
    ours.QueueFullError: Problem(429, "queue-full", retryable=True),
    ours.NothingToSteerError: Problem(409, "nothing-to-steer"),
    ours.SteeringUnsupportedError: Problem(409, "steering-unsupported"),
    ours.BudgetExhaustedError: Problem(429, "budget-exhausted"),
    BundleNotFoundError: Problem(404, "bundle-not-found"),
    BundleLoadError: Problem(422, "bundle-load-error"),
    BundleDependencyError: Problem(422, "bundle-dependency-error"),
    BundleError: Problem(422, "bundle-validation-error"),
    TimeoutError: Problem(504, "execution-timeout", retryable=True),
}
"""The most specific class of an error counts; what is not here is a mistake of ours."""

_FACTS = ("provider", "model", "tool_name", "raw_arguments")


def find_problem(error: BaseException) -> Problem:
    return next((PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS), INTERNAL)


def hint_for(error: BaseException) -> str:
    """Return what to do about an error: what it says itself, else what is known about its kind."""
    own = error.hint if isinstance(error, AmplifierError) else ""
    return own or find_problem(error).hint.replace("{provider}", getattr(error, "provider", None) or "NAME")


def problem_document(error: BaseException, *, instance: str | None = None) -> dict[str, Any]:
    """Return an error as clients see it. The text of an unexpected one is kept, its traceback is not."""
    problem = find_problem(error)
    retry_after = getattr(error, "retry_after", None)
    document: dict[str, Any] = {
        "type": f"urn:amplifier:error:{problem.code}",
        "title": problem.code.replace("-", " "),
        "status": problem.status,
        "detail": error.message if isinstance(error, AmplifierError) else describe(error),
        "instance": instance,
        "code": problem.code,
        "retryable": bool(getattr(error, "retryable", problem.retryable)),
        "error_class": type(error).__name__,
    }
    if isinstance(retry_after, int | float):
        document["retry_after_seconds"] = retry_after
    if (status := getattr(error, "status_code", None)) is not None:
        document["upstream_status"] = status
    if hint := hint_for(error):
        document["hint"] = hint
    if issues := getattr(error, "issues", None):
        document["issues"] = [str(issue) for issue in issues]
    return {**document, **{name: getattr(error, name) for name in _FACTS if getattr(error, name, None) is not None}}
