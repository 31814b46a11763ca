"""Laying bundles over each other, and the mount plan that results."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_foundation.bundle import Bundle

keys = st.sampled_from("abc")
scalars = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"])
configs = st.dictionaries(
    keys,
    st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2), max_leaves=4
    ),
    max_size=3,
)
entries = st.fixed_dictionaries(
    {"module": st.sampled_from(["m", "n"])},
    optional={"id": st.sampled_from(["i", "j"]), "source": st.sampled_from(["s1", "s2"]), "config": configs},
)
module_lists = st.lists(entries, max_size=3, unique_by=lambda entry: entry.get("id") or entry["module"])
paths = st.sampled_from([Path("/p"), Path("/q")])
bundles = st.builds(
    Bundle,
    name=st.sampled_from(["one", "two", "three"]),
    version=st.sampled_from(["1.0.0", "2.0.0"]),
    description=st.sampled_from(["", "d"]),
    session=configs,
    providers=module_lists,
    tools=module_lists,
    hooks=module_lists,
    spawn=configs,
    agents=st.dictionaries(keys, st.fixed_dictionaries({"description": st.sampled_from("xyz")}), max_size=2),
    context=st.dictionaries(st.sampled_from(["k", "ns:k"]), paths, max_size=2),
    instruction=st.none() | st.sampled_from(["do", "don't"]),
    base_path=paths,
)


def test_the_worked_example() -> None:
    a = Bundle(
        name="a",
        version="2.0.0",
        session={"orchestrator": "loop-basic", "context": {"module": "c", "config": {"m": 1}}},
        tools=[{"module": "t", "source": "s1", "config": {"x": 1, "l": [1, 2]}}],
        hooks=[{"module": "h", "id": "h1"}],
        agents={"g": {"description": "old", "tools": []}},
        context={"k": Path("/a/k")},
        spawn={"exclude_tools": ["t"]},
        instruction="A",
        base_path=Path("/a"),
    )
    b = Bundle(
        name="b",
        session={"orchestrator": {"module": "o2"}, "context": {"config": {"n": 2}}},
        tools=[{"module": "t", "config": {"l": [2, 3]}}, {"module": "t", "id": "t2"}],
        hooks=[{"module": "h", "config": {"z": 1}}],
        agents={"g": {"description": "new"}},
        context={"k": Path("/b/k")},
        spawn={"exclude_tools": ["u"]},
    )

    composed = a.compose(b)

    assert (composed.name, composed.version, composed.instruction) == ("b", "1.0.0", "A")
    assert composed.session == {
        "orchestrator": {"module": "o2"},
        "context": {"module": "c", "config": {"m": 1, "n": 2}},
    }
    assert composed.tools == [
        {"module": "t", "source": "s1", "config": {"x": 1, "l": [1, 2, 3]}},
        {"module": "t", "id": "t2"},
    ]
    assert composed.hooks == [{"module": "h", "id": "h1"}, {"module": "h", "config": {"z": 1}}]
    assert composed.agents == {"g": {"description": "new"}}
    assert composed.context == {"a:k": Path("/a/k"), "b:k": Path("/b/k")}
    assert composed.spawn == {"exclude_tools": ["t", "u"]}
    assert composed.base_path == Path("/a")
    assert composed.source_base_paths == {"a": Path("/a")}


@pytest.mark.parametrize(
    ("field", "mine", "theirs", "expected"),
    [
        ("name", "a", "", "a"),
        ("name", "a", "b", "b"),
        ("version", "2.0.0", "", "2.0.0"),
        ("version", "2.0.0", "1.0.0", "1.0.0"),
        ("description", "A", "", "A"),
        ("description", "A", "B", "B"),
        ("includes", ["x"], ["y"], ["x"]),
        ("namespace_root", "..", ".", ".."),
        ("instruction", "A", "", "A"),
        ("instruction", "A", "B", "B"),
        ("base_path", Path("/a"), None, Path("/a")),
        ("base_path", Path("/a"), Path("/b"), Path("/b")),
        ("_pending_context", {"n:a": "n:a"}, {"n:b": "n:b"}, {"n:a": "n:a", "n:b": "n:b"}),
    ],
)
def test_plain_fields_follow_their_rule(field: str, mine: Any, theirs: Any, expected: Any) -> None:
    base = Bundle(**{"name": "a", field: mine})
    overlay = Bundle(**{"name": "a", field: theirs})

    assert getattr(base.compose(overlay), field) == expected


def test_entries_without_identity_are_dropped_by_the_first_merge() -> None:
    odd = {"path": "x"}
    base = Bundle(name="a", tools=[odd, {"module": "t"}])

    assert base.compose().tools == [odd, {"module": "t"}]
    assert base.compose(Bundle(name="b")).tools == [{"module": "t"}]


def test_a_null_config_in_the_overlay_takes_the_mapping_away() -> None:
    base = Bundle(name="a", tools=[{"module": "t", "config": {"x": 1}}])

    assert base.compose(Bundle(name="b", tools=[{"module": "t", "config": None}])).tools == [
        {"module": "t", "config": None}
    ]


def test_the_instance_id_is_no_merge_key() -> None:
    base = Bundle(name="a", providers=[{"module": "p", "instance_id": "one"}])

    composed = base.compose(Bundle(name="b", providers=[{"module": "p", "instance_id": "two"}]))

    assert composed.providers == [{"module": "p", "instance_id": "two"}]


def test_composing_with_nothing_still_copies_and_prefixes() -> None:
    base = Bundle(name="a", context={"k": Path("/k"), "n:k": Path("/n")}, base_path=Path("/a"), tools=[{"module": "t"}])

    copied = base.compose()

    assert copied.context == {"a:k": Path("/k"), "n:k": Path("/n")}
    assert copied.source_base_paths == {"a": Path("/a")}
    assert copied.tools == base.tools
    assert copied.tools is not base.tools
    assert base.context == {"k": Path("/k"), "n:k": Path("/n")}


def test_context_of_a_nameless_bundle_keeps_its_keys() -> None:
    nameless = Bundle(name="", context={"k": Path("/k")})

    assert Bundle(name="a").compose(nameless).context == {"k": Path("/k")}


def test_the_first_registration_of_a_namespace_wins() -> None:
    base = Bundle(name="a", base_path=Path("/a"), source_base_paths={"x": Path("/x1")})
    other = Bundle(
        name="b", base_path=Path("/b"), source_base_paths={"x": Path("/x2"), "b": Path("/b2"), "a": Path("/no")}
    )

    assert base.compose(other).source_base_paths == {"x": Path("/x1"), "a": Path("/a"), "b": Path("/b2")}


def test_a_bundles_own_entry_is_kept_when_it_has_one() -> None:
    base = Bundle(name="a", base_path=Path("/a"), source_base_paths={"a": Path("/root")})

    assert base.compose().source_base_paths == {"a": Path("/root")}


def test_an_agent_never_renames_its_parent_nor_becomes_a_namespace() -> None:
    parent = Bundle(name="parent", base_path=Path("/p"))
    agent = Bundle(
        name="helper", description="helps", base_path=Path("/p/agents"), context={"k": Path("/k")}, from_meta=True
    )

    composed = parent.compose(agent)

    assert (composed.name, composed.description, composed.from_meta) == ("parent", "helps", False)
    assert composed.source_base_paths == {"parent": Path("/p")}
    assert composed.context == {"k": Path("/k")}
    assert composed.origins == {}


def test_the_mark_of_an_agents_name_lasts_until_a_bundle_renames_it() -> None:
    agent = Bundle(name="helper", from_meta=True)

    assert agent.compose().from_meta
    assert agent.compose(Bundle(name="")).from_meta
    assert not agent.compose(Bundle(name="b")).from_meta


@given(bundles)
def test_an_empty_bundle_changes_nothing_on_either_side(bundle: Bundle) -> None:
    normal = bundle.compose()
    nothing = Bundle(name="", version="")

    assert bundle.compose(nothing) == normal
    assert nothing.compose(bundle) == normal


@given(bundles, bundles, bundles)
def test_how_compositions_are_grouped_does_not_matter_for_the_plan(a: Bundle, b: Bundle, c: Bundle) -> None:
    one_by_one, at_once, from_the_right = a.compose(b).compose(c), a.compose(b, c), a.compose(b.compose(c))

    assert one_by_one == at_once
    assert list(from_the_right.context) == list(at_once.context)
    for field in ("name", "version", "description", "agents", "context", "instruction", "base_path"):
        assert getattr(from_the_right, field) == getattr(at_once, field)


settings_without_kind_changes = st.dictionaries(keys, st.integers(0, 3), max_size=3)
nested_settings = st.fixed_dictionaries({}, optional={"flat": st.integers(0, 3), "deep": settings_without_kind_changes})


@given(
    *[
        st.lists(
            st.builds(lambda m, c: {"module": m, "config": c}, keys, nested_settings),
            max_size=3,
            unique_by=lambda entry: entry["module"],
        )
    ]
    * 3
)
def test_where_no_value_changes_its_kind_merging_is_associative(a: Any, b: Any, c: Any) -> None:
    first, second, third = (
        Bundle(name="n", tools=tools, session={"s": tools[0]} if tools else {}) for tools in (a, b, c)
    )

    assert first.compose(second).compose(third).to_mount_plan() == first.compose(second.compose(third)).to_mount_plan()


@given(bundles, bundles)
def test_no_bundle_is_changed_by_composing(a: Bundle, b: Bundle) -> None:
    before = copy.deepcopy((a, b))

    a.compose(b)

    assert (a, b) == before


@given(bundles, bundles)
def test_entries_of_the_base_keep_their_places_and_new_ones_follow_in_order(a: Bundle, b: Bundle) -> None:
    def identities(tools: list[dict[str, Any]]) -> list[str]:
        return [tool.get("id") or tool["module"] for tool in tools]

    expected = list(dict.fromkeys([*identities(a.tools), *identities(b.tools)]))

    assert identities(a.compose(b).tools) == expected


def test_an_empty_bundle_has_an_empty_mount_plan() -> None:
    assert Bundle(name="x", instruction="i", context={"k": Path("/k")}, includes=["y"]).to_mount_plan() == {}


def test_the_mount_plan_has_what_is_there_in_a_fixed_order_and_shares_entries() -> None:
    bundle = Bundle(
        name="x",
        spawn={"tools": []},
        agents={"a": {}},
        hooks=[{"module": "h"}],
        tools=[{"module": "t"}],
        providers=[{"module": "p"}],
        session={"orchestrator": "o"},
        instruction="i",
    )

    plan = bundle.to_mount_plan()

    assert list(plan) == ["session", "providers", "tools", "hooks", "agents", "spawn"]
    assert plan["tools"] is not bundle.tools
    assert plan["tools"][0] is bundle.tools[0]
    assert plan["session"] is not bundle.session
