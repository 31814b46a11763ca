"""Errors as clients see them: what they can act on, and nothing of the inside."""

import pytest

from amplifier_core import llm_errors
from amplifier_core.exceptions import NoProviderError
from amplifier_core.llm_errors import RateLimitError
from amplifierd.exceptions import BudgetExhaustedError, ProfileCompilationError, SessionNotFoundError
from amplifierd.problems import BY_CODE, INTERNAL, PROBLEMS, find_problem, problem_document

STATUSES = {
    400: "malformed-request invalid-request invalid-identifier",
    401: "unauthorized",
    403: "agreement-needed forbidden origin-rejected host-rejected profile-read-only",
    404: "profile-not-found collection-not-found bundle-not-found module-not-found session-not-found "
    "approval-not-found operation-not-found not-found request-not-found token-not-found member-not-found",
    408: "request-timeout",
    409: "session-already-exists collection-exists profile-exists bundle-exists execution-in-progress nothing-to-steer "
    "steering-unsupported idempotency-conflict session-held session-state-conflict approval-already-resolved "
    "collection-in-use profile-in-use bundle-in-use ambiguous-profile mount-plan-missing format-unsupported "
    "busy collection-disabled collections-file-invalid operation-cancelled operation-finished profile-changed "
    "request-interrupted token-exists",
    410: "approval-expired",
    413: "payload-too-large context-too-large",
    415: "unsupported-media-type",
    422: "validation-error mount-plan-invalid profile-invalid overlay-source-forbidden content-filtered "
    "module-load-error bundle-load-error bundle-validation-error bundle-dependency-error",
    429: "rate-limit quota-exceeded budget-exhausted queue-full",
    431: "headers-too-large",
    499: "aborted",
    500: "configuration-error internal-error compile-failed session-damaged",
    502: "ref-resolution-failed llm-error provider-auth provider-access-denied provider-not-found stream-error "
    "invalid-tool-call member-unreachable member-untrusted",
    503: "provider-unavailable network-error not-ready offline store-unavailable outcome-unknown nowhere-to-run "
    "build-unavailable too-many-subscribers",
    504: "provider-timeout execution-timeout",
    507: "store-full",
}
"""The words of problems by their status. Programs rely on them: a word that is here stays as it is."""

OF_PROVIDERS = {
    llm_errors.QuotaExceededError: "quota-exceeded",
    llm_errors.RateLimitError: "rate-limit",
    llm_errors.AccessDeniedError: "provider-access-denied",
    llm_errors.AuthenticationError: "provider-auth",
    llm_errors.ContextLengthError: "context-too-large",
    llm_errors.ContentFilterError: "content-filtered",
    llm_errors.InvalidRequestError: "invalid-request",
    llm_errors.NetworkError: "network-error",
    llm_errors.ProviderUnavailableError: "provider-unavailable",
    llm_errors.LLMTimeoutError: "provider-timeout",
    llm_errors.NotFoundError: "provider-not-found",
    llm_errors.StreamError: "stream-error",
    llm_errors.AbortError: "aborted",
    llm_errors.InvalidToolCallError: "invalid-tool-call",
    llm_errors.ConfigurationError: "configuration-error",
    llm_errors.LLMError: "llm-error",
}


def test_every_problem_has_its_word_and_its_status() -> None:
    known = {(problem.code, problem.status) for problem in (*PROBLEMS.values(), *BY_CODE.values(), INTERNAL)}

    assert known == {(word, status) for status, words in STATUSES.items() for word in words.split()}
    assert {kind: find_problem(kind("it failed")).code for kind in OF_PROVIDERS} == OF_PROVIDERS
    assert PROBLEMS[BudgetExhaustedError].retryable is False


@pytest.mark.parametrize("error", [KeyError("/srv/secret/file"), RuntimeError("broken at /srv/app/x.py"), OSError(5)])
def test_an_unexpected_error_keeps_its_text_to_itself(error: Exception) -> None:
    problem = problem_document(error, request_id="r1")

    assert (problem["status"], problem["code"], problem["request_id"]) == (500, "internal-error", "r1")
    assert problem["error_class"] == type(error).__name__
    assert "/" not in problem["detail"]
    assert "r1" in problem["detail"]


@pytest.mark.parametrize("kind", [NoProviderError, ProfileCompilationError])
def test_a_problem_of_the_server_that_is_meant_for_people_names_no_directories(kind: type[Exception]) -> None:
    problem = problem_document(kind("module x: cannot read /srv/home/profiles/a.md, see https://host/docs/x"))

    assert problem["status"] == 500
    assert problem["detail"] == "module x: cannot read …/a.md, see https://host/docs/x"


def test_what_a_caller_can_act_on_is_told_in_full() -> None:
    assert problem_document(SessionNotFoundError("There is no session '/x/y/z'"))["detail"].endswith("'/x/y/z'")
    assert problem_document(RateLimitError("slow down", retry_after=3))["retry_after_seconds"] == 3
