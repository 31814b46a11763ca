"""An administrator may name any address; where a server at that address redirects to is nobody's wish."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from api_operations import bodies, operations_of
from real_server import plan, real_server
from test_traversal import PLACES, with_field
from world import Answer, World

from amplifierd.app import create_app

CANARY = "canary of another host"
LIKE_AN_ADDRESS = re.compile(r"ur[il]s?|sources?|address(es)?|hosts?|endpoint|prox(y|ies)|remote|origins?|uds|store")

FETCHED = {"source", "uri", "bundle_uri"}
"""Fields whose address is fetched while the request is answered."""

KEPT = {
    "builds.url": "is used by later compilations",
    "cluster.address": "is where other members find this one",
    "host": "is where the daemon listens after its next start",
    "security.allowed_hosts": "is compared with the header `Host`",
    "security.allowed_origins": "is compared with the header `Origin`",
    "security.allowed_sources": "is compared with sources",
    "sources": "maps modules to `installed`",
    "store": "is opened at the next start",
    "trusted_proxies": "is compared with the address of a caller",
    "uds": "is where the daemon listens after its next start",
    "agree.hosts": "is compared with where a key would be sent",
    "withdraw.hosts": "is compared with what was agreed to",
    "images.source": "has the bytes of an image",
    "check_remote": "is a switch",
    "security.allow_plan_sources": "is a switch",
}
"""Fields that look like addresses, and why nothing is fetched from them now."""


@dataclass
class Redirecting:
    """A server that redirects: below `/away` to another host, below `/file` and `/metadata` as they say."""

    file: Path
    asked: list[str] = field(default_factory=list)
    asked_elsewhere: list[str] = field(default_factory=list)
    port: int = 0

    def location(self, path: str) -> str | None:
        if path.startswith("/away"):
            return f"http://localhost:{self.port}/elsewhere{path}"
        if path.startswith("/metadata"):
            return f"http://169.254.169.254:{self.port}{path}"
        return self.file.as_uri() if path.startswith("/file") else None

    def addresses(self) -> list[str]:
        own = f"http://127.0.0.1:{self.port}"
        return [
            f"{own}/away/bundle.md",
            f"{own}/file/bundle.md",
            f"{own}/metadata/bundle.md",
            f"git+{own}/away.git",
            f"zip+{own}/away.zip",
        ]


@pytest.fixture(scope="module")
def redirecting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redirecting]:
    file = tmp_path_factory.mktemp("local") / "bundle.md"
    file.write_text(f"---\nbundle: {{name: local, version: 1.0.0}}\n---\n{CANARY}\n")
    known = Redirecting(file)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_elsewhere = not self.headers["Host"].startswith("127.0.0.1")
            (known.asked_elsewhere if is_elsewhere else known.asked).append(self.path)
            location = None if is_elsewhere else known.location(self.path)
            self.send_response(302 if location else 200)
            if location:
                self.send_header("Location", location)
            self.end_headers()
            if not location:
                self.wfile.write(file.read_bytes())

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield known
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def reaching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A daemon that is not offline."""
    place = tmp_path_factory.mktemp("reaching")
    security = {"allowed_sources": ["*"]}
    with real_server(place / "home", offline=False, working_dir=str(place), security=security) as server:
        created = server.client().post("/sessions", json={"mount_plan": plan("One.")})
        assert created.status_code == 201, created.text
        session_id = created.json()["session_id"]
        assert server.client().post(f"/sessions/{session_id}/execute", json={"prompt": "x"}).status_code == 200
        operations = operations_of(create_app(home=server.home))
        yield World(server, operations, session_id, {"admin": server.token})


def named_fields(schema: Mapping[str, Any], schemas: Mapping[str, Any], inside: str = "") -> Iterator[str]:
    """Yield the fields of a body, at any depth, those of the members of a list like those of a part."""
    if "$ref" in schema:
        yield from named_fields(schemas[schema["$ref"].rpartition("/")[2]], schemas, inside)
    for choice in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from named_fields(choice, schemas, inside)
    for name, value in schema.get("properties", {}).items():
        yield f"{inside}{name}"
        yield from named_fields(value, schemas, f"{inside}{name}.")


def test_every_field_that_looks_like_an_address_is_known(reaching: World) -> None:
    document = create_app(home=reaching.server.home).openapi()
    found = set()
    for facts in (facts for methods in document["paths"].values() for facts in methods.values()):
        body = facts.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        in_query = [each["name"] for each in facts.get("parameters", ()) if each["in"] == "query"]
        found |= {*in_query, *named_fields(body, document["components"]["schemas"])}
    words = {name for name in found if any(map(LIKE_AN_ADDRESS.fullmatch, re.split("[._]", name.rpartition(".")[2])))}

    assert words - FETCHED - KEPT.keys() == set()
    assert words & PLACES >= FETCHED


def reach(world: World, address: str) -> dict[str, Answer]:
    """Have an administrator name an address in every field that is fetched, and in the source of a module of a plan."""
    answers = {}
    for operation in world.operations:
        for name in FETCHED.intersection(operation.fields):
            body = with_field(dict(bodies().get(operation.name, {})), name, address)
            if name == "bundle_uri":
                body.pop("mount_plan", None)
            answers[f"{operation.name} {name}"] = world.request(operation, body=body)
    tools = [{"module": "tool-theirs", "source": address}]
    body = {"mount_plan": {**plan("Sample."), "tools": tools}}
    answers["a module of a plan"] = world.send("POST", "/api/v1/sessions", body=body)
    return answers


def test_an_administrator_reaches_what_is_named_and_not_what_it_redirects_to(
    reaching: World, redirecting: Redirecting
) -> None:
    wrong, count = [], 0
    for address in redirecting.addresses():
        for where, answer in reach(reaching, address).items():
            count += 1
            if CANARY in answer.text or (answer.status < 400 and "validate" not in where and "module" not in where):
                wrong.append(f"{where} {address}: {answer.status} {answer.text[:300]}")

    assert count >= 5 * 7
    assert wrong == []
    assert redirecting.asked_elsewhere == []
    assert {path.split("?")[0] for path in redirecting.asked} >= {
        *("/away/bundle.md", "/file/bundle.md", "/metadata/bundle.md", "/away.git/info/refs", "/away.zip"),
    }


def test_an_administrator_may_name_a_private_address(reaching: World, redirecting: Redirecting) -> None:
    uri = f"http://127.0.0.1:{redirecting.port}/bundle.md"
    answer = reaching.send("POST", "/api/v1/bundles", body={"uri": uri})

    assert answer.status in (201, 202), answer.text
    assert "/bundle.md" in redirecting.asked


@pytest.mark.parametrize("kind", ["file://{0}", "zip+file://{0}", "{0}", "~/bundle.md"])
def test_a_fetched_bundle_leads_to_nothing_local(
    reaching: World, redirecting: Redirecting, tmp_path: Path, kind: str
) -> None:
    local, before = kind.format(redirecting.file), redirecting.file.read_text()
    redirecting.file.write_text(
        f"---\nbundle: {{name: theirs, version: 1.0.0}}\nincludes: [{{bundle: '{local}'}}]\n---\n{CANARY}\n"
    )
    uri = f"http://127.0.0.1:{redirecting.port}/{tmp_path.name}.md"
    answer = reaching.send("POST", "/api/v1/bundles", body={"uri": uri})
    redirecting.file.write_text(before)

    assert 400 <= answer.status < 500, answer.text
    assert "local path in a remote profile" in answer.text
