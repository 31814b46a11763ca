"""The guard before every endpoint: ids, hosts, origins, bodies, headers and what is written down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from amplifierd.server.http.request_guard import MAX_OPEN_REQUESTS

from .conftest import Served

ME = "/api/v1/auth/me"


def test_a_request_id_is_echoed_or_made(client: TestClient) -> None:
    assert client.get(ME, headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    made = [client.get(ME, headers={"X-Request-Id": text}).headers["x-request-id"] for text in ("", "a b", "x" * 129)]
    assert len(set(made)) == 3
    assert all(len(each) == 32 for each in made)


def test_a_problem_names_its_request(client: TestClient) -> None:
    answer = client.get("/nowhere", headers={"X-Request-Id": "mine-2"})

    assert (answer.status_code, answer.json()["request_id"]) == (404, "mine-2")
    assert answer.json()["instance"] == "/nowhere"


@pytest.mark.parametrize("path", [f"{ME}/", f"{ME}//", "/health/"])
def test_a_slash_at_the_end_makes_no_difference_and_no_redirect(client: TestClient, path: str) -> None:
    assert client.get(path, follow_redirects=False).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1:8420", "localhost", "localhost:1", "[::1]:8420", "LOCALHOST", "127.0.0.2"])
def test_the_daemon_answers_to_its_own_names(served: Served, host: str) -> None:
    assert served.client(Host=host).get(ME).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8420", "localhost.evil.example", "127.0.0.1.evil.example", "", "@localhost"]
)
def test_a_name_that_was_bent_to_lead_here_is_refused(served: Served, host: str) -> None:
    answer = served.client(Host=host).get(ME)

    assert (answer.status_code, answer.json()["code"]) == (403, "host-rejected")


def test_a_peer_without_an_address_may_name_any_host(served: Served) -> None:
    assert served.client(peer="testclient", Host="anything").get(ME).status_code == 200


def test_names_can_be_added(serve: Callable[..., Served]) -> None:
    served = serve(security={"allowed_hosts": ["Daemon.Example"]})

    assert served.client(Host="daemon.example:443").get(ME).status_code == 200
    assert served.client(Host="other.example").get(ME).status_code == 403


@pytest.fixture(scope="module")
def with_pages(serve: Callable[..., Served]) -> Served:
    """A daemon that two web pages may call."""
    return serve(security={"allowed_origins": ["https://page.example", "http://localhost:3000"]})


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "https://page.example.evil.example",
        "https://page.example:8443",
        "http://page.example",
        "null",
        "http://localhost",
        "",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pages_of_other_origins_are_refused(with_pages: Served, origin: str, method: str) -> None:
    answer = with_pages.client(Origin=origin).request(method, ME)

    assert (answer.status_code, answer.json()["code"]) == (403, "origin-rejected")
    assert "access-control-allow-origin" not in answer.headers


def test_an_allowed_page_may_read_the_answer(with_pages: Served) -> None:
    answer = with_pages.client(Origin="https://page.example").get(ME)

    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://page.example"
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert answer.headers["vary"] == "Origin"


def test_an_allowed_page_may_ask_what_it_may_send(with_pages: Served) -> None:
    headers = {"Access-Control-Request-Method": "POST", "Origin": "https://page.example"}

    answer = with_pages.client(None).options(ME, headers=headers)

    assert answer.status_code == 204
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    assert {"Idempotency-Key", "X-Amplifier-Session", "X-Session-Id", "X-Client-Session-Id"} <= {*allowed}
    refused = with_pages.client(None).options(ME, headers={**headers, "Origin": "https://evil.example"})
    assert refused.status_code == 403


def test_the_daemons_own_page_is_no_stranger(client: TestClient) -> None:
    answer = client.get(ME, headers={"Origin": "http://127.0.0.1:8420"})

    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


def test_a_cross_site_request_that_changes_something_is_refused(client: TestClient) -> None:
    cross = {"Sec-Fetch-Site": "cross-site"}

    assert client.post("/api/v1/auth/ticket", headers=cross).json()["code"] == "origin-rejected"
    assert client.get(ME, headers=cross).status_code == 200
    assert client.post("/api/v1/auth/ticket", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 201


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", ""],
)
def test_only_json_is_parsed(client: TestClient, kind: str) -> None:
    body = json.dumps({"name": "sneaked", "scope": "admin"})

    answer = client.post("/api/v1/tokens", content=body, headers={"Content-Type": kind})

    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")


def test_a_file_is_not_read_as_json(client: TestClient) -> None:
    answer = client.post("/api/v1/tokens", content=b"{}", headers={"Content-Type": "application/octet-stream"})

    assert answer.status_code == 422


def test_what_is_not_json_is_a_malformed_request(client: TestClient) -> None:
    answer = client.post("/api/v1/tokens", content=b"{", headers={"Content-Type": "application/json"})

    assert (answer.status_code, answer.json()["code"]) == (400, "malformed-request")


def test_a_large_body_is_refused_whether_it_says_so_or_not(client: TestClient) -> None:
    def pieces() -> Any:
        yield b'{"name": "'
        for _ in range(11):
            yield b"x" * 1024 * 1024

    headers = {"Content-Type": "application/json"}
    said = client.post("/api/v1/tokens", content=b"x" * (10 * 1024 * 1024 + 1), headers=headers)
    unsaid = client.post("/api/v1/tokens", content=pieces(), headers=headers)

    assert [(each.status_code, each.json()["code"]) for each in (said, unsaid)] == [(413, "payload-too-large")] * 2


def test_a_field_that_is_not_known_is_refused(client: TestClient) -> None:
    answer = client.post("/api/v1/tokens", json={"name": "one", "colour": "red"})

    assert (answer.status_code, answer.json()["code"]) == (422, "extra-field")
    assert answer.json()["errors"][0]["loc"] == ["body", "colour"]


def test_headers_are_bounded_and_those_that_decide_come_once(served: Served) -> None:
    client = served.client()

    assert client.get(ME, headers={"X-Long": "x" * 40_000}).status_code == 431
    twice = client.get(ME, headers=[("Host", "localhost"), ("Host", "evil.example")])
    assert (twice.status_code, twice.json()["code"]) == (400, "malformed-request")


def test_every_answer_says_how_it_may_be_used(client: TestClient) -> None:
    for answer in (client.get(ME), client.get("/nowhere"), client.get(ME, headers={"Authorization": "Bearer x"})):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"


def test_what_changes_something_is_written_down_and_what_does_not_is_not(serve: Callable[..., Served]) -> None:
    served = serve()
    client = served.client()

    client.get(ME)
    client.post("/api/v1/tokens", json={"name": "ci", "scope": "read"}, headers={"X-Request-Id": "made-it"})
    client.delete("/api/v1/tokens/none")
    served.client(None).post("/api/v1/tokens", json={"name": "no"})

    lines = [json.loads(line) for line in served.home.paths.audit_file.read_text().splitlines()]
    assert [(line["method"], line["path"], line["status"], line["caller"]) for line in lines] == [
        ("POST", "/api/v1/tokens", 201, "default"),
        ("DELETE", "/api/v1/tokens/none", 404, "default"),
    ]
    assert lines[0]["request_id"] == "made-it"
    assert lines[0]["details"] == {"name": "ci", "scope": "read"}
    assert lines[0]["address"] == "127.0.0.1"
    assert served.home.paths.audit_file.stat().st_mode & 0o077 == 0


def test_an_address_may_have_so_many_requests_open_and_others_do_not_suffer_from_it(served: Served) -> None:
    async def hold_open() -> None:
        """Begin requests whose bodies never come, one more than are let in."""
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        headers.append((b"authorization", f"Bearer {served.token}".encode()))
        scope = {"type": "http", "method": "POST", "path": "/api/v1/render", "raw_path": b"", "query_string": b""}
        scope |= {"headers": headers, "client": ("127.0.0.9", 1), "scheme": "http", "http_version": "1.1"}
        never, answers = asyncio.Event(), list[int]()

        async def receive() -> Any:
            await never.wait()

        async def send(message: Any) -> None:
            answers.append(message.get("status", 0))

        waiting = [asyncio.create_task(served.app(dict(scope), receive, send)) for _ in range(MAX_OPEN_REQUESTS + 1)]
        done, _ = await asyncio.wait(waiting, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        told.append((len(done), answers[0]))
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    told: list[tuple[int, int]] = []
    assert served.running.portal is not None
    served.running.portal.call(hold_open)

    assert told == [(1, 429)]
    assert served.client(peer="127.0.0.9").get(ME).status_code == 200
