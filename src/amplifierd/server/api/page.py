"""The page: its files, which need no login. What it shows it asks the API for."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import Request, Response

from amplifierd.server.http.dependencies import TheDaemon
from amplifierd.server.http.page_files import PageFile, PageFiles
from amplifierd.server.http.routers import root_router

router = root_router(tags=["page"], include_in_schema=False)

_FOR_EVER = "public, max-age=31536000, immutable"
_FILES = PageFiles(Path(str(files("amplifierd.page"))))


@router.api_route("/app", methods=["GET", "HEAD"])
@router.api_route("/app/{path:path}", methods=["GET", "HEAD"])
async def show(daemon: TheDaemon, request: Request, path: str = "") -> Response:
    """Return a file of the page; below `/app/` every path that names none shows the page."""
    daemon.renderer.warm()
    return _answer(_FILES.find(path), request)


def _answer(file: PageFile, request: Request) -> Response:
    takes_packed = "gzip" in request.headers.get("accept-encoding", "").lower()
    content, tag = (
        (file.packed, f'"{file.tag}-gzip"') if takes_packed and file.packed else (file.content, f'"{file.tag}"')
    )
    headers = {"ETag": tag, "Cache-Control": _FOR_EVER if file.is_lasting else "no-cache", "Vary": "Accept-Encoding"}
    if _knows(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    if content is not file.content:
        headers["Content-Encoding"] = "gzip"
    if request.method == "HEAD":
        headers["Content-Length"] = str(len(content))
        return Response(media_type=file.media_type, headers=headers)
    return Response(content, media_type=file.media_type, headers=headers)


def _knows(tags: str, tag: str) -> bool:
    known = {each.strip().removeprefix("W/") for each in tags.split(",")}
    return tag in known or "*" in known
