"""What is kept in a home that was used: no secret but in its place, nothing for other users, and who changed what."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hurt_daemon import HurtDaemon, hurt_daemon
from other_user import place_for_everybody

ENVIRONMENT = "canary-of-the-environment-5e1f0c2a"
STORED = "canary-of-a-stored-key-77c0ffee"
SAID = "sk-ant-api03-c4n4ryth4tth3v3nd0rs4id0123456789abcdefABCDEF"
READ = "sk-proj-c4n4ryth4t4t00lr34d0123456789abcdefABCDEF"
PASSWORD = "canary-of-a-source-5c0ffee9"
KEY_STORE = {"config/secrets.yaml", "config/token"}
OWNERS_OWN = re.compile(
    r"state/sessions/[^/]+/(transcript|events|requests?|parts|context-messages)[^/]*|state/index\.db.*"
)
"""Where what a tool returned may stand: in the conversation and its receipts, which are for their owner alone."""

READS_ALL = """
import os, sys
files = [os.path.join(top, name) for top, _, names in os.walk(sys.argv[1]) for name in names]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
readable = []
for path in (sys.argv[1], *files):
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
    except OSError:
        continue
    readable.append(path)
print(len(files), *readable, sep="\\n")
"""


@pytest.fixture(scope="module")
def used() -> Iterator[HurtDaemon]:
    """A daemon that was used: keys were stored, tools and vendors said secrets, things were created and changed."""
    variables = {"CANARY_API_KEY": ENVIRONMENT, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    # Only the permissions of the home itself keep others out.
    with place_for_everybody() as place, hurt_daemon(place, variables=variables, log_level="debug") as daemon:
        use(daemon)
        yield daemon


def use(daemon: HurtDaemon) -> None:
    admin, work = daemon.client(), daemon.folder("work")
    (work / "secret.txt").write_text(f"OPENAI_API_KEY={READ}\n")
    stored = admin.patch("/settings/api-keys", json={"api_keys": {"provider-openai": STORED}})
    assert stored.json()["stored_in"] == "file"
    read = {"tool_calls": [{"name": "read_file", "arguments": {"file_path": "secret.txt"}}]}
    refused = {"error": {"type": "AuthenticationError", "message": f"{STORED}, {ENVIRONMENT} and {SAID} are no keys"}}
    script = daemon.place / "script.json"
    script.write_text(json.dumps([read, "Read.", refused, "Last."]))
    provider = {"script": str(script), "tool_trigger": None, "raw": True, "secret": "${CANARY_API_KEY}"}
    mount_plan = {
        "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
        "providers": [
            {"module": "provider-mock", "config": provider},
            {"module": "provider-openai", "config": {"priority": 200}},
        ],
        "tools": [{"module": "tool-filesystem", "config": {"password": "${CANARY_API_KEY}"}}],
        "hooks": [{"module": "hooks-logging"}],
        "agents": {},
    }
    created = admin.post("/sessions", json={"mount_plan": mount_plan, "working_dir": str(work)})
    assert created.status_code == 201, created.text
    path = f"/sessions/{created.json()['session_id']}"
    assert [admin.post(f"{path}/execute", json={"prompt": "Go on."}).status_code for _ in range(3)] == [200, 502, 200]
    assert admin.patch(path, json={"name": "used"}).status_code == 200
    assert admin.post("/tokens", json={"name": "phone", "scope": "run"}).status_code == 201
    assert admin.post("/sessions", json={"mount_plan": {"secret": ENVIRONMENT}}).status_code == 422
    add_collections(daemon)


def add_collections(daemon: HurtDaemon) -> None:
    """Have another administrator add a collection, and try to add one, and a bundle, that cannot be fetched."""
    created = daemon.client().post("/tokens", json={"name": "deployer", "scope": "admin"})
    deployer = daemon.client(created.json()["token"])
    team = daemon.folder("team")
    (team / "profiles").mkdir()
    (team / "profiles/base.md").write_text("---\nprofile: {name: base, version: 1.0.0, schema_version: 2}\n---\n")
    away = f"git+http://me:{PASSWORD}@127.0.0.1:9/x.git"
    assert deployer.post("/bundles", json={"uri": away}).status_code == 503
    for name, source in (("team", str(team)), ("away", away)):
        answer = deployer.post("/collections", json={"identifier": name, "source": source, "compile": False})
        assert answer.status_code == {"team": 201, "away": 503}[name], answer.text


def test_no_answer_of_the_daemon_has_a_secret(used: HurtDaemon) -> None:
    admin = used.client()
    session_id = admin.get("/sessions").json()["sessions"][0]["session_id"]
    own = (
        "",
        "/config",
        "/mount-plan",
        "/modules",
        "/tools",
        "/hooks",
        "/capabilities",
        "/turns",
        "/requests",
        "/tree",
    )
    paths = [f"/sessions/{session_id}{below}" for below in own]
    paths += ["/settings", "/logs?lines=1000", "/status", "/info", "/workers", "/tokens", "/operations", "/modules"]
    answers = {path: admin.get(path) for path in paths}

    assert {path for path, one in answers.items() if one.status_code != 200} == set()
    leaked = {
        (path, secret)
        for path, one in answers.items()
        for secret in (ENVIRONMENT, STORED, SAID, READ, PASSWORD, used.token)
        if secret in one.text
    }
    assert leaked == set()
    for path in (f"/sessions/{session_id}/events", f"/sessions/{session_id}/messages"):
        assert not any(secret in admin.get(path).text for secret in (ENVIRONMENT, STORED, SAID, used.token)), path


def test_no_file_has_a_secret_but_the_key_store(used: HurtDaemon) -> None:
    found = set()
    for file in (path for path in used.home.rglob("*") if path.is_file()):
        name, content = str(file.relative_to(used.home)), file.read_bytes()
        for secret in (ENVIRONMENT, STORED, SAID, READ, PASSWORD, used.token):
            is_said = secret == READ and OWNERS_OWN.fullmatch(name)
            if secret.encode() in content and name not in KEY_STORE and not is_said:
                found.add((name, secret))

    assert found == set()
    assert STORED in (used.home / "config/secrets.yaml").read_text()


def test_nothing_of_it_is_for_other_users(used: HurtDaemon) -> None:
    private = [used.home / name for name in ("config", "state", "state/sessions", "state/logs/amplifierd", "state/run")]
    secret = [
        *(used.home / name for name in ("config/token", "config/tokens.json", "config/secrets.yaml")),
        *(used.home / "state/logs/amplifierd").iterdir(),
    ]
    for path in (*private, *secret):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_reads_nothing_of_it(used: HurtDaemon) -> None:
    ran = subprocess.run([sys.executable, "-c", READS_ALL, str(used.home)], capture_output=True, text=True, check=True)
    count, *readable = ran.stdout.split()

    assert int(count) > 20
    assert readable == []


def test_the_audit_log_says_who_changed_what_and_when(used: HurtDaemon) -> None:
    lines = audited(used)
    session_id = used.client().get("/sessions").json()["sessions"][0]["session_id"]
    path = f"/api/v1/sessions/{session_id}"

    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("PATCH", "/api/v1/settings/api-keys", 200),
        ("POST", "/api/v1/sessions", 201),
        *(("POST", f"{path}/execute", status) for status in (200, 502, 200)),
        ("PATCH", path, 200),
        ("POST", "/api/v1/tokens", 201),
        ("POST", "/api/v1/sessions", 422),
        ("POST", "/api/v1/tokens", 201),
        ("POST", "/api/v1/bundles", 503),
        ("POST", "/api/v1/collections", 201),
        ("POST", "/api/v1/collections", 503),
    ]
    assert {(line["caller"], line["owner"], line["via"], line["address"]) for line in lines[:-3]} == {
        ("default", "default", "token", "127.0.0.1")
    }
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert len({line["request_id"] for line in lines}) == len(lines)


def test_the_audit_log_says_who_added_a_collection_and_not_with_which_password(used: HurtDaemon) -> None:
    added, failed = (line for line in audited(used) if line["path"] == "/api/v1/collections")

    assert [(line["caller"], line["details"]["identifier"]) for line in (added, failed)] == [
        ("deployer", "team"),
        ("deployer", "away"),
    ]
    assert added["details"]["source"].endswith("/team")
    assert "127.0.0.1:9/x.git" in failed["details"]["source"]
    assert PASSWORD not in str(failed)


def audited(daemon: HurtDaemon) -> list[dict[str, Any]]:
    lines = (daemon.home / "state/logs/amplifierd/audit.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
