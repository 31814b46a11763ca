"""The text of HTML documents: what is kept, what is left out, and how it is laid out."""

import asyncio
from typing import Any

import pytest
from amplifier_module_tool_web.html_text import HtmlText
from hypothesis import example, given
from hypothesis import strategies as st

URL = "https://site.example/docs/page.html"


@pytest.fixture
def text_of(local_web: Any, site: Any) -> Any:
    async def text_of(body: str) -> str:
        output = await local_web.page(site.put("/docs/page.html", body, "text/html; charset=utf-8"))
        return str(output["content"]).replace(site.url, "https://site.example")

    return text_of


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>One</p><p>Two</p>", "One\n\nTwo"),
        ("<p>One<p>Two <b>bold</b>\n  text", "One\n\nTwo bold text"),
        ("a<br>b<br/>c<div>d</div>e", "a\nb\nc\nd\ne"),
        ("<h1>Top</h1>text<h3>Deep <i>er</i></h3>", "# Top\n\ntext\n\n### Deep er"),
        ("<ul><li>one<li>two<ul><li>inner</ul><li>three</ul>", "- one\n- two\n  - inner\n- three"),
        ("<ol><li><p>first</p></li></ol>after", "- first\n\nafter"),
        ('<a href="/x?a=1&amp;b=2">There</a>', "There (https://site.example/x?a=1&b=2)"),
        (
            'See <a href="other.html">this one </a>, please',
            "See this one (https://site.example/docs/other.html), please",
        ),
        ('<base href="https://cdn.example/v2/"><a href="a">A</a>', "A (https://cdn.example/v2/a)"),
        ('<a href="https://a.example/">https://a.example/</a>', "https://a.example/"),
        ('<a href="#part">part</a> <a href="javascript:x()">run</a> <a>plain</a>', "part run plain"),
        ('<a href="http://["> odd </a>', "odd"),
        ('<a href="/p"><img src="i.png" alt="A picture"></a><img src="x">', "A picture (https://site.example/p)"),
        ("<table><tr><th>A<th>B<tr><td>1<td> 2 <p>3</p></table>", "A | B\n1 | 2 3"),
        ("<table><tr><td>a<td><table><tr><td>b<td>c</table></table>", "a\n\nb | c"),
        (
            "<p>Code:</p><pre><code>\ndef f():\n\n\n    return  1\n</code></pre>so",
            "Code:\n\ndef f():\n\n\n    return  1\n\nso",
        ),
        ('<pre>a <a href="/b">b</a><br>c</pre>', "a b\nc"),
        ("<table><tr><td><pre>1\n2</pre><td><pre>x  =\n y</pre></table>", "1\n2\n\nx  =\n y"),
        ("run <code>make  test</code> now", "run make test now"),
        ("&lt;tag&gt; &amp; &eacute;&nbsp;&#8364;", "<tag> & é €"),
        ("a<script>if (a<b) x('<p>no</p>')</script><style>p{}</style><noscript>no</noscript>b", "ab"),
        ("a<title>b</title>c", "a\n\nb\n\nc"),
        ("a<template><p>no</template><svg><title>no</title><text>no</text></svg>b", "ab"),
        (
            'a<div hidden>no<div>no</div></div><i style="color:red; DISPLAY : none">no</i><b aria-hidden=true>no</b>b',
            "ab",
        ),
        ("<p hidden>no<p>yes<ul><li hidden>no<li>yes</ul>", "yes\n\n- yes"),
        ("<dl><dt>Term<dd>Meaning</dl>", "Term\nMeaning"),
        ("<p>a\n\n\n</p><div></div><div><p></p></div><p>b</p>", "a\n\nb"),
        ("</div></p></nonsense>text<", "text<"),
        ("<!-- no --><!doctype html><?php no ?>text", "text"),
        ("", ""),
    ],
    ids=range(30),
)
async def test_a_document_reads_like_the_page(text_of: Any, body: str, text: str) -> None:
    assert await text_of(body) == text


