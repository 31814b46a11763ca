"""Front matter: the YAML between two lines of dashes."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from amplifier_foundation.io import parse_frontmatter, split_anchored_frontmatter, split_frontmatter


@pytest.mark.parametrize(
    ("text", "data", "body"),
    [
        ("---\na: 1\n---\nBody", {"a": 1}, "Body"),
        ("---  \n\n\na: 1\n---\n\n\nBody\n", {"a": 1}, "Body\n"),
        ("---\n  a: 1\n  b: 2\n---\nBody", {"a": 1, "b": 2}, "Body"),
        ("\ufeff\ufeff---\na: 1\n---\nBody", {"a": 1}, "Body"),
        ("---\r\na: 1\r\nb: 2\r\n---\r\nBody\r\n", {"a": 1, "b": 2}, "Body\r\n"),
        ("---\n\n---\nBody", {}, "Body"),
        ("---\n# nothing\n---\nBody", {}, "Body"),
        ("---\n---\nBody", {}, "---\n---\nBody"),
        ("---\na: 1\n", {}, "---\na: 1\n"),
        ("no front matter\n---\na: 1\n---\n", {}, "no front matter\n---\na: 1\n---\n"),
        (" ---\na: 1\n---\n", {}, " ---\na: 1\n---\n"),
        ("\ufeffplain", {}, "plain"),
        ("", {}, ""),
        ("---\na: 1\n----\nBody", {"a": 1}, "-\nBody"),
        ("---\na: 1\n--- x\nBody", {"a": 1}, "x\nBody"),
        ("---\n- a\n- b\n---\nBody", ["a", "b"], "Body"),
        ("---\njust text\n---\nBody", "just text", "Body"),
        ("---\na: 1\n---", {"a": 1}, ""),
    ],
)
def test_a_text_is_cut_at_its_front_matter(text: str, data: Any, body: str) -> None:
    assert parse_frontmatter(text) == (data, body)


def test_broken_front_matter_raises_the_yaml_error() -> None:
    with pytest.raises(yaml.YAMLError):
        parse_frontmatter("---\na: [1\n---\nBody")


def test_the_line_on_which_the_front_matter_begins_is_known() -> None:
    assert split_frontmatter("---\na: 1\n---\nBody") == ("a: 1", "Body", 2)
    assert split_frontmatter("---\n\n\na: 1\n---\nBody").first_line == 4


@given(st.text(alphabet="-\n ax:", max_size=40))
def test_cutting_never_fails_and_a_text_without_front_matter_is_its_own_body(text: str) -> None:
    front, body, _ = split_frontmatter(text)

    assert front is not None or body == text


@pytest.mark.parametrize(
    ("text", "front", "body"),
    [
        ("---\na: 1\n---\n\nBody\n", "a: 1\n", "Body"),
        ("\ufeff--- \r\na: 1\r\n---\t\r\nBody", "a: 1\r\n", "Body"),
        ("---\n---\nBody", "", "Body"),
        ('---\na: "x\n--- y"\n---x: 1\nb: |\n  ---\n---\nBody', 'a: "x\n--- y"\n---x: 1\nb: |\n  ---\n', "Body"),
        ("---\na: 1", None, "---\na: 1"),
        ("a\n---\nb\n---\n", None, "a\n---\nb\n---\n"),
        ("---\na: 1\n---", "a: 1\n", ""),
    ],
)
def test_an_anchored_cut_is_made_at_whole_lines_only(text: str, front: str | None, body: str) -> None:
    assert split_anchored_frontmatter(text)[:2] == (front, body)
