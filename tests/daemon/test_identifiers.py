"""The names of things."""

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifierd.exceptions import CollectionError
from amplifierd.identifiers import (
    ProfileId,
    checked_collection_id,
    is_agent_or_context_name,
    is_module_id,
    mount_type,
)


def test_a_profile_is_named_by_collection_and_name() -> None:
    assert str(ProfileId.parse("foundation/base")) == "foundation/base"
    identity = ProfileId.parse(ProfileId("a", "b"))
    assert (identity, identity.collection, identity.name) == ("a/b", "a", "b")
    assert json.dumps({identity: [identity]}) == '{"a/b": ["a/b"]}'
    assert copy.deepcopy(identity) == pickle.loads(pickle.dumps(identity)) == identity
    assert pickle.loads(pickle.dumps(identity)).name == "b"


@pytest.mark.parametrize(
    "text",
    ["base", "", "/", "a/", "/b", "a/b/c", "../x", "a/..", "A/b", "a/b ", "a b/c", ".a/b", "a:b/c", "a/b\0"],
)
def test_anything_else_is_not_a_profile(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid profile_id format: .*Expected format: collection/profile"):
        ProfileId.parse(text)


def test_an_identity_made_by_hand_is_checked_too() -> None:
    with pytest.raises(ValueError, match="Invalid profile_id format"):
        ProfileId.parse(ProfileId("..", "x"))


@given(st.text(max_size=10))
def test_no_identifier_leads_out_of_its_directory(text: str) -> None:
    try:
        identity = ProfileId.parse(f"{text}/{text}")
    except ValueError:
        return
    assert not {"/", "\\", "\0", ":"} & set(identity.collection + identity.name)
    assert identity.collection not in (".", "..")


@pytest.mark.parametrize("text", ["../x", "A", "", "a/b", "x" * 65])
def test_a_collections_id_is_checked_at_the_door(text: str) -> None:
    with pytest.raises(CollectionError) as caught:
        checked_collection_id(text)
    assert caught.value.code == "invalid-identifier"


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("loop-streaming", "orchestrator"),
        ("orchestrator-x", "orchestrator"),
        ("context-simple", "context"),
        ("provider-anthropic", "providers"),
        ("providers-x", "providers"),
        ("tool-web", "tools"),
        ("tools-x", "tools"),
        ("hook-logging", "hooks"),
        ("hooks-status-context", "hooks"),
        ("tool-context-reader", "tools"),
    ],
)
def test_the_beginning_of_a_module_id_says_where_it_is_mounted(module: str, expected: str) -> None:
    assert mount_type(module) == expected


@pytest.mark.parametrize("module", ["my-custom-thing", "my-tool-context", "xtool-a", "tool", ""])
def test_a_module_id_with_another_beginning_is_an_error(module: str) -> None:
    with pytest.raises(ValueError, match=f"Could not determine mount type for module: {module}"):
        mount_type(module)


@pytest.mark.parametrize(
    ("text", "ok"), [("tool-a1", True), ("Tool", False), ("a_b", False), ("../a", False), ("", False)]
)
def test_module_ids_are_lower_case_with_hyphens(text: str, ok: bool) -> None:
    assert is_module_id(text) is ok


@pytest.mark.parametrize(("text", "ok"), [("Code.Expert_1", True), ("-a", False), ("a/b", False), ("*", False)])
def test_agents_and_contexts_have_plain_names(text: str, ok: bool) -> None:
    assert is_agent_or_context_name(text) is ok
