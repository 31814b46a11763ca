"""What the scheduler charges, allows, replaces and denies."""

import logging
from decimal import Decimal
from typing import Any

import pytest
from amplifier_module_hooks_scheduler_cost_aware import CostAwareScheduler, mount
from hypothesis import given
from hypothesis import strategies as st

from amplifier_core.testing import MockCoordinator


async def test_with_a_budget_of_3_a_first_call_for_2_is_allowed_and_a_second_denied(mount_till: Any) -> None:
    till = await mount_till(max_cost=3, tool_costs={"bash": 2})

    first = await till.select("bash", ["bash"])
    await till.emit("tool:selected", tool_name="bash", tool_call_id="c1")
    second = await till.select("bash", ["bash"])

    assert (first.action, till.session_cost) == ("continue", 2.0)
    assert (second.action, second.reason) == ("deny", "Would exceed cost budget (current: 2.0, limit: 3.0)")


async def test_a_budget_may_be_used_up_to_the_last_bit(mount_till: Any) -> None:
    till = await mount_till(max_cost=0.3, tool_costs={"bash": 0.1})

    for number in range(3):
        assert (await till.select("bash")).action == "continue"
        await till.emit("tool:selected", tool_name="bash", tool_call_id=f"c{number}")

    assert till.session_cost == 0.3
    assert (await till.select("bash")).action == "deny"


@pytest.mark.parametrize(
    ("costs", "chosen"),
    [
        ({"a": 5, "b": 1, "c": 2}, "b"),
        ({"a": 5, "b": 2, "c": 1}, "c"),
        ({"a": 5, "b": 1, "c": 1}, "b"),
        ({"a": 5, "b": 5, "c": 2}, "c"),
    ],
    ids=["cheapest", "cheapest last", "first among equals", "strictly cheaper"],
)
async def test_the_cheapest_tool_that_fits_takes_its_place(
    mount_till: Any, costs: dict[str, float], chosen: str
) -> None:
    till = await mount_till(max_cost=2, tool_costs=costs)

    answer = await till.select("a", ["a", "b", "c"], tool_call_id="c1")

    assert (answer.data["tool_name"], answer.data["tool"]) == (chosen, chosen)
    assert (answer.data["session_id"], answer.data["tool_call_id"]) == ("s1", "c1")


async def test_the_answer_says_why_another_tool_is_used() -> None:
    scheduler = CostAwareScheduler({"max_cost": 2, "tool_costs": {"a": 5, "b": 1}})

    answer = await scheduler.handle_tool_selecting(
        "tool:selecting", {"tool_name": "a", "available_tools": ["a", "b"], "session_id": "s1"}
    )

    assert (answer.action, answer.reason) == ("modify", "Cost limit reached, using cheaper alternative")
    assert answer.data == {"tool_name": "b", "tool": "b", "available_tools": ["a", "b"], "session_id": "s1"}


@pytest.mark.parametrize(
    ("config", "available"),
    [
        ({"prefer_cheaper": False}, ["a", "b"]),
        ({}, ["a"]),
        ({}, []),
        ({"tool_costs": {"a": 5, "b": 3}}, ["a", "b"]),
    ],
    ids=["not wanted", "none available", "none known", "none fits"],
)
async def test_without_a_cheaper_tool_the_call_is_denied(
    mount_till: Any, config: dict[str, Any], available: list[str]
) -> None:
    till = await mount_till(**{"max_cost": 2, "tool_costs": {"a": 5, "b": 1}, **config})

    assert (await till.select("a", available)).action == "deny"
    assert till.announced("scheduler:budget_exceeded") == [{"tool_name": "a", "session_cost": 0.0, "max_cost": 2.0}]


@pytest.mark.parametrize("tool_name", [None, "", 7])
async def test_a_call_without_a_tool_is_not_its_business(mount_till: Any, tool_name: Any) -> None:
    till = await mount_till(max_cost=0)

    assert (await till.select(tool_name, ["a"])).action == "continue"
    await till.emit("tool:selected", tool_name=tool_name)
    assert till.session_cost == 0.0


