"""Whatever a text wants, it is only shown."""

from __future__ import annotations

import pytest
from hostile import CORPUS, SCRIPTS, faults_of
from hypothesis import given
from hypothesis import strategies as st

from amplifier_rendering.markdown import render, sanitised
from amplifier_rendering.plain import plain

PIECES = st.sampled_from(
    [*CORPUS, "\n", "\n\n", " ", "> ", "- ", "1. ", "```\n", "`", "**", "| a |\n|---|\n", "    ", "\\"]
)


def test_it_is_text_and_nothing_else() -> None:
    for text in CORPUS:
        assert faults_of(render(text)) == [], text


@pytest.mark.parametrize(
    "frame", ["> {}", "- {}", "1. {}", "# {}", "| {} |\n|---|\n| {} |", "**{}**", "[{}](http://a.example)"]
)
def test_nor_is_it_more_inside_something_else(frame: str) -> None:
    for text in CORPUS:
        assert faults_of(render(frame.replace("{}", text))) == []


@pytest.mark.parametrize("language", ["html", "js", "python", "markdown", "diff", "console", "xml", "unknown"])
def test_nor_as_code(language: str) -> None:
    for text in CORPUS:
        assert faults_of(render(f"```{language}\n{text}\n```")) == []


@given(st.lists(PIECES, max_size=12).map("".join))
def test_nor_in_any_mixture(text: str) -> None:
    assert faults_of(render(text)) == []


@given(st.text())
def test_any_text_can_be_rendered(text: str) -> None:
    assert faults_of(render(text)) == []
    assert faults_of(plain(text)) == []


@given(st.text(alphabet="[]()<>*_`~|!#->\\\n\t &;:/\"'ahtp1.x", max_size=200))
def test_any_markup_can_be_rendered(text: str) -> None:
    assert faults_of(render(text)) == []


def test_html_from_a_renderer_that_was_led_astray_is_caught_as_well() -> None:
    for html in SCRIPTS:
        faults = faults_of(sanitised(html))

        assert [fault for fault in faults if "closes something else" not in fault] == [], html


def test_what_was_sanitised_stays_as_it_is() -> None:
    for text in CORPUS:
        once = render(text)
        assert sanitised(once) == once
