"""Searching: real answers from a real endpoint, plain failures, and nothing made up."""

import asyncio
import hashlib
import json
import sys
import threading
from datetime import datetime
from typing import Any

import pytest

from amplifier_core.testing import wait_for

ANSWER = (
    '{"results": ['
    '{"title": "One", "url": "https://one.example/", "content": "First", "engine": "x"},'
    '{"title": "Two", "url": "http://two.example/a?b", "content": "Second"},'
    '{"title": "One again", "url": "https://one.example/", "content": "Duplicate"},'
    '{"title": "Three", "url": "https://three.example/"}'
    "]}"
)


@pytest.fixture
def mount_searxng(mount_web: Any, site: Any) -> Any:
    async def mount_one(**config: Any) -> Any:
        return await mount_web(search_engine="searxng", search_url=site.url + "/search", **config)

    return mount_one


async def test_results_of_an_endpoint_are_returned_once_each_with_their_source(mount_searxng: Any, site: Any) -> None:
    web = await mount_searxng(api_key="key-1")
    site.put("/search", ANSWER, "application/json")

    result = await web.search("what & where")

    assert result.success
    retrieved_at = datetime.fromisoformat(result.output.pop("retrieved_at"))
    assert retrieved_at.tzinfo is not None
    assert result.output.pop("results")[1] == {
        "title": "Two",
        "url": "http://two.example/a?b",
        "snippet": "Second",
        "source_url": "http://two.example/a?b",
        "source_id": "web-" + hashlib.sha256(b"http://two.example/a?b").hexdigest()[:16],
        "truncated": False,
    }
    assert result.output == {
        "query": "what & where",
        "count": 3,
        "provider": "searxng",
        "backend": "searxng",
        "mock": False,
    }
    (request,) = site.seen
    assert request.path in ("/search?q=what+%26+where&format=json", "/search?q=what%20%26%20where&format=json")
    assert request.headers["authorization"] == "Bearer key-1"


async def test_no_more_results_are_returned_than_configured(mount_searxng: Any, site: Any) -> None:
    web = await mount_searxng(max_results=2)
    site.put("/search", ANSWER)

    assert [result["title"] for result in (await web.search("q")).output["results"]] == ["One", "Two"]


async def test_long_titles_and_snippets_are_cut(mount_searxng: Any, site: Any) -> None:
    web = await mount_searxng()
    found = {"title": "t" * 600, "url": "http://a.example", "content": "s" * 3000}
    site.put("/search", json.dumps({"results": [found]}))

    (result,) = (await web.search("q")).output["results"]

    assert (len(result["title"]), len(result["snippet"]), result["truncated"]) == (512, 2000, True)


@pytest.mark.parametrize("query", ["", "   ", "x" * 4097, 7, None, ["q"]], ids=range(6))
async def test_a_query_that_is_none_is_invalid_input_without_a_backend_call(
    mount_searxng: Any, site: Any, code_of: Any, query: Any
) -> None:
    web = await mount_searxng()

    assert code_of(await web.search(query)) == "invalid_input"
    assert site.connections == 0


@pytest.mark.parametrize(
    "answer",
    [
        "<html>",
        "[]",
        "{}",
        '{"results": [7]}',
        '{"results": [{"title": "a", "url": "ftp://a.example/"}]}',
        '{"results": [{"title": "a", "url": "http://u:p@a.example/"}]}',
        '{"results": [{"title": 7, "url": "http://a.example/"}]}',
        '{"results": [{"title": "a", "url": "http://a.example/", "content": null}]}',
        '{"results": [{"title": "good", "url": "http://a.example/"}, {"title": "bad"}]}',
    ],
)
async def test_a_malformed_answer_fails_as_a_whole(mount_searxng: Any, site: Any, code_of: Any, answer: str) -> None:
    web = await mount_searxng()
    site.put("/search", answer)

    assert code_of(await web.search("q")) == "search_failed"


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [(500, "search_failed", True), (403, "search_failed", False), (429, "search_rate_limited", True)],
)
async def test_an_endpoint_that_refuses_is_told_plainly(
    mount_searxng: Any, site: Any, code_of: Any, status: int, code: str, retryable: bool
) -> None:
    web = await mount_searxng()
    site.put("/search", "secret details", status=status)

    result = await web.search("q")

    assert code_of(result) == code
    assert (result.error["provider"], result.error["retryable"]) == ("searxng", retryable)
    assert "secret" not in result.output


