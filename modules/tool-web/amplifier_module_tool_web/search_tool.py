"""The tool `web_search`: find pages."""

import asyncio
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import urlsplit

from amplifier_core import ToolResult
from amplifier_kit.concerns import Concern, host_and_port
from amplifier_kit.tools.effects import NETWORK
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.runs import AnsweringTool, detached

from .settings import Settings, source_id

# Who is asked when something is searched for. Every backend blocks, and is called in a worker thread.


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
        client = engine.http_client.client
        update = getattr(client, "headers_update", None) or client.headers.update  # before ddgs 9.11 it is httpx's
        update(_authorization(settings))
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


logger = logging.getLogger(__name__)

SEARCH_ENGINES = "search-engines"
"""Stands for the hosts of all search engines, in questions and in `policy.network.allow`."""

_MAX_QUERY_CHARS = 4096
_MAX_TITLE_CHARS = 512
_MAX_SNIPPET_CHARS = 2000


class WebSearchTool(AnsweringTool):
    name = "web_search"
    effects = frozenset({NETWORK})
    retry = "safe"
    description = (
        "Search the web and return titles, URLs and snippets of a few pages. Read a page with web_fetch before relying "
        "on it. Not for files of this machine."
    )
    input_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": _MAX_QUERY_CHARS,
                "description": "What to search for, as one would type it into a search engine.",
            }
        },
        "required": ["query"],
    }

    def __init__(
        self, config: Mapping[str, Any] | None, coordinator: Any = None, *, settings: Settings | None = None
    ) -> None:
        self.coordinator = coordinator
        self.settings = settings or Settings.read(config)
        self._turn = asyncio.Lock()

    def concerns_of(self, input: Mapping[str, Any]) -> tuple[Concern, ...]:
        """Return whom a query is sent to; the engines that are asked without an endpoint count as one host."""
        if self._is_mock:
            return ()
        url, query = self.settings.search_url, str(input.get("query", ""))
        subject = (host_and_port(url) if url else None) or SEARCH_ENGINES
        return (Concern("host", subject, f"{self.name} sends its query to {subject}: {query}"),)

    async def answer(self, given: Any) -> ToolResult:
        query: str = read_input(self.name, self.input_schema, given)["query"]
        if not query.strip() or len(query) > _MAX_QUERY_CHARS:
            message = f"{self.name}: 'query' must have 1 to {_MAX_QUERY_CHARS} characters and not be blank"
            raise ToolFailure(message, "invalid_input")
        backend = find_backend(self.settings)
        logger.debug("web_search %s", query[:200])
        try:
            async with self._turn:
                hits = await self._ask(backend, query)
            results = self._results(hits)
        except SearchError as exc:
            raise self._failed(exc, query) from None
        return ToolResult(success=True, output=self._output(backend, query, results))

    async def _ask(self, backend: Backend, query: str) -> list[Hit]:
        """Return what the backend finds within the time it has; one that hangs is left behind."""
        try:
            async with asyncio.timeout(self.settings.search_timeout_s):
                return await detached("tool-web-search", lambda: backend.search(self.settings, query))
        except SearchError:
            raise
        except TimeoutError:
            raise SearchError("search_timeout", "no answer in time", retryable=True) from None
        except ModuleNotFoundError as exc:
            reason = f"the package {exc.name} is not installed; install amplifier[web]"
            raise SearchError("search_unavailable", reason, retryable=False) from None
        except Exception:
            logger.warning("web_search: the backend %s failed", backend.name, exc_info=True)
            raise SearchError("search_failed", "the backend failed", retryable=True) from None

    def _failed(self, error: SearchError, query: str) -> ToolFailure:
        message = f"Web search failed: {error.reason}"
        if error.code == "search_timeout":
            message = f"Web search timed out after {self.settings.search_timeout_s:g} seconds: {query}"
        return ToolFailure(message, error.code, provider=self.settings.search_engine, retryable=error.retryable)

    def _results(self, hits: list[Hit]) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for hit in hits:
            if not (isinstance(hit.title, str) and isinstance(hit.snippet, str) and _is_web_address(hit.url)):
                raise SearchError("search_failed", "the answer has malformed results", retryable=False)
            if hit.url not in found:
                found[hit.url] = self._result(hit)
        return list(found.values())[: self.settings.max_results]

    def _result(self, hit: Hit) -> dict[str, Any]:
        result = {
            "title": hit.title[:_MAX_TITLE_CHARS],
            "url": hit.url,
            "snippet": hit.snippet[:_MAX_SNIPPET_CHARS],
            "source_url": hit.url,
            "source_id": source_id(hit.url),
            "truncated": len(hit.title) > _MAX_TITLE_CHARS or len(hit.snippet) > _MAX_SNIPPET_CHARS,
        }
        return {**result, "mock": True} if self._is_mock else result

    def _output(self, backend: Backend, query: str, results: list[dict[str, Any]]) -> dict[str, Any]:
        output = {
            "query": query,
            "results": results,
            "count": len(results),
            "provider": self.settings.search_engine,
            "backend": backend.name,
            "mock": self._is_mock,
            "retrieved_at": datetime.now(UTC).isoformat(),
        }
        if self._is_mock:
            output["warning"] = "These results are made up by the mock engine: they are not web evidence."
        return output

    @property
    def _is_mock(self) -> bool:
        return self.settings.search_engine == "mock"


def _is_web_address(url: Any) -> bool:
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