async def test_another_schedulers_choice_is_what_it_judges(mount_till: Any) -> None:
    till = await mount_till(max_cost=3, tool_costs={"cheap": 1, "dear": 5}, prefer_cheaper=False)

    assert (await till.select("dear", tool="cheap")).action == "continue"
    assert (await till.select("cheap", tool="dear")).action == "deny"


@pytest.mark.parametrize(
    ("payload", "cost"),
    [
        ({"tool_name": "bash"}, 2.0),
        ({"tool": "bash"}, 2.0),
        ({"tool_name": "bash", "tool": "web_search"}, 2.0),
        ({"tool_name": "unknown"}, 1.0),
        ({}, 0.0),
    ],
    ids=["tool_name", "tool", "both", "unknown tool", "neither"],
)
async def test_a_selected_tool_is_charged_by_whichever_key_names_it(
    mount_till: Any, payload: dict[str, str], cost: float
) -> None:
    till = await mount_till()

    await till.emit("tool:selected", **payload, tool_call_id="c1")

    assert till.session_cost == cost


async def test_a_call_is_charged_once(mount_till: Any) -> None:
    till = await mount_till(enforce_tool_pre=True)

    for event in ("tool:selected", "tool:selected", "tool:pre"):
        await till.emit(event, tool_name="bash", tool_call_id="c1")

    assert till.session_cost == 2.0


async def test_calls_without_an_id_are_charged_each(mount_till: Any) -> None:
    till = await mount_till()

    for call_id in (None, "", 7, None):
        await till.emit("tool:selected", tool_name="bash", tool_call_id=call_id)

    assert till.session_cost == 8.0


async def test_a_budget_of_10_with_an_alert_at_8_alerts_exactly_once(mount_till: Any) -> None:
    till = await mount_till(budget_limit=10.0, alert_threshold=8.0, tool_costs={"bash": 4})

    for number in range(4):
        await till.emit("tool:selected", tool_name="bash", tool_call_id=f"c{number}")

    assert till.announced("scheduler:cost_alert") == [{"session_cost": 8.0, "alert_threshold": 8.0, "max_cost": 10.0}]


async def test_the_alert_has_a_message_for_the_user() -> None:
    scheduler = CostAwareScheduler({"alert_threshold": 2})

    first, second = [
        await scheduler.handle_tool_selected("tool:selected", {"tool_name": "bash", "tool_call_id": call_id})
        for call_id in ("c1", "c2")
    ]

    assert (first.action, first.user_message_level) == ("continue", "warning")
    assert "2.0" in first.user_message
    assert second.user_message is None


async def test_max_cost_wins_over_its_alias(mount_till: Any) -> None:
    till = await mount_till(max_cost=1, budget_limit=100, tool_costs={"a": 2})

    assert (await till.select("a")).action == "deny"


async def test_tool_pre_is_left_alone_unless_it_is_to_be_enforced(mount_till: Any) -> None:
    till = await mount_till(max_cost=0)

    assert (await till.emit("tool:pre", tool_name="bash", tool_call_id="c1")).action == "continue"
    assert till.coordinator.hooks.list_handlers("tool:pre") == {"tool:pre": []}


async def test_tool_pre_charges_and_denies_by_the_same_rule_where_it_is_enforced(mount_till: Any) -> None:
    till = await mount_till(max_cost=3, enforce_tool_pre=True, alert_threshold=2)

    first = await till.emit("tool:pre", tool_name="bash", tool_call_id="c1")
    second = await till.emit("tool:pre", tool_name="bash", tool_call_id="c2")

    assert (first.action, second.action, till.session_cost) == ("continue", "deny", 2.0)
    assert len(till.announced("scheduler:budget_exceeded")) == len(till.announced("scheduler:cost_alert")) == 1


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({"cost_usd": "0.1"}, 0.1),
        ({"cost_usd": Decimal("0.1")}, 0.1),
        ({"cost_usd": 0.1}, 0.1),
        ({"cost_usd": None}, 0.0),
        ({"cost_usd": -1}, 0.0),
        ({"cost_usd": "nan"}, 0.0),
        ({"cost_usd": "much"}, 0.0),
        ({"cost_usd": True}, 0.0),
        ({}, 0.0),
        (None, 0.0),
    ],
)
async def test_what_providers_charge_counts_where_it_is_tracked(mount_till: Any, usage: Any, cost: float) -> None:
    tracking, not_tracking = await mount_till(track_llm_cost=True), await mount_till()

    for till in (tracking, not_tracking):
        await till.emit("llm:response", usage=usage)

    assert (tracking.session_cost, not_tracking.session_cost) == (cost, 0.0)


