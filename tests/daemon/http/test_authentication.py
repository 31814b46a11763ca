"""Who is let in: tokens with scopes, tickets, proxies, and nobody else."""

from __future__ import annotations

import asyncio
import hashlib
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifierd import open_home
from amplifierd.exceptions import SettingsError
from amplifierd.server.auth.tokens import Tokens
from amplifierd.server.http.request_headers import TrustedProxies, client_of, peer_of

from .conftest import Served

ME = "/api/v1/auth/me"


def test_the_first_start_makes_a_token_for_the_owner_alone(served: Served) -> None:
    file = served.home.paths.token_file

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(served.token) > 40
    me = served.client().get(ME).json()
    assert me == {"name": "default", "owner": "default", "scope": "admin", "via": "token"}
    assert "/token" in (file.parent / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("value", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic dXNlcjpwYXNz", "Bearer é"])
def test_without_a_known_token_nothing_is_told(serve: Callable[..., Served], value: str | None) -> None:
    client = serve().client(None)
    headers = {} if value is None else {"Authorization": value.encode()}

    answer = client.get(ME, headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/", "/api/v1/nowhere", "/api/v1/tokens", "/v1/models", "/metrics"])
def test_even_what_is_not_there_needs_a_token(served: Served, path: str) -> None:
    assert served.client(None).get(path).status_code == 401


@pytest.mark.parametrize("path", ["/health", "/ready", "/openapi.json"])
def test_what_is_public_needs_none(served: Served, path: str) -> None:
    assert served.client(None).get(path).status_code == 200


def test_the_documentation_needs_a_token_where_strangers_come_by(serve: Callable[..., Served]) -> None:
    open_to_all = serve(host="0.0.0.0")
    local = serve(trusted_proxies=["127.0.0.1"])

    for path in ("/openapi.json", "/docs"):
        assert open_to_all.client(None).get(path).status_code == 401
        assert open_to_all.client().get(path).status_code == 200
        assert local.client(None).get(path).status_code == 401  # it may come from anywhere
    assert open_to_all.client(None).get("/health").status_code == 200


def test_tokens_are_stored_hashed_and_shown_once(served: Served) -> None:
    client = served.client()

    made = client.post("/api/v1/tokens", json={"name": "phone", "scope": "run", "owner": "ada", "limits": {"turns": 3}})

    assert made.status_code == 201
    secret = made.json()["token"]
    file = served.home.paths.tokens_file
    assert secret not in file.read_text()
    assert hashlib.sha256(secret.encode()).hexdigest() in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed = {each["name"]: each for each in client.get("/api/v1/tokens").json()["tokens"]}
    assert listed["phone"]["limits"] == {"turns": 3}
    assert "token" not in listed["phone"]
    assert served.client(secret).get(ME).json() == {"name": "phone", "owner": "ada", "scope": "run", "via": "token"}


def test_a_revoked_token_is_worthless_at_once(served: Served) -> None:
    secret = served.token_of("read", "short")
    assert served.client(secret).get(ME).status_code == 200

    assert served.client().delete("/api/v1/tokens/short").status_code == 204

    assert served.client(secret).get(ME).status_code == 401
    assert served.client().delete("/api/v1/tokens/short").json()["code"] == "token-not-found"


def test_revoking_the_first_token_replaces_it(serve: Callable[..., Served]) -> None:
    served = serve()
    before = served.token

    assert served.client().delete("/api/v1/tokens/default").status_code == 204

    assert served.client(before).get(ME).status_code == 401
    assert served.client().get(ME).status_code == 200


def test_a_name_is_given_once(served: Served) -> None:
    client = served.client()
    client.post("/api/v1/tokens", json={"name": "twice"})

    assert client.post("/api/v1/tokens", json={"name": "twice"}).json()["code"] == "token-exists"
    assert client.post("/api/v1/tokens", json={"name": "default"}).json()["code"] == "token-exists"


@pytest.mark.parametrize("name", ["../x", "", "a/b", "x" * 65, "a\n"])
def test_a_name_cannot_be_anything(served: Served, name: str) -> None:
    assert served.client().post("/api/v1/tokens", json={"name": name}).status_code == 422


@pytest.mark.parametrize("scope", ["read", "run"])
def test_a_lesser_scope_changes_no_tokens(served: Served, scope: str) -> None:
    client = served.client(served.token_of(scope, f"lesser-{scope}"))  # type: ignore[arg-type]

    for answer in (
        client.get("/api/v1/tokens"),
        client.post("/api/v1/tokens", json={"name": "mine", "scope": "admin"}),
        client.delete("/api/v1/tokens/default"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_tokens_can_be_configured_by_their_hash(serve: Callable[..., Served]) -> None:
    digest = hashlib.sha256(b"known elsewhere").hexdigest()
    served = serve(auth={"tokens": [f"ci:read:sha256:{digest}"]})

    assert served.client("known elsewhere").get(ME).json()["scope"] == "read"
    assert served.client().delete("/api/v1/tokens/ci").status_code == 403


def test_a_configured_token_that_cannot_be_read_is_named_without_its_text(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"auth\.tokens") as raised:
        Tokens(open_home(tmp_path).paths, ["ci:read:plain-secret"])
    assert "plain-secret" not in str(raised.value)


def test_failed_attempts_are_limited_and_a_good_token_still_works(serve: Callable[..., Served]) -> None:
    served = serve()
    stranger, owner = served.client("wrong"), served.client()

    codes = [stranger.get(ME).status_code for _ in range(7)]

    assert codes == [401] * 5 + [429] * 2
    assert int(stranger.get(ME).headers["retry-after"]) <= 60
    assert owner.get(ME).status_code == 200
    assert served.client("wrong", peer="10.0.0.9").get(ME).status_code == 401


def test_a_ticket_opens_one_stream_once(served: Served) -> None:
    made = served.client().post("/api/v1/auth/ticket").json()
    anyone = served.client(None)

    assert made["expires_in_seconds"] == 60
    assert anyone.get(ME, params=made).status_code == 401
    path = "/api/v1/sessions/no-such-session/stream"
    assert anyone.get(path, params={"ticket": made["ticket"]}).status_code == 404
    assert anyone.get(path, params={"ticket": made["ticket"]}).status_code == 401
    assert anyone.post(path, params={"ticket": made["ticket"]}).status_code == 401


def test_without_authentication_only_this_machine_is_served(serve: Callable[..., Served]) -> None:
    served = serve(auth={"mode": "none"}, trusted_proxies=["127.0.0.5"])

    assert served.client(None).get(ME).json()["via"] == "open"
    assert not served.home.paths.token_file.exists()
    for refused in (
        served.client(None, X_Forwarded_For="127.0.0.1"),
        served.client(None, Forwarded="for=127.0.0.1"),
        served.client(None, peer="127.0.0.5"),
        served.client(None, peer="10.0.0.7"),
    ):
        assert refused.get(ME).status_code == 401


def test_a_trusted_proxy_says_who_the_user_is(serve: Callable[..., Served]) -> None:
    served = serve(auth={"mode": "proxy"}, trusted_proxies=["10.0.0.0/24"])

    me = served.client(None, peer="10.0.0.1", X_Authenticated_User="ada@example.org").get(ME).json()

    assert me == {"name": "ada@example.org", "owner": "ada@example.org", "scope": "run", "via": "proxy"}
    assert served.client(peer="10.0.0.1").get(ME).json()["scope"] == "admin"
    for forged in (
        served.client(None, peer="10.0.1.1", X_Authenticated_User="ada"),
        served.client(None, X_Authenticated_User="ada"),
        served.client(None, peer="10.0.0.1"),
        served.client(None, peer="10.0.0.1", X_Authenticated_User="../ada"),
        served.client(None, peer="10.9.9.9", X_Authenticated_User="ada", X_Forwarded_For="10.0.0.1"),
    ):
        assert forged.get(ME).status_code == 401


def test_the_header_of_a_proxy_means_nothing_in_token_mode(serve: Callable[..., Served]) -> None:
    served = serve(trusted_proxies=["10.0.0.1"])

    assert served.client(None, peer="10.0.0.1", X_Authenticated_User="ada").get(ME).status_code == 401


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("192.0.2.1", "127.0.0.1", "192.0.2.1"),  # not a proxy of ours: its word means nothing
        ("10.0.0.1", "127.0.0.1, 192.0.2.7", "192.0.2.7"),  # what stands left was written by the client
        ("10.0.0.1", "192.0.2.7, 10.0.0.2", "192.0.2.7"),
        ("10.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("10.0.0.1", "", "unknown"),
        ("10.0.0.1", "10.0.0.2", "unknown"),
        ("10.0.0.1", "192.0.2.7, nonsense", "unknown"),
        ("::ffff:10.0.0.1", "2001:db8::7", "2001:db8::7"),
    ],
)
def test_forwarded_addresses_are_read_from_right_to_left(peer: str, forwarded: str, expected: str) -> None:
    proxies = TrustedProxies(["10.0.0.0/24"])
    headers = {b"x-forwarded-for": forwarded.encode()} if forwarded else {}

    assert client_of(peer_of({"client": (peer, 1)}), headers, proxies) == expected


def test_a_proxy_that_is_no_address_is_named(serve: Callable[..., Served]) -> None:
    with pytest.raises(SettingsError, match="trusted_proxies"):
        serve(trusted_proxies=["proxy.example"])


def test_a_token_works_only_in_its_roots(served: Served, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for directory in (root / "inner", outside):
        directory.mkdir(parents=True)
    (root / "link").symlink_to(outside)
    made = served.client().post("/api/v1/tokens", json={"name": "bound", "scope": "run", "roots": [str(root)]}).json()
    client = served.client(made["token"])
    profile = {"profile_name": "foundation/offline"}

    def create(directory: Path) -> Any:
        return client.post("/api/v1/sessions", json={**profile, "working_dir": str(directory)})

    refused = create(outside)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert str(root) in refused.json()["hint"]
    assert create(root / "link").status_code == create(root / "inner/../../outside").status_code == 403
    session = create(root / "inner").json()["session_id"]
    assert client.post("/api/v1/sessions", json=profile).json()["working_dir"] == str(root)
    moved = client.patch(f"/api/v1/sessions/{session}", json={"working_dir": str(outside)})
    assert moved.status_code == 403
    assert client.get("/api/v1/directories/list").json()["root"] == str(root)
    listed = {each["name"]: each["roots"] for each in served.client().get("/api/v1/tokens").json()["tokens"]}
    assert (listed["bound"], listed["default"]) == ([str(root)], [])


def test_no_session_works_in_the_root_in_a_home_directory_or_in_ours(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "users/ada"))
    (tmp_path / "users/ada").mkdir(parents=True)
    paths = served.home.paths
    unfit = [Path("/"), tmp_path / "users/ada", tmp_path / "users", paths.home, paths.config, paths.state / "x"]

    for directory in unfit:
        body = {"profile_name": "foundation/offline", "working_dir": str(directory)}
        answer = served.client().post("/api/v1/sessions", json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), directory


def test_a_stored_session_that_works_in_the_root_is_not_run_by_a_daemon(server: Any) -> None:
    making = server.home.sessions.create("foundation/offline", working_dir=Path("/"))
    made = asyncio.run_coroutine_threadsafe(making, server.loop).result(60)

    answer = server.client().post(f"/sessions/{made.session_id}/execute", json={"prompt": "Hi"})

    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert "it is the root of all files" in answer.json()["detail"]
