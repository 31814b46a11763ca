"""What could not be done as asked is logged once and told with every response."""

import pytest

from amplifier_kit.providers.options import Shortfalls, WarnOnce, with_extras


def test_shortfalls_are_told_with_every_call_and_logged_with_the_first(caplog: pytest.LogCaptureFixture) -> None:
    warn = WarnOnce("provider-acme")
    told = []
    for _ in range(2):
        shortfalls = Shortfalls(warn)
        for what in ("images", "stop", "images"):
            shortfalls.add(what, "a text", "the model is blind")
        told.append(shortfalls.degradation)

    assert Shortfalls(warn).degradation is None
    assert told[0] == told[1]
    assert told[0] is not None
    assert (told[0].requested, told[0].actual, told[0].reason) == ("images; stop", "a text", "the model is blind")
    assert [record.getMessage() for record in caplog.records] == [
        f"provider-acme: {what} is not possible: the model is blind; instead: a text" for what in ("images", "stop")
    ]


def test_extra_parameters_win_and_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    warn, extras = WarnOnce("provider-acme"), {"top_k": 4, "model": "mine", "stream": True}

    bodies = [with_extras({"model": "theirs", "stream": True}, extras, warn) for _ in range(2)]

    assert bodies == [{"model": "mine", "stream": True, "top_k": 4}] * 2
    assert [record.getMessage() for record in caplog.records] == [
        "provider-acme: extra_request_params overrides 'model' of the request"
    ]
