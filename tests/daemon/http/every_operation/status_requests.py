"""Requests that are answered with every status that there is, some for many operations alike, the rest one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from api_operations import API, OFFLINE, PROFILE, bodies
from obstacles import LOADING, OBSTACLES, SESSION
from real_server import plan
from world import MODULES, World

Request = tuple[str, dict[str, Any]]
"""The name of an operation, and how its sample is changed."""

S = SESSION
UNKNOWN = {
    **{"session_id": "none", "profile_id": "no/such", "model": "no/such", "collection_id": "none"},
    **{"module_id": "tool-none", "name": "none", "operation_id": "op_none", "request_id": "none", "member_id": "none"},
    "approval_id": "none",
}
WRITE = {"tool_calls": [{"name": "write_file", "arguments": {"file_path": "new.md", "content": "hello"}}]}
SLOW = {"text": "Late.", "latency_ms": 60_000}
MISSING = "/nowhere/at/all"
NO_REPOSITORY = "git+file:///nowhere/at/all@main"


def common(world: World) -> Iterator[Request]:
    """Yield what is asked of many operations alike: something unknown, a key twice, not to wait."""
    for each in world.operations:
        for name in each.in_path:
            if name in UNKNOWN:
                yield each.name, {"path": {name: UNKNOWN[name]}}
        if each.takes_key:
            key = {"Idempotency_Key": f"of {each.name}".replace(" ", "-").replace("{", "").replace("}", "")}
            yield "POST /api/v1/profiles/validate", {"body": {"markdown": "first"}, **key}
            yield each.name, key
        if "wait" in each.numbers:
            yield each.name, {"query": {"wait": "false"}}
        if "profile" in each.in_query:
            yield each.name, {"query": {"profile": "no/such"}}


def particular(world: World) -> Iterator[Request]:
    """Yield a request for every other status: first the sessions, then the library, then the daemon itself."""
    yield from of_sessions(world)
    yield from of_the_library(world)
    yield from of_the_daemon(world)


def of_sessions(world: World) -> Iterator[Request]:
    spoken = world.session("One.", "Two.")
    for prompt in ("first", "second"):
        yield f"POST {S}/execute", at(spoken, body={"prompt": prompt})
    reading = [each for each in world.operations if each.method == "GET" and each.in_path == ("session_id",)]
    for each in reading:
        yield each.name, at(spoken)
    for each in ("GET /api/v1/sessions", "GET /api/v1/approvals", "GET /api/v1/events"):
        yield each, {}
    yield "GET /api/v1/events", {"query": {"session": "none"}}
    for _ in range(2):
        watched = {"Accept": "text/event-stream", "Idempotency_Key": "watched-twice"}
        yield f"POST {S}/execute", {**at(spoken, body={"prompt": "third"}), **watched}
    yield "GET /api/v1/sessions/search", {"query": {"q": "first"}}
    requests = world.get(f"/sessions/{spoken}/requests")["requests"]
    yield f"GET {S}/requests/{{request_id}}", at(spoken, request_id=requests[0]["request_id"])
    for below in ("fork", "clone", "replay"):
        yield f"POST {S}/{below}", at(spoken)
    changed = world.session("Done.", asked={"working_dir": str(world.folder("changed"))})
    yield f"POST {S}/execute", at(changed)
    yield f"GET {S}/changes", at(changed)
    yield f"POST {S}/undo", at(spoken, body={"turn": 2, "what": "files"})
    yield f"POST {S}/undo", at(spoken, body={"turn": 2, "what": "conversation"})
    yield f"POST {S}/truncate", at(spoken, body={"turn": 1})
    yield f"POST {S}/steer", at(spoken)
    yield f"POST {S}/messages", at(spoken)
    yield f"DELETE {S}/messages/last", at(spoken)
    yield f"POST {S}/change-agent", at(spoken)
    yield f"POST {S}/compact", at(spoken)
    yield f"POST {S}/change-profile", at(spoken)
    for below in ("lock", "newest-build"):
        yield f"GET {S}/{below}", at(spoken)
    with rewritten(world.server.home.paths.profiles / OFFLINE / "profile.lock"):
        yield f"GET {S}/newest-build", at(spoken)
    yield f"POST {S}/execute/stream", at(world.session("Done."))
    yield f"POST {S}/execute", at(world.session({"error": {"type": "AuthenticationError", "message": "no"}}))
    yield "POST /api/v1/sessions", {}
    yield "POST /api/v1/sessions", {"body": {"profile_name": "no/such"}}
    yield "POST /api/v1/sessions/cleanup", {}
    yield "POST /api/v1/sessions/import", {"body": {"data": world.exported(spoken)}}
    yield from of_states(world)
    yield from of_other_programs(world)
    yield from of_running_turns(world)
    yield from of_the_trash(world)
    for below in ("POST {}/restore", "DELETE {}"):
        yield f"DELETE {S}", at(spoken)
        yield f"GET {API}/sessions/trash", {}
        yield below.format(f"{API}/sessions/trash/{{session_id}}"), at(spoken)


def of_states(world: World) -> Iterator[Request]:
    """Yield requests to sessions that were not started, have ended, wait for an answer, or lack their plan."""
    yield "POST /api/v1/sessions", {"body": {"mount_plan": plan(), "session_id": world.session_id}}
    yield "POST /api/v1/sessions", {"body": {"mount_plan": plan(), "working_dir_scope": "pool"}}
    waiting = world.session(asked={"start": False})
    yield f"POST {S}/start", at(waiting)
    yield f"PATCH {S}", at(waiting, body={"status": "completed"})
    yield f"PATCH {S}", at(waiting, body={"status": "completed"})
    yield f"POST {S}/start", at(waiting)
    for below in ("execute", "execute/stream", "change-profile", "change-agent", "replay"):
        yield f"POST {S}/{below}", at(waiting)
    yield f"POST {S}/resume", at(waiting)
    yield f"POST {S}/cancel", at(waiting)
    asking = world.session(WRITE, "Written.", tools=True, hooks=[{"module": "hooks-approval"}])
    yield f"POST {S}/execute/stream", at(asking)
    pending = world.awaited(lambda: world.get(f"/sessions/{asking}/approvals")["pending"])
    answered = at(asking, request_id=pending[0]["request_id"], body={"decision": "allow", "remember": "session"})
    yield f"POST {S}/approvals/{{request_id}}", answered
    yield f"POST {S}/approvals/{{request_id}}", answered
    remembered = world.awaited(lambda: world.get(f"/sessions/{asking}/permissions")["remembered"])
    yield f"DELETE {S}/permissions/{{approval_id}}", at(asking, approval_id=remembered[0]["approval_id"])
    modeless = world.session()
    yield f"POST {S}/mode", at(modeless)
    yield f"POST {S}/mode", at(modeless, body={"name": "none"})
    used_up = world.session("One.", asked={"limits": {"turns": 1}})
    for _ in range(2):
        yield f"POST {S}/execute", at(used_up)
    broken = world.session()
    (world.server.home.paths.sessions / broken / "mount_plan.json").unlink()
    for name in OBSTACLES["mount-plan-missing"]:
        yield name, at(broken)


def of_other_programs(world: World) -> Iterator[Request]:
    """Yield requests to a session that another program holds, and to one that a newer version wrote."""
    session = world.session()
    yield f"POST {S}/messages", at(session)
    with world.held(session):
        for name in OBSTACLES["session-held"]:
            yield name, at(session)
    with rewritten(world.server.home.paths.sessions / session / "metadata.json"):
        for each in world.operations:
            if each.path.startswith(S):
                yield each.name, at(session)
        yield "GET /api/v1/events", {"query": {"session": session}}


def of_the_trash(world: World) -> Iterator[Request]:
    """Yield requests for sessions that were deleted, and cannot come back as they were."""
    restore = f"POST {API}/sessions/trash/{{session_id}}/restore"
    parent = world.session()
    child = world.session(asked={"parent_session_id": parent})
    world.change_record(child, root_session_id=parent)
    yield f"DELETE {S}", at(parent)
    yield restore, at(child)
    world.session(asked={"session_id": parent})
    yield restore, at(parent)


def of_running_turns(world: World) -> Iterator[Request]:
    """Yield requests to a session while it works."""
    busy = world.session(SLOW, SLOW)
    yield f"POST {S}/execute/stream", at(busy)
    world.awaited(lambda: world.get(f"/sessions/{busy}")["activity"] == "executing")
    world.awaited(lambda: world.get(f"/sessions/{busy}/requests")["total"])
    for name in OBSTACLES["execution-in-progress"]:
        yield name, {**at(busy), "X_Amplifier_Session": busy}
    yield f"PATCH {S}", at(busy, body={"working_dir": str(world.folder("another"))})
    yield f"POST {S}/steer", at(busy)
    yield f"POST {S}/execute/stream", at(busy, body={"prompt": "later", "queue": True})
    yield f"DELETE {S}/queue/{{position}}", at(busy)
    yield f"DELETE {S}/queue/{{position}}", at(busy)
    yield f"POST {S}/cancel", at(busy, body={"immediate": True})
    deaf = {"module": "loop-deaf", "source": str(MODULES / "loop-deaf")}
    mount_plan = {**plan(), "session": {"orchestrator": deaf, "context": {"module": "context-simple"}}}
    alone = world.session(asked={"mount_plan": mount_plan})
    yield f"POST {S}/execute/stream", at(alone)
    world.awaited(lambda: world.get(f"/sessions/{alone}")["activity"] == "executing")
    yield f"POST {S}/steer", at(alone)
    yield f"POST {S}/cancel", at(alone, body={"immediate": True})


def of_the_library(world: World) -> Iterator[Request]:
    other = world.folder("other")
    (other / "profiles").mkdir()
    (other / "profiles/offline.md").write_text(PROFILE.replace("name: sample", "name: offline"))
    for _ in range(2):
        yield "POST /api/v1/collections", {"body": {"identifier": "other", "source": str(other), "compile": False}}
    yield "POST /api/v1/collections", {"body": {"identifier": "none", "source": f"git+file://{MISSING}@main"}}
    for each in world.operations:  # two collections have a profile of this name now
        if "profile_id" in each.in_path:
            yield each.name, {"path": {"profile_id": "offline"}}
        if "profile" in each.in_query:
            yield each.name, {"query": {"profile": "offline"}}
            yield each.name, {"query": {"profile": OFFLINE}}
    yield "PUT /api/v1/profiles/active", {"body": {"profile_id": "offline"}}
    ours = {"path": {"collection_id": "other"}}
    for method in ("GET", "PATCH"):
        yield f"{method} {API}/collections/{{collection_id}}", ours
    yield "POST /api/v1/sessions", {"body": {"profile_name": "other/offline", "session_id": "of-other"}}
    yield f"DELETE {API}/collections/{{collection_id}}", ours
    yield f"DELETE {S}", at("of-other")
    yield from of_collections_that_cannot_be_read(world)
    yield f"PATCH {API}/collections/{{collection_id}}", {**ours, "body": {"source": MISSING}}
    for below in ("/sync", "/{collection_id}/sync"):
        yield f"POST {API}/collections{below}", {**ours, "body": {"auto_compile": False}}
    (other / "profiles/offline.md").unlink()
    (other / "profiles").rmdir()
    other.rmdir()
    yield f"POST {API}/collections/{{collection_id}}/sync", {**ours, "body": {"auto_compile": False}}
    asked = {"path": {"profile_id": "other/offline"}, "query": {"check_remote": "true"}}
    yield f"GET {API}/profiles/{{profile_id}}/status", asked
    yield f"GET {API}/collections/{{collection_id}}", ours
    yield f"DELETE {API}/collections/{{collection_id}}", ours
    yield from of_profiles(world)
    yield from of_unreachable_sources(world)
    yield from of_plans_and_modules(world)


def of_collections_that_cannot_be_read(world: World) -> Iterator[Request]:
    ours, paths = {"path": {"collection_id": "other"}}, world.server.home.paths
    reading = [f"GET {API}/{path}" for path in ("status", "collections", "profiles", "cache/status")]
    with rewritten(paths.collections_lock):
        for name in (*reading, "GET /v1/models", "GET /v1/models/{model}"):
            yield name, {}
        for method in ("GET", "PATCH"):
            yield f"{method} {API}/collections/{{collection_id}}", ours
    with rewritten(paths.collections_file, "collections: 1"):
        yield "POST /api/v1/collections", {}
        for method in ("PATCH", "DELETE"):
            yield f"{method} {API}/collections/{{collection_id}}", ours


def of_profiles(world: World) -> Iterator[Request]:
    for name in ("GET {}", "GET {}/status", "POST {}/compile", "GET {}/lock", "POST {}/copy", "POST {}/copy"):
        yield name.format(f"{API}/profiles/{{profile_id}}"), {}
    own = {"path": {"profile_id": "local/copied"}}
    for name in ("GET /api/v1/profiles", *["POST /api/v1/profiles"] * 2, "POST /api/v1/profiles/validate"):
        yield name, {}
    for header in ({}, {"If_Match": '"of-another-text"'}):
        yield f"PUT {API}/profiles/{{profile_id}}", {"path": {"profile_id": "local/sample"}, **header}
    yield "PUT /api/v1/profiles/active", {"body": {"profile_id": "local/copied"}}
    yield "PUT /api/v1/profiles/active", {"body": {"profile_id": "no/such"}}
    yield "GET /api/v1/profiles/active", {}
    world.server.home.paths.active_profile_file.write_text("local/gone\n")
    yield "GET /api/v1/profiles/active", {}
    yield "PUT /api/v1/profiles/active", {"body": {"profile_id": "local/copied"}}
    yield f"DELETE {API}/profiles/{{profile_id}}", own
    yield "DELETE /api/v1/profiles/active", {}
    yield f"PATCH {API}/profiles/{{profile_id}}", own
    yield f"PATCH {API}/profiles/{{profile_id}}", {**own, "body": {"extends": "other/gone"}}
    yield f"DELETE {API}/profiles/{{profile_id}}", own
    missing = PROFILE.replace("Be brief.", "").replace(
        "}\n---", f"}}\ntools: [{{module: tool-gone, source: 'file://{MISSING}'}}]\n---"
    )
    yield "POST /api/v1/profiles", {"body": {"markdown": missing.replace("name: sample", "name: lacking")}}
    yield f"POST {API}/profiles/{{profile_id}}/compile", {"path": {"profile_id": "local/lacking"}}


def of_unreachable_sources(world: World) -> Iterator[Request]:
    """Yield requests for what is in a repository that is not there."""
    known = world.session("Done.")
    yield f"POST {S}/execute", at(known)
    far = {"path": {"profile_id": "local/far"}}
    source = f"tools: [{{module: tool-far, source: '{NO_REPOSITORY}'}}]"
    markdown = PROFILE.replace("name: sample", "name: far").replace("}\n---", f"}}\n{source}\n---")
    yield "POST /api/v1/profiles", {"body": {"markdown": markdown}}
    yield f"POST {API}/profiles/{{profile_id}}/compile", far
    yield f"POST {API}/mount-plans/generate", {"body": {"profile_id": "local/far"}}
    yield f"POST {S}/change-profile", at(known, body={"profile_name": "local/far"})
    yield from of_lost_sources(world, bundle=NO_REPOSITORY)
    patience = {"compile": {"timeout_seconds": 0.001}}
    yield "PATCH /api/v1/settings", {"body": patience}
    yield f"POST {API}/profiles/{{profile_id}}/compile", far
    yield f"POST {API}/mount-plans/generate", {"body": {"profile_id": "local/far"}}
    yield "POST /api/v1/sessions", {"body": {"profile_name": "local/far"}}
    for below in ("change-profile", "replay"):
        yield f"POST {S}/{below}", at(known, body={"profile_name": "local/far"})
    yield from of_lost_sources(world, profile_name="local/far")
    yield "PATCH /api/v1/settings", {"body": {"compile": {"timeout_seconds": None}}}
    yield "POST /api/v1/sessions", {"body": {"bundle_uri": NO_REPOSITORY}}
    yield f"POST {S}/replay", at(known, body={"bundle_uri": NO_REPOSITORY})
    yield "POST /api/v1/validate/module", {"body": {"module_id": "tool-far", "source": NO_REPOSITORY}}


def of_lost_sources(world: World, **source: str) -> Iterator[Request]:
    """Yield requests that load sessions whose modules have to be fetched anew."""
    lost, unstarted = world.session(), world.session(asked={"start": False})
    for session_id in (lost, unstarted):
        world.change_record(session_id, **source)
    yield f"POST {S}/start", at(unstarted)
    for name in LOADING:
        yield name, at(lost)


def of_plans_and_modules(world: World) -> Iterator[Request]:
    for name in ("generate", "convert", "explain", "diff"):
        known = bodies()[f"POST {API}/mount-plans/{name}"]
        unknown = {"before": {"profile_id": "no/such"}} if name == "diff" else {"profile_id": "no/such"}
        yield f"POST {API}/mount-plans/{name}", {}
        yield f"POST {API}/mount-plans/{name}", {"body": {**known, **unknown}}
    yield "POST /api/v1/validate/mount-plan", {}
    yield "POST /api/v1/validate/module", {}
    yield "POST /api/v1/validate/module", {"body": {"module_id": "tool-none"}}
    bundle = world.folder("bundle") / "bundle.md"
    bundle.write_text("---\nbundle: {name: small, version: 1.0.0}\n---\nBe kind.\n")
    (bundle.parent / "lacking.md").write_text(
        "---\nbundle: {name: lacking, version: 1.0.0}\nincludes: [unregistered]\n---\n"
    )
    for source in (
        str(bundle),
        str(bundle.parent / "lacking.md"),
        MISSING,
        "unregistered",
        f"file://{MISSING}",
        NO_REPOSITORY,
    ):
        yield "POST /api/v1/validate/bundle", {"body": {"source": source}}
        yield "POST /api/v1/bundles", {"body": {"uri": source}}
    yield f"DELETE {API}/bundles/{{name}}", {"path": {"name": "small"}}
    whole = bundle.parent / "whole.md"
    whole.write_text(f"---\nbundle: {{name: whole, version: 1.0.0}}\n{yaml.safe_dump(plan())}---\nBe kind.\n")
    for _ in range(2):
        yield "POST /api/v1/bundles", {"body": {"uri": str(whole)}}
    yield "POST /api/v1/sessions", {"body": {"bundle_name": "whole"}}
    yield f"DELETE {API}/bundles/{{name}}", {"path": {"name": "whole"}}
    yield f"GET {API}/modules/{{module_id}}", {}
    for path in ("bundles", "modules", "collections", "cache/status", "modules/tools", "modules/hooks", "cluster"):
        yield f"GET {API}/{path}", {}
    for plural in ("orchestrators", "contexts", "providers"):
        yield f"GET {API}/modules/{plural}", {}
    for name in ("verify", "prune"):
        yield f"POST {API}/cache/{name}", {}


def of_the_daemon(world: World) -> Iterator[Request]:
    yield "GET /", {"Accept": "text/html"}
    for path in ("/", "/health", "/ready", "/docs", "/v1/models", "/v1/models/{model}"):
        yield f"GET {path}", {}
    yield "POST /v1/chat/completions", {}
    asked = bodies()["POST /v1/chat/completions"]
    yield "POST /v1/chat/completions", {"body": {**asked, "model": "no/such"}}
    errors = ("AuthenticationError", "LLMTimeoutError", "AbortError")
    script = [{"when": {"contains": name}, "error": {"type": name, "message": "no"}} for name in errors]
    providers = json.dumps([{"module": "provider-mock", "config": {"script": script}}])
    failing = PROFILE.replace("name: sample", "name: failing").replace("}\n---", f"}}\nproviders: {providers}\n---")
    yield "POST /api/v1/profiles", {"body": {"markdown": failing}}
    for name in errors:
        said = [{"role": "user", "content": name}]
        yield "POST /v1/chat/completions", {"body": {**asked, "model": "local/failing", "messages": said}}
    plain = (
        "status",
        "info",
        "logs",
        "workers",
        "settings",
        "settings/agreements",
        "auth/me",
        "tokens",
        "operations",
        "trust",
    )
    for path in (*plain, "directories/list", "metrics"):
        yield f"GET {API}/{path}", {}
    yield f"GET {API}/directories/list", {"query": {"path": "nowhere"}}
    changes = [f"PATCH {API}/settings{part}" for part in ("", "/api-keys", "/agreements")]
    for name in (*changes, "POST /api/v1/auth/ticket"):
        yield name, {}
    yield "POST /api/v1/render", {}
    for _ in range(2):
        yield "POST /api/v1/tokens", {}
    yield f"DELETE {API}/tokens/{{name}}", {}
    trusted = str(world.folder("trusted"))
    yield "POST /api/v1/trust", {"body": {"directory": trusted}}
    for _ in range(2):
        yield "DELETE /api/v1/trust", {"query": {"directory": trusted}}
    operation = {"path": {"operation_id": world.operation()}}
    for method in ("GET", "DELETE", "DELETE"):
        yield f"{method} {API}/operations/{{operation_id}}", operation
    world.server.daemon.phase = "stopping"
    yield "POST /api/v1/sessions", {}
    world.server.daemon.phase = "ready"


@contextmanager
def rewritten(file: Path, text: str = '{"format_version": 99}') -> Iterator[None]:
    """Have something else in a file as long as the block runs, by default what a newer version may have written."""
    before = file.read_bytes()
    file.write_text(text)
    yield
    file.write_bytes(before)


def at(session_id: str, *, body: Any = None, **path: str) -> dict[str, Any]:
    """Return the parts of a request about a session."""
    return {"path": {"session_id": session_id, **path}, **({} if body is None else {"body": body})}
