"""Every operation is seen to answer with every status that it documents, by a daemon with real workers.

What all operations answer alike, because the guard in front of them does, is tried with each. The rest is a table of
requests, in `status_requests`; a new operation, or a new status of one, needs a row there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from api_operations import API, Operation, bodies
from obstacles import SESSION, words_of
from status_requests import common, particular
from world import Answer, World

from amplifierd.server.http.models import USUAL
from amplifierd.server.http.session_paths import is_passed_on

S, MEMBER = SESSION, f"{API}/cluster/members/{{member_id}}"
TESTS = Path(__file__).parents[3]
BOUNDS, CLUSTER = "daemon/http/sessions/test_bounds.py", "end_to_end/test_cluster.py"
METRICS = "daemon/http/test_system_endpoints.py::test_metrics_are_there_when_they_are_switched_on"
DRAINED = f"{CLUSTER}::test_a_member_that_is_drained_ends_its_turns_and_gives_its_sessions_away"
ELSEWHERE: dict[str, dict[int, str]] = {
    f"POST {S}/execute": {499: f"{BOUNDS}::test_who_waits_for_a_prompt_that_is_taken_out_of_the_queue_is_told"},
    f"POST {S}/approvals/{{request_id}}": {410: f"{BOUNDS}::test_a_question_that_nobody_answers_in_time_is_over"},
    f"GET {API}/metrics": {404: METRICS},
    f"POST {MEMBER}/drain": {202: DRAINED},
    f"POST {MEMBER}/fence": {200: f"{CLUSTER}::test_a_member_that_is_killed_in_a_turn_loses_nothing"},
}
"""Statuses that need more than a request, each with the test that sees it."""

PASSED_ON = f"{CLUSTER}::test_who_is_not_a_member_and_who_does_not_own_a_session_is_refused"
"""The test of a request that another member is to answer, and does not as it should: 502."""

NOT_IN_TIME = "a source that does not answer in time"
UNREACHABLE = "nothing that is to be looked at can be reached"
BY_CIRCUMSTANCES: dict[str, dict[int, str]] = {
    f"POST {API}/collections": {504: NOT_IN_TIME},
    f"POST {API}/collections/sync": {502: UNREACHABLE, 504: NOT_IN_TIME},
    f"POST {API}/collections/{{collection_id}}/sync": {504: NOT_IN_TIME},
    f"GET {API}/collections/{{collection_id}}": {504: NOT_IN_TIME},
    f"PATCH {API}/collections/{{collection_id}}": {504: NOT_IN_TIME},
    f"GET {API}/profiles/{{profile_id}}/status": {504: NOT_IN_TIME},
    f"POST {API}/bundles": {404: "no bundle is in its source when it is looked at again", 504: NOT_IN_TIME},
    f"POST {API}/validate/module": {504: NOT_IN_TIME},
    f"POST {MEMBER}/drain": {502: "a member that does not answer"},
    f"POST {S}/fork": dict.fromkeys((502, 504), "a session of another program gets a profile that is to be fetched"),
}
"""Statuses that only circumstances outside of the daemon bring about."""


@pytest.fixture(scope="module")
def by_name(world: World) -> dict[str, Operation]:
    return {each.name: each for each in world.operations}


def test_what_the_guard_refuses_it_refuses_for_every_operation(world: World) -> None:
    refusals: dict[str, tuple[int, Callable[[Operation], Answer]]] = {
        "two tokens": (400, lambda each: world.request(each, authorization="Bearer other")),
        "a large body": (413, lambda each: world.request(each, body=None, Content_Length=str(11 << 20))),
        "no JSON": (415, lambda each: world.request(each, body=b"x", Content_Type="text/plain")),
        "large headers": (431, lambda each: world.request(each, X_Long="x" * 40_000)),
    }
    wrong = [
        f"{each.name}: {what}: {answer.status} {answer.text[:100]}"
        for each in world.operations
        for what, (status, send) in refusals.items()
        if (answer := send(each)).status != status
    ]

    assert not wrong, "\n".join(wrong)


def test_what_cannot_be_understood_is_refused_by_every_operation(world: World) -> None:
    wrong = []
    for each in world.operations:
        for body, code in misunderstood(each):
            answer = world.request(each, body=body)
            if (answer.status, answer.code) != (422, code):
                wrong.append(f"{each.name} {body}: {answer.text[:200]}")
        if each.method == "GET" and "limit" in each.numbers:
            answer = world.request(each, query={"limit": "0"})
            if answer.status != 422:
                wrong.append(f"{each.name}?limit=0: {answer.text[:200]}")

    assert not wrong, "\n".join(wrong)


def test_what_may_be_null_is_understood_by_every_operation_of_a_session(world: World) -> None:
    asked = [(each, name) for each in world.operations if each.path.startswith(S) for name in each.nullable]
    answers = [(each, name, world.request(each, body={**bodies()[each.name], name: None})) for each, name in asked]

    assert len(answers) > 10
    assert not [
        f"{each.name} {name}: {answer.text}"
        for each, name, answer in answers
        if answer.status not in each.statuses - {500}
    ]


def misunderstood(operation: Operation) -> Iterator[tuple[Any, str]]:
    """Yield bodies that an operation cannot take, and the word for what is wrong with each."""
    if operation.name not in bodies() or operation.path.startswith("/v1/"):  # OpenAI ignores what it does not know
        return
    sample = bodies()[operation.name]
    yield {**sample, "surprise": 1}, "extra-field"
    yield [sample], "validation-error"
    for name in operation.required:
        yield {key: value for key, value in sample.items() if key != name}, "validation-error"
    for name, values in operation.misfits.items():
        for value in values:
            yield {**sample, name: value}, "validation-error"


def test_every_documented_status_is_seen(world: World, by_name: dict[str, Operation]) -> None:
    seen: dict[str, set[int]] = defaultdict(set)
    words: dict[str, set[str]] = defaultdict(set)
    undocumented = []
    for name, parts in chain(common(world), particular(world)):
        answer = world.request(by_name[name], **parts)
        seen[name].add(answer.status)
        if answer.status in (409, 429, 503):
            words[name].add(answer.code)
        if answer.status not in by_name[name].statuses:
            undocumented.append(f"{name} {parts}: {answer.status} {answer.text[:200]}")

    missing, needless, wrong_words = [], [], []
    for name, each in by_name.items():
        excused = {*ELSEWHERE.get(name, ()), *BY_CIRCUMSTANCES.get(name, ())}
        unseen = each.statuses - set(USUAL) - seen[name] - ({502} if is_passed_on(each.method, each.path) else set())
        missing += [f"{name}: {status}" for status in unseen - excused]
        needless += [f"{name}: {status}" for status in excused if status in seen[name] or status not in each.statuses]
        if (met := words[name]) != (told := words_of(each)):
            wrong_words.append(f"{name}: {sorted(told - met)} not seen, {sorted(met - told)} not in OBSTACLES")
    assert not undocumented, "\n".join(undocumented)
    assert not missing, "\n".join(missing)
    assert not needless, "\n".join(needless)
    assert not wrong_words, "\n".join(wrong_words)


def test_what_is_seen_elsewhere_has_a_test_there() -> None:
    named = {PASSED_ON, *(test for tests in ELSEWHERE.values() for test in tests.values())}

    assert not [test for test in named if not is_a_test(*test.split("::"))]


def is_a_test(file: str, name: str) -> bool:
    return f"def {name}(" in (TESTS / file).read_text()
