"""Limits as they are given, checked and combined."""

from decimal import Decimal

import pytest

from amplifierd.exceptions import InvalidLimitsError
from amplifierd.limits import Limits


def test_limits_are_numbers_under_known_names() -> None:
    limits = Limits.read({"cost_usd": 0.1, "total_tokens": 5000, "seconds": 1.5})

    assert limits.cost_usd == Decimal("0.1")
    assert limits.to_json() == {"cost_usd": 0.1, "total_tokens": 5000, "seconds": 1.5}
    assert Limits.read(limits.to_json()) == limits


def test_nothing_given_limits_nothing() -> None:
    assert not Limits.read(None)
    assert not Limits.read({})
    assert Limits.read({"turns": 0})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tokens": 5}, "limits.tokens: there is no such limit"),
        ({"total_tokens": -1}, "limits.total_tokens: must be at least 0, got -1"),
        ({"turns": True}, "limits.turns: must be a number, got True"),
        ({"cost_usd": "much"}, "limits.cost_usd: "),
        ({"seconds": float("inf")}, "limits.seconds: "),
        ({"cost_usd": float("nan")}, "limits.cost_usd: "),
        ([5], "limits: expected a mapping, got [5]"),
    ],
)
def test_anything_else_is_refused_with_its_key_and_what_would_be_right(given: object, said: str) -> None:
    with pytest.raises(InvalidLimitsError) as caught:
        Limits.read(given)

    assert said in str(caught.value)
    assert "fix: limits are numbers of at least 0 under the names cost_usd, total_tokens, tool_calls" in str(
        caught.value
    )


def test_a_request_can_only_lower_what_the_settings_allow() -> None:
    settings = Limits(cost_usd=Decimal(5), turns=10)

    assert Limits(cost_usd=Decimal(9), tool_calls=3).within(settings) == Limits(
        cost_usd=Decimal(5), turns=10, tool_calls=3
    )
