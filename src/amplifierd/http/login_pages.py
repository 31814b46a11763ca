"""What a user sees after a login link that does not log in at once: plain pages without scripts."""

from __future__ import annotations

from html import escape

from fastapi.responses import HTMLResponse

_TOKEN = (
    '<p>Or log in with a token, for example the one in <code>config/token</code>: <a href="/app/">to the page</a>.</p>'
)


def link_is_over() -> HTMLResponse:
    """Say how to get a link that works."""
    return _page(
        410,
        "This login link no longer works",
        "<p>A link logs in once, within a minute. Get a new one where the daemon runs:</p>\n"
        f"<pre><code>amplifier daemon open</code></pre>\n{_TOKEN}",
    )


def too_many_attempts(seconds: float) -> HTMLResponse:
    answer = _page(
        429,
        "Too many login links that do not work",
        f"<p>Wait {max(1, round(seconds))} seconds, then get a new one with <code>amplifier daemon open</code>.</p>",
    )
    answer.headers["Retry-After"] = str(max(1, round(seconds)))
    return answer


def ask_first(name: str, ticket: str) -> HTMLResponse:
    """Let a person decide who came here from another site, which may have made them come."""
    return _page(
        200,
        "Log in?",
        f"<p>You came here from another page. The link logs this browser in with the token <b>{escape(name)}</b>.</p>\n"
        f'<p><a href="/auth/login?ticket={escape(ticket)}">Log in</a></p>\n'
        "<p>If you did not ask for it, close this page.</p>",
    )


def _page(status: int, title: str, body: str) -> HTMLResponse:
    return HTMLResponse(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="/app/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/app/page.css">'
        f"<title>{title} · Amplifier</title></head>\n<body><main>\n<h1>{title}</h1>\n{body}\n</main></body></html>\n",
        status_code=status,
    )
