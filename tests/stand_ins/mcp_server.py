"""A real MCP server made with the official SDK, run as a program: over stdio, streamable HTTP, or HTTP with SSE.

`stdio` serves over stdin and stdout; `nursery` starts servers over HTTP as children of its own, as it is told.
"""

import asyncio
import base64
import json
import os
import signal
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(40))).decode()


server = MCPServer("stand-in", version="1.2.3", instructions="Be gentle.", log_level="CRITICAL")
_seen = {"cancelled": 0, "active": 0, "most": 0, "called": 0}


class Point(BaseModel):
    x: int
    y: int = 0


class Area(BaseModel):
    corners: list[Point]


_blocks: dict[str, list[Any]] = {
    "text": [TextContent(type="text", text="one"), TextContent(type="text", text="two")],
    "image": [
        TextContent(type="text", text="before"),
        ImageContent(type="image", data=PIXEL, mime_type="image/png"),
        TextContent(type="text", text="after"),
    ],
    "broken image": [ImageContent(type="image", data="%%%%", mime_type="image/png")],
    "odd image": [ImageContent(type="image", data=PIXEL, mime_type="image/x-odd")],
    "audio": [AudioContent(type="audio", data=PIXEL, mime_type="audio/wav")],
    "text resource": [
        EmbeddedResource(
            type="resource", resource=TextResourceContents(uri="file:///a.txt", mime_type="text/plain", text="hi")
        )
    ],
    "blob resource": [
        EmbeddedResource(
            type="resource", resource=BlobResourceContents(uri="file:///a.bin", mime_type="x/y", blob=PIXEL)
        )
    ],
    "image resource": [
        EmbeddedResource(
            type="resource", resource=BlobResourceContents(uri="file:///a.png", mime_type="image/png", blob=PIXEL)
        )
    ],
    "link": [
        ResourceLink(
            type="resource_link", uri="file:///l", name="l", title="A link", description="far", mime_type="a/b"
        )
    ],
    "empty": [],
}


@server.tool()
async def echo(text: str) -> CallToolResult:
    """Say the same."""
    _seen["called"] += 1
    return CallToolResult(content=[TextContent(type="text", text=text)])


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def look(text: str = "seen") -> str:
    """Look without touching."""
    _seen["called"] += 1
    return text


@server.tool()
async def place(where: Point | Area, label: str | None = None) -> str:
    """Put something somewhere."""
    return f"{where!r} {label}"


@server.tool()
async def answer(kind: str) -> CallToolResult:
    """Answer with blocks of a kind."""
    return CallToolResult(content=_blocks[kind])


@server.tool()
async def structure() -> CallToolResult:
    """Answer with structured content alone."""
    return CallToolResult(content=[], structured_content={"deep": [1, {"two": None}]})


@server.tool()
async def picture(size: int) -> CallToolResult:
    """Answer with a picture of so many bytes."""
    data = base64.b64encode(bytes(size)).decode()
    return CallToolResult(content=[ImageContent(type="image", data=data, mime_type="image/jpeg")])


@server.tool()
async def fail(text: str) -> str:
    """Fail."""
    raise ToolError(text)


@server.tool()
async def sleep(seconds: float) -> str:
    """Take so long."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        _seen["cancelled"] += 1
        raise
    return "rested"


@server.tool()
async def gather(seconds: float) -> str:
    """Take so long, and count who does so at the same time."""
    _seen["active"] += 1
    _seen["most"] = max(_seen["most"], _seen["active"])
    await asyncio.sleep(seconds)
    _seen["active"] -= 1
    return "gathered"


@server.tool()
async def counts() -> CallToolResult:
    """Tell what was seen."""
    return CallToolResult(content=[], structured_content=dict(_seen))


@server.tool()
async def environment() -> CallToolResult:
    """Tell the variables of the environment."""
    return CallToolResult(content=[TextContent(type="text", text=json.dumps(dict(os.environ)))])


@server.tool()
async def shout(text: str) -> str:
    """Print to stderr."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - that is what it is for
    return "said"


@server.tool()
async def steps(count: int, ctx: Context) -> str:
    """Report progress."""
    for step in range(count):
        await ctx.report_progress(step, count, f"step {step}")
    return "done"


@server.tool()
async def offer(names: list[str], ctx: Context) -> str:
    """Add tools and say so."""
    for name in names:
        server.add_tool(look, name=name, description="New.")
    await _announce(ctx)
    return "added"


@server.tool()
async def withdraw(name: str, ctx: Context) -> str:
    """Remove a tool and say so."""
    server.remove_tool(name)
    await _announce(ctx)
    return "removed"


async def _announce(ctx: Context) -> None:
    await ctx.notify_tools_changed()
    if ctx.protocol_version is None or ctx.protocol_version < "2026":
        await ctx.session.send_tool_list_changed()


@server.tool()
async def crash(code: int = 3) -> str:
    """End at once."""
    print("last words", file=sys.stderr, flush=True)  # noqa: T201 - that is what it is for
    os._exit(code)


def _gated(app: Any, token: str) -> Any:
    """Return the application behind a check of the token."""

    async def gate(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and token and headers.get(b"authorization") != f"Bearer {token}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        await app(scope, receive, send)

    return gate


def _serve(transport: str, listening: socket.socket, token: str) -> None:
    app = server.streamable_http_app() if transport == "http" else server.sse_app()
    config = uvicorn.Config(_gated(app, token), log_level="error", lifespan="on")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


def _start(transport: str, port: int, token: str) -> tuple[int, int]:
    """Start a server in a child process; returns its pid and port."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        if (pid := os.fork()) == 0:
            _serve(transport, listening, token)
            os._exit(0)
        return pid, listening.getsockname()[1]


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _be_a_nursery() -> None:
    for line in sys.stdin:
        act, *details = json.loads(line)
        answer = _start(*details) if act == "start" else _kill(*details)
        print(json.dumps(answer), flush=True)  # noqa: T201 - whoever asked waits for this


if __name__ == "__main__":
    if sys.argv[1] == "nursery":
        _be_a_nursery()
    else:
        server.run("stdio")
