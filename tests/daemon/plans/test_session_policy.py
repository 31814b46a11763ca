"""The policy of a planned session: what the home keeps closed, and where a refusal says that its rule is written."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amplifier_system.policy import PolicyError, SessionPolicy, default_policy
from amplifierd import Home, open_home
from amplifierd.exceptions import MountPlanError
from amplifierd.paths import Paths
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


def members(paths: Paths) -> Iterator[tuple[str, Path]]:
    """Every file and directory of a home that has a name."""
    for name in (*Paths.__slots__, *(name for name, found in vars(Paths).items() if isinstance(found, property))):
        found = getattr(paths, name)
        yield from ((name, each) for each in (found if isinstance(found, tuple) else (found,)))


@pytest.mark.parametrize("moved", ["", "CONFIG", "STATE", "LOG"])
def test_of_a_home_a_session_reads_only_what_is_generated_and_its_own_workspace(tmp_path: Path, moved: str) -> None:
    moves = {f"AMPLIFIERD_{moved}_DIR": str(tmp_path / "moved")} if moved else {}
    paths = Paths.from_environment(tmp_path / "user/elsewhere", moves)
    own, other = paths.sessions / "own", paths.sessions / "other"
    policy = session_policy_for({}, paths=paths, working_dir=tmp_path / "work", workspace=own)

    readable = {name for name, place in members(paths) if policy.may_read(place) or policy.may_read(place / "x")}

    assert readable == {"share", "cache", "collections_file", "collections_lock", "profiles", "locks"}
    assert policy.may_read(own / "artefact.txt")
    assert not policy.may_read(other / "transcript.jsonl")
    assert not policy.may_read(paths.home / "a_file_of_tomorrow")
    for name in ("cluster_token", "daemon.yaml", "profiles/child.md", "a_file_of_tomorrow"):
        assert refusal(policy.check_read, str(paths.config / name)).endswith("(policy.read.deny, default)")
        assert refusal(policy.check_write, str(paths.config / name)).endswith("(policy.write.deny, default)")


@pytest.mark.parametrize("variable", ["", "AMPLIFIERD_CONFIG_DIR", "AMPLIFIERD_STATE_DIR", "AMPLIFIER_HOME"])
def test_without_a_runtime_the_homes_of_the_environment_are_closed(
    tmp_path: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIERD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AMPLIFIER_HOME", raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "moved"))
    paths, policy = Paths.from_environment(), default_policy(tmp_path / "work")

    for _, place in members(paths):
        is_closed = place.is_relative_to(paths.config) or place.is_relative_to(paths.state)
        assert policy.may_read(place) != is_closed, place
    assert not policy.may_read(tmp_path / "moved/x" if variable == "AMPLIFIER_HOME" else "~/.amplifier/settings.yaml")


def test_a_rule_opens_a_directory_of_the_home_and_no_secret_in_it(tmp_path: Path) -> None:
    paths = Paths.from_environment(tmp_path / "home", {})
    plan = {"session": {"policy": {"read": {"allow": ["/", str(paths.config)]}}}}
    policy = session_policy_for(plan, paths=paths, working_dir=tmp_path / "work")

    assert policy.may_read(paths.own_profiles / "child.md")
    assert not any(policy.may_read(secret) for secret in (*paths.secrets, paths.state))


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
