"""Errors as clients see them: what they can act on, and nothing of the inside."""

import pytest

from amplifier_core.exceptions import NoProviderError
from amplifier_core.llm_errors import RateLimitError
from amplifierd.exceptions import ProfileCompilationError, SessionNotFoundError
from amplifierd.problems import problem_document


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