async def test_the_title_is_told_and_leads_the_text_while_the_rest_of_the_head_is_dropped(
    local_web: Any, site: Any
) -> None:
    head = "<head><meta name=description content=no><title> The\n title </title><link rel=x><style>no</style></head>"

    output = await local_web.page(site.put("/", f"<html>{head}<body><p>Body</html>", "text/html"))

    assert output["title"] == "The title"
    assert output["content"] == "The title\n\nBody"


async def test_a_head_without_end_tag_hides_nothing_of_the_body(text_of: Any) -> None:
    assert await text_of("<head><title>T</title><meta charset=utf-8><h1>Shown</h1>") == "T\n\n# Shown"


async def test_windows_count_bytes_of_the_text_and_fit_together(local_web: Any, site: Any) -> None:
    body = "".join(
        f"<h2>Part {number}</h2><p>Grüße <a href=/x>an alle</a> €<script>{'x' * 50}</script>" for number in range(50)
    )
    url = site.put("/", body, "text/html; charset=utf-8")
    whole = await local_web.page(url)
    windows, offset = [], 0

    while True:
        output = await local_web.page(url, offset=offset, limit=333)
        windows.append(output["content"].partition("\n\n[Truncated")[0] if output["truncated"] else output["content"])
        if not output["truncated"]:
            break
        offset = output["next_offset"]

    assert "".join(windows) == whole["content"]
    assert whole["total_bytes"] == len(body.encode())
    assert whole["returned_bytes"] == len(whole["content"].encode())


async def test_of_a_document_beyond_ten_mebibytes_the_beginning_is_read(local_web: Any, site: Any) -> None:
    hidden = "<script>" + "x" * (11 << 20)

    output = await local_web.page(site.put("/", f"<p>Beginning{hidden}", "text/html"))

    assert output["content"].startswith("Beginning\n\n[Truncated: the document goes on")
    assert output["truncated"]
    assert output["total_bytes"] == len(hidden) + len("<p>Beginning")


async def test_a_document_that_cannot_be_parsed_is_shown_as_it_is(text_of: Any) -> None:
    body = "<b>" * 2000 + "deep"

    assert await text_of(body) == body


async def test_parsing_does_not_stall_other_work(local_web: Any, site: Any) -> None:
    url = site.put("/", "<p>word</p>" * 20_000, "text/html")
    task = asyncio.create_task(local_web.page(url, limit=1 << 20))
    turns = 0

    while not task.done():
        await asyncio.sleep(0.001)
        turns += 1

    assert (await task)["content"].startswith("word\n\nword")
    assert turns > 5


BLOCKS = ["p", "div", "ul", "li", "table", "tr", "td", "th", "pre", "h2", "hr", "dl", "dt", "dd", "head", "body"]
TAGS = st.sampled_from([*BLOCKS, "a", "br", "title", "script", "svg", "span", "b", "option", "template"])
PIECES = st.one_of(
    TAGS.map(lambda tag: f"<{tag}>"),
    TAGS.map(lambda tag: f"</{tag}>"),
    st.sampled_from(['<a href="/x">', "<p hidden>", '<img alt="pic">', "<!--", "-->", "&amp;", "<", ">"]),
    st.text(alphabet="ab \n€", max_size=8),
)


@example("a<title>b</title>", 1)
@example("<table><tr><td>a<td>b<title>c</title>", 1)
@example("<pre>a<title>b</title>", 1)
@given(st.lists(PIECES, max_size=30).map("".join), st.integers(1, 9))
def test_more_of_a_document_only_adds_to_the_end_of_its_text(document: str, step: int) -> None:
    page, whole, before = HtmlText(URL, "utf-8"), HtmlText(URL, "utf-8"), ""
    data = document.encode()
    whole.feed(data, is_end=True)

    for start in range(0, len(data), step):
        page.feed(data[start : start + step])
        text = page.text()
        assert text.startswith(before.rstrip())
        assert page.size <= len(text.encode())
        before = text
    page.feed(b"", is_end=True)

    assert page.text() == whole.text()
