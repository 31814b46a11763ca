"""One table from errors to problems: the documents that clients get, and what a failed turn leaves behind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core import llm_errors
from amplifier_core.exceptions import AmplifierError, ModuleLoadError, NoProviderError, describe
from amplifier_foundation.exceptions import (
    BundleDependencyError,
    BundleError,
    BundleLoadError,
    BundleNotFoundError,
)

from . import exceptions as ours
from .os_errors import MAKE_ROOM, is_full


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
_ANOTHER = "try again later, or continue with another provider: amplifier run --resume last -p NAME"
_MODELS = "see which models there are: amplifier provider models {provider}"
_BROKE_OFF = "send the prompt again; if it happens often, check the network and proxies to base_url"
_TOO_LONG = "leave older parts out with /compact in a chat, ask for less, or start a new session"
_NO_PROVIDER = "store a key: amplifier provider add anthropic; without one: amplifier run --profile offline"

INTERNAL = Problem(500, "internal-error")

PROBLEMS: Mapping[type[BaseException], Problem] = {
    llm_errors.QuotaExceededError: Problem(429, "quota-exceeded", hint=_ANOTHER),
    llm_errors.RateLimitError: Problem(429, "rate-limit", retryable=True, hint="wait a little, then try again"),
    llm_errors.AccessDeniedError: Problem(502, "provider-access-denied", hint=_ANOTHER),
    llm_errors.AuthenticationError: Problem(502, "provider-auth", hint=_KEY),
    llm_errors.ContextLengthError: Problem(413, "context-too-large", hint=_TOO_LONG),
    llm_errors.ContentFilterError: Problem(422, "content-filtered"),
    llm_errors.InvalidRequestError: Problem(400, "invalid-request"),
    llm_errors.NetworkError: Problem(503, "network-error", retryable=True, hint=_NETWORK),
    llm_errors.ProviderUnavailableError: Problem(503, "provider-unavailable", retryable=True, hint=_ANOTHER),
    llm_errors.LLMTimeoutError: Problem(504, "provider-timeout", retryable=True, hint=_NETWORK),
    llm_errors.NotFoundError: Problem(502, "provider-not-found", hint=_MODELS),
    llm_errors.StreamError: Problem(502, "stream-error", retryable=True, hint=_BROKE_OFF),
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
    ours.ProviderNotInPlanError: Problem(400, "invalid-request"),
    ours.FormatUnsupportedError: Problem(409, "format-unsupported"),
    ours.SettingsError: Problem(500, "configuration-error"),
    ours.InvalidSettingError: Problem(422, "validation-error"),
    ours.InvalidSessionIdError: Problem(400, "invalid-identifier"),
    ours.InvalidTurnError: Problem(422, "validation-error"),
    ours.InvalidMessageError: Problem(422, "validation-error"),
    ours.SessionNameError: Problem(422, "validation-error"),
    ours.SessionNotFoundError: Problem(404, "session-not-found"),
    ours.SessionExistsError: Problem(409, "session-already-exists"),
    ours.SessionDamagedError: Problem(500, "session-damaged"),
    ours.SessionStateError: Problem(409, "session-state-conflict"),
    ours.SessionHeldError: Problem(409, "session-held", retryable=True),
    ours.HoldLostError: Problem(409, "session-held"),
    ours.StoreFullError: Problem(507, "store-full", retryable=True, hint=MAKE_ROOM),
    ours.StoreUnavailableError: Problem(503, "store-unavailable", retryable=True),
    ours.OutcomeUnknownError: Problem(503, "outcome-unknown"),
    ours.MemberFencedError: Problem(503, "not-ready", retryable=True),
    ours.NowhereToRunError: Problem(503, "nowhere-to-run", retryable=True),
    ours.MountPlanMissingError: Problem(409, "mount-plan-missing"),
    ours.ExecutionInProgressError: Problem(409, "execution-in-progress", retryable=True),
    ours.PromptRemovedError: Problem(499, "aborted"),
    ours.TurnDeadlineError: Problem(504, "execution-timeout", retryable=True),
    ours.TurnTimeoutError: Problem(504, "execution-timeout", retryable=True),
    ours.QueueFullError: Problem(429, "queue-full", retryable=True),
    ours.NothingToSteerError: Problem(409, "nothing-to-steer"),
    ours.SteeringUnsupportedError: Problem(409, "steering-unsupported"),
    ours.TurnFailedError: Problem(499, "aborted"),
    ours.BudgetExhaustedError: Problem(429, "budget-exhausted"),
    ours.UnauthorizedError: Problem(401, "unauthorized"),
    ours.ForbiddenError: Problem(403, "forbidden"),
    ours.TokenNotFoundError: Problem(404, "token-not-found"),
    ours.TokenExistsError: Problem(409, "token-exists"),
    ours.IdempotencyConflictError: Problem(409, "idempotency-conflict"),
    ours.RequestInterruptedError: Problem(409, "request-interrupted"),
    ours.OperationNotFoundError: Problem(404, "operation-not-found"),
    ours.OperationFinishedError: Problem(409, "operation-finished"),
    ours.OperationCancelledError: Problem(409, "operation-cancelled"),
    ours.NotReadyError: Problem(503, "not-ready", retryable=True),
    ours.MemberError: Problem(502, "member-unreachable", retryable=True),
    ours.MemberUntrustedError: Problem(502, "member-untrusted"),
    ours.ApprovalNotFoundError: Problem(404, "approval-not-found"),
    ours.ApprovalAlreadyResolvedError: Problem(409, "approval-already-resolved"),
    ours.ApprovalExpiredError: Problem(410, "approval-expired"),
    ours.ApprovalDecisionError: Problem(422, "validation-error"),
    ours.AgreementNeededError: Problem(403, "agreement-needed"),
    ours.TrustError: Problem(400, "invalid-request"),
    ours.InvalidLimitsError: Problem(422, "validation-error"),
    ours.SessionImportError: Problem(422, "validation-error"),
    ours.ReplayError: Problem(409, "session-state-conflict"),
    ours.CheckpointError: Problem(409, "session-state-conflict"),
    ModuleLoadError: Problem(422, "module-load-error"),
    ours.StoredRequestNotFoundError: Problem(404, "request-not-found"),
    ours.TooManySubscribersError: Problem(503, "too-many-subscribers", retryable=True),
    BundleNotFoundError: Problem(404, "bundle-not-found"),
    BundleLoadError: Problem(422, "bundle-load-error"),
    BundleDependencyError: Problem(422, "bundle-dependency-error"),
    BundleError: Problem(422, "bundle-validation-error"),
    TimeoutError: Problem(504, "execution-timeout", retryable=True),
}
"""The most specific class of an error counts; what is not here is a mistake of ours."""

_NAMED = (
    Problem(400, "malformed-request"),
    Problem(400, "invalid-request"),
    Problem(400, "invalid-identifier"),
    Problem(403, "forbidden"),
    Problem(403, "host-rejected"),
    Problem(403, "origin-rejected"),
    Problem(403, "profile-read-only"),
    Problem(404, "not-found"),
    Problem(404, "bundle-not-found"),
    Problem(404, "collection-not-found"),
    Problem(404, "module-not-found"),
    Problem(404, "member-not-found"),
    Problem(408, "request-timeout", retryable=True),
    Problem(409, "collection-exists"),
    Problem(409, "collection-in-use"),
    Problem(409, "collection-disabled"),
    Problem(409, "collections-file-invalid"),
    Problem(409, "profile-exists"),
    Problem(409, "profile-changed"),
    Problem(409, "profile-in-use"),
    Problem(409, "ambiguous-profile"),
    Problem(409, "bundle-exists"),
    Problem(409, "bundle-in-use"),
    Problem(413, "payload-too-large"),
    Problem(415, "unsupported-media-type"),
    Problem(422, "validation-error"),
    Problem(422, "overlay-source-forbidden"),
    Problem(429, "rate-limit", retryable=True),
    Problem(431, "headers-too-large"),
    Problem(503, "offline"),
)

_BUSY = Problem(409, "busy", retryable=True)
_NOT_POSSIBLE = Problem(422, "profile-invalid")
_REFUSED = Problem(403, "forbidden")
_UNREADABLE = Problem(400, "invalid-request")

BY_CODE: Mapping[str, Problem] = {problem.code: problem for problem in _NAMED} | {
    **dict.fromkeys(("collection-busy", "collections-file-busy", "collections-lock-busy", "unsettled"), _BUSY),
    **dict.fromkeys(("reserved-collection", "builtin-collection", "source-not-allowed", "source-not-pinned"), _REFUSED),
    **dict.fromkeys(("source-generated", "source-not-directory", "syntax"), _UNREADABLE),
    **dict.fromkeys(("unsafe-path", "subpath-missing"), _UNREADABLE),
    **dict.fromkeys(("bad-ref", "source-conflict", "agent-not-file", "agent-unreadable"), _NOT_POSSIBLE),
    **dict.fromkeys(("context-not-directory", "dependency-conflict", "module-not-installed"), _NOT_POSSIBLE),
    **dict.fromkeys(("module-package-missing", "frozen"), _NOT_POSSIBLE),
    "timeout": Problem(504, "execution-timeout", retryable=True),
    "build-unavailable": Problem(503, "build-unavailable", retryable=True),
    **dict.fromkeys(("sync-failed", "source-unreachable"), Problem(502, "ref-resolution-failed", retryable=True)),
}
"""Problems of errors that have a `code` or a `reason`, where it tells more than their class."""


REFUSALS = frozenset({400, 403, 404, 409, 410, 413, 422, 429, 503})
"""The statuses of problems after which nothing was done."""

_OF_THE_SERVER = frozenset({500, 507})

INTERRUPTED = "interrupted"
"""The code of a turn that ended with the process that ran it."""

_ABSOLUTE_PATH = re.compile(r"""(?<![\w./:~-])/(?:[^\s/'"`,;:()]+/)+([^\s/'"`,;:()]*)""")
_FACTS = ("provider", "model", "tool_name", "raw_arguments", "agreements")


def find_problem(error: BaseException) -> Problem:
    """Return the kind of problem that an error is: by the word it carries, else by its most specific class.

    Whatever could not be done because there was no room to write is one kind.
    """
    if is_full(error) and not isinstance(error, ours.OutcomeUnknownError):
        return PROBLEMS[ours.StoreFullError]
    for word in _words(error):
        if word in BY_CODE:
            return BY_CODE[word]
    return next((PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS), INTERNAL)


def _words(error: BaseException) -> tuple[str, ...]:
    match error:
        case ours.CollectionError() | ours.ProfileCompilationError() | ours.RequestRefusedError():
            return (error.code,)
        case ours.RefResolutionError():
            return (error.reason,) if error.reason != "not-found" else ()
        case ours.ProfileValidationError():
            return tuple(issue.code for issue in error.issues if issue.code == "overlay-source-forbidden")
        case _:
            return ()


def hint_for(error: BaseException) -> str:
    """Return what to do about an error: what it says itself, else what is known about its kind."""
    own = error.hint if isinstance(error, AmplifierError) else ""
    return own or find_problem(error).hint.replace("{provider}", getattr(error, "provider", None) or "NAME")


def problem_document(
    error: BaseException, *, instance: str | None = None, request_id: str | None = None
) -> dict[str, Any]:
    """Return an error as clients see it. An unexpected one keeps its text for the log, which has it by `request_id`.

    Problems of the server name no directories.
    """
    if isinstance(error, ours.RemoteError):
        return {**error.problem, "instance": instance}
    if isinstance(error, ours.TurnFailedError) and error.problem:
        return {**error.problem, "instance": instance}
    problem = find_problem(error)
    is_ours = problem.status in _OF_THE_SERVER
    retry_after = getattr(error, "retry_after", None)
    document: dict[str, Any] = {
        "type": f"urn:amplifier:error:{problem.code}",
        "title": problem.code.replace("-", " "),
        "status": problem.status,
        "detail": _detail(error, problem, request_id),
        "instance": instance,
        "code": problem.code,
        "retryable": bool(getattr(error, "retryable", problem.retryable)),
        "error_class": type(error).__name__,
    }
    if request_id is not None:
        document["request_id"] = request_id
    if isinstance(retry_after, int | float):
        document["retry_after_seconds"] = retry_after
    if (status := getattr(error, "status_code", None)) is not None:
        document["upstream_status"] = status
    if hint := hint_for(error):
        document["hint"] = _without_directories(hint) if is_ours else hint
    if issues := getattr(error, "issues", None):
        document["issues"] = [issue.to_dict() for issue in issues]
    return {**document, **{name: getattr(error, name) for name in _FACTS if getattr(error, name, None) is not None}}


def public_document(error: BaseException) -> dict[str, Any]:
    """Return an error as clients of the daemon see it: of one that was not expected, only the log tells more."""
    document = problem_document(error)
    if document["code"] != INTERNAL.code:
        return document
    del document["error_class"]
    return {**document, "detail": "the daemon failed; see its log"}


def interrupted_document(session_id: str) -> dict[str, Any]:
    """Return the problem of a turn that ended with the process that ran it."""
    return _interrupted(f"the process that ran the turn of session {session_id} ended before the turn did")


def interrupted_work_document(work: str) -> dict[str, Any]:
    """Return the problem of an operation that ended with the process that ran it."""
    return _interrupted(f"the daemon ended before {work} did")


def _interrupted(detail: str) -> dict[str, Any]:
    return {
        "type": f"urn:amplifier:error:{INTERRUPTED}",
        "title": INTERRUPTED,
        "status": 500,
        "detail": detail,
        "instance": None,
        "code": INTERRUPTED,
        "retryable": True,
    }


def _detail(error: BaseException, problem: Problem, request_id: str | None) -> str:
    if problem is INTERNAL and not isinstance(error, AmplifierError):
        found = f" under {request_id}" if request_id else ""
        return f"an unexpected {type(error).__name__}; the log has more{found}"
    text = error.message if isinstance(error, AmplifierError) else describe(error)
    return _without_directories(text) if problem.status in _OF_THE_SERVER else text


def _without_directories(text: str) -> str:
    return _ABSOLUTE_PATH.sub(r"…/\1", text)
