"""The one merge, and access by path."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_foundation.dicts import deep_merge, get_nested, merge_module_lists, set_nested

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
mappings = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)
entries = st.fixed_dictionaries(
    {"module": st.sampled_from(["tool-a", "tool-b", "tool-c"])},
    optional={"id": st.sampled_from(["x", "y"]), "config": mappings},
)
module_lists = st.lists(entries, max_size=4)
list_rules = st.sampled_from(["concat", "replace"])


def test_the_childs_values_win_and_mappings_merge_key_by_key() -> None:
    parent = {"a": 1, "inner": {"x": 1, "y": 2}}
    child = {"a": None, "inner": {"y": 3}, "b": 4}

    assert deep_merge(parent, child) == {"a": None, "inner": {"x": 1, "y": 3}, "b": 4}


def test_lists_are_concatenated_without_repetitions() -> None:
    assert deep_merge({"l": [1, 2, {"k": 1}]}, {"l": [2, 3, {"k": 1}]}) == {"l": [1, 2, {"k": 1}, 3]}


def test_values_that_only_look_equal_are_kept_apart() -> None:
    merged = deep_merge({"l": [1, True]}, {"l": [1.0, "1"]})["l"]

    assert [(type(item), item) for item in merged] == [(int, 1), (bool, True), (float, 1.0), (str, "1")]


def test_a_list_that_only_one_side_has_keeps_its_repetitions() -> None:
    assert deep_merge({"l": [1, 1]}, {}) == {"l": [1, 1]}
    assert deep_merge({"l": [1, 1]}, {"l": []}) == {"l": [1]}


def test_items_that_cannot_be_compared_are_all_kept() -> None:
    odd = {("a", "tuple"): 1}

    assert deep_merge({"l": [odd]}, {"l": [odd]}) == {"l": [odd, odd]}


def test_lists_are_replaced_when_the_caller_says_so() -> None:
    assert deep_merge({"c": {"l": [1, 2]}}, {"c": {"l": [3]}}, lists="replace") == {"c": {"l": [3]}}


@pytest.mark.parametrize(
    ("parent", "child"),
    [({"a": {"x": 1}}, {"a": 2}), ({"a": 2}, {"a": {"x": 1}}), ({"a": [1]}, {"a": "text"}), ({"a": [1]}, {"a": None})],
)
def test_values_of_different_shapes_are_replaced(parent: dict[str, Any], child: dict[str, Any]) -> None:
    assert deep_merge(parent, child) == child


def test_values_of_one_side_are_shared_not_copied() -> None:
    inner = {"deep": [1]}

    assert deep_merge({"a": inner}, {"b": 1})["a"] is inner


@given(mappings, list_rules)
def test_nothing_is_the_identity(data: dict[str, Any], lists: Any) -> None:
    assert deep_merge(data, {}, lists=lists) == data
    assert deep_merge({}, data, lists=lists) == data


@given(mappings, mappings, list_rules)
def test_merging_changes_neither_side(parent: dict[str, Any], child: dict[str, Any], lists: Any) -> None:
    before = copy.deepcopy((parent, child))

    deep_merge(parent, child, lists=lists)

    assert (parent, child) == before


@given(mappings, mappings, mappings)
def test_replacing_lists_is_associative_where_shapes_agree(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    # A scalar between two mappings cuts the first one off, on the left side of the law only.
    shapes_agree = {key: {type(side[key]) for side in (first, second, third) if key in side} for key in "abcd"}
    flat = [{k: v for k, v in side.items() if len(shapes_agree[k]) == 1} for side in (first, second, third)]
    flat = [{k: v for k, v in side.items() if not isinstance(v, dict)} for side in flat]
    a, b, c = flat

    assert deep_merge(deep_merge(a, b, lists="replace"), c, lists="replace") == deep_merge(
        a, deep_merge(b, c, lists="replace"), lists="replace"
    )


def test_modules_merge_by_id_else_module_in_the_place_of_the_first() -> None:
    parent = [{"module": "t", "source": "s1", "config": {"x": 1, "l": [1, 2]}}, {"module": "u"}]
    child = [{"module": "t", "config": {"l": [2, 3]}}, {"module": "t", "id": "t2"}]

    assert merge_module_lists(parent, child) == [
        {"module": "t", "source": "s1", "config": {"x": 1, "l": [1, 2, 3]}},
        {"module": "u"},
        {"module": "t", "id": "t2"},
    ]


def test_entries_without_identity_are_left_out() -> None:
    assert merge_module_lists([{"config": {}}], [{"source": "x"}, {"module": "a"}]) == [{"module": "a"}]


def test_equal_entries_of_the_parent_replace_and_of_the_child_merge() -> None:
    twice = [{"module": "a", "x": 1}, {"module": "b"}, {"module": "a", "y": 2}]

    assert merge_module_lists(twice, []) == [{"module": "a", "y": 2}, {"module": "b"}]
    assert merge_module_lists([], twice) == [{"module": "a", "x": 1, "y": 2}, {"module": "b"}]


def test_a_config_of_nothing_overrides_a_mapping() -> None:
    assert merge_module_lists([{"module": "a", "config": {"x": 1}}], [{"module": "a", "config": None}]) == [
        {"module": "a", "config": None}
    ]


def test_an_own_identity_says_which_entries_are_one_module() -> None:
    merged = merge_module_lists(
        [{"module": "p", "instance_id": "1"}],
        [{"module": "p", "instance_id": "2"}, {"module": "p", "instance_id": "1", "config": {"a": 1}}],
        identity=lambda entry: f"{entry['module']}/{entry['instance_id']}",
    )

    assert [entry["instance_id"] for entry in merged] == ["1", "2"]
    assert merged[0]["config"] == {"a": 1}


@pytest.mark.parametrize("bad", ["tool-a", 3, None, ["tool-a"]])
def test_an_entry_that_is_no_mapping_is_named(bad: Any) -> None:
    with pytest.raises(
        TypeError, match="Malformed module config at index 1: expected dict with 'module' key, got"
    ) as e:
        merge_module_lists([{"module": "a"}], [{"module": "b"}, bad])
    assert repr(bad) in str(e.value)


@given(module_lists, module_lists, list_rules)
def test_merging_modules_changes_neither_side_and_keeps_order(
    parent: list[dict[str, Any]], child: list[dict[str, Any]], lists: Any
) -> None:
    before = copy.deepcopy((parent, child))

    merged = merge_module_lists(parent, child, lists=lists)

    keys = [entry.get("id") or entry["module"] for entry in merged]
    assert keys == list(dict.fromkeys(entry.get("id") or entry["module"] for entry in [*parent, *child]))
    assert (parent, child) == before


@pytest.mark.parametrize(
    ("path", "expected"),
    [([], {"a": {"b": None}}), (["a"], {"b": None}), (["a", "b"], None), (["a", "x"], "d"), (["a", "b", "c"], "d")],
)
def test_a_value_is_found_by_its_path(path: list[str], expected: Any) -> None:
    assert get_nested({"a": {"b": None}}, path, "d") == expected


def test_a_value_is_set_by_its_path_through_whatever_was_there() -> None:
    data: dict[str, Any] = {"a": 1}

    set_nested(data, ["a", "b", "c"], 2)
    set_nested(data, [], 3)

    assert data == {"a": {"b": {"c": 2}}}
