"""What a request may change about a build's plan."""

from typing import Any

import pytest

from amplifierd.exceptions import ProfileValidationError
from amplifierd.identifiers import ProfileId
from amplifierd.plans.request import lay_over

PLAN = {
    "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
    "providers": [{"module": "provider-mock", "config": {}}],
    "tools": [],
    "hooks": [{"module": "hooks-approval", "config": {}, "required": True}, {"module": "hooks-logging", "config": {}}],
    "agents": {},
}


def changed(overrides: dict[str, Any]) -> dict[str, Any]:
    return lay_over(PLAN, overrides, ProfileId.parse("team/p"), allow_modules=False)[0]


@pytest.mark.parametrize(
    "overrides",
    [
        {"exclude": {"hooks": ["hooks-approval"]}},
        {"exclude": {"hooks": "all"}},
        {"hooks": [{"module": "hooks-approval", "required": False}]},
    ],
    ids=str,
)
def test_a_request_cannot_remove_a_required_guard(overrides: dict[str, Any]) -> None:
    with pytest.raises(ProfileValidationError, match="A request cannot remove 'hooks-approval': it is required"):
        changed(overrides)


def test_a_request_may_leave_out_what_is_not_required() -> None:
    plan = changed({"exclude": {"hooks": ["hooks-logging"]}})

    assert [entry["module"] for entry in plan["hooks"]] == ["hooks-approval"]


def test_overrides_from_elsewhere_tighten_the_guards_and_loosen_nothing() -> None:
    guard = {"auto_approve": True, "policy_driven_only": True, "rules": [{"pattern": "*", "action": "auto_approve"}]}
    denial = {"tool": "write_file", "pattern": "./*", "action": "auto_deny"}
    overrides = {
        "hooks": [{"module": "hooks-approval", "config": {**guard, "rules": [*guard["rules"], denial]}}],
        "tools": [{"module": "tool-bash", "config": {"sandbox": "off", "timeout": 5}}],
    }
    plan = {**PLAN, "tools": [{"module": "tool-bash", "config": {}}]}

    laid, _ = lay_over(plan, overrides, ProfileId.parse("team/p"), allow_modules=False, is_own=False)

    assert [entry["config"] for entry in laid["hooks"] if entry["module"] == "hooks-approval"] == [{"rules": [denial]}]
    assert [entry["config"] for entry in laid["tools"]] == [{"timeout": 5}]
    own, _ = lay_over(plan, overrides, ProfileId.parse("team/p"), allow_modules=False)
    assert own["hooks"][0]["config"]["auto_approve"] is True
