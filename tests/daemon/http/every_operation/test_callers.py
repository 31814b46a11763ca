"""Every operation refuses who does not say who they are, who may not, and whose it is not."""

from __future__ import annotations

from api_operations import bodies
from world import World

CALLERS = {"read": "reader", "run": "runner"}


def test_every_sample_is_one_of_an_operation(world: World) -> None:
    assert bodies().keys() <= {each.name for each in world.operations}


def test_a_stranger_learns_nothing(world: World) -> None:
    asked = [each for each in world.operations if not each.is_public and each.path != "/docs"]  # public on loopback
    answers = {each.name: world.request(each, caller="") for each in asked}

    assert len(answers) > 100
    assert {name: one for name, one in answers.items() if (one.status, one.code) != (401, "unauthorized")} == {}


def test_a_lesser_scope_is_refused(world: World) -> None:
    answers = {
        f"{each.name} by {scope}": world.request(each, caller=CALLERS[scope])
        for each in world.operations
        for scope in each.lesser_scopes()
    }

    assert len(answers) > 80
    assert {name: one for name, one in answers.items() if (one.status, one.code) != (403, "forbidden")} == {}


def test_what_belongs_to_somebody_else_is_not_there(world: World) -> None:
    asked = [each for each in world.operations if "session_id" in each.in_path]
    answers = {each.name: world.request(each, caller="stranger") for each in asked}

    assert len(answers) > 40
    assert {name: one for name, one in answers.items() if (one.status, one.code) != (404, "session-not-found")} == {}
    assert world.send("GET", "/api/v1/sessions", caller="stranger").json()["total"] == 0
    assert world.send("GET", "/api/v1/approvals", caller="stranger").json()["total"] == 0
    assert world.send("GET", "/api/v1/operations", caller="stranger").json()["total"] == 0


def test_what_belongs_to_somebody_else_is_refused_in_the_words_for_what_is_not_there(world: World) -> None:
    other, wrong = f"session_{'0' * 32}", {}
    for each in world.operations:
        if "session_id" in each.in_path:
            theirs = world.request(each, caller="stranger")
            nobodys = world.request(each, caller="stranger", path={"session_id": other})
            if theirs.json()["detail"].replace(world.session_id, other) != nobodys.json()["detail"]:
                wrong[each.name] = nobodys.text

    assert wrong == {}


def test_pages_of_other_sites_are_refused(world: World) -> None:
    foreign = {"origin": {"Origin": "https://evil.example"}, "host": {"Host": "evil.example"}}
    crossing = {"origin": {"Sec_Fetch_Site": "cross-site"}}
    wrong = {}
    for each in world.operations:
        for what, headers in (*foreign.items(), *(crossing.items() if each.method != "GET" else ())):
            answer = world.request(each, **headers)
            if (answer.status, answer.code) != (403, f"{what}-rejected"):
                wrong[each.name, what] = answer

    assert wrong == {}