async def test_the_end_of_the_session_logs_the_total_and_starts_anew(
    mount_till: Any, caplog: pytest.LogCaptureFixture
) -> None:
    till = await mount_till(alert_threshold=2)
    await till.emit("tool:selected", tool_name="bash", tool_call_id="c1")

    with caplog.at_level(logging.INFO):
        await till.emit("session:end")
        till.cleanup()
    await till.emit("tool:selected", tool_name="bash", tool_call_id="c1")

    assert [record.getMessage() for record in caplog.records if "2.0" in record.getMessage()] == [
        "hooks-scheduler-cost-aware: the session cost 2.0 of 100.0"
    ]
    assert till.session_cost == 0.0


async def test_cleanup_logs_the_total_when_the_end_was_not_announced(
    mount_till: Any, caplog: pytest.LogCaptureFixture
) -> None:
    till = await mount_till()
    await till.emit("tool:selected", tool_name="bash", tool_call_id="c1")

    with caplog.at_level(logging.INFO):
        till.cleanup()
        till.cleanup()

    assert len([record for record in caplog.records if "2.0 of 100.0" in record.getMessage()]) == 1


async def test_decisions_weigh_cost_against_latency() -> None:
    scheduler = CostAwareScheduler(
        {
            "tool_costs": {"fast": 8, "slow": 2},
            "tool_latencies": {"fast": 1, "slow": 4},
            "cost_weight": 3,
            "latency_weight": 1,
        }
    )

    answer = await scheduler.handle_tool_resolution("decision:tool_resolution", {"available_tools": ["fast", "slow"]})

    assert answer.action == "continue"
    assert (answer.data["selected_tool"], answer.data["score"]) == ("slow", 0.5625)  # 0.75 · (1 - 2/8) + 0.25 · 0
    assert answer.data["metadata"] == {
        "cost_weight": 0.75,
        "latency_weight": 0.25,
        "costs": {"fast": 8.0, "slow": 2.0},
    }
    assert answer.data["rationale"]


async def test_with_the_other_weight_the_faster_one_wins() -> None:
    scheduler = CostAwareScheduler(
        {"tool_costs": {"fast": 8, "slow": 2}, "tool_latencies": {"slow": 4}, "cost_weight": 0, "latency_weight": 2}
    )

    answer = await scheduler.handle_agent_resolution(
        "decision:agent_resolution", {"available_agents": ["slow", "fast"], "task": "x"}
    )

    assert (answer.data["selected_agent"], answer.data["score"]) == ("fast", 0.75)


@pytest.mark.parametrize("weights", [{}, {"cost_weight": 0, "latency_weight": 0}])
async def test_what_costs_nothing_and_takes_no_time_is_perfect(weights: dict[str, float]) -> None:
    scheduler = CostAwareScheduler({"tool_costs": {"a": 0}, "tool_latencies": {"a": 0}, **weights})

    answer = await scheduler.handle_tool_resolution("decision:tool_resolution", {"available_tools": ["a"]})

    assert (answer.data["selected_tool"], answer.data["score"]) == ("a", 1.0)


costs = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1000, allow_nan=False), min_size=1)


@given(costs=costs, latencies=costs, weights=st.tuples(st.floats(0, 10), st.floats(0, 10)))
async def test_a_score_lies_between_0_and_1_and_equals_go_to_the_first(
    costs: dict[str, float], latencies: dict[str, float], weights: tuple[float, float]
) -> None:
    scheduler = CostAwareScheduler(
        {
            "tool_costs": costs,
            "tool_latencies": latencies,
            "cost_weight": weights[0],
            "latency_weight": weights[1],
        }
    )
    available = sorted({*costs, *latencies})

    answer = await scheduler.handle_tool_resolution("decision:tool_resolution", {"available_tools": available})
    alone = await scheduler.handle_tool_resolution(
        "decision:tool_resolution", {"available_tools": [answer.data["selected_tool"], *available]}
    )

    assert 0 <= answer.data["score"] <= 1
    assert alone.data["selected_tool"] == answer.data["selected_tool"]


