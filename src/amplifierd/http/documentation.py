"""The endpoints as a page to read: made from the OpenAPI document, without scripts and without other hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any


def documentation_page(document: Mapping[str, Any]) -> str:
    """Return the HTML page about an API."""
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<link rel="icon" href="/app/icon.svg" type="image/svg+xml"></head>\n<body>\n'
        f'<h1>{title}</h1>\n<p>The whole description, for programs: <a href="/openapi.json">openapi.json</a></p>\n'
        f"<table>\n<tr><th>Method</th><th>Path</th><th>What it does</th><th>Answers</th></tr>\n"
        f"{''.join(_rows(document))}</table>\n</body></html>\n"
    )


def _rows(document: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            does = operation.get("description") or operation.get("summary", "")
            cells = (method.upper(), path, does, ", ".join(sorted(operation["responses"])))
            yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>\n"
