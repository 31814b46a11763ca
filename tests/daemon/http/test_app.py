"""The application as a whole: several in one process, each with a daemon of its own."""

from pathlib import Path

from fastapi.testclient import TestClient

from amplifierd import open_home
from amplifierd.app import create_app


def test_it_answers_and_is_ready_while_it_runs(tmp_path: Path) -> None:
    with TestClient(create_app(home=open_home(tmp_path / "home"))) as client:
        assert client.get("/health").json()["status"] == "healthy"
        assert client.get("/ready").json() == {"ready": True, "phase": "ready"}


def test_an_unknown_path_is_answered_as_a_problem(client: TestClient) -> None:
    answer = client.get("/nowhere")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "not-found"


def test_every_endpoint_is_described(tmp_path: Path) -> None:
    app = create_app(home=open_home(tmp_path / "home"))

    operations = [operation for path in app.openapi()["paths"].values() for operation in path.values()]

    assert len({operation["operationId"] for operation in operations}) == len(operations) > 50
