"""What a session's policy means for its commands."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from amplifier_core.testing import MockCoordinator
from amplifier_kit.policy import SessionPolicy
from amplifier_kit.sandbox.permissions import Permissions, repository_of


def git(directory: Path, *arguments: str) -> None:
    nobody = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    subprocess.run(["git", *nobody, *arguments], cwd=directory, check=True, capture_output=True)


def permissions(working_dir: Path, **policy: object) -> Permissions:
    coordinator = MockCoordinator()
    coordinator.register_capability("session.policy", SessionPolicy.of(policy, working_dir=working_dir))
    return Permissions.of(coordinator, working_dir)


def test_by_default_the_working_directory_is_writable_and_secrets_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SOME_TOKEN", "x")
    (tmp_path / "work").mkdir()

    given = Permissions.of(None, tmp_path / "work")

    assert given.writable == (tmp_path / "work",)
    assert tmp_path / ".ssh" in given.hidden
    assert given.has_network
    assert "PATH" in given.environment
    assert "SOME_TOKEN" not in given.environment


def test_a_policy_says_what_is_writable_hidden_and_reachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MINE", "OTHER", "SHELL"):
        monkeypatch.setenv(name, "1")
    given = permissions(
        tmp_path,
        read={"deny": ["private", "./vault"]},
        write={"allow": [".", "/srv/out"], "deny": ["./kept"]},
        network={"allow": []},
        environment={"pass": ["MINE"], "deny": ["SHELL"]},
    )

    assert set(given.writable) == {tmp_path, Path("/srv/out")}
    assert tmp_path / "kept" in given.read_only
    assert {tmp_path / "private", tmp_path / "vault"} <= set(given.hidden)
    assert not given.has_network
    assert given.environment.keys() >= {"HOME", "MINE"}
    assert given.environment.keys().isdisjoint({"SHELL", "OTHER"})
    assert {"SHELL", "OTHER"} <= set(given.withheld)


def test_the_policy_of_the_plan_counts_where_no_one_offers_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    policy = {"network": {"allow": []}, "environment": {"pass": ["MINE"]}}
    coordinator = SimpleNamespace(config={"session": {"policy": policy}}, get_capability=lambda name: None)

    given = Permissions.of(coordinator, tmp_path)

    assert (given.has_network, "MINE" in given.environment) == (False, True)


@pytest.mark.parametrize(
    "value",
    [
        "ghp_" + "a1B2" * 9,
        "postgres://me:hunter22@db.example/x",
        "http://user:pw@proxy.example:3128",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_a_secret_is_passed_under_no_name_but_one_that_the_policy_has_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    for name in ("HTTPS_PROXY", "HARMLESS", "XDG_THING"):
        monkeypatch.setenv(name, value)

    anyone = permissions(tmp_path, environment={"pass": ["*", "HARM*"]})
    named = permissions(tmp_path, environment={"pass": ["HARMLESS"]})

    assert value not in anyone.environment.values()
    assert {"HTTPS_PROXY", "HARMLESS", "XDG_THING"} <= set(anyone.withheld)
    assert [name for name, given in named.environment.items() if given == value] == ["HARMLESS"]


def test_a_place_that_was_taken_back_is_not_hidden(tmp_path: Path) -> None:
    given = permissions(tmp_path, read={"allow": ["/", "~/.ssh"]})

    assert Path("~/.ssh").expanduser() not in given.hidden
    assert Path("~/.gnupg").expanduser() in given.hidden


def test_what_only_one_of_two_lists_allows_is_not_writable(tmp_path: Path) -> None:
    coordinator = MockCoordinator()
    policy = SessionPolicy.of({"write": {"allow": ["."]}}, working_dir=tmp_path)
    coordinator.register_capability("session.policy", policy.narrowed(write_allow=["src", "/elsewhere"]))

    assert Permissions.of(coordinator, tmp_path).writable == (tmp_path / "src",)


def test_the_repository_around_a_directory_is_writable(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "src/inner").mkdir(parents=True)

    given = Permissions.of(None, tmp_path / "src/inner")

    assert set(given.writable) == {tmp_path / "src/inner", tmp_path / ".git", tmp_path / ".git/info"}
    assert given.kept_folders == (tmp_path / ".git/hooks",)
    assert given.kept_files == (tmp_path / ".git/info/attributes",)
    assert tmp_path / ".git" not in given.read_only


def test_a_worktree_brings_the_repository_it_belongs_to(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    git(main, "init")
    git(main, "commit", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", str(tree))

    assert repository_of(tree) == [main / ".git/worktrees/tree", main / ".git"]


def test_a_git_file_that_names_somebody_elses_repository_brings_nothing(tmp_path: Path) -> None:
    other, work = tmp_path / "other", tmp_path / "work"
    other.mkdir()
    work.mkdir()
    git(other, "init")
    for text in (f"gitdir: {other}/.git", "gitdir: /etc", "nonsense", ""):
        (work / ".git").write_text(text)

        assert repository_of(work) == []