async def test_a_hanging_backend_times_out_within_the_limit(mount_searxng: Any, site: Any, code_of: Any) -> None:
    web = await mount_searxng(search_timeout=0.2)
    site.hang("/search")

    result = await web.search("needle in a haystack")

    assert code_of(result) == "search_timeout"
    assert "timed out" in result.output
    assert "needle in a haystack" in result.output
    assert result.error["retryable"] is True


@pytest.mark.parametrize("config", [{"search_url": "http://127.0.0.1:1/"}, {}, {"search_url": "nonsense"}], ids=str)
async def test_an_endpoint_that_is_missing_is_unavailable(mount_web: Any, code_of: Any, config: dict[str, Any]) -> None:
    web = await mount_web(search_engine="searxng", **config)

    assert code_of(await web.search("q")) == "search_unavailable"


@pytest.mark.parametrize("engine", ["ddgs", "duckduckgo"])
async def test_a_search_fails_plainly_when_no_engine_is_reachable(
    mount_web: Any, code_of: Any, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("DDGS_PROXY", "http://127.0.0.1:1")  # so that no engine can be reached by anybody
    web = await mount_web(search_engine=engine)

    result = await web.search("anything")

    assert code_of(result) == "search_failed"
    assert result.output == "Web search failed: no engine could be reached or had a result"
    assert result.error["provider"] == engine


class Engine:
    """Stands in for the search library: does what the test says, and takes note of how it was asked."""

    asked: list[tuple[str, dict[str, Any]]]
    answer: Any

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
        self.asked, self.answer = [], answer
        monkeypatch.setattr("ddgs.DDGS", lambda **options: self)

    def text(self, query: str, **options: Any) -> Any:
        self.asked.append((query, options))
        return self.answer()


@pytest.mark.parametrize(("engine", "backend"), [("ddgs", "auto"), ("duckduckgo", "duckduckgo")])
async def test_results_of_the_library_are_returned(
    mount_web: Any, monkeypatch: pytest.MonkeyPatch, engine: str, backend: str
) -> None:
    library = Engine(monkeypatch, lambda: [{"title": "T", "href": "https://t.example/", "body": "B"}])
    web = await mount_web(search_engine=engine, max_results=3)

    result = await web.search("q")

    assert [(found["title"], found["url"], found["snippet"]) for found in result.output["results"]] == [
        ("T", "https://t.example/", "B")
    ]
    assert (result.output["provider"], result.output["backend"]) == (engine, "ddgs")
    assert library.asked == [("q", {"max_results": 3, "backend": backend})]


async def test_a_backend_that_raises_fails_the_search_without_results_and_without_its_words(
    mount_web: Any, code_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_error() -> None:
        raise RuntimeError("token=secret")

    Engine(monkeypatch, raise_error)
    web = await mount_web()

    result = await web.search("q")

    assert code_of(result) == "search_failed"
    assert "secret" not in result.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("RatelimitException", "search_rate_limited"),
        ("TimeoutException", "search_timeout"),
        ("DDGSException", "search_failed"),
    ],
)
async def test_what_the_library_reports_is_told_apart(
    mount_web: Any, code_of: Any, monkeypatch: pytest.MonkeyPatch, error: str, code: str
) -> None:
    import ddgs.exceptions

    def raise_error() -> None:
        raise getattr(ddgs.exceptions, error)("secret")

    Engine(monkeypatch, raise_error)
    web = await mount_web()

    result = await web.search("q")

    assert code_of(result) == code
    assert "secret" not in result.output


