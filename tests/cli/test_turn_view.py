"""A turn as it is seen: which events end it."""

import io
from typing import Any

import pytest

from amplifier_cli.terminal.terminal_page import TerminalPage, page_for
from amplifier_cli.turn_view import AnswerStream, TurnView

OWN = "session_1"


def event(name: str, turn_id: str, sequence: int | None, *, session_id: str = OWN, **data: Any) -> dict[str, Any]:
    return {"event": name, "sequence": sequence, "session_id": session_id, "correlation_id": turn_id, "data": data}


BEGUN = event("user_message:saved", "turn_1", 4)
QUEUED = event("execution:queued", "turn_1", 5)
OVER = (event("execution:done", "turn_1", 6, status="completed"), event("session:status", "turn_1", 7, activity="idle"))


@pytest.mark.parametrize(
    ("before", "done", "is_end"),
    [
        pytest.param([BEGUN], event("execution:done", "turn_1", 6, status="completed"), True, id="stored"),
        pytest.param([], event("execution:done", "turn_1", 6, status="completed"), True, id="stored, joined late"),
        pytest.param([BEGUN], event("execution:done", "turn_1", None, status="failed"), True, id="not stored"),
        pytest.param([], event("execution:done", "turn_1", None, status="failed"), True, id="not stored, joined late"),
        pytest.param([BEGUN, QUEUED], event("execution:done", "turn_2", None, status="failed"), False, id="waits"),
        pytest.param([*OVER], event("execution:done", "turn_2", None, status="failed"), True, id="failed to begin"),
        pytest.param([BEGUN], event("execution:done", "turn_2", None, status="cancelled"), False, id="removed"),
        pytest.param([], event("execution:done", "turn_2", None, status="cancelled"), False, id="removed, joined late"),
        pytest.param([BEGUN], event("execution:done", "turn_1", 6, session_id="agent_1"), False, id="of an agent"),
    ],
)
def test_the_end_of_a_turn_is_told_from_that_of_a_prompt_behind_it(
    before: list[dict[str, Any]], done: dict[str, Any], is_end: bool
) -> None:
    view = TurnView(page_for(io.StringIO(), io.StringIO()), OWN)

    for one in (*before, done):
        view.show(one)

    assert view.is_end(done) is is_end


def test_a_retry_says_what_went_wrong_and_which_limit_it_was() -> None:
    drawn = io.StringIO()
    reason = "the stream was silent for 120 seconds (silence_timeout)"
    retry = event(
        "provider:retry", "turn_1", 5, error_type="LLMTimeoutError", error_message=reason, attempt=1, max_retries=4
    )
    limited = event("provider:retry", "turn_1", 6, error_type="RateLimitError", error_message="{}", status_code=429)
    limited["data"] |= {"attempt": 1, "max_retries": 4, "delay": 4.2}

    for one in (retry, limited):
        TurnView(TerminalPage(drawn), OWN).show(one)

    assert f"attempt 2 of 5 in 0 s: {reason}" in drawn.getvalue()
    assert "attempt 2 of 5 in 4 s: rate limit (429)" in drawn.getvalue()


@pytest.mark.parametrize(
    ("again", "drawn"),
    [
        ("First.\n\nSecond.", ["First.", "Second."]),
        ("Other.\n\nSecond.", ["First.", "*(The answer broke off and begins again.)*", "Other.", "Second."]),
    ],
)
def test_an_answer_that_breaks_off_and_comes_again_is_replaced_and_never_glued(again: str, drawn: list[str]) -> None:
    stream = AnswerStream()
    parts = stream.feed("First.\n\n") + stream.feed("Sec")
    stream.restart()
    for word in again.split(" "):
        parts += stream.feed(word)
    parts += stream.finish(again)

    assert parts == drawn


def test_results_of_parallel_calls_are_paired_with_their_calls() -> None:
    drawn = io.StringIO()
    view = TurnView(TerminalPage(drawn), OWN)

    for name in ("a.txt", "b.txt"):
        view.show(event("tool:pre", "turn_1", 5, tool_name="read_file", tool_call_id=name, tool_input={"path": name}))
    for name in ("a.txt", "b.txt"):
        view.show(event("tool:error", "turn_1", 6, tool_call_id=name, error={"type": "OSError", "msg": "it is gone"}))

    assert [drawn.getvalue().count(f"✗ read_file {name}: it is gone") for name in ("a.txt", "b.txt")] == [1, 1]
