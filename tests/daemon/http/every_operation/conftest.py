"""A daemon of its own, with a session of the admin's and one of Ann's, and a place next to its home that is not its."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_operations import OFFLINE, operations_of
from real_server import plan, real_server
from world import CANARIES, MODULES, World

from amplifierd.app import create_app

CANARY_PROFILE = f"""---
profile: {{name: canary, version: 1.0.0, schema_version: 2, extends: {OFFLINE}}}
tools: [{{module: tool-todo, config: {{client_secret: {CANARIES["a profile"]}}}}}]
---
"""


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory beside the home, with what a daemon would read if it could be led there."""
    folder = tmp_path_factory.mktemp("place") / "outside"
    folder.mkdir()
    for name in ("marker", "marker.md", "profile.md", "metadata.json", "profile.lock", "transcript.jsonl"):
        (folder / name).write_text("---\nprofile: {name: marker}\n---\ncanary of the marker\n")
    return folder


@pytest.fixture(scope="session")
def world(outside: Path) -> Iterator[World]:
    home = outside.parent / "home"
    work = outside.parent / "work"
    work.mkdir()
    (home / "config/profiles").mkdir(parents=True)
    (home / "config/profiles/canary.md").write_text(CANARY_PROFILE)
    (home / "config/secrets.yaml").write_text(f"api_keys: {{provider-anthropic: {CANARIES['a stored key']}}}\n")
    (home / "config/secrets.yaml").chmod(0o600)
    (home / "config/daemon.yaml").write_text(f"registry_password: {CANARIES['the settings']}\n")
    settings = {"working_dir": str(work), "metrics": {"enabled": True}, "security": {"module_roots": [str(MODULES)]}}
    with real_server(home, **settings) as server:
        admin = server.client()
        created = admin.post("/sessions", json={"mount_plan": plan("One.", "Two.")})
        assert created.status_code == 201, created.text
        tokens = {"admin": server.token}
        for caller, scope in (("reader", "read"), ("runner", "run"), ("stranger", "run")):
            owner = "default" if caller != "stranger" else "somebody-else"  # that of the first token, or not
            made = admin.post("/tokens", json={"name": caller, "scope": scope, "owner": owner})
            assert made.status_code == 201, made.text
            tokens[caller] = made.json()["token"]
        operations = operations_of(create_app(home=server.home))
        yield World(server, operations, created.json()["session_id"], tokens)
