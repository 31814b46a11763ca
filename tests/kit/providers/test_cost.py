"""What several exchanges used together."""

from decimal import Decimal

from amplifier_core import Usage
from amplifier_kit.providers.cost import summed


def test_the_sum_of_what_was_used_has_a_price_if_everything_has_one() -> None:
    one = Usage(input_tokens=1, output_tokens=2, total_tokens=3, cache_read_tokens=1, cost_usd=Decimal("0.5"))
    other = Usage(input_tokens=10, output_tokens=20, total_tokens=30, cost_usd=Decimal("0.25"))
    unpriced = Usage(input_tokens=0, output_tokens=0, total_tokens=0)

    both = summed([one, other])

    assert (both.input_tokens, both.total_tokens, both.cache_read_tokens, both.cost_usd) == (11, 33, 1, Decimal("0.75"))
    assert summed([one, unpriced]).cost_usd is None
    assert summed([one]) is one
