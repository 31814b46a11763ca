"""What was used, added up and stored."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

import amplifier_core
from amplifierd.sessions.layers.usage import Tokens, Usage

counts = st.integers(min_value=0, max_value=10**9)
money = st.none() | st.decimals(min_value=0, max_value=1000, places=6)
plain = st.builds(
    Usage,
    tokens=st.builds(Tokens, counts, counts, counts, counts, counts),
    tool_calls=counts,
    turns=counts,
    seconds=st.integers(min_value=0, max_value=10**6).map(lambda n: n / 8),
    cost_usd=money,
    unpriced_tokens=counts,
)
names = st.dictionaries(st.sampled_from(["one", "two", "three"]), plain)
usages = st.builds(lambda used, models, agents: used + Usage(by_model=models, by_agent=agents), plain, names, names)


def call(input_tokens: int, output_tokens: int, cost: str | None) -> amplifier_core.Usage:
    total = input_tokens + output_tokens
    return amplifier_core.Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=total,
        cost_usd=None if cost is None else Decimal(cost),
    )


@given(usages)
def test_what_is_stored_is_read_back(used: Usage) -> None:
    assert Usage.from_json(used.to_json()) == used


@given(usages, usages, usages)
def test_the_order_of_adding_makes_no_difference(one: Usage, two: Usage, three: Usage) -> None:
    assert (one + two) + three == one + (two + three)
    assert one + Usage() == one == Usage() + one


def test_a_call_without_a_price_is_unknown_and_not_free() -> None:
    priced, unpriced = Usage.of_call(call(10, 5, "0.25"), "big"), Usage.of_call(call(100, 50, None), "local")

    assert unpriced.to_json()["cost_usd"] is None
    both = priced + unpriced
    assert (both.cost_usd, both.unpriced_tokens) == (Decimal("0.25"), 150)
    assert both.to_json()["by_model"]["local"]["cost_usd"] is None
    assert (
        both.to_json()["by_model"]["big"] | {"cost_usd": "0.25", "unpriced_tokens": 0}
        == both.to_json()["by_model"]["big"]
    )


def test_a_tree_knows_what_each_agent_used() -> None:
    tree = Usage.of_call(call(10, 5, "0.25"), "big") + Usage.of_call(call(1, 1, None), "big").for_agent("zen")

    assert tree.tokens.total == 17
    assert tree.by_agent["zen"].tokens.total == 2
    assert (tree.by_model["big"].tokens.total, tree.by_model["big"].unpriced_tokens) == (17, 2)


def test_what_cannot_be_read_counts_as_nothing() -> None:
    assert Usage.from_json({"tokens": "many", "tool_calls": True, "cost_usd": "NaN", "by_model": []}) == Usage()
    assert Usage.from_json(None) == Usage()
