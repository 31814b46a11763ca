"""Errors between processes: what arrives is what was sent."""

import json
from pathlib import Path

import pytest

from amplifier_core.exceptions import ModuleLoadError
from amplifier_core.llm_errors import RateLimitError
from amplifierd.exceptions import (
    BudgetExhaustedError,
    MountPlanError,
    ProfileCompilationError,
    SessionHeldError,
    SessionNotFoundError,
)
from amplifierd.issues import Issue
from amplifierd.problems import PROBLEMS, problem_document
from amplifierd.store.hold import Holder
from amplifierd.workers.json_rpc import KNOWN, described_error, error_of

ERRORS = [
    SessionNotFoundError("there is no session 'x'", hint="list them"),
    SessionHeldError("held", holder=Holder.of_this_process()),
    SessionHeldError("held", holder=17),
    MountPlanError("wrong", [Issue("a", "b", "c", Path("d"), 5, "e")], hint="f"),
    ProfileCompilationError("broken", code="source-gone", problems=["one", "two"]),
    BudgetExhaustedError("used up", limit="turns", used=3, allowed=2),
    ModuleLoadError("Cannot initialize without orchestrator: gone"),
    RateLimitError("slowly", provider="p", model="m", status_code=429, retry_after=3.0),
    TimeoutError("too long"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_the_same_exception_with_the_same_facts(error: Exception) -> None:
    arrived = error_of(json.loads(json.dumps(described_error(error))))

    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert problem_document(arrived) == problem_document(error)
    assert getattr(arrived, "holder", None) == getattr(error, "holder", None)


def test_every_error_that_has_a_problem_of_its_own_is_known() -> None:
    assert {kind.__name__ for kind in PROBLEMS} - set(KNOWN) == set()
