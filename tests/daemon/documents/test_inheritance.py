"""Profiles that extend profiles, exclude parts of them, and are overlaid."""

import copy
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from amplifierd.exceptions import (
    ProfileCircularInheritanceError,
    ProfileNotFoundError,
    ProfileValidationError,
)
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue
from amplifierd.profiles.documents.document import ProfileDocument, ReferenceBase
from amplifierd.profiles.documents.inheritance import MergedProfile, merge_sections, resolve_profile
from amplifierd.profiles.documents.overrides import read_overrides
from amplifierd.profiles.documents.profile_reader import read_document

SESSION = {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}}


class Shelf:
    """Profiles in a directory, one folder per collection."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, sections: dict[str, Any], *, extends: str | None = None, body: str = "") -> None:
        collection, profile = name.split("/")
        metadata = {"name": profile, "version": "1", "schema_version": 2, **({"extends": extends} if extends else {})}
        self._write(self.root / collection / f"{profile}.md", {"profile": metadata, **sections}, body)

    def overlay(self, name: str, sections: dict[str, Any], body: str = "") -> None:
        collection, profile = name.split("/")
        self._write(self.root / "overlays" / collection / f"{profile}.md", sections, body)

    def _write(self, path: Path, front: dict[str, Any], body: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n{body}", encoding="utf-8")

    def _read(self, path: Path, profile_id: ProfileId, *, is_overlay: bool) -> ProfileDocument | None:
        if not path.is_file():
            return None
        base = ReferenceBase(profile_id.collection, PurePosixPath())
        text = path.read_text(encoding="utf-8")
        return read_document(text, path=path, profile_id=profile_id, base=base, is_overlay=is_overlay)

    def read(self, profile_id: ProfileId) -> ProfileDocument | None:
        return self._read(self.root / profile_id.collection / f"{profile_id.name}.md", profile_id, is_overlay=False)

    def read_overlay(self, profile_id: ProfileId) -> ProfileDocument | None:
        path = self.root / "overlays" / profile_id.collection / f"{profile_id.name}.md"
        return self._read(path, profile_id, is_overlay=True)

    def unreadable(self, profile_id: ProfileId) -> Sequence[Issue]:
        return ()

    def owners(self, name: str) -> Sequence[ProfileId]:
        found = sorted(self.root.glob(f"*/{name}.md"))
        return [ProfileId(path.parent.name, name) for path in found]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def merge(shelf: Shelf, name: str, **options: Any) -> MergedProfile:
    return resolve_profile(shelf, ProfileId.parse(name), **options)


def codes(merged: MergedProfile) -> list[str]:
    return [issue.code for issue in merged.issues]


def test_a_child_is_laid_over_its_parent(shelf: Shelf) -> None:
    shelf.write(
        "team/parent",
        {
            "session": {
                "orchestrator": {"module": "loop-basic", "source": "./loop", "config": {"a": 1, "l": [1, 2]}},
                "context": {"module": "context-simple", "config": {"m": 1}},
                "injection_size_limit": 10,
            },
            "providers": [{"module": "provider-a", "config": {"x": 1}}],
            "tools": [{"module": "tool-a", "source": "./a", "config": {"l": [1]}}, {"module": "tool-b"}],
            "agents": {"one": "./one.md", "two": "./two.md"},
            "ui": {"a": {"b": 1}, "l": [1]},
        },
        body="Parent's words",
    )
    shelf.write(
        "team/child",
        {
            "session": {
                "orchestrator": {"config": {"l": [3]}},
                "context": {"module": "context-persistent"},
                "injection_size_limit": None,
            },
            "providers": [{"module": "provider-a", "instance_id": "second"}],
            "tools": [{"module": "tool-c"}, {"module": "tool-a", "config": {"l": [2], "n": 1}}],
            "agents": {"two": None, "three": "./three.md"},
            "ui": {"a": {"c": 2}, "l": [2]},
        },
        extends="parent",
    )

    merged = merge(shelf, "team/child")

    assert codes(merged) == []
    assert [str(document.profile_id) for document in merged.ancestors] == ["team/parent"]
    assert merged.sections["session"] == {
        "orchestrator": {"module": "loop-basic", "source": "./loop", "config": {"a": 1, "l": [3]}},
        "context": {"module": "context-persistent"},
        "injection_size_limit": None,
    }
    assert [entry.get("instance_id") for entry in merged.sections["providers"]] == [None, "second"]
    assert merged.sections["tools"] == [
        {"module": "tool-a", "source": "./a", "config": {"l": [2], "n": 1}},
        {"module": "tool-b"},
        {"module": "tool-c"},
    ]
    assert merged.sections["agents"] == {"one": "./one.md", "three": "./three.md"}
    assert merged.sections["ui"] == {"a": {"b": 1, "c": 2}, "l": [2]}
    assert merged.body == "Parent's words"
    assert merged.document.metadata["name"] == "child"


def test_the_nearest_body_that_says_something_counts(shelf: Shelf) -> None:
    shelf.write("team/a", {"session": SESSION}, body="A")
    shelf.write("team/b", {}, extends="a", body="B")
    shelf.write("team/c", {}, extends="b", body="  \n")

    assert merge(shelf, "team/c").body == "B"


def test_a_null_removes_what_is_inherited(shelf: Shelf) -> None:
    shelf.write("team/a", {"session": SESSION, "tools": [{"module": "tool-a"}], "hooks": [{"module": "hooks-a"}]})
    shelf.write("team/b", {"tools": None}, extends="a")

    merged = merge(shelf, "team/b")

    assert merged.sections["tools"] == []
    assert merged.sections["hooks"] == [{"module": "hooks-a"}]


@pytest.mark.parametrize(("word", "expected"), [("none", []), ("all", ["*"])])
def test_all_and_none_drop_inherited_agents(shelf: Shelf, word: str, expected: list[str]) -> None:
    shelf.write("team/a", {"session": SESSION, "agents": {"one": "./one.md"}})
    shelf.write("team/b", {"agents": word}, extends="a")

    assert list(merge(shelf, "team/b").sections["agents"]) == expected


@pytest.mark.parametrize(
    ("rules", "expected", "unmatched"),
    [
        ({"tools": "all"}, {"tools": []}, []),
        ({"tools": ["tool-a"]}, {"tools": [{"module": "tool-b"}]}, []),
        ({"providers": ["second"]}, {"providers": [{"module": "provider-a"}]}, []),
        ({"agents": ["one"]}, {"agents": {"two": "./two.md"}}, []),
        ({"agents": "all"}, {"agents": {}}, []),
        ({"ui": "all"}, {"ui": None}, []),
        ({"ui": {"a": "all"}}, {"ui": {"l": [1, 2]}}, []),
        ({"ui": {"l": [1]}}, {"ui": {"a": 1, "l": [2]}}, []),
        ({"tools": ["tool-x"]}, {}, ["exclude.tools.tool-x"]),
        ({"nothing": "all"}, {}, ["exclude.nothing"]),
    ],
)
def test_what_is_excluded_is_not_inherited(
    shelf: Shelf, rules: dict[str, Any], expected: dict[str, Any], unmatched: list[str]
) -> None:
    shelf.write(
        "team/a",
        {
            "session": SESSION,
            "providers": [{"module": "provider-a"}, {"module": "provider-a", "instance_id": "second"}],
            "tools": [{"module": "tool-a"}, {"module": "tool-b"}],
            "agents": {"one": "./one.md", "two": "./two.md"},
            "ui": {"a": 1, "l": [1, 2]},
        },
    )
    shelf.write("team/b", {"exclude": rules}, extends="a")

    merged = merge(shelf, "team/b")

    assert {name: merged.sections.get(name) for name in expected} == expected
    assert [issue.location for issue in merged.issues if issue.code == "exclude-no-match"] == unmatched
    assert "exclude" not in merged.sections


def test_what_is_excluded_can_be_declared_anew(shelf: Shelf) -> None:
    shelf.write("team/a", {"session": SESSION, "tools": [{"module": "tool-a", "source": "./a", "config": {"x": 1}}]})
    shelf.write("team/b", {"exclude": {"tools": "all"}, "tools": [{"module": "tool-a"}]}, extends="a")

    assert merge(shelf, "team/b").sections["tools"] == [{"module": "tool-a"}]


@pytest.mark.parametrize("written", ["parent", "team/parent", "team:parent", "team:profiles/parent.md"])
def test_a_parent_is_named_in_every_form(shelf: Shelf, written: str) -> None:
    shelf.write("team/parent", {"session": SESSION})
    shelf.write("team/child", {}, extends=written)

    assert [str(document.profile_id) for document in merge(shelf, "team/child").ancestors] == ["team/parent"]


def test_a_bare_parent_is_searched_near_then_local_then_anywhere(shelf: Shelf) -> None:
    shelf.write("team/child", {}, extends="parent")
    shelf.write("far/parent", {"session": SESSION})
    assert [str(document.profile_id) for document in merge(shelf, "team/child").ancestors] == ["far/parent"]

    shelf.write("further/parent", {"session": SESSION})
    [issue] = [issue for issue in merge(shelf, "team/child").issues if issue.code == "extends-ambiguous"]
    assert "far/parent" in issue.message
    assert "further/parent" in issue.message

    shelf.write("local/parent", {"session": SESSION})
    assert [str(document.profile_id) for document in merge(shelf, "team/child").ancestors] == ["local/parent"]


def test_a_parent_that_is_not_there_is_an_issue(shelf: Shelf) -> None:
    shelf.write("team/child", {"session": SESSION}, extends="nothing")

    [issue] = [issue for issue in merge(shelf, "team/child").issues if issue.severity == "error"]

    assert issue.code == "extends-not-found"
    assert issue.message == "Profile 'nothing' not found (extended by 'team/child')"


def test_a_circle_names_its_links(shelf: Shelf) -> None:
    shelf.write("team/a", {}, extends="b")
    shelf.write("team/b", {}, extends="team/a")

    with pytest.raises(
        ProfileCircularInheritanceError, match="Circular dependency detected: team/a -> team/b -> team/a"
    ):
        merge(shelf, "team/a")


def test_a_profile_that_extends_itself_is_a_circle(shelf: Shelf) -> None:
    shelf.write("team/a", {}, extends="a")

    with pytest.raises(ProfileCircularInheritanceError):
        merge(shelf, "team/a")


def test_a_chain_has_an_end(shelf: Shelf) -> None:
    shelf.write("team/p0", {"session": SESSION})
    for number in range(1, 18):
        shelf.write(f"team/p{number}", {}, extends=f"p{number - 1}")

    assert "extends-too-deep" not in codes(merge(shelf, "team/p16"))
    assert "extends-too-deep" in codes(merge(shelf, "team/p17"))


def test_a_parent_need_not_be_complete_and_the_whole_must(shelf: Shelf) -> None:
    shelf.write("team/parent", {"providers": [{"module": "provider-a"}]})
    shelf.write("team/child", {"session": SESSION}, extends="parent")

    assert codes(merge(shelf, "team/child")) == []
    incomplete = merge(shelf, "team/parent")
    assert not incomplete.is_valid
    with pytest.raises(ProfileValidationError, match=r"missing required session\.orchestrator") as caught:
        incomplete.raise_for_errors()
    assert "orchestrator-missing" in [issue.code for issue in caught.value.issues]


def test_a_missing_context_is_defaulted_with_a_warning_and_refused_when_strict(shelf: Shelf) -> None:
    shelf.write("team/a", {"session": {"orchestrator": "loop-basic"}, "providers": [{"module": "provider-a"}]})

    merged = merge(shelf, "team/a")

    assert codes(merged) == ["context-missing"]
    assert merged.sections["session"]["context"] == {"module": "context-simple", "config": {}}
    merged.raise_for_errors()
    with pytest.raises(ProfileValidationError, match=r"no session\.context"):
        merged.raise_for_errors(strict=True)


def test_an_unknown_profile_is_an_error(shelf: Shelf) -> None:
    with pytest.raises(ProfileNotFoundError, match="team/nothing"):
        merge(shelf, "team/nothing")


def test_an_overlay_is_the_users_last_word(shelf: Shelf) -> None:
    shelf.write("team/a", {"session": SESSION, "tools": [{"module": "tool-a", "config": {"x": 1, "y": 1}}]})
    shelf.overlay("team/a", {"tools": [{"module": "tool-a", "config": {"x": 2}}, {"module": "tool-b"}]}, body="Mine")

    merged = merge(shelf, "team/a")

    assert merged.sections["tools"] == [{"module": "tool-a", "config": {"x": 2, "y": 1}}, {"module": "tool-b"}]
    assert merged.body == "Mine"


def test_every_value_knows_who_set_it_and_what_it_overrode(shelf: Shelf) -> None:
    shelf.write("team/a", {"session": SESSION, "tools": [{"module": "tool-a", "config": {"x": 1}}]}, body="A")
    shelf.write("team/b", {"tools": [{"module": "tool-a", "config": {"x": 2}}]}, extends="a")
    shelf.overlay("team/b", {"tools": [{"module": "tool-a", "config": {"x": 3}}]})

    merged = merge(shelf, "team/b")

    explained = merged.explain("tools[tool-a].config.x")
    assert explained["value"] == 3
    assert explained["origin"]["file"] == str(shelf.root / "overlays" / "team" / "b.md")
    assert explained["origin"]["line"] == 5
    assert [(old["value"], old["origin"]["profile"]) for old in explained["overrode"]] == [(1, "team/a"), (2, "team/b")]
    assert merged.explain("session.orchestrator.module")["origin"]["profile"] == "team/a"
    assert merged.explain("instruction")["origin"]["profile"] == "team/a"
    with pytest.raises(KeyError):
        merged.explain("tools[tool-a].config.nothing")


def test_a_default_says_that_nobody_wrote_it(shelf: Shelf) -> None:
    shelf.write("team/a", {"session": {"orchestrator": "loop-basic"}})

    assert merge(shelf, "team/a").explain("session.context.module")["origin"]["profile"] == "default"


@pytest.mark.parametrize(
    ("overrides", "location"),
    [
        ({"tools": [{"module": "tool-new"}]}, "tools[tool-new]"),
        ({"tools": [{"module": "tool-a", "source": "./evil"}]}, "tools[tool-a].source"),
        ({"session": {"orchestrator": {"module": "loop-other"}}}, "session.orchestrator"),
        ({"session": {"context": {"source": "./evil"}}}, "session.context.source"),
        ({"agents": {"x": {"tools": [{"module": "tool-a", "source": "./evil"}]}}}, "agents.x.tools[tool-a].source"),
        ({"agents": {"x": {"session": {"orchestrator": "loop-other"}}}}, "agents.x.session.orchestrator"),
    ],
)
def test_a_request_brings_no_code(overrides: dict[str, Any], location: str) -> None:
    profile = {"session": SESSION, "tools": [{"module": "tool-a"}]}

    with pytest.raises(ProfileValidationError) as caught:
        read_overrides(overrides, profile)

    assert [(issue.code, issue.location) for issue in caught.value.issues] == [("overlay-source-forbidden", location)]
    assert read_overrides(overrides, profile, allow_modules=True)


@pytest.mark.parametrize(
    ("overrides", "code", "location"),
    [
        ({"agents": {"x": "https://example.org/x.md"}}, "overlay-source-forbidden", "agents.x"),
        ({"context": {"docs": "/etc"}}, "overlay-source-forbidden", "context"),
        ({"ui": {"theme": "dark"}}, "unknown-key", "ui"),
        ({"profile": {"name": "other"}}, "unknown-key", "profile"),
        ({"anything": 1}, "unknown-key", "anything"),
    ],
)
def test_what_a_request_cannot_bring_about_is_refused(overrides: dict[str, Any], code: str, location: str) -> None:
    for allow_modules in (False, True):
        with pytest.raises(ProfileValidationError) as caught:
            read_overrides(overrides, {"session": SESSION}, allow_modules=allow_modules)

        assert [(issue.code, issue.location) for issue in caught.value.issues] == [(code, location)]


def test_a_request_may_change_settings() -> None:
    overrides = {"tools": [{"module": "tool-a", "config": {"x": 1}}], "session": {"orchestrator": {"config": {"n": 2}}}}

    assert read_overrides(overrides, {"session": SESSION, "tools": [{"module": "tool-a"}]}) == overrides


def test_malformed_overrides_are_all_reported() -> None:
    with pytest.raises(ProfileValidationError) as caught:
        read_overrides({"tools": {}, "session": []}, {})

    assert [issue.code for issue in caught.value.issues] == ["wrong-type", "wrong-type"]


scalars = st.none() | st.booleans() | st.integers(0, 3) | st.text(max_size=2)
configs = st.dictionaries(st.sampled_from("abc"), scalars | st.lists(st.integers(0, 3), max_size=2), max_size=3)
module_lists = st.lists(
    st.fixed_dictionaries({"module": st.sampled_from(["tool-a", "tool-b"])}, optional={"config": configs}), max_size=3
)
profiles = st.fixed_dictionaries(
    {}, optional={"tools": module_lists, "ui": configs, "agents": st.just({"one": "./one.md"})}
)


@given(profiles, profiles)
def test_merging_changes_no_profile(parent: dict[str, Any], child: dict[str, Any]) -> None:
    before = copy.deepcopy((parent, child))

    merge_sections(parent, child)

    assert (parent, child) == before


@given(profiles, profiles, profiles)
def test_a_chain_can_be_merged_from_either_end(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    for sections in (a, b, c):  # equal entries in one list are merged when a profile is read
        sections["tools"] = merge_sections({}, sections).get("tools", [])

    assert merge_sections(merge_sections(a, b), c) == merge_sections(a, merge_sections(b, c))


def policy_of(merged: MergedProfile) -> Any:
    return merged.sections["session"].get("policy")


def test_profiles_from_elsewhere_only_narrow_the_policy(shelf: Shelf) -> None:
    wide = {"write": {"allow": ["/"]}, "read": {"allow": ["/", "~/.ssh"], "deny": ["data"]}}
    shelf.write("team/parent", {"session": {**SESSION, "policy": wide}})
    shelf.write("team/child", {"session": {"policy": {"write": {"allow": ["src", "/etc"]}}}}, extends="parent")

    merged = merge(shelf, "team/child")

    assert policy_of(merged) == {
        "read": {"allow": ["/"], "deny": ["data"]},
        "write": {"allow": ["src"]},
    }
    assert codes(merged).count("policy-not-widened") == 3


def test_the_users_own_files_may_allow_more(shelf: Shelf) -> None:
    shelf.write("team/parent", {"session": {**SESSION, "policy": {"read": {"deny": ["data"]}}}})
    shelf.write("local/mine", {"session": {"policy": {"write": {"allow": [".", "~/notes"]}}}}, extends="team/parent")
    shelf.overlay("team/parent", {"session": {"policy": {"read": {"allow": ["/", "data"]}}}})

    assert policy_of(merge(shelf, "local/mine"))["write"] == {"allow": [".", "~/notes"]}
    assert policy_of(merge(shelf, "team/parent")) == {"read": {"allow": ["/", "data"]}}


def test_what_is_not_a_policy_is_an_issue_with_its_line(shelf: Shelf) -> None:
    shelf.write("team/odd", {"session": {**SESSION, "policy": {"reed": {}}}})

    issue = next(issue for issue in merge(shelf, "team/odd").issues if issue.code == "policy-invalid")

    assert "policy.reed is unknown" in issue.message
    assert issue.line is not None
    assert issue.line > 1
