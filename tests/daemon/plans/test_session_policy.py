"""The policy of a planned session: what the home keeps closed, and where a refusal says that its rule is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_system.policy import PolicyError, SessionPolicy
from amplifierd import Home, open_home
from amplifierd.exceptions import MountPlanError
from amplifierd.plans.session_policy import session_policy_for

BASE = """---
profile: {name: base, version: "1", schema_version: 2}
session:
  orchestrator: {module: loop-basic}
  policy:
    read:
      deny:
      - ~/ledger
      - accounts
    network: {deny: [tracker.example.org]}
providers: [{module: provider-mock}]
---
"""
CHILD = """---
profile: {name: child, version: "1", schema_version: 2, extends: team/base}
session:
  policy:
    read: {deny: [drafts, "odd[1]"]}
    write: {allow: [src]}
---
"""
OVERLAY = """---
session:
  policy:
    write: {deny: [src/generated]}
---
"""


@pytest.fixture
async def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "team").mkdir()
    (tmp_path / "team/base.md").write_text(BASE)
    home = open_home(tmp_path / "user/elsewhere")
    await home.collections.add("team", str(tmp_path / "team"))
    files = {home.paths.own_profiles / "child.md": CHILD, home.paths.overlay_file("local/child"): OVERLAY}
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return home


async def policy_of(home: Home, work: Path, overrides: dict[str, Any] | None = None) -> SessionPolicy:
    build = await home.profiles.ensure("local/child")
    plan = await home.plans.generate(build, form="resolved", overrides=overrides)
    return session_policy_for(plan, paths=home.paths, working_dir=work, build=build)


def refusal(check: Callable[[str], object], target: str) -> str:
    with pytest.raises(PolicyError) as refused:
        check(target)
    return str(refused.value)


async def test_a_refusal_names_the_profile_and_the_line_of_its_rule(home: Home, tmp_path: Path) -> None:
    policy = await policy_of(home, tmp_path)

    assert [refusal(policy.check_read, path) for path in ("~/ledger/2026", "x/accounts/1", "drafts/a", "odd[1]")] == [
        "not readable: ~/ledger/2026 (policy.read.deny, team/base line 8)",
        "not readable: x/accounts/1 (policy.read.deny, team/base line 9)",
        "not readable: drafts/a (policy.read.deny, local/child line 5)",
        "not readable: odd[1] (policy.read.deny, local/child line 5)",
    ]
    assert refusal(policy.check_url, "https://tracker.example.org/x").endswith(
        "(policy.network.deny, team/base line 10)"
    )
    assert [refusal(policy.check_write, path) for path in ("docs/a", "src/generated/a", "src/.git/config")] == [
        "not writable: docs/a (policy.write.allow, local/child line 6)",
        "not writable: src/generated/a (policy.write.deny, overlay of local/child line 4)",
        "not writable: src/.git/config (policy.write.deny, default)",
    ]


async def test_a_rule_that_no_file_holds_is_the_request_s_or_a_default(home: Home, tmp_path: Path) -> None:
    policy = await policy_of(home, tmp_path, {"session": {"policy": {"read": {"deny": ["~/more"]}}}})

    assert refusal(policy.check_read, "~/more") == "not readable: ~/more (policy.read.deny, request)"
    assert refusal(policy.check_read, "~/.ssh/id") == "not readable: ~/.ssh/id (policy.read.deny, default)"
    assert refusal(policy.check_url, "http://127.0.0.1/") == "not reachable: 127.0.0.1 (policy.network.deny, default)"


async def test_a_child_session_s_own_rules_keep_the_origins_of_those_it_inherits(home: Home, tmp_path: Path) -> None:
    policy = await policy_of(home, tmp_path)

    child = policy.narrowed_by({"read": {"deny": ["~/ledger", "~/own"]}, "network": {"deny": ["b.example.org"]}})

    assert refusal(child.check_read, "~/ledger").endswith("(policy.read.deny, team/base line 8)")
    assert refusal(child.check_read, "~/own").endswith("(policy.read.deny)")
    assert refusal(child.check_url, "http://b.example.org").endswith("(policy.network.deny)")


async def test_a_refusal_stands_when_the_build_that_knew_its_origin_is_gone(home: Home, tmp_path: Path) -> None:
    policy = await policy_of(home, tmp_path)
    build = await home.profiles.ensure("local/child")
    (build.path / "origins.json").unlink()

    assert refusal(policy.check_read, "drafts/a").startswith("not readable: drafts/a (policy.read.deny")


async def test_the_home_s_secrets_are_closed_wherever_the_home_is(home: Home, tmp_path: Path) -> None:
    policy = session_policy_for({}, paths=home.paths, working_dir=tmp_path / "user")
    config = home.paths.config

    for name in ("secrets.yaml", "token", "certs/server.key", "keys/a"):
        assert refusal(policy.check_read, str(config / name)).endswith("(policy.read.deny, default)")
        assert refusal(policy.check_write, str(config / name)).endswith("(policy.write.deny, default)")
    assert policy.check_read(config / "profiles/child.md")


async def test_no_session_writes_what_later_sessions_run_and_trust(home: Home, tmp_path: Path) -> None:
    policy = session_policy_for({}, paths=home.paths, working_dir=tmp_path / "user")

    assert policy.check_write("notes.md")
    for place in (
        home.paths.overlay_file("local/child"),
        home.paths.profile_file("team/base"),
        home.paths.cache / "git/x",
        home.paths.sessions / "s1/approvals.json",
    ):
        assert refusal(policy.check_write, str(place)).endswith("(policy.write.deny, default)")


async def test_a_plan_takes_a_place_of_the_home_back_by_its_very_name(home: Home, tmp_path: Path) -> None:
    plan = {"session": {"policy": {"write": {"allow": [".", str(home.paths.config)]}}}}
    policy = session_policy_for(plan, paths=home.paths, working_dir=tmp_path / "user")

    assert policy.check_write(home.paths.overlay_file("local/child"))
    assert refusal(policy.check_write, str(home.paths.token_file))


def test_a_plan_whose_policy_is_none_starts_no_session(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")

    with pytest.raises(MountPlanError, match=r"session\.policy\.reed is unknown"):
        session_policy_for({"session": {"policy": {"reed": {}}}}, paths=home.paths, working_dir=tmp_path)
