"""Markdown as safe HTML, as it is shown in messages and streams."""

from __future__ import annotations

from fastapi import Depends

from amplifierd.exceptions import RequestRefusedError
from amplifierd.server.http.dependencies import TheDaemon, requires
from amplifierd.server.http.models import Answer, Body
from amplifierd.server.http.routers import api_router, root_router

router = api_router(tags=["messages"])
unversioned = root_router()

MAX_BYTES = 1 << 20


class Markdown(Body):
    markdown: str


class Html(Answer):
    html: str


@router.post("/render", dependencies=[Depends(requires("read"))])
@unversioned.post("/render", dependencies=[Depends(requires("read"))], include_in_schema=False)
async def render(daemon: TheDaemon, body: Markdown) -> Html:
    """Render markdown as safe HTML: no scripts, nothing loaded from elsewhere; at most 1 MiB."""
    if len(body.markdown.encode("utf-8", "replace")) > MAX_BYTES:
        raise RequestRefusedError(f"the markdown has more than {MAX_BYTES} bytes", code="payload-too-large")
    return Html(html=await daemon.renderer.render(body.markdown))
