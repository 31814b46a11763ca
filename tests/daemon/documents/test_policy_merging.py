"""The policy in layers of profiles: taking its section away widens it, and is for the user's own files only."""

from typing import Any

import pytest

from amplifierd.profiles.documents.inheritance import exclude, merge_sections

POLICY = {"network": {"allow": []}}
PARENT = {"session": {"orchestrator": {"module": "loop-basic"}, "policy": POLICY}}


@pytest.mark.parametrize("child", [{"session": None}, {"session": {"policy": None}}, {"session": {}}])
def test_a_null_takes_no_policy_away(child: dict[str, Any]) -> None:
    assert merge_sections(PARENT, child)["session"]["policy"] == POLICY


def test_a_section_that_is_replaced_keeps_the_policy() -> None:
    assert merge_sections(PARENT, {"session": {"policy": {"network": {"allow": ["*"]}}}}, replaced=["session"])[
        "session"
    ] == {"policy": POLICY}


@pytest.mark.parametrize("rules", [{"session": "all"}, {"session": ["policy"]}, {"session": {"policy": "all"}}])
def test_a_policy_is_excluded_by_the_user_only(rules: dict[str, Any]) -> None:
    assert exclude(PARENT, rules, lambda _: None)["session"]["policy"] == POLICY
    assert "policy" not in exclude(PARENT, rules, lambda _: None, may_widen=True).get("session", {})
