"""The application as a whole: several in one process, each with a daemon of its own."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from amplifierd import Settings, create_app, open_home

from .conftest import Served


def test_it_answers_and_is_ready_while_it_runs(tmp_path: Path) -> None:
    with TestClient(create_app(home=open_home(tmp_path / "home"))) as client:
        assert client.get("/health").json()["status"] == "healthy"
        assert client.get("/ready").json() == {"ready": True, "phase": "ready"}


def test_one_that_goes_down_takes_nothing_on_and_says_when_to_ask_again(
    served: Served, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.app.state.daemon, "phase", "stopping")

    refused = client.post("/api/v1/sessions")

    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "not-ready", "1")
    assert client.get("/ready").status_code == 503
    assert client.get("/health").status_code == 200


def test_it_serves_the_home_of_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "1")  # of another program
    settings = Settings(home=tmp_path / "home")

    with TestClient(create_app(settings)) as client:
        token = (tmp_path / "home/config/token").read_text().strip()
        shown = client.get("/api/v1/status", headers={"Authorization": f"Bearer {token}"}).json()

    assert (shown["root_dir"], settings.port) == (str(tmp_path / "home"), 8420)


def test_an_unknown_path_is_answered_as_a_problem(client: TestClient) -> None:
    answer = client.get("/nowhere")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "not-found"


def test_every_endpoint_is_described(tmp_path: Path) -> None:
    app = create_app(home=open_home(tmp_path / "home"))

    operations = [operation for path in app.openapi()["paths"].values() for operation in path.values()]

    assert len({operation["operationId"] for operation in operations}) == len(operations) > 50


def test_what_a_browser_needs_is_found_beside_its_login_too(client: TestClient) -> None:
    assert client.post("/render", json={"markdown": "*so*"}).json() == {"html": '<p dir="auto"><em>so</em></p>\n'}
    assert client.post("/auth/ticket").status_code == 201


def test_the_headers_of_an_answer_can_be_had_alone(client: TestClient) -> None:
    whole, headers = client.get("/api/v1/info"), client.head("/api/v1/info")

    assert (headers.status_code, headers.content) == (200, b"")
    assert headers.headers["content-length"] == whole.headers["content-length"]
    assert client.head("/api/v1/events").status_code == 405


def test_a_method_that_a_path_does_not_have_is_answered_with_those_that_it_has(client: TestClient) -> None:
    answer = client.put("/api/v1/sessions", json={})

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
