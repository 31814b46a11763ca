"""The cost of delegated sessions, and the events that are logged."""

import logging
from decimal import Decimal
from typing import Any

import pytest

from amplifier_core.testing import MockCoordinator
from amplifier_foundation import bridge_child_cost, inject_additional_events, sum_cost_usd


@pytest.mark.parametrize(
    ("contributions", "total"),
    [
        ([], None),
        ([{"x": 1}, None, "text", {"cost_usd": None}, {"cost_usd": "much"}], None),
        ([{"cost_usd": "0.10"}, {"cost_usd": Decimal("0.20")}, {"cost_usd": 1}, {"cost_usd": 0.5}], Decimal("1.80")),
        ([{"cost_usd": 0}], Decimal(0)),
    ],
)
def test_costs_add_up_and_no_cost_is_not_zero(contributions: list[Any], total: Decimal | None) -> None:
    assert sum_cost_usd(contributions) == total


async def test_a_parent_accounts_for_what_its_child_cost() -> None:
    child, parent = MockCoordinator(), MockCoordinator()
    child.register_contributor("session.cost", "provider-x", lambda: {"cost_usd": "0.25"})

    await bridge_child_cost(child, parent, "child-1")
    child.register_contributor("session.cost", "provider-y", lambda: {"cost_usd": "9"})

    assert sum_cost_usd(await parent.collect_contributions("session.cost")) == Decimal("0.25")


async def test_a_child_without_cost_adds_nothing() -> None:
    parent = MockCoordinator()

    await bridge_child_cost(MockCoordinator(), parent, "child-1")

    assert await parent.collect_contributions("session.cost") == []


async def test_a_failing_bridge_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await bridge_child_cost(None, MockCoordinator(), "child-1")

    assert "child-1" in caplog.text


def test_events_are_added_to_the_logging_hooks_once() -> None:
    plan: dict[str, Any] = {
        "hooks": [
            {"module": "hooks-logging", "config": {"additional_events": ["a"], "mode": "x"}},
            {"module": "hook-context-intelligence", "config": None},
            {"module": "hooks-other"},
            "text",
        ]
    }

    for _ in range(2):
        inject_additional_events(plan, ["a", "b"])

    assert plan["hooks"][0]["config"] == {"additional_events": ["a", "b"], "mode": "x"}
    assert plan["hooks"][1]["config"] == {"additional_events": ["a", "b"]}
    assert plan["hooks"][2] == {"module": "hooks-other"}


@pytest.mark.parametrize("plan", [{}, {"hooks": None}, {"hooks": []}])
def test_a_plan_without_hooks_stays_as_it_is(plan: dict[str, Any]) -> None:
    before = dict(plan)

    inject_additional_events(plan, ["a"])

    assert plan == before


def test_other_modules_can_be_named() -> None:
    plan: dict[str, Any] = {"hooks": [{"module": "hooks-mine"}, {"module": "hooks-logging"}]}

    inject_additional_events(plan, ["a"], frozenset({"hooks-mine"}))

    assert plan == {
        "hooks": [{"module": "hooks-mine", "config": {"additional_events": ["a"]}}, {"module": "hooks-logging"}]
    }
