"""How a tool learns whether somebody was asked about a call."""

from amplifier_core.testing import MockCoordinator
from amplifier_kit.approval import CONSENT, GATE, Consent, Consents, consent_to

CALL = {"command": "make", "timeout": 5}


def guarded(consents: Consents) -> MockCoordinator:
    coordinator = MockCoordinator()
    coordinator.register_capability(CONSENT, consents)
    return coordinator


def test_without_a_guard_the_policy_is_the_only_bound() -> None:
    assert consent_to(None, "bash", CALL) is Consent.UNGUARDED
    assert consent_to(MockCoordinator(), "bash", CALL) is Consent.UNGUARDED


def test_a_guard_that_says_nothing_has_asked_nobody() -> None:
    coordinator = MockCoordinator()
    coordinator.register_capability(GATE, object())

    assert consent_to(coordinator, "bash", CALL) is Consent.UNASKED
    assert consent_to(guarded(Consents()), "bash", CALL) is Consent.UNASKED


def test_a_decision_is_about_one_call_of_one_tool() -> None:
    consents = Consents()
    consents.note("bash", CALL, Consent.APPROVED)
    coordinator = guarded(consents)

    assert consent_to(coordinator, "bash", {"timeout": 5, "command": "make", "_tool_call_id": "x"}) is Consent.APPROVED
    assert consent_to(coordinator, "bash", {**CALL, "command": "make all"}) is Consent.UNASKED
    assert consent_to(coordinator, "other", CALL) is Consent.UNASKED
    assert consent_to(coordinator, "bash", None) is Consent.UNASKED


def test_the_latest_decision_counts_and_old_ones_are_forgotten() -> None:
    consents = Consents()
    consents.note("bash", CALL, Consent.APPROVED)
    consents.note("bash", CALL, Consent.UNASKED)
    assert consents("bash", CALL) is Consent.UNASKED

    consents.note("bash", CALL, Consent.APPROVED)
    for number in range(2_000):
        consents.note("bash", {"command": str(number)}, Consent.APPROVED)

    assert consents("bash", CALL) is Consent.UNASKED
    assert consents("bash", {"command": "1999"}) is Consent.APPROVED
