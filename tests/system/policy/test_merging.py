"""Policies of several layers: whoever may not widen can only narrow."""

from pathlib import Path

import pytest

from amplifier_system.policy import PolicyError, SessionPolicy, merge_policies


def test_denials_add_up_in_any_case() -> None:
    base, layer = {"read": {"deny": ["a"]}}, {"read": {"deny": ["b"]}}

    for may_widen in (True, False):
        assert merge_policies(base, layer, may_widen=may_widen) == {"read": {"deny": ["a", "b"]}}


def test_only_a_trusted_layer_widens_what_is_allowed() -> None:
    layer = {"write": {"allow": ["/", "~/notes"]}, "network": {"allow": ["*"]}}

    assert merge_policies(None, layer, may_widen=True)["write"] == {"allow": ["/", "~/notes"]}
    assert merge_policies(None, layer, may_widen=False)["write"] == {"allow": ["."]}
    assert merge_policies({"network": {"allow": []}}, layer, may_widen=False)["network"] == {"allow": []}


def test_an_untrusted_layer_narrows_to_what_is_inside() -> None:
    base = {"write": {"allow": [".", "/srv/data"]}}
    layer = {"write": {"allow": ["src", "/srv", "../up", "/etc"]}}

    assert merge_policies(base, layer, may_widen=False) == {"write": {"allow": ["src", "/srv/data"]}}


def test_an_untrusted_layer_takes_no_secret_place_back(tmp_path: Path) -> None:
    layer = {"read": {"allow": ["/", "~/.ssh"]}, "write": {"allow": [".", ".git"]}}

    merged = merge_policies(None, layer, may_widen=False)

    assert merged == {"read": {"allow": ["/"]}, "write": {"allow": ["."]}}
    with pytest.raises(PolicyError):
        SessionPolicy.of(merged, working_dir=tmp_path).check_read("~/.ssh/id_rsa")


def test_a_trusted_layer_takes_a_denied_place_back_by_naming_it(tmp_path: Path) -> None:
    base = {"read": {"deny": ["/srv/data"]}}

    merged = merge_policies(base, {"read": {"allow": ["/", "/srv/data"]}}, may_widen=True)

    assert SessionPolicy.of(merged, working_dir=tmp_path).check_read("/srv/data/x")


def test_variables_are_passed_by_the_same_rules() -> None:
    layer = {"environment": {"pass": ["PATH", "AWS_PROFILE"], "deny": ["X_*"]}}

    assert merge_policies({"environment": {"pass": ["PATH", "HOME"]}}, layer, may_widen=False) == {
        "environment": {"pass": ["PATH"], "deny": ["X_*"]}
    }


def test_an_untrusted_layer_passes_no_secret_variable_by_naming_it() -> None:
    merged = merge_policies(None, {"environment": {"pass": ["PATH", "AWS_PROFILE"]}}, may_widen=False)

    assert merged == {"environment": {"pass": ["PATH"]}}
