"""Where paths lead and what the lists say of them, as laws over generated trees and paths."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_kit.config import LenientConfig
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.paths import PathRules, WorkingDir, read_path_list, resolve, resolve_roots, shown

NAMES = ["a", "b", "in", "out", "link", "up", "abs", "."]
paths = st.lists(st.sampled_from([*NAMES, ".."]), min_size=1, max_size=8).map("/".join)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with links of every kind: to a sibling, to above, absolute to the outside, in circles."""
    world = tmp_path_factory.mktemp("world").resolve()
    for folder in ("in/a/b", "in/b", "out/a", "in/denied/a"):
        (world / folder).mkdir(parents=True)
    (world / "in/link").symlink_to("a/b")
    (world / "in/a/up").symlink_to("..")
    (world / "in/a/b/abs").symlink_to(world / "out")
    (world / "in/b/link").symlink_to("../denied")
    (world / "in/out").symlink_to("../out/a")
    (world / "out/a/in").symlink_to(world / "in")
    (world / "in/b/up").symlink_to("up")
    return world


@given(path=paths)
def test_a_path_is_allowed_exactly_when_it_really_lies_inside(world: Path, path: str) -> None:
    rules = PathRules(allowed=[world / "in"], denied=[world / "in/denied"])
    real = Path(os.path.realpath(world / "in" / path))
    inside = (world / "in") in (real, *real.parents)
    denied = (world / "in/denied") in (real, *real.parents)

    verdict = rules.verdict(resolve(world / "in" / path))

    assert verdict == ("denied" if denied else "allowed" if inside else "outside")


@given(path=paths, tail=paths)
def test_resolving_is_final_and_leaves_no_link_or_parent(world: Path, path: str, tail: str) -> None:
    resolved = resolve(world / path / tail)

    assert ".." not in resolved.parts
    assert resolve(resolved) == resolved
    assert not any(parent.is_symlink() and parent.exists() for parent in resolved.parents)


@given(path=paths, name=st.sampled_from(["in", "in/a", "out"]))
def test_deny_wins_over_allow_and_over_files(world: Path, path: str, name: str) -> None:
    target = resolve(world / path)
    rules = PathRules(allowed=[Path("/")], denied=[world / name], files=[target])

    assert (rules.verdict(target) == "denied") == target.is_relative_to(world / name)


@given(path=st.text(max_size=30))
def test_any_text_is_resolved_or_refused(world: Path, path: str) -> None:
    resolved = world
    with suppress(ToolFailure):
        resolved = resolve(WorkingDir(str(world / "in"), None).join(path))

    assert resolved.is_absolute()


def test_components_count_and_not_letters() -> None:
    rules = PathRules(allowed=[Path("/srv/a")], denied=[Path("/srv/a/b")])

    assert rules.verdict(Path("/srv/a")) == "allowed"
    assert rules.verdict(Path("/srv/ab")) == "outside"
    assert rules.verdict(Path("/srv/a/bc")) == "allowed"
    assert rules.verdict(Path("/srv/a/b/c")) == "denied"
    assert PathRules(allowed=None).verdict(Path("/anything")) == "allowed"


@pytest.mark.parametrize("name", ["SECRET", "Secret/x", "secret", "STRASSE/x", "stra\u00dfe", "cafe\u0301/x"])
def test_where_case_does_not_count_a_denied_name_is_denied_in_any_case(name: str) -> None:
    denied = [Path("/srv/secret"), Path("/srv/straße"), Path("/srv/café")]

    assert PathRules(allowed=None, denied=denied, ignores_case=True).verdict(Path("/srv") / name) == "denied"


def test_where_case_counts_names_that_differ_in_it_are_others(tmp_path: Path) -> None:
    rules = PathRules(allowed=[tmp_path], denied=[tmp_path / "secret"], ignores_case=False)

    assert rules.verdict(tmp_path / "SECRET") == "allowed"


def test_a_denied_file_is_known_by_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    (tmp_path / "copy").hardlink_to(tmp_path / "key")

    assert PathRules(allowed=[tmp_path], denied=[tmp_path / "key"]).verdict(tmp_path / "copy") == "denied"


READINGS: list[tuple[Any, Any]] = [
    (["a", "b"], ["a", "b"]),
    ("a", ["a"]),
    ([], []),
    (None, ["default"]),
    ("", ["default"]),
    (["a", "", "${B}", " "], ["a"]),
    (7, ["closed"]),
    ([7], ["closed"]),
    ({"a": 1}, ["closed"]),
]


@pytest.mark.parametrize(("value", "expected"), READINGS, ids=str)
def test_a_list_of_paths_is_read_or_closed(value: Any, expected: Any) -> None:
    config = LenientConfig("tool-x", {"key": value})

    assert read_path_list(config, "key", ["default"], when_unusable=["closed"]) == expected


def test_the_working_directory_is_the_configured_one_else_the_sessions_else_the_processs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Coordinator:
        def get_capability(self, name: str) -> str:
            return str(tmp_path / "session")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    assert WorkingDir("~/x", Coordinator()).path() == tmp_path / "home/x"
    assert WorkingDir("rel", Coordinator()).path() == tmp_path / "rel"
    assert WorkingDir(None, Coordinator()).path() == tmp_path / "session"
    assert WorkingDir(None, None).path() == tmp_path
    assert WorkingDir(None, object()).join("../a") == tmp_path / "../a"
    assert WorkingDir(None, None).join("~nobody-of-that-name/a") == tmp_path / "~nobody-of-that-name/a"
    assert resolve_roots(["~", "rel"], tmp_path) == [tmp_path / "home", tmp_path / "rel"]


def test_a_name_that_is_no_text_is_shown_all_the_same() -> None:
    assert shown(Path(os.fsdecode(b"caf\xe9"))) == "caf\N{REPLACEMENT CHARACTER}"