async def test_a_search_without_the_library_says_what_to_install(
    mount_web: Any, code_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ddgs", None)
    web = await mount_web()

    result = await web.search("q")

    assert code_of(result) == "search_unavailable"
    assert "install amplifier[web]" in result.output


async def test_the_caller_is_released_at_the_deadline_and_the_next_search_works(
    mount_web: Any, code_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    Engine(monkeypatch, lambda: go_on.wait(20))
    web = await mount_web(search_timeout=0.1)

    hanging = await web.search("q")
    still_hangs = not go_on.is_set()
    Engine(monkeypatch, lambda: [{"title": "T", "href": "https://t.example/", "body": "B"}])
    following = await web.search("q")
    go_on.set()

    assert (code_of(hanging), still_hangs) == ("search_timeout", True)
    assert following.output["count"] == 1


async def test_searches_of_one_tool_wait_for_each_other(mount_web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = [0], [0]

    def search() -> list[Any]:
        running[0] += 1
        most[0] = max(most[0], running[0])
        threading.Event().wait(0.02)
        running[0] -= 1
        return []

    library = Engine(monkeypatch, search)
    web = await mount_web()

    await asyncio.gather(*(web.search(f"q{number}") for number in range(4)))

    assert (len(library.asked), most[0]) == (4, 1)


async def test_cancellation_does_not_wait_for_the_backend(mount_web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    library = Engine(monkeypatch, lambda: go_on.wait(20))
    web = await mount_web()
    task = asyncio.create_task(web.search("q"))
    await wait_for(lambda: library.asked)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not go_on.is_set()
    go_on.set()


@pytest.mark.parametrize(("engine", "package"), [("ddgs", "ddgs"), ("searxng", "httpx2")])
async def test_a_missing_library_is_a_failed_result(
    mount_web: Any, code_of: Any, monkeypatch: pytest.MonkeyPatch, engine: str, package: str
) -> None:
    web = await mount_web(search_engine=engine)
    monkeypatch.setitem(sys.modules, package, None)

    result = await web.search("q")

    assert code_of(result) == "search_unavailable"
    assert package in result.output
    assert result.error["retryable"] is False


PAGE = """<html><body><div id="links">
<div class="links_main result__body"><h2 class="t"><a href="https://one.example/">One</a></h2>
<a class="s" href="https://one.example/">First snippet</a></div>
</div></body></html>"""


async def test_an_endpoint_of_ones_own_answers_like_the_html_page(mount_web: Any, site: Any) -> None:
    web = await mount_web(search_url=site.put("/html", PAGE, "text/html"), api_key="key-1")

    result = await web.search("q")

    assert [(found["title"], found["url"], found["snippet"]) for found in result.output["results"]] == [
        ("One", "https://one.example/", "First snippet")
    ]
    assert (result.output["provider"], result.output["backend"]) == ("ddgs", "html")
    (request,) = site.seen
    assert b"q=q" in request.body
    assert request.headers["authorization"] == "Bearer key-1"


async def test_an_endpoint_of_ones_own_that_refuses_fails_the_search(mount_web: Any, site: Any, code_of: Any) -> None:
    web = await mount_web(search_engine="duckduckgo", search_url=site.put("/html", status=403))

    assert code_of(await web.search("q")) == "search_failed"


async def test_the_mock_engine_says_that_its_results_are_no_evidence(mount_web: Any) -> None:
    web = await mount_web(search_engine="mock", max_results=2)

    first, second = await web.search("cats"), await web.search("cats")

    assert [result["title"] for result in first.output["results"]] == [
        "[MOCK] Result 1 for cats",
        "[MOCK] Result 2 for cats",
    ]
    assert first.output["results"] == second.output["results"]
    assert all(result["mock"] is True for result in first.output["results"])
    assert (first.output["mock"], first.output["provider"]) == (True, "mock")
    assert "not web evidence" in first.output["warning"]
