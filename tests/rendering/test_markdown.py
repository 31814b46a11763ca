"""What markdown looks like as HTML."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from hostile import faults_of

from amplifier_rendering.markdown import render
from amplifier_rendering.plain import MAX_CHARACTERS

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("*a* **b** ~~c~~ `d`", '<p dir="auto"><em>a</em> <strong>b</strong> <s>c</s> <code>d</code></p>'),
        ("a\nb", '<p dir="auto">a<br>\nb</p>'),
        ("# a", '<h3 dir="auto">a</h3>'),
        ("###### a", '<h6 dir="auto">a</h6>'),
        ("3. a", '<ol start="3">\n<li dir="auto">a</li>\n</ol>'),
        ("<b>a</b>", '<p dir="auto">&lt;b&gt;a&lt;/b&gt;</p>'),
        (
            "![a](http://b.example/c.png)",
            '<p dir="auto"><a class="md-image" href="http://b.example/c.png" {}>a</a></p>',
        ),
        ("![a](data:image/png;base64,AA==)", '<p dir="auto"><img src="data:image/png;base64,AA==" alt="a"></p>'),
        ("[a](b.md)", '<p dir="auto">[a](b.md)</p>'),
        ("[a](mailto:b@c.example)", '<p dir="auto"><a href="mailto:b@c.example" {}>a</a></p>'),
        (
            "see https://a.example/b?c=d.",
            '<p dir="auto">see <a href="https://a.example/b?c=d" {0}>https://a.example/b?c=d</a>.</p>',
        ),
        ("```py\nx\n```", '<pre class="md-code" data-language="py"><code>x\n</code></pre>'),
        ("    x", '<pre class="md-code"><code>x\n</code></pre>'),
        ("\x1b[1mbold\x1b[0m", '<p dir="auto">\\x1b[1mbold\\x1b[0m</p>'),
        ("a\u202eb\x07", '<p dir="auto">a\\u202eb\\x07</p>'),
    ],
)
def test_it_is_html(text: str, html: str) -> None:
    assert render(text).strip() == html.replace("{}", "{0}").format(
        'target="_blank" rel="noopener noreferrer nofollow"'
    )


def test_tasks_have_a_sign_with_a_name() -> None:
    html = render("- [ ] a\n- [x] b\n- [y] c")

    assert (
        '<li class="md-task" dir="auto"><span class="md-check" role="img" aria-label="to do">\u2610</span> a</li>'
        in html
    )
    assert 'aria-label="done">\u2611</span> b</li>' in html
    assert "[y] c" in html


def test_tables_are_aligned_by_classes() -> None:
    html = render("| a | b | c |\n|:-:|--:|---|\n| 1 | 2 | 3 |")

    assert '<th class="md-center" scope="col">a</th>' in html
    assert '<td class="md-right">2</td>\n<td>3</td>' in html
    assert "style" not in html


def test_code_is_highlighted_with_classes() -> None:
    html = render('```python\ndef f():\n    return "a" # b\n```')

    assert '<span class="hl-keyword">def</span> <span class="hl-name">f</span>' in html
    assert '<span class="hl-string">"a"</span>' in html
    assert '<span class="hl-comment"># b</span>' in html


@pytest.mark.parametrize(
    "language", ["python", "js", "bash", "json", "diff", "rust", "html", "sql", "yaml", "go", "c++"]
)
def test_nothing_of_the_code_is_lost(language: str) -> None:
    code = "a = 'b' + 1 // 2 # c\n\n+ d\n- e\n  {\"f\": [null]}\n"

    html = render(f"```{language}\n{code}```")

    assert text_of(html.strip()) == code


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def text_of(html: str) -> str:
    reader = _Texts()
    reader.feed(html)
    reader.close()
    return "".join(reader.found)


SLOW = {
    "brackets": "[" * MIB,
    "links": "[a](" * (MIB // 4),
    "emphasis": "*a **a " * (MIB // 7),
    "underscores": "_a" * (MIB // 2),
    "backticks": "`" + "`a" * (MIB // 2),
    "quotes": ">" * MIB,
    "lists": "- " * 20_000 + "a",
    "one line": "a" * MIB,
    "lines": "a\n" * (MIB // 2),
    "references": "[a]: b\n" * (MIB // 7),
    "tags": "<" * MIB,
    "entities": "&a;" * (MIB // 3),
    "images": "![" * (MIB // 2),
    "addresses": "http://a " * (MIB // 9),
    "cells": "|" * 1000 + "\n" + "|-" * 1000 + "\n" + "|a\n" * 1000,
    "code": "```python\n" + "x = {'a': [1, 2, 3]}\n" * 40_000,
    "a line of code": "```js\n" + "/" * MIB,
    "quotes in code": "```python\n" + '"' * 60_000,
    "blank": "\n" * MIB,
}


@pytest.fixture
def without_collections() -> Iterator[None]:
    """Collect no garbage: hypothesis measures that in a callback, and an error that is raised there is lost."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW.keys())
def test_a_text_that_is_slow_to_take_apart_is_given_up_in_time(text: str) -> None:
    html = render(text, seconds=0.05)

    assert faults_of(html) == []


@pytest.mark.usefixtures("without_collections")
def test_what_is_given_up_is_shown_as_it_is() -> None:
    assert render("*a **a " * 100_000, seconds=0.01).startswith('<pre class="md-plain">*a **a')


def test_too_much_is_cut() -> None:
    html = render("a" * (10 * MIB))

    assert html.endswith(f"<p>\u2026 and {10 * MIB - MAX_CHARACTERS} more characters</p>")
    assert len(html) < MAX_CHARACTERS + 200
