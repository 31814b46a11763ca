"""YAML: plain data, within limits."""

from pathlib import Path

import pytest
import yaml

from amplifier_foundation.io import load_yaml, read_yaml, write_yaml
from amplifier_foundation.io.yaml import load_yaml_nodes


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (bomb(), "expands to more than"),
        ("a: &a [*a]", "contains itself"),
        ("[" * 100_000 + "]" * 100_000, "nested more than"),
        ("- " * 100_000 + "x", "nested more than"),
        ("\n".join(" " * depth + "a:" for depth in range(3000)), "nested more than"),
        ("{a: " * 5_000 + "1" + "}" * 5_000, "nested more than"),
        ("a: " + "x" * (9 * 1024 * 1024), "characters"),
    ],
    ids=["aliases of aliases", "alias of itself", "brackets", "dashes", "indentation", "braces", "size"],
)
def test_a_text_beyond_the_limits_is_refused_before_it_costs_anything(text: str, problem: str) -> None:
    with pytest.raises(yaml.YAMLError, match=problem):
        load_yaml(text)


def test_ordinary_aliases_and_many_brackets_are_read() -> None:
    text = "base: &base {a: 1}\nmore:\n  <<: *base\n  b: 2\n" + "\n".join(f"k{i}: [{i}]" for i in range(2000))

    data = load_yaml(text)

    assert data["more"] == {"a": 1, "b": 2}
    assert data["k1999"] == [1999]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        "a: 1\na: 2\n1: {true: null, ~: 0o7, 2.5: 2024-01-31}\nlist: [a, '1', \"2\", 0x1F, 1_000, .inf]\n",
        "- |\n  text\n- >-\n  folded\n  text\n- []\n- {}\n-\n",
        "base: &base {a: 1}\nmore: {<<: *base, b: 2}\n",
        "!!set {a, b}",
        "a: !!str 1",
        "plain text",
        "=: the sign for a default",
    ],
)
def test_the_data_is_what_the_library_builds_itself(text: str) -> None:
    assert repr(load_yaml(text)) == repr(yaml.safe_load(text))


@pytest.mark.parametrize("text", ["{[1]: 2}", "? {a: 1}\n: b\n", "a: 1\n--- \nb: 2\n"])
def test_what_the_library_refuses_is_refused_in_its_words(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as expected:
        yaml.safe_load(text)

    with pytest.raises(type(expected.value), match="line 1"):
        load_yaml(text)


@pytest.mark.parametrize("text", ["!!python/object/apply:os.system [true]", "a: !!python/name:os.system ''"])
def test_nothing_but_plain_data_is_built(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_yaml(text)


def test_nodes_know_their_lines() -> None:
    root = load_yaml_nodes("a: 1\nb:\n  c: 2\n")

    assert root is not None
    assert [key.start_mark.line for key, _ in root.value] == [0, 1]


async def test_a_yaml_file_is_read_and_written_in_order_with_letters_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.yaml"

    await write_yaml(path, {"z": "größe", "a": [1, {"b": None}]})

    assert path.read_text(encoding="utf-8") == "z: größe\na:\n- 1\n- b: null\n"
    assert await read_yaml(path) == {"z": "größe", "a": [1, {"b": None}]}


async def test_a_missing_file_is_none_and_an_empty_one_is_empty(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("", encoding="utf-8")

    assert await read_yaml(tmp_path / "missing.yaml") is None
    assert await read_yaml(empty) == {}


async def test_what_is_not_yaml_raises_the_yaml_error(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("a: [1", encoding="utf-8")

    with pytest.raises(yaml.YAMLError):
        await read_yaml(path)


def test_a_caller_can_set_narrower_limits() -> None:
    with pytest.raises(yaml.YAMLError, match="at most 10"):
        load_yaml("a: 1\n" * 10, max_characters=10)
    with pytest.raises(yaml.YAMLError, match="nested more than 3"):
        load_yaml("[[[[1]]]]", max_depth=3)
    assert load_yaml("[[[1]]]", max_depth=3) == [[[1]]]


async def test_a_list_is_written_too(tmp_path: Path) -> None:
    await write_yaml(tmp_path / "a.yaml", [{"b": 1}])

    assert await read_yaml(tmp_path / "a.yaml") == [{"b": 1}]
