"""Logging a browser in by link and by token, what its cookie is good for, and how it ends."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from amplifierd.server.auth import logins, tickets

from .conftest import Served

ME, TICKET = "/api/v1/auth/me", "/api/v1/auth/ticket"
OWN = "http://127.0.0.1:8420"
PAGE = {"X-Amplifier-Page": "1", "Origin": OWN, "Sec-Fetch-Site": "same-origin"}


def link(served: Served, token: str = "") -> str:
    made = served.client(token).post(TICKET, json={"purpose": "login"})
    assert made.status_code == 201
    path: str = made.json()["path"]
    return path


def browser(served: Served, token: str = "", **headers: str) -> TestClient:
    """Return a client that a link has logged in, and that keeps cookies as a browser does."""
    client = served.client(None, **headers)
    assert client.get(link(served, token), follow_redirects=False).status_code == 303
    return client


def cookie_of(client: TestClient) -> tuple[str, str]:
    ((name, value),) = client.cookies.items()
    return name, value


def test_a_link_logs_a_browser_in_once(served: Served) -> None:
    path, first, second = link(served), served.client(None), served.client(None)

    answer = first.get(path, follow_redirects=False)

    assert (answer.status_code, answer.headers["location"]) == (303, "/app/")
    assert first.get(ME).json() == {"name": "default", "owner": "default", "scope": "admin", "via": "cookie"}
    used = second.get(path, follow_redirects=False)
    assert (used.status_code, "set-cookie" in used.headers) == (410, False)
    assert "amplifier daemon open" in used.text
    assert "<script" not in used.text


def test_who_is_logged_in_and_follows_the_link_again_sees_the_page(served: Served) -> None:
    path, client = link(served), served.client(None)
    client.get(path, follow_redirects=False)

    assert client.get(path, follow_redirects=False).status_code == 303


def test_the_cookie_is_for_the_browser_alone(served: Served) -> None:
    answer = served.client(None).get(link(served), follow_redirects=False)

    name, *attributes = (part.strip() for part in answer.headers["set-cookie"].lower().split(";"))
    assert name.startswith("amplifier-")
    assert sorted(attributes) == ["httponly", "max-age=604800", "path=/", "samesite=lax"]


def test_over_tls_the_cookie_is_secure(serve: Callable[..., Served]) -> None:
    served = serve(trusted_proxies=["10.0.0.1"])
    proxied = served.client(None, peer="10.0.0.1", X_Forwarded_Proto="https", X_Forwarded_For="192.0.2.7")
    forged = served.client(None, peer="127.0.0.1", X_Forwarded_Proto="https")

    assert "; secure" in proxied.get(link(served), follow_redirects=False).headers["set-cookie"].lower()
    assert "; secure" not in forged.get(link(served), follow_redirects=False).headers["set-cookie"].lower()


def test_a_link_expires(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    path = link(served)
    later = time.monotonic() + tickets.LIFETIME_S + 1
    monkeypatch.setattr(tickets.time, "monotonic", lambda: later)

    assert served.client(None).get(path, follow_redirects=False).status_code == 410


def test_a_ticket_is_good_for_its_purpose_only(served: Served) -> None:
    stream = served.client().post(TICKET).json()
    login = served.client().post(TICKET, json={"purpose": "login"}).json()
    anyone = served.client(None)

    assert stream["path"] is None
    assert anyone.get("/auth/login", params={"ticket": stream["ticket"]}).status_code == 410
    watched = anyone.get("/api/v1/sessions/no-such-session/stream", params={"ticket": login["ticket"]})
    assert watched.status_code == 401
    assert anyone.get(login["path"], follow_redirects=False).status_code == 303


def test_a_login_makes_no_further_logins(served: Served) -> None:
    client = browser(served)

    assert client.post(TICKET, json={"purpose": "login"}, headers=PAGE).json()["code"] == "forbidden"
    assert client.post(TICKET, headers=PAGE).status_code == 201


def test_the_link_of_a_token_that_was_revoked_is_worthless(served: Served) -> None:
    path = link(served, served.token_of("run", "gone"))
    served.client().delete("/api/v1/tokens/gone")

    assert served.client(None).get(path, follow_redirects=False).status_code == 410


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_cannot_log_a_browser_in_unseen(served: Served, site: str) -> None:
    path, client = link(served, served.token_of("read", f"stranger-{site}")), served.client(None)

    asked = client.get(path, headers={"Sec-Fetch-Site": site}, follow_redirects=False)

    assert (asked.status_code, "set-cookie" in asked.headers) == (200, False)
    assert f"stranger-{site}" in asked.text
    assert path in asked.text
    sure = client.get(path, headers={"Sec-Fetch-Site": "same-origin"}, follow_redirects=False)
    assert (sure.status_code, client.get(ME).json()["name"]) == (303, f"stranger-{site}")


def test_a_token_that_was_typed_logs_in(served: Served) -> None:
    client = served.client(None)
    secret = served.token_of("run", "typed")

    answer = client.post("/auth/login", json={"token": f" {secret}\n"}, headers=PAGE)

    assert answer.json() == {"name": "typed", "owner": "typed", "scope": "run", "via": "token"}
    assert secret not in answer.headers["set-cookie"]
    assert client.get(ME).json()["via"] == "cookie"


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://127.0.0.1:9999"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}],
    ids=["other port", "null", "same site"],
)
def test_no_other_page_logs_in_by_token(served: Served, headers: dict[str, str]) -> None:
    answer = served.client(None).post("/auth/login", json={"token": served.token}, headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (403, "origin-rejected")
    assert "set-cookie" not in answer.headers


def test_a_program_logs_in_by_token(served: Served) -> None:
    answer = served.client(None).post("/auth/login", json={"token": served.token})

    assert (answer.status_code, "httponly" in answer.headers["set-cookie"].lower()) == (200, True)


def test_only_json_logs_in(served: Served) -> None:
    client, form = served.client(None), {"token": served.token}

    assert client.post("/auth/login", data=form, headers=PAGE).status_code == 415
    text = {**PAGE, "Content-Type": "text/plain"}
    assert client.post("/auth/login", content=json.dumps(form), headers=text).status_code == 415


def test_five_attempts_a_minute(serve: Callable[..., Served]) -> None:
    served = serve()
    client = served.client(None)

    codes = [client.post("/auth/login", json={"token": "wrong"}, headers=PAGE).status_code for _ in range(6)]
    right = client.post("/auth/login", json={"token": served.token}, headers=PAGE)

    assert codes == [401] * 5 + [429]
    assert (right.status_code, "set-cookie" in right.headers) == (429, False)
    assert int(right.headers["retry-after"]) <= 60
    shown = client.get("/auth/login", params={"ticket": "guessed"})
    assert (shown.status_code, shown.headers["content-type"]) == (429, "text/html; charset=utf-8")
    other = served.client(None, peer="10.0.0.9").post("/auth/login", json={"token": served.token}, headers=PAGE)
    assert other.status_code == 200
    assert served.client().get(ME).status_code == 200


def test_logging_out_ends_the_login_for_good(served: Served) -> None:
    client = browser(served)
    name, value = cookie_of(client)

    answer = client.post("/auth/logout", headers=PAGE)

    assert answer.status_code == 204
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    stolen = served.client(None, Cookie=f"{name}={value}")
    assert stolen.get(ME).status_code == 401


def test_who_logs_in_again_ends_the_login_before(served: Served) -> None:
    client = browser(served)
    name, before = cookie_of(client)

    client.post("/auth/login", json={"token": served.token}, headers=PAGE)

    assert cookie_of(client)[1] != before
    assert served.client(None, Cookie=f"{name}={before}").get(ME).status_code == 401


def test_a_login_ends_with_its_token(served: Served) -> None:
    client = browser(served, served.token_of("run", "short-lived"))
    assert client.get(ME).status_code == 200

    served.client().delete("/api/v1/tokens/short-lived")

    assert client.get(ME).status_code == 401


def test_a_login_has_the_rights_of_its_token(served: Served) -> None:
    client = browser(served, served.token_of("read", "onlooker"))

    assert client.get("/api/v1/sessions").status_code == 200
    assert client.post("/api/v1/sessions", json={}, headers=PAGE).json()["code"] == "forbidden"
    assert client.get("/api/v1/tokens").json()["code"] == "forbidden"


def test_a_login_expires(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client = browser(served)
    later = time.time() + logins.LIFETIME_S + 1
    monkeypatch.setattr(logins.time, "time", lambda: later)

    assert client.get(ME).status_code == 401


def test_a_login_outlives_the_daemon_and_lies_on_the_disk_as_a_hash(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    client = browser(serve(tmp_path))
    name, value = cookie_of(client)
    file = tmp_path / "state/logins.json"

    again = serve(tmp_path)

    assert again.client(None, Cookie=f"{name}={value}").get(ME).json()["via"] == "cookie"
    assert value not in file.read_text()
    assert again.token not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "[]", '{"format_version": 1, "logins": []}', '{"format_version": 99}'])
def test_a_damaged_file_means_logging_in_again(serve: Callable[..., Served], tmp_path: Path, content: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/logins.json").write_text(content)

    served = serve(tmp_path)

    assert browser(served).get(ME).status_code == 200


def test_logins_are_written_down(served: Served) -> None:
    browser(served, served.token_of("read", "by-link"))
    typed = served.token_of("read", "by-token")
    served.client(None).post("/auth/login", json={"token": typed}, headers=PAGE)

    lines = [json.loads(line) for line in served.home.paths.audit_file.read_text().splitlines()]

    found = {line["caller"]: line for line in lines if line["path"] == "/auth/login"}
    assert found["by-link"]["method"] == "GET"
    assert found["by-token"]["method"] == "POST"
    assert typed not in served.home.paths.audit_file.read_text()


CHANGES: list[tuple[str, str]] = [
    ("POST", "/api/v1/sessions"),
    ("PATCH", "/api/v1/settings"),
    ("DELETE", "/api/v1/tokens/nobody"),
    ("PUT", "/api/v1/profiles/active"),
    ("POST", "/auth/logout"),
    ("POST", "/v1/chat/completions"),
]
FOREIGN: dict[str, dict[str, str]] = {
    "no header of the page": {"Origin": OWN, "Sec-Fetch-Site": "same-origin"},
    "an empty header of the page": {**PAGE, "X-Amplifier-Page": ""},
    "no word about where it comes from": {"X-Amplifier-Page": "1"},
    "another port": {**PAGE, "Origin": "http://127.0.0.1:9999"},
    "another scheme": {**PAGE, "Origin": "https://127.0.0.1:8420"},
    "another name of this machine": {**PAGE, "Origin": "http://localhost:8420"},
    "no origin": {**PAGE, "Origin": "null"},
    "another site": {"X-Amplifier-Page": "1", "Sec-Fetch-Site": "cross-site"},
    "the same site": {"X-Amplifier-Page": "1", "Sec-Fetch-Site": "same-site"},
    "typed": {"X-Amplifier-Page": "1", "Sec-Fetch-Site": "none"},
    "the right origin and another site": {**PAGE, "Sec-Fetch-Site": "cross-site"},
}


@pytest.fixture(scope="module")
def logged_in(served: Served) -> TestClient:
    return browser(served)


@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_cookie_changes_nothing_for_another_site(
    logged_in: TestClient, method: str, path: str, headers: dict[str, str]
) -> None:
    answer = logged_in.request(method, path, json={}, headers=headers)

    assert answer.status_code == 403
    assert "origin-rejected" in answer.text
    assert logged_in.get(ME).status_code == 200


@pytest.mark.parametrize("headers", [PAGE, {k: v for k, v in PAGE.items() if k != "Origin"}], ids=["both", "fetch"])
def test_the_page_itself_changes_things(logged_in: TestClient, headers: dict[str, str]) -> None:
    answer = logged_in.request("DELETE", "/api/v1/tokens/nobody", headers=headers)

    assert answer.json()["code"] == "token-not-found"


@pytest.fixture(scope="module")
def from_everywhere(serve: Callable[..., Served]) -> TestClient:
    """A browser that is logged in at a daemon which other machines reach."""
    return browser(serve(host="0.0.0.0", trusted_proxies=["127.0.0.9"]))


@pytest.mark.parametrize("path", [ME, "/api/v1/sessions", "/api/v1/events", "/v1/models", "/openapi.json", "/"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_cookie_shows_nothing_to_another_site(from_everywhere: TestClient, path: str, site: str) -> None:
    answer = from_everywhere.get(path, headers={"Sec-Fetch-Site": site})

    assert answer.status_code == 403
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in answer.headers


def test_a_listed_origin_reads_with_the_cookie_and_changes_nothing(serve: Callable[..., Served]) -> None:
    friend = "http://127.0.0.1:3000"
    client = browser(serve(security={"allowed_origins": [friend]}))
    foreign: dict[str, Any] = {"Origin": friend, "Sec-Fetch-Site": "same-site"}

    assert client.get(ME, headers=foreign).headers["access-control-allow-origin"] == friend
    assert client.delete("/api/v1/tokens/nobody", headers={**foreign, "X-Amplifier-Page": "1"}).status_code == 403


def test_a_token_outranks_the_cookie(served: Served, logged_in: TestClient) -> None:
    reader = served.token_of("read", "outranks")

    assert logged_in.get(ME, headers={"Authorization": f"Bearer {reader}"}).json()["name"] == "outranks"
    assert logged_in.get(ME, headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_a_second_cookie_of_the_name_makes_both_worthless(served: Served, logged_in: TestClient) -> None:
    name, value = cookie_of(logged_in)

    for cookies in (f"{name}={value}; {name}=other", f"{name}=other; {name}={value}", f"{name}={value}x", f"{name}="):
        assert served.client(None, Cookie=cookies).get(ME).status_code == 401
    assert served.client(None, Cookie=f"a=b; {name}={value}; c").get(ME).status_code == 200


def test_daemons_of_one_machine_keep_their_cookies_apart(serve: Callable[..., Served]) -> None:
    one, other = browser(serve()), browser(serve())

    assert cookie_of(one)[0] != cookie_of(other)[0]
