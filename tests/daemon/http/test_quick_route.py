"""Routes that take the short way answer as FastAPI does, whatever they are asked."""

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Path, Request
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from amplifierd.server.http.idempotent_route import QuickRoute
from amplifierd.server.http.routers import JsonAnswer


class Asked(BaseModel):
    text: str
    times: int = 1


class Answered(BaseModel):
    text: str


async def caller(request: Request) -> str:
    if "x-nobody" in request.headers:
        raise HTTPException(401, "nobody")
    return request.headers.get("x-caller", "someone")


async def refuse(request: Request) -> None:
    if "x-refused" in request.headers:
        raise HTTPException(403, "refused")


Caller = Annotated[str, Depends(caller)]


def client(route_class: type[APIRoute]) -> TestClient:
    options: dict[str, Any] = {"route_class": route_class, "default_response_class": JsonAnswer}
    router = APIRouter(**options, dependencies=[Depends(refuse)])

    @router.post("/say/{name}", status_code=202)
    async def say(name: Annotated[str, Path(max_length=5)], caller: Caller, body: Asked, request: Request) -> Answered:
        return Answered(text=f"{caller} {request.method} {name}: {body.text * body.times}")

    @router.get("/plain")
    async def plain() -> JsonAnswer:
        return JsonAnswer({"plain": True}, 203)

    @router.delete("/gone", status_code=204)
    async def gone() -> None: ...

    app = FastAPI()
    app.router.routes.extend(router.routes)
    return TestClient(app)


def said(of: TestClient, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any, bytes]:
    response = of.request(method, path, headers=dict(headers), content=body)
    return response.status_code, response.headers.get("content-type"), response.content


_JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("path", ["/say/you", "/say/too-long", "/plain", "/gone", "/nowhere"])
def test_every_request_is_answered_as_by_fastapi(path: str) -> None:
    quick, slow = client(QuickRoute), client(APIRoute)
    bodies = (
        b'{"text": "hi"}',
        b'{"text": "h\\ud800", "times": 2}',
        b'{"text": 1}',
        b"{",
        b"",
        b"[]",
        b"null",
    )
    headers: list[dict[str, str]] = [
        _JSON,
        {"content-type": "application/json; charset=utf-8"},
        {"content-type": "text/plain"},
        {},
        {**_JSON, "x-caller": "me"},
        {**_JSON, "x-nobody": "1"},
        {**_JSON, "x-refused": "1"},
    ]
    requests = [(method, head, body) for method in ("POST", "GET", "DELETE") for head in headers for body in bodies]

    assert [said(quick, method, path, head, body) for method, head, body in requests] == [
        said(slow, method, path, head, body) for method, head, body in requests
    ]
