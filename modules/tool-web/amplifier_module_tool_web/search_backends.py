"""Who is asked when something is searched for. Every backend blocks, and is called in a worker thread."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .settings import Settings

_MAX_ANSWER_BYTES = 10 << 20


@dataclass(frozen=True, slots=True)
class Hit:
    """One result as a backend gives it, not looked at yet."""

    title: Any
    url: Any
    snippet: Any


class SearchError(Exception):
    """A search that failed; `code` is what the model is told."""

    def __init__(self, code: str, reason: str, *, retryable: bool) -> None:
        super().__init__(reason)
        self.code, self.reason, self.retryable = code, reason, retryable


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to search; `name` is what answers, where the engine is what was configured."""

    name: str
    search: Callable[[Settings, str], list[Hit]]


def find_backend(settings: Settings) -> Backend:
    """Return who is asked."""
    if settings.search_url and settings.search_engine in ("ddgs", "duckduckgo"):
        return Backend("html", _search_html)
    return _BACKENDS[settings.search_engine]


def _search_ddgs(settings: Settings, query: str, *, backend: str = "auto") -> list[Hit]:
    # Imported here: not every session searches.
    from ddgs import DDGS

    with _ddgs_errors():
        client = DDGS(timeout=math.ceil(settings.search_timeout_s))
        return _hits(client.text(query, max_results=settings.max_results, backend=backend), ("title", "href", "body"))


def _search_duckduckgo(settings: Settings, query: str) -> list[Hit]:
    return _search_ddgs(settings, query, backend="duckduckgo")


def _search_html(settings: Settings, query: str) -> list[Hit]:
    """Ask an endpoint that answers like the HTML page of DuckDuckGo."""
    from ddgs.engines.duckduckgo import Duckduckgo

    with _ddgs_errors():
        engine = Duckduckgo(timeout=math.ceil(settings.search_timeout_s))
        engine.search_url = settings.search_url or engine.search_url
        engine.http_client.client.headers_update(_authorization(settings))
        found = engine.search(query)
        if found is None:
            raise SearchError("search_failed", "the endpoint did not answer the request", retryable=True)
        return [Hit(result.title, result.href, result.body) for result in found]


def _search_searxng(settings: Settings, query: str) -> list[Hit]:
    import httpx2

    if not settings.search_url:
        raise SearchError("search_unavailable", "no search_url is configured for searxng", retryable=False)
    try:
        url = httpx2.URL(settings.search_url).copy_merge_params({"q": query, "format": "json"})
        headers = {"User-Agent": settings.user_agent, "Accept": "application/json", **_authorization(settings)}
        with (
            httpx2.Client(timeout=settings.search_timeout_s, follow_redirects=False) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            _require_answer(response.status_code)
            answer = bytearray()
            for piece in response.iter_bytes():
                answer += piece
                if len(answer) > _MAX_ANSWER_BYTES:
                    raise SearchError("search_failed", "the endpoint answered with too much", retryable=False)
    except httpx2.TimeoutException:
        raise SearchError("search_timeout", "the endpoint did not answer in time", retryable=True) from None
    except (httpx2.ConnectError, httpx2.UnsupportedProtocol, httpx2.InvalidURL):
        raise SearchError("search_unavailable", "the endpoint cannot be reached", retryable=True) from None
    try:
        return _hits(json.loads(answer)["results"], ("title", "url", "content"))
    except (ValueError, KeyError, TypeError):
        raise SearchError("search_failed", "the endpoint's answer is not what it should be", retryable=False) from None


def _search_mock(settings: Settings, query: str) -> list[Hit]:
    return [
        Hit(
            f"[MOCK] Result {number} for {query}",
            f"https://example.com/mock/{number}",
            f"[MOCK] Snippet {number}: nothing was searched.",
        )
        for number in range(1, settings.max_results + 1)
    ]


_BACKENDS = {
    "ddgs": Backend("ddgs", _search_ddgs),
    "duckduckgo": Backend("ddgs", _search_duckduckgo),
    "searxng": Backend("searxng", _search_searxng),
    "mock": Backend("mock", _search_mock),
}


@contextmanager
def _ddgs_errors() -> Iterator[None]:
    """Translate what ddgs raises."""
    from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException

    try:
        yield
    except RatelimitException:
        raise SearchError("search_rate_limited", "the engine asks to wait", retryable=True) from None
    except TimeoutException:
        raise SearchError("search_timeout", "no engine answered in time", retryable=True) from None
    except DDGSException:
        raise SearchError("search_failed", "no engine could be reached or had a result", retryable=True) from None


def _hits(found: list[Any], keys: tuple[str, str, str]) -> list[Hit]:
    title, url, snippet = keys
    return [Hit(item.get(title), item.get(url), item.get(snippet, "")) for item in found]


def _authorization(settings: Settings) -> dict[str, str]:
    return {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}


def _require_answer(status: int) -> None:
    if status == 429:
        raise SearchError("search_rate_limited", "the endpoint asks to wait", retryable=True)
    if status != 200:
        raise SearchError("search_failed", f"the endpoint answered with status {status}", retryable=status >= 500)
