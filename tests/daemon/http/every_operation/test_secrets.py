"""Secrets in the key store, the settings, a profile and a request: no answer has them, and no file that we write."""

from __future__ import annotations

from api_operations import API, bodies
from world import CANARIES, World


def test_the_home_has_secrets_only_where_people_and_the_key_store_put_them(world: World) -> None:
    """The answers are looked at when they come, here and in every test of this folder: see `World.send`."""
    override = {"tools": [{"module": "tool-todo", "config": {"password": CANARIES["an override"]}}]}
    body = {"profile_name": "local/canary", "settings_overrides": override}
    created = world.send("POST", f"{API}/sessions", body=body)
    assert created.status == 201, created.text
    session_id = created.json()["session_id"]
    assert world.send("POST", f"{API}/sessions/{session_id}/execute", body={"prompt": "Hello"}).status == 200
    for each in world.operations:
        if each.method == "GET" and each.in_path == ("session_id",):
            world.request(each, path={"session_id": session_id})
    profile = f"{API}/profiles/local%2Fcanary"
    for url in (profile, f"{profile}?resolved=true", f"{profile}?raw=true", f"{profile}/lock", f"{API}/settings"):
        assert world.send("GET", url).status == 200
    for name in ("generate", "explain"):
        asked = {**bodies()[f"POST {API}/mount-plans/{name}"], "profile_id": "local/canary"}
        asked["settings_overrides"] = override
        assert world.send("POST", f"{API}/mount-plans/{name}", body=asked).status < 300
    assert world.send("GET", f"{API}/operations").status == 200

    home = world.server.home.paths
    own = {home.own_profiles / "canary.md", home.settings_file, home.secrets_file}
    leaks = [
        f"{what} in {path}"
        for path in home.home.rglob("*")
        for what, canary in CANARIES.items()
        if path.is_file() and path not in own and canary.encode() in path.read_bytes()
    ]
    assert not leaks, "\n".join(leaks)
    assert all("canary-of-" in path.read_text() for path in own), "what must be there is there: the search works"
