"""What headers tell about the limits of an account."""

from amplifier_kit.providers.response import read_rate_limits


def test_rate_limits_are_read_as_far_as_they_can_be() -> None:
    headers = {"x-limit-requests": "50", "x-remaining-requests": "many", "x-reset-input-tokens": "6m0s"}

    limits = read_rate_limits(headers, "x-{part}-{kind}", ("requests", "input-tokens"))

    assert limits == {"requests_limit": 50, "input_tokens_reset": "6m0s"}
