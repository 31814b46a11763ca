"""Routes that are made when they are first asked for: found before that, and whole afterwards."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from amplifierd.server.http.routers import LateRoute

THREADS = 8


async def say(name: str, times: int = 1) -> dict[str, str]:
    return {"said": name * times}


def served(route: LateRoute) -> TestClient:
    app = FastAPI()
    app.router.routes.append(route)
    return TestClient(app)


def test_a_route_is_found_before_it_is_made() -> None:
    route = LateRoute("/say/{name}", say, methods=["GET"])
    client = served(route)

    assert client.get("/elsewhere").status_code == 404
    assert "app" not in vars(route)
    assert client.post("/say/a").status_code == 405
    assert client.get("/say/a", params={"times": 2}).json() == {"said": "aa"}
    assert client.get("/say/a", params={"times": "x"}).status_code == 422


def test_threads_that_ask_at_once_get_the_whole_route() -> None:
    route, together = LateRoute("/say/{name}", say, methods=["GET"]), Barrier(THREADS)

    def ask(_: int) -> Any:
        together.wait(10)
        return route.app

    with ThreadPoolExecutor(THREADS) as threads:
        assert len({*threads.map(ask, range(THREADS))}) == 1


def test_what_no_route_has_is_missing() -> None:
    assert not hasattr(LateRoute("/say/{name}", say), "colour")
