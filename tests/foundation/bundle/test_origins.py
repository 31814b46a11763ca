"""Which bundle brought which item."""

from pathlib import Path

from amplifier_foundation.bundle import Bundle, Origin


def test_every_kind_of_item_gets_its_origin() -> None:
    base = Bundle(
        name="a",
        session={"orchestrator": {"module": "o"}, "context": {"module": "c"}},
        providers=[{"module": "p", "id": "p1"}],
        tools=[{"module": "t"}],
        hooks=[{"module": "h"}],
        spawn={"exclude_tools": []},
        agents={"g": {}},
        context={"k": Path("/k")},
        _pending_context={"n:p": "n:p"},
        instruction="do",
    )

    assert base.compose().origins == {
        key: [Origin("a", None)]
        for key in [
            "provider:p1", "tool:t", "hook:h", "agent:g", "context:a:k", "context:n:p",
            "session.orchestrator:o", "session.context:c", "spawn:exclude_tools", "instruction:",
        ]
    }  # fmt: skip


def test_session_modules_given_by_name_only_have_no_origin() -> None:
    assert Bundle(name="a", session={"orchestrator": "o", "raw": {"module": "x"}}).compose().origins == {}


def test_the_first_claimant_of_an_item_wins() -> None:
    composed = Bundle(name="a", tools=[{"module": "t"}]).compose(
        Bundle(name="b", tools=[{"module": "t"}, {"module": "u"}])
    )

    assert composed.origins == {"tool:t": [Origin("a", None)], "tool:u": [Origin("b", None)]}


def test_what_a_composed_bundle_brings_is_claimed_by_it_and_by_those_it_came_from() -> None:
    inner = Bundle(name="z", tools=[{"module": "t"}]).compose(Bundle(name="y"))

    composed = Bundle(name="a").compose(inner)

    assert composed.origins["tool:t"] == [Origin("y", None), Origin("z", "y")]


def test_origins_of_an_unknown_category_are_always_carried() -> None:
    other = Bundle(name="b", origins={"skill:s": [Origin("z", None)], "tool:gone": [Origin("z", None)]})

    assert Bundle(name="a").compose(other).origins == {"skill:s": [Origin("z", "b")]}


def test_empty_names_are_never_recorded() -> None:
    nameless = Bundle(name="", tools=[{"module": "t"}])

    assert nameless.compose().origins == {}
    assert Bundle(name="a").compose(nameless).origins == {}


def test_an_orchestrator_that_comes_back_is_claimed_by_who_brought_it_back() -> None:
    first, second = {"orchestrator": {"module": "o1"}}, {"orchestrator": {"module": "o2"}}

    composed = Bundle(name="a", session=first).compose(
        Bundle(name="b", session=second), Bundle(name="c", session=first)
    )

    assert composed.origins["session.orchestrator:o1"] == [Origin("a", None), Origin("c", None)]
    assert composed.origins["session.orchestrator:o2"] == [Origin("b", None)]


def test_the_inputs_origins_stay_as_they_are() -> None:
    base = Bundle(name="a", tools=[{"module": "t"}]).compose()
    before = {key: list(claims) for key, claims in base.origins.items()}

    base.compose(Bundle(name="b", tools=[{"module": "u"}]))

    assert base.origins == before
