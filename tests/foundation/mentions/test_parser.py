"""Which parts of a text are mentions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_foundation import parse_mentions


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("See @a/b.md, (@ns:x/y.md) and @~/n.md", ["@a/b.md", "@ns:x/y.md", "@~/n.md"]),
        ("`@code` @real", ["@real"]),
        ("@./x @../y @.hidden/z @dir/ @ns:", ["@./x", "@../y", "@.hidden/z", "@dir/", "@ns:"]),
        ("see @AGENTS.md.", ["@AGENTS.md."]),
        ("bob@example.com", []),
        ("first.last+tag@example.com and a_b@host", []),
        ("mail @bob@example.com now", []),
        ("@foo#bar", ["@foo"]),
        ("@foo%20x", ["@foo"]),
        ("@a\\b", ["@a"]),
        ("@ alone", []),
        ("@ünï", []),
        ("@a @b @a", ["@a", "@b"]),
        ("```python\n@decorator\n```\n@real", ["@real"]),
        ("text\n```\n@in\n```\n@out\n```\n@in2\n```", ["@out"]),
        ("  ```\n  @indented\n  ```", ["@indented"]),
        ("```\n@unclosed", ["@unclosed"]),
        ("~~~\n@tilde\n~~~", ["@tilde"]),
        ("``@double``", ["@double"]),
        ("`spans\n@lines` @after", ["@after"]),
        ('"@quoted" [@link]', ["@quoted", "@link"]),
        ("", []),
    ],
)
def test_a_text_mentions_what_follows_an_at_sign(text: str, mentions: list[str]) -> None:
    assert parse_mentions(text) == mentions


def test_quotes_mean_nothing_unless_the_caller_allows_them() -> None:
    assert parse_mentions('say @"see @a.md now" @b.md') == ["@a.md", "@b.md"]


def test_a_name_with_spaces_is_quoted_where_the_caller_allows_it() -> None:
    text = 'see @"a b.md", @c.md and @"broken\nname"'

    assert parse_mentions(text, quoted=True) == ["@a b.md", "@c.md"]
    assert parse_mentions(text) == ["@c.md"]


@given(st.text(alphabet='@ab.:/`\n" ~', max_size=60))
def test_any_text_can_be_searched(text: str) -> None:
    found = parse_mentions(text, quoted=True)

    assert len(set(found)) == len(found)
    assert all(mention.startswith("@") and len(mention) > 1 for mention in found)
