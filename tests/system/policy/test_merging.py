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
    merged = merge_policies(None, {"environment": {"pass": ["*", "CI_JOB", "AWS_PROFILE"]}}, may_widen=False)

    assert merged == {"environment": {"pass": []}}


def test_an_untrusted_layer_gives_no_name_that_the_base_passes_only_by_a_pattern(tmp_path: Path) -> None:
    base, layer = {"environment": {"pass": ["*"]}}, {"environment": {"pass": ["STORE_URL"]}}
    merged = SessionPolicy.of(merge_policies(base, layer, may_widen=False), working_dir=tmp_path)
    child = SessionPolicy.of(base, working_dir=tmp_path).narrowed_by(layer)

    for policy in (merged, child):
        assert policy.environment({"STORE_URL": "postgres://me:secret@db/x", "OTHER": "1"}) == {}


@pytest.mark.parametrize("place", ["~/.ssh/", "~/./.ssh", "~/x/../.ssh", "{home}/.ssh", "link", "../home/.ssh", ".ssh"])
def test_an_untrusted_layer_takes_nothing_back_however_it_writes_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    (home / ".ssh").mkdir(parents=True)
    work.mkdir()
    (work / "link").symlink_to(home / ".ssh")
    monkeypatch.setenv("HOME", str(home))

    merged = merge_policies(None, {"read": {"allow": ["/", place.format(home=home)]}}, may_widen=False)

    for working_dir in (work, home):
        with pytest.raises(PolicyError):
            SessionPolicy.of(merged, working_dir=working_dir).check_read("~/.ssh/id_rsa")


@pytest.mark.parametrize("place", [".git", "./.git", ".git/", "{work}/.git"])
def test_an_untrusted_layer_does_not_open_the_repository(tmp_path: Path, place: str) -> None:
    base = {"write": {"allow": ["/"]}}

    merged = merge_policies(base, {"write": {"allow": ["/", place.format(work=tmp_path)]}}, may_widen=False)

    with pytest.raises(PolicyError):
        SessionPolicy.of(merged, working_dir=tmp_path).check_write(".git/config")


def test_an_untrusted_layer_takes_back_nothing_that_the_base_denies(tmp_path: Path) -> None:
    base = {
        "read": {"deny": ["/srv/p"]},
        "network": {"deny": ["example.org"]},
        "environment": {"pass": ["*"], "deny": ["FOO"]},
    }
    layer = {
        "read": {"allow": ["/", "/srv/p"]},
        "network": {"allow": ["*", "example.org"]},
        "environment": {"pass": ["*", "FOO"]},
    }
    merged = SessionPolicy.of(merge_policies(base, layer, may_widen=False), working_dir=tmp_path)
    child = SessionPolicy.of(base, working_dir=tmp_path).narrowed_by(layer)

    for policy in (merged, child):
        with pytest.raises(PolicyError):
            policy.check_read("/srv/p/x")
        with pytest.raises(PolicyError):
            policy.check_url("https://example.org")
        assert policy.environment({"FOO": "1", "BAR": "2"}) == {"BAR": "2"}


def test_what_the_base_allows_by_name_can_be_denied_above_it(tmp_path: Path) -> None:
    base = {"read": {"allow": ["/", "~/.ssh"]}, "environment": {"pass": ["*", "FOO_KEY"]}}
    layer = {"read": {"deny": ["~/.ssh", "private"]}, "environment": {"deny": ["FOO_*"]}}
    merged = SessionPolicy.of(merge_policies(base, layer, may_widen=False), working_dir=tmp_path)
    child = SessionPolicy.of(base, working_dir=tmp_path).narrowed_by(layer)

    for policy in (merged, child):
        for place in ("~/.ssh/id_rsa", "sub/private/x"):
            with pytest.raises(PolicyError):
                policy.check_read(place)
        assert policy.environment({"FOO_KEY": "1"}) == {}


def test_a_child_with_the_rules_of_its_parent_may_do_the_same(tmp_path: Path) -> None:
    rules = {"write": {"allow": [".", "/srv/out"]}}

    assert SessionPolicy.of(rules, working_dir=tmp_path).narrowed_by(rules).check_write("/srv/out/x")


def test_an_unknown_user_s_home_is_a_place_like_any_other() -> None:
    assert merge_policies(None, {"read": {"allow": ["~nobody-here/x"]}}, may_widen=False)["read"]["allow"]


def test_a_host_is_unasked_only_where_a_trusted_layer_names_it(tmp_path: Path) -> None:
    layer = {"network": {"allow": ["a.example.org", "other.example"]}}

    for base, may_widen, unasked in (
        (None, True, [True, True]),
        (None, False, [False, False]),
        ({"network": {"allow": ["*.example.org", "*"]}}, False, [True, False]),
    ):
        network = SessionPolicy.of(merge_policies(base, layer, may_widen=may_widen), working_dir=tmp_path).network
        assert [network.is_named(host) for host in ("a.example.org", "other.example")] == unasked
        assert network.check("https://a.example.org/x") == "a.example.org"


def test_a_trusted_layer_answers_for_a_host_that_another_one_named(tmp_path: Path) -> None:
    fetched = merge_policies(None, {"network": {"allow": ["a.example"], "ask": ["b.example"]}}, may_widen=False)

    own = merge_policies(fetched, {"network": {"allow": ["*", "a.example", "b.example"]}}, may_widen=True)

    network = SessionPolicy.of(own, working_dir=tmp_path).network
    assert network.is_named("a.example")
    assert network.is_named("b.example")
    assert not network.is_named("c.example")


def test_only_a_trusted_layer_lets_bound_commands_go() -> None:
    bound, free = {"network": {"commands": "hosts"}}, {"network": {"commands": "open"}}

    assert merge_policies(free, bound, may_widen=False) == bound
    assert merge_policies(bound, free, may_widen=False) == bound
    assert merge_policies(bound, free, may_widen=True) == free


def test_a_child_names_no_host_and_lets_no_command_go(tmp_path: Path) -> None:
    parent = SessionPolicy.of({"network": {"commands": "hosts"}}, working_dir=tmp_path)

    child = parent.narrowed_by({"network": {"allow": ["a.example"], "commands": "open"}}).network

    assert child.check("http://a.example/") == "a.example"
    assert not child.is_named("a.example")
    assert child.commands == "hosts"


def test_what_commands_reach_is_one_of_two_words() -> None:
    with pytest.raises(ValueError, match=r"policy\.network\.commands must be open or hosts, got 'all'"):
        merge_policies(None, {"network": {"commands": "all"}}, may_widen=True)
