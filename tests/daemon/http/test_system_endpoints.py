"""The daemon about itself: status, settings, keys, directories, logs, workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from amplifierd import open_home
from amplifierd.exceptions import SettingsError
from amplifierd.server.daemon import Daemon
from amplifierd.settings import load_settings

from .conftest import Served

API = "/api/v1"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with something to complete, and something to keep hidden."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "src").mkdir()
    (folder / ".git").mkdir()
    (folder / ".env").write_text("KEY=1")
    (folder / "notes.md").write_text("notes")
    (folder / "out").symlink_to("/etc")
    return folder


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served], work: Path) -> Served:
    return serve(working_dir=str(work))


def test_it_says_what_it_is_and_how_it_is(client: TestClient, served: Served) -> None:
    about, status, info = (client.get(path).json() for path in ("/", f"{API}/status", f"{API}/info"))

    assert (about["name"], about["api_versions"]) == ("amplifierd", ["v1"])
    assert (status["status"], status["root_dir"]) == ("running", str(served.home.paths.home))
    assert status["sessions"] == {"total": 0, "active": 0, "executing": 0}
    assert {"tool:pre", "delegate:agent_spawned", "execution:done", "daemon:shutdown"} <= set(info["event_types"])
    assert info["mount_types"] == ["agents", "context", "hooks", "orchestrator", "providers", "tools"]
    assert client.get("/health").json()["active_sessions"] == 0
    assert client.get(f"{API}/workers").json()["has_more"] is False


def test_a_loop_that_fails_is_shown_until_it_works(served: Served, client: TestClient) -> None:
    daemon: Daemon = served.app.state.daemon
    repaired = asyncio.Event()

    async def loop() -> None:
        if not repaired.is_set():
            raise LookupError("a table is away")

    async def start() -> asyncio.Task[None]:
        return daemon.live.supervisor.start("example", loop)

    portal = served.running.portal
    assert portal is not None
    task = portal.call(start)
    while not daemon.degraded_loops:
        portal.call(asyncio.sleep, 0.01)
    health, ready, status = (client.get(path).json() for path in ("/health", "/ready", f"{API}/status"))

    assert (health["status"], health["degraded_loops"]) == ("degraded", ["example"])
    assert (ready["ready"], ready["degraded_loops"]) == (True, ["example"])
    assert any("'example'" in warning and "a table is away" in warning for warning in status["warnings"])
    assert "a table is away" not in client.get("/health").text

    repaired.set()
    portal.call(asyncio.wait, [task])
    assert client.get("/health").json()["status"] == "healthy"


@pytest.mark.parametrize("path", ["/health", "/ready", "/openapi.json", "/docs"])
def test_it_answers_strangers_with_and_without_the_version_in_the_path(served: Served, path: str) -> None:
    stranger = served.client(token="")

    assert [stranger.get(place).status_code for place in (path, f"{API}{path}")] == [200, 200]


def test_the_page_about_the_endpoints_needs_no_script(client: TestClient) -> None:
    page = client.get("/docs")

    assert "/api/v1/collections" in page.text
    assert "<script" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")


def test_settings_are_shown_and_changed_with_comments_kept(serve: Callable[..., Served]) -> None:
    served = serve(builds={"url": "https://me:secret@builds.invalid/all"})
    file = served.home.paths.settings_file
    file.parent.mkdir(exist_ok=True)
    file.write_text("# mine\nstartup:\n  auto_compile: true  # as it was\n")
    client = served.client()

    changed = client.patch(f"{API}/settings", json={"startup": {"auto_compile": False}, "cache": {"keep_days": 3}})
    later = client.patch(f"{API}/settings", json={"host": "127.0.0.2"})

    assert changed.json() == {
        **{"updated": ["cache.keep_days", "startup.auto_compile"], "restart_required": False, "message": "in force now"}
    }
    assert (later.json()["restart_required"], later.json()["updated"]) == (True, ["host"])
    assert file.read_text().startswith("# mine\nstartup:\n  auto_compile: false # as it was\n")
    shown = client.get(f"{API}/settings").json()
    assert shown["startup"]["auto_compile"] is False
    assert shown["host"] == "127.0.0.1"
    assert shown["restart_required"] == ["host"]
    assert shown["builds"]["url"] == "https://builds.invalid/all"
    removed = client.patch(f"{API}/settings", json={"host": None})
    assert removed.status_code == 200
    assert "host" not in yaml.safe_load(file.read_text())


def test_settings_are_in_force_at_once(serve: Callable[..., Served], tmp_path: Path) -> None:
    client, page = serve().client(), {"Origin": "https://page.example"}
    before = client.post(f"{API}/sessions").json()
    assert client.get(f"{API}/status", headers=page).status_code == 403

    changed = client.patch(
        f"{API}/settings",
        json={
            "log_level": "warning",
            "working_dir": str(tmp_path / "work"),
            "default_profile": "foundation/coding",
            "sessions": {"limits": {"turns": 3}},
            "stream": {"queue_events": 5},
            "security": {"allowed_origins": [page["Origin"]]},
        },
    )

    assert (changed.status_code, changed.json()["restart_required"]) == (200, False)
    after = client.post(f"{API}/sessions").json()
    assert (before["profile_name"], after["profile_name"]) == ("foundation/offline", "foundation/coding")
    assert (after["working_dir"], after["limits"]["turns"]) == (str(tmp_path / "work"), 3)
    assert client.get(f"{API}/status", headers=page).headers["access-control-allow-origin"] == page["Origin"]
    ids = {one["session_id"] for one in client.get(f"{API}/sessions").json()["sessions"]}
    assert ids == {before["session_id"], after["session_id"]}


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        ("trusted_proxies", ["garbage"], "must be an address"),
        ("trusted_proxies", ["10.0.0.0/8", "10.0.0.0/33"], "a network such as"),
        ("auth.tokens", ["x"], "must be name:scope:sha256:<hex>"),
        ("auth.tokens", [f"ci:owner:sha256:{'0' * 64}"], "the scope read, run or admin"),
        ("tls.mode", "manual", "set both"),
        ("tls.certfile", "/nowhere/at/all", "put it there"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_a_change_as_by_a_start(
    client: TestClient, served: Served, tmp_path: Path, key: str, value: Any, fix: str
) -> None:
    section, _, name = key.partition(".")
    body = {section: {name: value} if name else value}

    answer = client.patch(f"{API}/settings", json=body)
    problem = answer.json()

    assert (answer.status_code, problem["code"]) == (422, "validation-error")
    told = [f"{problem['detail']} {problem.get('hint')}"]
    assert not served.home.paths.settings_file.exists()
    if key != "tls.certfile":  # the file may be there at a start
        (tmp_path / "daemon.yaml").write_text(yaml.safe_dump(body))
        with pytest.raises(SettingsError) as refused:
            load_settings(tmp_path / "daemon.yaml", environ={})
        told.append(str(refused.value))
    assert [text for text in told if key not in text or fix not in text or "ci:owner" in text] == []


def test_settings_that_only_look_strange_are_taken(serve: Callable[..., Served], tmp_path: Path) -> None:
    served, file = serve(), tmp_path / "daemon.pem"
    file.touch()
    strange = {
        "trusted_proxies": ["10.0.0.1", "10.1.2.3/8", "192.168.0.0/255.255.0.0", "::1", "fd00::/8", "unix"],
        "auth": {"mode": "token", "tokens": [f"ci.Main-1:admin:sha256:{'0a' * 32}"]},
        "tls": {"mode": "manual", "certfile": str(file), "keyfile": str(file)},
    }

    assert served.client().patch(f"{API}/settings", json=strange).status_code == 200
    stored = load_settings(served.home.paths.settings_file, environ={}).model_dump(mode="json")
    assert {key: stored[key] for key in strange} == strange


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid-request"),
        ({"startup": {}}, 400, "invalid-request"),
        ({"colour": "red"}, 422, "extra-field"),
        ({"startup": {"colour": "red"}}, 422, "extra-field"),
        ({"startup": {"max_parallel_workers": 17}}, 422, "validation-error"),
        ({"cache": {"http_max_bytes": True}}, 422, "validation-error"),
        ({"default_profile": "../x"}, 422, "validation-error"),
    ],
)
def test_settings_that_cannot_be(client: TestClient, served: Served, body: Any, status: int, code: str) -> None:
    answer = client.patch(f"{API}/settings", json=body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert not served.home.paths.settings_file.exists()


def test_keys_go_in_and_do_not_come_out(client: TestClient, served: Served) -> None:
    secret = "sk-very-secret-value-1234"

    stored = client.patch(f"{API}/settings/api-keys", json={"api_keys": {"provider-anthropic": secret}}).json()

    assert stored["updated"] == ["provider-anthropic"]
    assert stored["stored_in"] in ("keyring", "file")
    shown = client.get(f"{API}/settings")
    assert shown.json()["api_keys"] == [{"provider_id": "provider-anthropic", "is_set": True, "masked_value": "…1234"}]
    assert secret not in shown.text
    assert secret not in served.home.paths.audit_file.read_text()
    removed = client.patch(f"{API}/settings/api-keys", json={"api_keys": {"provider-anthropic": ""}}).json()
    assert removed["stored_in"] is None
    assert client.get(f"{API}/settings").json()["api_keys"] == []


def test_agreements_are_made_listed_and_withdrawn(client: TestClient) -> None:
    agreed = {"module": "provider-openai", "gets": "key", "hosts": ["https://llm.example.org"]}

    answer = client.patch(f"{API}/settings/agreements", json={"agree": [agreed]})

    assert answer.json() == client.get(f"{API}/settings/agreements").json() == {"agreements": [agreed]}
    withdrawn = client.patch(f"{API}/settings/agreements", json={"withdraw": [agreed]})
    assert withdrawn.json() == {"agreements": []}
    assert client.patch(f"{API}/settings/agreements", json={}).status_code == 400


def test_the_password_of_a_store_goes_into_the_key_store(client: TestClient, served: Served) -> None:
    secret = "very-secret-database-password"

    changed = client.patch(f"{API}/settings", json={"store": f"postgresql://u:{secret}@db/amplifier"})

    assert changed.json()["restart_required"] is True
    written = served.home.paths.settings_file.read_text()
    stored = load_settings(served.home.paths.settings_file, environ={}).store
    assert (secret in written, stored.is_reference, stored.place) == (False, True, "postgresql://u@db/amplifier")
    assert stored.resolved(served.home.keys.find).password == secret
    refused = client.patch(f"{API}/settings", json={"store": f"mysql://u:{secret}@db/amplifier"})
    assert refused.status_code == 422
    shown = client.get(f"{API}/settings")
    told = (changed.text, refused.text, shown.text, served.home.paths.audit_file.read_text())
    assert not any(secret in text for text in told)


@pytest.mark.parametrize("keys", [{}, {"../x": "k"}, {"provider-x": "  "}])
def test_keys_that_cannot_be(client: TestClient, keys: dict[str, str]) -> None:
    assert client.patch(f"{API}/settings/api-keys", json={"api_keys": keys}).status_code == 400


def test_a_directory_is_completed(client: TestClient) -> None:
    found = client.get(f"{API}/directories/list").json()

    assert [(each["name"], each["type"]) for each in found["entries"]] == [("src", "directory"), ("notes.md", "file")]
    assert client.get(f"{API}/directories/list", params={"path": "src"}).json()["entries"] == []


@pytest.mark.parametrize(
    "path", ["..", "../..", "src/../../..", "/..", "out", "out/ssl", ".git", "src/../.git", "a\0b"]
)
def test_nothing_outside_of_the_working_directory_is_listed(client: TestClient, path: str) -> None:
    answer = client.get(f"{API}/directories/list", params={"path": path})

    assert answer.status_code in (400, 403)
    assert "passwd" not in answer.text


def test_a_directory_that_is_not_there(client: TestClient) -> None:
    for path in ("nowhere", "notes.md", "/etc"):
        assert client.get(f"{API}/directories/list", params={"path": path}).status_code == 404


def test_a_working_directory_that_is_not_made_yet_is_empty(client: TestClient, work: Path) -> None:
    elsewhere = work.rename(work.with_name("elsewhere"))

    found = client.get(f"{API}/directories/list")

    elsewhere.rename(work)
    assert (found.status_code, found.json()["entries"]) == (200, [])


def test_directories_are_trusted_and_no_longer(client: TestClient, tmp_path: Path) -> None:
    body = {"directory": str(tmp_path)}

    assert client.post(f"{API}/trust", json=body).status_code == 204
    assert str(tmp_path) in client.get(f"{API}/trust").json()["directories"]
    assert client.delete(f"{API}/trust", params=body).status_code == 204
    assert client.delete(f"{API}/trust", params=body).status_code == 404
    for wrong in ("/", "~", "relative", "/srv/no/such/place", "/a\0b"):
        assert client.post(f"{API}/trust", json={"directory": wrong}).status_code == 400, wrong


def test_the_end_of_the_log_is_shown_without_secrets(client: TestClient, served: Served) -> None:
    log = served.home.paths.logs / "daemon.log"
    assert client.get(f"{API}/logs").json()["lines"] == []
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("first\nAuthorization: Bearer sk-ant-REDACTED\nlast\n")

    lines = client.get(f"{API}/logs", params={"lines": 2}).json()["lines"]

    assert lines[-1] == "last"
    assert len(lines) == 2
    assert "abcdefghij" not in lines[0]


def test_metrics_are_there_when_they_are_switched_on(client: TestClient, serve: Callable[..., Served]) -> None:
    assert client.get(f"{API}/metrics").status_code == 404
    counted = serve(metrics={"enabled": True}).client()
    for path in ("one", "two"):
        assert counted.get(f"{API}/{path}").status_code == 404
    assert counted.post(f"{API}/cache/prune", json={"dry_run": True}).status_code == 200

    shown = counted.get(f"{API}/metrics").text

    assert 'amplifierd_request_seconds_count{method="",route="",status="404"} 2.0' in shown
    assert 'amplifierd_request_seconds_count{method="POST",route="/api/v1/cache/prune",status="200"} 1.0' in shown
    assert 'amplifierd_operation_seconds_count{kind="cache-prune-check",status="succeeded"} 1.0' in shown
    gauges = "uptime_seconds loop_lag_seconds loaded_sessions busy_sessions workers subscribers queued_events"
    for name in (*gauges.split(), "dropped_deltas", "cache_bytes"):
        assert f"\namplifierd_{name} " in shown, name


async def test_settings_that_are_changed_at_once_are_all_in_force(tmp_path: Path) -> None:
    daemon = Daemon(open_home(tmp_path))

    waiting = await asyncio.gather(
        daemon.change_settings({"cache.keep_days": 7}),
        daemon.change_settings({"startup.auto_compile": False, "port": 1234}),
    )

    assert waiting == [[], ["port"]]
    assert (daemon.home.settings.cache.keep_days, daemon.home.settings.startup.auto_compile) == (7, False)
