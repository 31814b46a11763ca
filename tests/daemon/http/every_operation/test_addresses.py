"""Whoever may not administer the daemon cannot have it fetch from an address of their choice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from api_operations import Operation, bodies
from real_server import plan
from test_traversal import PLACES, with_field
from world import World

BUNDLE = "---\nbundle: {name: theirs, version: 1.0.0}\n---\ncanary of the bundle\n"


@pytest.fixture
def heard() -> Iterator[tuple[int, list[str]]]:
    """A server of this machine that strangers must not reach through the daemon, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(BUNDLE.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, asked
    server.shutdown()
    thread.join()
    server.server_close()


def places_of(operation: Operation) -> list[str]:
    return [field for field in operation.fields if field in PLACES]


@pytest.mark.parametrize("caller", ["reader", "runner"])
def test_a_lesser_token_has_the_daemon_reach_no_address(
    world: World, heard: tuple[int, list[str]], outside: Path, caller: str
) -> None:
    port, asked = heard
    (outside / "bundle.md").write_text(BUNDLE)
    addresses = [
        f"http://127.0.0.1:{port}/bundle.md",
        f"git+http://127.0.0.1:{port}/repository",
        f"zip+http://127.0.0.1:{port}/bundle.zip",
        f"http://localhost:{port}/bundle.md",
        f"http://[::ffff:127.0.0.1]:{port}/bundle.md",
        "http://169.254.169.254/latest/meta-data",
        f"file://{outside}/bundle.md",
        str(outside / "bundle.md"),
        f"git+file://{outside}",
    ]
    fields = [(each, field) for each in world.operations for field in places_of(each)]
    taken = []
    for operation, field in fields:
        for address in addresses:
            body = with_field(dict(bodies().get(operation.name, {})), field, address)
            if field == "bundle_uri":
                body.pop("mount_plan", None)
            answer = world.request(operation, caller=caller, body=body)
            if answer.status < 400 and field != "working_dir":
                taken.append(f"{operation.name} {field}={address}: {answer.status} {answer.text[:120]}")
    for address in addresses:
        tools = [{"module": "tool-theirs", "source": address}]
        asked_for = {"mount_plan": {**plan("Sample."), "tools": tools}, "load": True}
        world.send("POST", "/api/v1/sessions", caller=caller, body=asked_for)
    (outside / "bundle.md").unlink()

    assert len(fields) > 10
    assert taken == []
    assert asked == []


def test_a_lesser_token_runs_a_bundle_that_an_administrator_registered(world: World) -> None:
    file = world.folder("registered") / "bundle.md"
    session = "session: {orchestrator: {module: loop-basic}, context: {module: context-simple}}"
    file.write_text(
        f"---\nbundle: {{name: ours, version: 1.0.0}}\n{session}\nproviders: [{{module: provider-mock}}]\n---\n"
    )
    body = {"bundle_uri": str(file), "load": False}
    refused = world.send("POST", "/api/v1/sessions", caller="runner", body=body)
    assert world.send("POST", "/api/v1/bundles", body={"uri": str(file)}).status in (201, 202)

    taken = world.send("POST", "/api/v1/sessions", caller="runner", body=body)
    world.send("DELETE", f"/api/v1/sessions/{taken.json()['session_id']}?force=true&forever=true", caller="runner")
    file.unlink()
    file.parent.rmdir()

    assert (refused.status, refused.code) == (403, "forbidden")
    assert "register" in refused.json()["hint"]
    assert taken.status == 201, taken.text