@pytest.mark.parametrize(("size", "should_compact"), [(799, False), (800, True)])
async def test_a_context_is_compacted_from_80_per_cent_on(mount_till: Any, size: int, should_compact: bool) -> None:
    till = await mount_till()

    (answer,) = await till.coordinator.hooks.emit_and_collect(
        "decision:context_resolution", {"context_size": size, "max_size": 1000}
    )

    assert answer["should_compact"] is should_compact


async def test_the_handlers_have_the_names_that_others_rely_on(mount_till: Any) -> None:
    till = await mount_till(enforce_tool_pre=True, track_llm_cost=True)

    listed = till.coordinator.hooks.list_handlers()

    assert {event: names for event, names in listed.items() if not event.startswith("scheduler:")} == {
        "tool:selecting": ["cost:tool_selecting"],
        "decision:tool_resolution": ["cost:tool_resolution"],
        "decision:agent_resolution": ["cost:agent_resolution"],
        "decision:context_resolution": ["cost:context_resolution"],
        "tool:selected": ["cost:tool_selected"],
        "session:end": ["cost:session_end"],
        "llm:response": ["cost:llm_response"],
        "tool:pre": ["cost:tool_pre"],
    }


@pytest.mark.parametrize(
    ("event", "name", "priority"),
    [
        ("tool:selecting", "cost:tool_selecting", 60),
        ("decision:tool_resolution", "cost:tool_resolution", 60),
        ("tool:pre", "cost:tool_pre", 60),
        ("tool:selected", "cost:tool_selected", 10),
        ("session:end", "cost:session_end", 10),
    ],
)
async def test_the_handlers_have_their_place_among_others(
    mount_till: Any, event: str, name: str, priority: int
) -> None:
    till = await mount_till(enforce_tool_pre=True)
    hooks = till.coordinator.hooks
    for place in (priority + 1, priority - 1):
        hooks.register(event, lambda *args: None, priority=place, name=str(place))

    assert hooks.list_handlers(event)[event] == [str(priority - 1), name, str(priority + 1)]


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        ({"tool_costs": {"bash": -1}}, "bash", -1),
        ({"tool_costs": {"bash": "free"}}, "bash", "free"),
        ({"tool_costs": {"bash": True}}, "bash", True),
        ({"tool_costs": ["bash"]}, "tool_costs", ["bash"]),
        ({"tool_latencies": {"bash": -0.5}}, "bash", -0.5),
        ({"default_tool_cost": -1}, "default_tool_cost", -1),
        ({"max_cost": -1}, "max_cost", -1),
        ({"budget_limit": "much"}, "budget_limit", "much"),
        ({"max_cost": float("inf")}, "max_cost", float("inf")),
        ({"alert_threshold": []}, "alert_threshold", []),
        ({"cost_weight": -0.1}, "cost_weight", -0.1),
        ({"latency_weight": "x"}, "latency_weight", "x"),
        ({"prefer_cheaper": "perhaps"}, "prefer_cheaper", "perhaps"),
        ({"track_llm_cost": 1}, "track_llm_cost", 1),
        ({"enforce_tool_pre": 1}, "enforce_tool_pre", 1),
        ({"enabled_events": "tool:*"}, "enabled_events", "tool:*"),
    ],
)
async def test_a_negative_cost_and_other_values_that_do_not_fit_are_refused_at_mount(
    config: dict[str, Any], key: str, value: Any
) -> None:
    with pytest.raises(ValueError, match="hooks-scheduler-cost-aware") as error:
        await mount(MockCoordinator(), config)

    assert all(part in str(error.value) for part in (repr(key), repr(value), "allowed: "))


async def test_numbers_may_be_text(mount_till: Any) -> None:
    till = await mount_till(max_cost="3", tool_costs={"bash": "2.5"})

    await till.emit("tool:selected", tool_name="bash", tool_call_id="c1")

    assert till.session_cost == 2.5


async def test_the_scheduler_works_alone() -> None:
    scheduler = CostAwareScheduler({"max_cost": 1})

    answer = await scheduler.handle_tool_selecting("tool:selecting", {"tool_name": "bash"})

    assert answer.action == "deny"
    assert scheduler.session_cost == 0.0
