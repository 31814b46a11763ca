"""What a person is shown of text from outside is all there, and none of it is obeyed."""

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_system.visible import visible, visible_exactly, visible_json, visible_line

OBEYED = ["\x1b[2K\x1b[1G", "\x1b]52;c;ZXZpbA==\x07", "\x1b]0;title", "\x9b2J", "\r", "\x08", "\x7f"]
UNSEEN = [
    "\u202e",
    "\u2066",
    "\u200b",
    "\u2060",
    "\ufeff",
    "\u00ad",
    "\U000e0041",
    "\u00a0",
    "\u2003",
    "\u3164",
    "\ufe01",
]


@pytest.mark.parametrize("text", [*OBEYED, *UNSEEN, "\ud800", "\ue000", "\u2028", "\u2029"])
def test_what_a_screen_would_obey_or_swallow_is_shown_as_an_escape(text: str) -> None:
    for shown in (visible(f"a{text}b"), visible_exactly(f"a{text}b"), visible_line(f"a{text}b")):
        assert all(part not in shown for part in text if not part.isprintable())
        assert shown.startswith("a\\")
        assert shown.endswith("b")


@pytest.mark.parametrize("text", ["plain", "two\nlines\tand a tab", "Grüße, 日本語, العربية", "naïve e\u0301"])
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == visible_exactly(text) == text


def test_joiners_stay_in_text_and_are_shown_in_questions() -> None:
    family = "👨\u200d👩\u200d👧 ❤\ufe0f"

    assert visible(family) == family
    assert visible_exactly(family) == "👨\\u200d👩\\u200d👧 ❤\\ufe0f"


def test_a_line_stays_one() -> None:
    assert visible_line("a\nb\tc") == "a\\nb\\tc"


@given(st.text(st.characters(codec=None), max_size=50))
def test_nothing_disappears_and_showing_twice_is_showing_once(text: str) -> None:
    shown = visible_exactly(text)

    assert len(shown) >= len(text)
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    assert visible_exactly(shown) == shown


def test_every_character_of_the_control_and_separator_categories_is_an_escape() -> None:
    hidden = (chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] in "CZ")
    for character in hidden:
        if character not in " \n\t":
            assert visible_exactly(character) == character.encode("unicode_escape").decode()


@given(st.text(st.characters(codec=None), max_size=50))
def test_json_keeps_its_value_and_has_no_character_that_is_not_seen(text: str) -> None:
    document = visible_json(json.dumps(text, ensure_ascii=False))

    assert json.loads(document) == text
    assert visible(document) == document
