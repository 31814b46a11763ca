"""Owners who share a database: whatever one asks for, in whatever words, is not answered with what another one has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from api_operations import API, operations_of
from real_server import plan, real_server
from world import World

from amplifierd.app import create_app

CANARY = "canaryofann"
SAID = [f"{CANARY} {word}" for word in ("name", "tag", "asks", "answers")]
HOSTILE = ["' OR '1'='1", "x' OR owner='ann' --", "%", "_%", CANARY, "*", "ann", "\\"]


@pytest.fixture(scope="module")
def shared(postgres_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A daemon whose sessions are in PostgreSQL, with one of Ann's, and tokens of two others."""
    folder = tmp_path_factory.mktemp("tenants")
    (folder / "work").mkdir()
    store = f"{postgres_database}?schema=tenants"
    with real_server(folder / "home", store=store, working_dir=str(folder / "work")) as server:
        tokens = {"admin": server.token}
        for name, scope in (("ann", "run"), ("eve", "run"), ("eve-reads", "read")):
            body = {"name": name, "scope": scope, "owner": name.partition("-")[0]}
            made = server.client().post("/tokens", json=body)
            assert made.status_code == 201, made.text
            tokens[name] = made.json()["token"]
        world = World(server, operations_of(create_app(home=server.home)), "", tokens)
        body = {"mount_plan": plan(f"{CANARY} answers"), "name": f"{CANARY} name", "tags": [f"{CANARY} tag"]}
        created = world.send("POST", f"{API}/sessions", caller="ann", body=body)
        assert created.status == 201, created.text
        world.session_id = created.json()["session_id"]
        said = {"prompt": f"{CANARY} asks"}
        ran = world.send("POST", f"{API}/sessions/{world.session_id}/execute", caller="ann", body=said)
        assert ran.status == 200, ran.text
        yield world


@pytest.mark.parametrize("caller", ["eve", "eve-reads"])
def test_a_session_of_another_owner_is_nowhere(shared: World, caller: str) -> None:
    asked = [each for each in shared.operations if "session_id" in each.in_path]
    answers = {each.name: shared.request(each, caller=caller) for each in asked}
    wrong = {
        name: answer
        for name, answer in answers.items()
        if (answer.status, answer.code) not in ((404, "session-not-found"), (403, "forbidden"))
    }

    assert len(answers) > 40
    assert wrong == {}
    found = shared.send("GET", f"{API}/sessions/{shared.session_id}", caller="ann")
    assert (found.status, found.json()["turn_count"], found.json()["name"]) == (200, 1, f"{CANARY} name")


@pytest.mark.parametrize("caller", ["eve", "eve-reads"])
def test_no_list_filter_or_search_shows_what_another_owner_has(shared: World, caller: str) -> None:
    asked = [each for each in shared.operations if each.method == "GET" and not each.in_path and not each.is_public]
    leaks = []
    for each in asked:
        queries = [{}, *({field: text} for field in each.in_query for text in HOSTILE)]
        for query in queries:
            answer = shared.request(each, caller=caller, query=query)
            if answer.status == 500 or any(text in answer.text for text in (*SAID, shared.session_id)):
                leaks.append(f"{each.name} {query}: {answer.status} {answer.text[:150]}")

    assert len(asked) > 10
    assert leaks == []
    mine = shared.send("GET", f"{API}/sessions?q={CANARY}", caller="ann")
    assert mine.json()["total"] == 1, "what must be there is there: the search works"


def test_a_session_of_another_owner_is_refused_in_the_words_for_one_that_is_not_there(shared: World) -> None:
    other = f"session_{'0' * 32}"
    theirs, nobodys = [
        shared.send("GET", f"{API}/sessions/{session_id}", caller="eve").json()
        for session_id in (shared.session_id, other)
    ]

    assert theirs["detail"].replace(shared.session_id, other) == nobodys["detail"]
    assert "postgresql://" not in nobodys["detail"]
